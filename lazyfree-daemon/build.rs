//! Builds the eBPF object, or leaves an empty one in its place.
//!
//! A plain `cargo build` must work on a machine without the eBPF toolchain, so the object is
//! built only when `LAZYFREE_EBPF_TOOLCHAIN` names a toolchain for it; `cargo xtask build` sets
//! it. A binary with the empty object says so when it is asked to load probes.

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, Result};
use aya_build::{Package, Toolchain};

fn main() -> Result<()> {
    println!("cargo::rerun-if-env-changed=LAZYFREE_EBPF_TOOLCHAIN");
    println!("cargo::rerun-if-env-changed=PATH");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").context("no manifest folder")?);
    match env::var("LAZYFREE_EBPF_TOOLCHAIN") {
        Ok(toolchain) => {
            let root = manifest.join("../lazyfree-ebpf");
            // The object is made of these definitions, too.
            println!("cargo::rerun-if-changed={}", manifest.join("../lazyfree-common").display());
            let root = root.to_str().context("the path of lazyfree-ebpf is not UTF-8")?;
            // Debian's compiler is a stable one that ships libcore's source. This makes aya-build ask
            // it to build libcore, and makes it comply; on a nightly it changes nothing. Set here,
            // it reaches the inner cargo and nothing of the outer build.
            // SAFETY: this program has no other thread that could read the environment.
            unsafe { env::set_var("RUSTC_BOOTSTRAP", "1") };
            let package = Package { name: "lazyfree-ebpf", root_dir: root, ..Package::default() };
            aya_build::build_ebpf([package], Toolchain::Custom(&toolchain))
        }
        Err(_) => {
            let out = PathBuf::from(env::var_os("OUT_DIR").context("no OUT_DIR")?);
            let stub = out.join("lazyfree-ebpf");
            fs::write(&stub, []).with_context(|| format!("cannot write {}", stub.display()))
        }
    }
}
