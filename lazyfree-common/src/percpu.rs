//! The one per-CPU value that probes write to: one map look-up a probe.

use bytemuck::{Pod, Zeroable};

use crate::{
    counter::{Family, SLOTS},
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

/// Pages of a batch of reclaim that came back, as far as they are or may have been lazyfree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Left {
    /// Still lazyfree, with references beyond the mappings and the isolation.
    pub pinned: u64,
    /// Still lazyfree, for another reason.
    pub kept: u64,
    /// What a page looks like that was made swap-backed again, and dirty.
    pub dirty: u64,
    /// The same, and clean.
    pub clean: u64,
    /// 1 if not all of it was looked at.
    pub unwalked: u64,
}

/// How the range of an isolation is walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Walk {
    /// One past the last page frame.
    pub end: u64,
    /// Order that compaction works for; -1 for all of a node.
    pub order: i64,
    /// Order of the blocks that the scanner gives up at the first failure.
    pub skip_order: u64,
    /// First page frame that isn't in a block given up.
    pub skip_to: u64,
}

/// Everything that probes on one CPU have counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PerCpu {
    /// Indexed by the slots of [`crate::counter`].
    pub counters: [u64; SLOTS],
    /// Durations, indexed by [`Family`].
    pub durations: [Histogram; Family::COUNT],
    /// This CPU's offset in `__per_cpu_offset`, 0 before it was read.
    pub percpu_offset: u64,
    /// PGLAZYFREE plus the folios in this CPU's lazyfree batch.
    pub marked: Telescope,
    /// Pages marked since folios in the batch were last looked at.
    pub unsampled: u64,
    /// PGLAZYFREED.
    pub hit: Telescope,
    /// Discriminant of [`crate::Reclaimer`] that entered reclaim on this CPU last.
    pub hit_owner: u64,
    /// Scratch of the reclaim program at return; it can't run twice at once on a CPU.
    pub left: Left,
    /// Scratch of the compaction program at return.
    pub walk: Walk,
    /// Time of this CPU's last event, for the rate limit.
    pub last_event_ns: u64,
}

/// [`PerCpu`] in 64-bit words.
pub const WORDS: usize = size_of::<PerCpu>() / 8;

const _: () =
    assert!(size_of::<PerCpu>() == SLOTS * 8 + Family::COUNT * size_of::<Histogram>() + 17 * 8);
