//! What is read from this host's files before anything is attached. Reading only; judging is done
//! in the pure files beside it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    release::Release,
    symbols::{self, Symbols},
};

/// Where a kernel shows its type information.
pub const BTF: &str = "/sys/kernel/btf/vmlinux";

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {error}", path.display())]
pub struct Unreadable {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

fn read(path: &str) -> Result<Vec<u8>, Unreadable> {
    fs::read(path).map_err(|error| Unreadable { path: path.into(), error })
}

/// The kernel's type information.
pub fn btf() -> Result<Vec<u8>, Unreadable> {
    read(BTF)
}

/// The symbols that we look for.
pub fn symbols() -> Result<Symbols, Unreadable> {
    let text = read("/proc/kallsyms")?;
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    Ok(Symbols::pick(lines, &symbols::wanted()))
}

/// The `format` file of a tracepoint such as `syscalls/sys_enter_madvise`, below the place of
/// tracefs.
#[expect(dead_code, reason = "for the plan of tracepoints")]
pub fn tracepoint_format(tracefs: &Path, tracepoint: &str) -> Result<String, Unreadable> {
    let path = tracefs.join("events").join(tracepoint).join("format");
    fs::read_to_string(&path).map_err(|error| Unreadable { path, error })
}

/// `uname -r`, as text and parsed.
pub fn release() -> (String, Option<Release>) {
    let text = rustix::system::uname().release().to_string_lossy().into_owned();
    let release = Release::parse(&text);
    (text, release)
}

/// Name of the host.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether the multi-generational LRU is on; bit 0 of the mask is its main switch.
pub fn mglru() -> bool {
    let mask = fs::read_to_string("/sys/kernel/mm/lru_gen/enabled").unwrap_or_default();
    let mask = u32::from_str_radix(mask.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    mask & 1 != 0
}

/// Runs of a program that the kernel skipped, since another was running on the CPU
/// (`recursion_misses`, from 5.12 on). Up to 6.6 the kernel counts them for fentry and fexit only.
pub fn misses(program_fd: i32) -> Option<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{program_fd}")).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
    line.trim().parse().ok()
}
