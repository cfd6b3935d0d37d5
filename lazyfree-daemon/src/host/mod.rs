//! Readings of `/proc` and of cgroups that go into each sample, and what protects the daemon from
//! the very shortage it watches. The files that say what the kernel offers are read in
//! [`crate::kernel`].
//!
//! What is cheap is read in each tick; what walks page tables or flushes counters is left to
//! [`survey`].

pub mod cgroups;
pub mod pressure;
pub mod processes;
mod ration;
mod rounds;
pub mod survey;

use std::{fs, io, time::Duration};

use procfs::{Current as _, Meminfo, WithCurrentSystemInfo as _, process::Process};
use rustix::{
    mm::{MlockAllFlags, mlockall},
    process::geteuid,
    time::{ClockId, clock_gettime},
};

use crate::vmstat::Vmstat;

/// The kernel's own counters.
pub fn vmstat() -> io::Result<Vmstat> {
    Ok(Vmstat::parse(&fs::read_to_string("/proc/vmstat")?))
}

/// Memory in kB, as `/proc/meminfo` and the sysctl give it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of the kernel")]
pub struct Memory {
    pub free_kb: u64,
    pub available_kb: u64,
    pub total_kb: u64,
    pub swap_used_kb: u64,
    pub min_free_kb: u64,
}

/// Memory of the host. What can't be read is 0.
pub fn memory() -> Memory {
    let min_free = fs::read_to_string("/proc/sys/vm/min_free_kbytes").unwrap_or_default();
    let min_free_kb = min_free.trim().parse().unwrap_or(0);
    let Ok(info) = Meminfo::current() else { return Memory { min_free_kb, ..Memory::default() } };
    Memory {
        free_kb: info.mem_free / 1024,
        available_kb: info.mem_available.unwrap_or(0) / 1024,
        total_kb: info.mem_total / 1024,
        swap_used_kb: info.swap_total.saturating_sub(info.swap_free) / 1024,
        min_free_kb,
    }
}

/// What this process has used: CPU time in seconds, resident memory in bytes.
pub fn own_use() -> (f64, u64) {
    let Ok(stat) = Process::myself().and_then(|process| process.stat()) else { return (0.0, 0) };
    let ticks = (stat.utime + stat.stime) as f64;
    (ticks / procfs::ticks_per_second() as f64, stat.rss_bytes().get())
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Does something, and says how much CPU time this thread took for it. Waiting is not counted.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = used();
    let done = work();
    (done, used().saturating_sub(before))
}

/// Keeps the daemon in memory and away from the OOM killer. Each step may be refused, which the
/// daemon survives.
pub fn protect() {
    // On fault: to lock all that is mapped would bring back what start-up used and gave back.
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = mlockall(all) {
        tracing::info!("cannot lock memory: {error}");
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-500") {
        tracing::info!("cannot lower oom_score_adj: {error}");
    }
}

/// Gives back what start-up needed and the daemon doesn't: the kernel's types and symbols are
/// tens of megabytes while they are read.
pub fn release_startup_memory() {
    // SAFETY: only returns free memory of the allocator to the system.
    unsafe {
        libc::malloc_trim(0);
    }
}
