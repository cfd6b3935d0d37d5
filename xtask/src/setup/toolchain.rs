//! The Rust toolchain that compiles for the BPF target, which needs libcore's source.
//!
//! A nightly with the component `rust-src` is the usual one. Where rustup cannot have it, Debian's
//! `rustc-web` with `rust-web-src` does as well: a stable compiler that ships its source, made to
//! accept `-Z build-std` by `RUSTC_BOOTSTRAP` (see lazyfree-daemon's build script).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{is_on_path, linker, packages};
use crate::{build::workspace, cache::Cache, step};

/// The name under which rustup knows Debian's compiler.
const DEBIAN_TOOLCHAIN: &str = "lazyfree-ebpf";

/// Debian's newest compiler, its cargo, and the source of its library.
const DEBIAN_PACKAGES: [&str; 3] = ["cargo-web", "rust-web-src", "rustc-web"];

/// Clippy for them.
const DEBIAN_CLIPPY: &str = "rust-web-clippy";

/// What it takes to build the eBPF object.
#[derive(Debug)]
pub struct Ebpf {
    /// Name of the toolchain, as `rustup run` takes it.
    pub toolchain: String,
    /// The folder that holds `bpf-linker`.
    pub path: PathBuf,
}

/// Finds or makes a toolchain and its linker.
pub fn ensure(cache: &Cache) -> Result<Ebpf> {
    let toolchain = choose(cache)?;
    let path = linker::ensure(cache, llvm_major(&toolchain)?)?;
    Ok(Ebpf { toolchain, path })
}

fn choose(cache: &Cache) -> Result<String> {
    if let Ok(toolchain) = env::var("LAZYFREE_EBPF_TOOLCHAIN") {
        return Ok(toolchain);
    }
    if let Some(nightly) = nightly(cache)?
        && linker::is_obtainable(cache, llvm_major(&nightly)?)
    {
        return Ok(nightly);
    }
    debian(cache).context(
        "no toolchain for eBPF: neither a nightly with rust-src (try `rustup toolchain install \
         nightly --component rust-src`) nor Debian's",
    )
}

/// A command that lints the eBPF side, as aya-build would compile it. The compiler's own clippy is
/// needed, since it reads the libcore that this compiler built.
pub fn clippy(ebpf: &Ebpf) -> Result<Command> {
    let toolchain = &ebpf.toolchain;
    let mut version = cargo(toolchain);
    version.args(["clippy", "--version"]);
    if step::ask(version).is_err() {
        if toolchain == DEBIAN_TOOLCHAIN {
            packages::ensure("to lint for BPF", &[DEBIAN_CLIPPY])?;
        } else {
            let mut add = Command::new("rustup");
            add.args(["component", "add", "clippy", "--toolchain", toolchain]);
            step::run(&format!("adding clippy to the toolchain {toolchain}"), add)?;
        }
    }
    let mut clippy = cargo(toolchain);
    clippy
        .args(["clippy", "--package", "lazyfree-ebpf", "--target", "bpfel-unknown-none"])
        .args(["-Z", "build-std=core", "--target-dir", "target/ebpf-lints"])
        .args(["--", "--deny", "warnings"])
        .current_dir(workspace())
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", format!("--cfg=bpf_target_arch=\"{}\"", env::consts::ARCH));
    Ok(clippy)
}

/// A nightly that has libcore's source, or was given it just now.
fn nightly(cache: &Cache) -> Result<Option<String>> {
    let Some(nightly) = toolchains()?.into_iter().find(|name| name.starts_with("nightly")) else {
        return Ok(None);
    };
    if has_source(&nightly)? {
        return Ok(Some(nightly));
    }
    // A machine that could not download the component once is not asked again at every build.
    let refused = cache.path("nightly-without-rust-src");
    if refused.exists() {
        return Ok(None);
    }
    let mut add = Command::new("rustup");
    add.args(["component", "add", "rust-src", "--toolchain", &nightly]);
    if step::run("adding rust-src to the nightly toolchain", add).is_ok() && has_source(&nightly)? {
        return Ok(Some(nightly));
    }
    fs::write(&refused, "rustup could not add rust-src; remove this file to let it try again\n")
        .with_context(|| format!("cannot write {}", refused.display()))?;
    Ok(None)
}

fn debian(cache: &Cache) -> Result<String> {
    packages::ensure("to compile for BPF", &DEBIAN_PACKAGES)?;
    if is_on_path("rustup") && !toolchains()?.iter().any(|name| name == DEBIAN_TOOLCHAIN) {
        let mut link = Command::new("rustup");
        link.args(["toolchain", "link", DEBIAN_TOOLCHAIN, "/usr"]);
        step::run("making Debian's Rust toolchain known to rustup", link)?;
    }
    // One that was installed long ago may be older than anything bpf-linker works with.
    if !linker::is_obtainable(cache, llvm_major(DEBIAN_TOOLCHAIN)?) {
        packages::install("a newer compiler for BPF", &DEBIAN_PACKAGES)?;
    }
    Ok(DEBIAN_TOOLCHAIN.to_owned())
}

fn toolchains() -> Result<Vec<String>> {
    if !is_on_path("rustup") {
        return Ok(Vec::new());
    }
    let mut list = Command::new("rustup");
    list.args(["toolchain", "list", "--quiet"]);
    Ok(step::ask(list)?.lines().map(|line| line.trim().to_owned()).collect())
}

fn has_source(toolchain: &str) -> Result<bool> {
    let mut rustc = rustc(toolchain);
    rustc.args(["--print", "sysroot"]);
    let sysroot = step::ask(rustc)?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir())
}

fn llvm_major(toolchain: &str) -> Result<u32> {
    let mut rustc = rustc(toolchain);
    rustc.arg("-vV");
    let text = step::ask(rustc)?;
    parse_llvm_major(&text).with_context(|| format!("no LLVM version in what it says:\n{text}"))
}

fn parse_llvm_major(version: &str) -> Option<u32> {
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    llvm.split('.').next()?.parse().ok()
}

fn rustc(toolchain: &str) -> Command {
    of_toolchain(toolchain, "rustc")
}

fn cargo(toolchain: &str) -> Command {
    of_toolchain(toolchain, "cargo")
}

/// A program of a toolchain. aya-build does the same: without rustup, that on PATH.
fn of_toolchain(toolchain: &str, program: &str) -> Command {
    if !is_on_path("rustup") {
        return Command::new(program);
    }
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, program]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_major_is_read_from_rustc() {
        let version = "rustc 1.96.0 (ac68faa20 2026-05-25)\nrelease: 1.96.0\nLLVM version: 22.1.8";
        assert_eq!(parse_llvm_major(version), Some(22));
        assert_eq!(parse_llvm_major("rustc 1.96.0\nbackend: cranelift"), None);
    }
}
