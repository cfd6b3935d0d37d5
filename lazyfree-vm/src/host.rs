//! The guest's counters and switches that tests read and turn.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::process::{read, succeed};

/// `pglazyfree` and `pglazyfreed`, which nothing but MADV_FREE moves, and what compaction's
/// migration scanner went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vmstat {
    /// `pglazyfree`.
    pub marked: i64,
    /// `pglazyfreed`.
    pub freed: i64,
    /// `compact_migrate_scanned`.
    pub scanned: i64,
}

impl Vmstat {
    /// Reads them.
    pub fn read() -> Result<Self> {
        let text = read("/proc/vmstat")?;
        let counter = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            anyhow::Ok(value.with_context(|| format!("no {name} in /proc/vmstat"))?.parse()?)
        };
        Ok(Self {
            marked: counter("pglazyfree")?,
            freed: counter("pglazyfreed")?,
            scanned: counter("compact_migrate_scanned")?,
        })
    }

    /// What they moved by since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            marked: self.marked - earlier.marked,
            freed: self.freed - earlier.freed,
            scanned: self.scanned - earlier.scanned,
        }
    }
}

/// Brings marks that wait in the LRU batch of a CPU into `pglazyfree`, on all CPUs.
///
/// A process that ends drains the batches of its CPU (exit_mmap).
pub fn drain_batches() -> Result<()> {
    let all = sched_getaffinity(None).context("the CPUs of this process")?;
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)) {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).with_context(|| format!("cannot move to CPU {cpu}"))?;
        succeed(&mut Command::new("true"))?;
    }
    sched_setaffinity(None, &all).context("cannot leave a CPU")
}

/// A file of the kernel's that takes a setting, which is as it was again when this is dropped.
#[derive(Debug)]
pub struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    /// Changes a setting.
    pub fn change(path: &'static str, value: &str) -> Result<Self> {
        let before = read(path).with_context(|| format!("cannot read {path}"))?;
        let setting = Self { path, before };
        fs::write(path, value).with_context(|| format!("cannot write {value} to {path}"))?;
        Ok(setting)
    }

    /// Raises the kernel's reserve so far that all memory is short, and so little that nothing is
    /// reclaimed for it.
    ///
    /// Marks are under pressure below one and a half times the setting; reclaim starts at the
    /// watermarks, which lie at and a quarter above it. At seven tenths of what is free the one is
    /// above what is free, and the others below.
    pub fn pressure() -> Result<Self> {
        let free = mem_free_kb()?;
        Self::change("/proc/sys/vm/min_free_kbytes", &(free * 7 / 10).to_string())
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _as_it_was = fs::write(self.path, &self.before);
    }
}

fn mem_free_kb() -> Result<u64> {
    let meminfo = read("/proc/meminfo")?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no MemFree")?;
    Ok(number.trim().parse()?)
}

/// The switch of the multi-generational LRU.
pub const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";

/// Whether the multi-generational LRU is on; `None` on a kernel that has none.
#[must_use]
pub fn mglru() -> Option<bool> {
    let mask = read(LRU_GEN).ok()?;
    Some(mask.trim_start_matches("0x").chars().any(|digit| digit != '0'))
}
