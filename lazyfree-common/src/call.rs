//! State of a call between its entry and its return, keyed by `pid_tgid`.
//!
//! A task may sleep, be preempted or move to another CPU in between, so none of this is per CPU.
//! None of the hooked functions nests in itself within one task: reclaim doesn't reclaim
//! (`PF_MEMALLOC`), and the other two don't call themselves.

use bytemuck::{Pod, Zeroable};

/// Most calls in flight at once, for each family. The maps are preallocated: a probe in reclaim
/// must not allocate.
pub const MAX_IN_FLIGHT: u32 = 8192;

/// A call of `madvise_free_pte_range`, or where that can't be hooked, of `madvise` itself.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MadviseCall {
    /// Entry, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Pages in the range.
    pub pages: u64,
}

/// A wait: which task, and which of its waits. They nest: a task that compacts may be throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StallKey {
    /// `pid_tgid`.
    pub task: u64,
    /// Discriminant of [`crate::Family`].
    pub family: u64,
}

/// A wait that has begun.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Stall {
    /// Beginning, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
}

/// A run of compaction over a zone, from `mm_compaction_begin` to `mm_compaction_end`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CompactionRun {
    /// Kernel address of the `struct compact_control`.
    pub control: u64,
}

/// A call of `shrink_folio_list`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct ReclaimCall {
    /// Entry, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Kernel address of the `list_head` with the batch, on return with what was put back.
    pub list: u64,
    /// Kernel address of the batch's `struct reclaim_stat`.
    pub stat: u64,
    /// Discriminant of [`crate::Reclaimer`].
    pub reclaimer: u64,
}

/// A call of `isolate_migratepages_block`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CompactionCall {
    /// Entry, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Kernel address of the `struct compact_control`.
    pub control: u64,
    /// First page frame of the range.
    pub low_pfn: u64,
    /// `compact_control.total_migrate_scanned` at entry.
    pub scanned: u64,
    /// `compact_control.nr_migratepages` at entry.
    pub isolated: u64,
}

/// A call of `try_to_unmap` on a lazyfree folio (audit hooks).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct UnmapCall {
    /// Kernel address of the folio.
    pub folio: u64,
    /// Its pages.
    pub nr_pages: u64,
}
