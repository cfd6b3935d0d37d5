//! `cargo xtask setup`: puts in place what a fresh machine lacks, and nothing that is there.
//!
//! Every other verb asks for its part of it first, so each check is a matter of milliseconds.

mod emulator;
mod linker;
mod packages;
mod toolchain;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

pub use self::{
    emulator::Emulator,
    toolchain::{Ebpf, clippy as ebpf_clippy},
};
use crate::{cache::Cache, kernel};

/// What the guests need on the host. `dpkg-deb` and `apt-get` are there where packages are.
const GUEST_PACKAGES: [&str; 3] = ["busybox-static", "kmod", "xz-utils"];

/// Everything, down to the kernels that `cargo xtask test` boots.
pub fn everything(cache: &Cache) -> Result<()> {
    let Ebpf { toolchain, path } = for_build(cache)?;
    eprintln!("xtask: eBPF toolchain {toolchain}, bpf-linker in {}", path.display());
    for_guests(cache)?;
    for kernel in kernel::ensure(cache, &kernel::TESTED)? {
        eprintln!("xtask: guest kernel {} in {}", kernel.release, kernel.folder.display());
    }
    Ok(())
}

/// What `cargo xtask build` needs.
pub fn for_build(cache: &Cache) -> Result<Ebpf> {
    let missing = !is_on_path("cc") || !has_static_libc();
    if missing {
        packages::ensure("to link a static binary", &["gcc", "libc6-dev"])?;
    }
    toolchain::ensure(cache)
}

/// What is needed to boot a guest, but for its kernel.
pub fn for_guests(cache: &Cache) -> Result<()> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "guests have x86-64 kernels and run this machine's binaries, so they need an x86-64 host"
    );
    packages::ensure("to boot guests", &GUEST_PACKAGES)?;
    Emulator::ensure(cache).map(drop)
}

fn has_static_libc() -> bool {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .any(|folder| Path::new(folder).join("libc.a").exists())
}

/// Where a program is, if PATH has it.
fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn is_on_path(program: &str) -> bool {
    find_on_path(program).is_some()
}
