//! The one per-CPU value that probes write to: one map look-up a probe.

use bytemuck::{Pod, Zeroable};

use crate::{
    counter::{Counter, Family},
    duration::Histogram,
};

/// A kernel counter of this CPU that is read whenever a probe runs; what it moved by since the
/// last reading is credited to the call that was open on the CPU. Sums of such readings
/// telescope: a missed program run shifts a credit but never loses a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Telescope {
    /// The last reading.
    pub last: u64,
    /// 0 until the first reading, which credits nothing.
    pub primed: u64,
}

/// Everything that probes on one CPU have counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PerCpu {
    /// Indexed by [`Counter`].
    pub counters: [u64; Counter::COUNT],
    /// Durations of calls, indexed by [`Family`].
    pub durations: [Histogram; Family::COUNT],
    /// This CPU's offset in `__per_cpu_offset`, 0 before it was read.
    pub percpu_offset: u64,
    /// PGLAZYFREE plus the folios in this CPU's lazyfree batch.
    pub marked: Telescope,
    /// PGLAZYFREED.
    pub hit: Telescope,
    /// Discriminant of [`crate::Reclaimer`] that entered reclaim on this CPU last.
    pub hit_owner: u64,
    /// Time of this CPU's last event, for the rate limit.
    pub last_event_ns: u64,
}

/// [`PerCpu`] in 64-bit words.
pub const WORDS: usize = size_of::<PerCpu>() / 8;

const _: () = assert!(
    size_of::<PerCpu>() == Counter::COUNT * 8 + Family::COUNT * size_of::<Histogram>() + 7 * 8
);
