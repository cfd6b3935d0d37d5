//! What is read from this host's files before anything is attached. Reading only; judging is done
//! in the pure files beside it.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use super::{
    config::Config,
    format::Format,
    hook::{Hook, Point},
    offer::{Memory, Offer},
    privileges::{Privileges, Tracefs},
    probes::OpenError,
    release::Release,
    symbols::{self, Symbols},
    types::Types,
};
use crate::{host::processes::pids_are_initial, signal::HookKind};

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

/// What this kernel offers to this process.
pub fn offer() -> Result<Offer, OpenError> {
    let text = release();
    let config = Config::read(&text);
    let release = Release::parse(&text).ok_or(OpenError::BadRelease(text))?;
    let privileges = Privileges::read();
    let types = types();
    tracing::debug!("read the kernel's types");
    let symbols = symbols();
    tracing::debug!("read the kernel's symbols");
    Ok(Offer {
        release,
        types,
        symbols,
        formats: formats(&privileges.tracefs),
        privileges,
        config,
        memory: Memory::Untried,
        mglru: mglru(),
    })
}

fn types() -> Result<Types, String> {
    let bytes =
        btf().map_err(|error| format!("this kernel shows no type information ({error})"))?;
    Types::parse(&bytes)
        .map_err(|error| format!("the kernel's type information ({BTF}) makes no sense: {error}"))
}

/// Formats of the tracepoints whose record is read.
fn formats(tracefs: &Tracefs) -> BTreeMap<&'static str, Format> {
    let Tracefs::At(tracefs) = tracefs else { return BTreeMap::new() };
    let events = tracefs.join("events/syscalls");
    let points = Hook::ALL.into_iter().flat_map(Hook::points);
    let records = points.filter(|points| points.kind == HookKind::Tracepoint);
    let read = |point: &Point| {
        let text = fs::read_to_string(events.join(point.name).join("format")).ok()?;
        let format = Format::parse(&text);
        let format = format.inspect_err(|error| tracing::warn!("{}: {error}", point.name)).ok()?;
        Some((point.name, format))
    };
    records.flat_map(|points| points.points).filter_map(read).collect()
}

/// The kernel's type information.
pub fn btf() -> Result<Vec<u8>, Unreadable> {
    read(BTF)
}

/// The symbols that the layout needs; none on a kernel without a symbol table.
fn symbols() -> Symbols {
    let text = read("/proc/kallsyms").unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    Symbols::pick(lines, &symbols::wanted())
}

/// What `uname -r` prints.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Name of the host.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether there is a process of this tgid, as far as can be seen.
pub fn is_alive(tgid: u32) -> bool {
    !pids_are_initial() || fs::exists(format!("/proc/{tgid}")).unwrap_or(true)
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
