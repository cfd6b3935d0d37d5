//! `bpf-linker`, which must be built with the LLVM major version of the compiler it serves.

use std::{
    env,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};

use super::{find_on_path, packages};
use crate::{cache::Cache, step};

const VERSION: &str = "0.13.0";

/// The LLVM versions that this version of bpf-linker can be built with.
const LLVM_MAJORS: RangeInclusive<u32> = 21..=23;

/// Finds or builds the linker; returns the folder it is in.
pub fn ensure(cache: &Cache, llvm_major: u32) -> Result<PathBuf> {
    if let Some(folder) = existing(cache, llvm_major) {
        return Ok(folder);
    }
    ensure!(
        LLVM_MAJORS.contains(&llvm_major),
        "bpf-linker {VERSION} cannot be built with LLVM {llvm_major}, the compiler's; put a \
         bpf-linker that serves it on PATH"
    );
    let prefix = match env::var_os("LLVM_PREFIX") {
        Some(prefix) => PathBuf::from(prefix),
        None => {
            let prefix = debian_prefix(llvm_major);
            if !prefix.join("bin/llvm-config").exists() {
                let package = format!("llvm-{llvm_major}-dev");
                packages::ensure("to build bpf-linker", &[package.as_str()])?;
            }
            prefix
        }
    };
    let scratch = cache.scratch()?;
    let root = scratch.path().join("root");
    let mut install = Command::new("cargo");
    install
        .args(["install", "bpf-linker", "--version", VERSION, "--locked"])
        .args(["--no-default-features", "--features", &format!("llvm-{llvm_major}")])
        .arg("--root")
        .arg(&root)
        .arg("--target-dir")
        .arg(scratch.path().join("target"))
        .env("LLVM_PREFIX", prefix);
    step::run(&format!("building bpf-linker {VERSION} (about two minutes)"), install)?;
    let folder = cache.keep(&root, name(llvm_major))?;
    Ok(folder.join("bin"))
}

/// Whether [`ensure()`] can be expected to succeed.
pub fn is_obtainable(cache: &Cache, llvm_major: u32) -> bool {
    existing(cache, llvm_major).is_some()
        || LLVM_MAJORS.contains(&llvm_major)
            && (env::var_os("LLVM_PREFIX").is_some()
                || debian_prefix(llvm_major).exists()
                || packages::is_on_offer(&format!("llvm-{llvm_major}-dev")))
}

fn existing(cache: &Cache, llvm_major: u32) -> Option<PathBuf> {
    let cached = cache.path(name(llvm_major)).join("bin/bpf-linker");
    let path = if cached.exists() { cached } else { find_on_path("bpf-linker")? };
    path.parent().map(Path::to_owned)
}

fn name(llvm_major: u32) -> String {
    format!("bpf-linker-{VERSION}-llvm-{llvm_major}")
}

/// Where Debian's packages of one LLVM version are.
fn debian_prefix(llvm_major: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{llvm_major}"))
}
