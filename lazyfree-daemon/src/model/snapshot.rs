//! What is shown at one moment. Every surface (screen, metrics, JSON) reads this and nothing else.

use std::sync::Arc;

use lazyfree_common::{Family, Reclaimer};

use crate::{
    sample::{Durations, Failure, FamilyName, Session},
    signal::{Accuracy, HookKind, Signal},
    vmstat::Vmstat,
};

/// Totals since the first sample, rates over the last interval.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What is observed, and how.
    pub session: Arc<Session>,
    /// Seconds since the first sample.
    pub seconds: f64,
    /// Seconds since the sample before.
    pub interval_seconds: f64,
    /// Wall clock, seconds since 1970.
    pub unix_seconds: u64,
    /// One row for each signal, in the order of [`Signal::ALL`].
    pub signals: Vec<SignalState>,
    /// Ours less the kernel's.
    pub residual: Residual,
    /// Where the marked memory went.
    pub ledger: Ledger,
    /// Reclaim batches, by [`Reclaimer`].
    pub batches: [u64; Reclaimer::COUNT],
    /// Calls and losses, by [`Family`].
    pub families: Vec<FamilyState>,
    /// Events of the ring buffer.
    pub events: Events,
    /// Every program attached.
    pub hooks: Vec<HookState>,
    /// What the kernel's counters moved by since the first sample.
    pub vmstat: Vmstat,
    /// What stands beside it.
    pub context: Context,
    /// Folio by folio; `None` unless the audit hooks are attached.
    pub audit: Option<Audit>,
    /// Rates, oldest first; at most [`super::HISTORY`] of them.
    pub history: Vec<Point>,
    /// Failed batches that were sampled, oldest first.
    pub failures: Vec<Failure>,
}

impl Snapshot {
    /// The row of a signal.
    pub fn signal(&self, signal: Signal) -> Option<&SignalState> {
        self.signals.iter().find(|state| state.signal == signal)
    }

    /// Runs that the kernel skipped, over all programs; `None` if it tells of none of them.
    pub fn misses(&self) -> Option<u64> {
        self.hooks.iter().filter_map(|hook| hook.misses).reduce(|sum, misses| sum + misses)
    }
}

/// One signal.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalState {
    /// Which.
    pub signal: Signal,
    /// How far the number can be trusted now; `None` means there is no number.
    pub accuracy: Accuracy,
    /// `kind:symbol`, or the counter.
    pub hook: String,
    /// Kind of the hook.
    pub kind: Option<HookKind>,
    /// Why it isn't exact; empty if it is.
    pub reason: String,
    /// Total since the first sample, in pages (or swap entries).
    pub pages: Option<u64>,
    /// The same by [`Reclaimer`], for the signals of reclaim.
    pub by_reclaimer: Option<[u64; Reclaimer::COUNT]>,
    /// Rate over the last interval.
    pub pages_per_second: Option<f64>,
}

/// Ours less the kernel's own count since the first sample, in pages. `None` where one of the two
/// is missing. While calls are in flight it may be off by what they have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residual {
    /// Marked less `pglazyfree` less what waits in the LRU batches.
    pub marked: Option<i64>,
    /// Hit less `pglazyfreed`.
    pub hit: Option<i64>,
}

/// Where marked memory went, in pages. What isn't in `hit` or `redirtied` is still pending, was
/// unmapped, or was reused without reclaim noticing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are signals")]
pub struct Ledger {
    pub advised: Option<u64>,
    pub marked: Option<u64>,
    pub hit: Option<u64>,
    pub redirtied: Option<u64>,
    pub reclaim_pinned: Option<u64>,
}

impl Ledger {
    /// Marked less hit less redirtied: pending, unmapped, or reused unseen. `None` while the
    /// ledger doesn't add up, as when pages that were marked before the first sample are freed.
    pub fn rest(&self) -> Option<u64> {
        self.marked?.checked_sub(self.hit? + self.redirtied?)
    }
}

/// Calls of one hooked function since the first sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyState {
    /// Which.
    pub family: Family,
    /// Calls seen at entry.
    pub started: u64,
    /// Calls seen at entry and return.
    pub finished: u64,
    /// Calls whose return is awaited.
    pub in_flight: u64,
    /// Calls whose return never came.
    pub returns_lost: u64,
    /// Returns whose entry was not seen.
    pub entries_lost: u64,
    /// Calls not followed for want of room.
    pub map_full: u64,
    /// Durations of the finished calls.
    pub durations: Durations,
}

impl FamilyState {
    /// Calls that were not followed from entry to return.
    pub fn lost(&self) -> u64 {
        self.returns_lost + self.entries_lost + self.map_full
    }
}

/// Events of the ring buffer since the first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Handed over.
    pub submitted: u64,
    /// Lost since the ring was full.
    pub dropped: u64,
}

/// One attached program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookState {
    /// Name in the eBPF object.
    pub program: String,
    /// Kernel function.
    pub symbol: String,
    /// The family whose calls it follows.
    pub family: Option<FamilyName>,
    /// How it is attached.
    pub kind: HookKind,
    /// Runs that the kernel skipped since the first sample; `None` where it doesn't tell.
    pub misses: Option<u64>,
}

/// What stands beside the signals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Context {
    /// Folios in the CPUs' lazyfree batches, not yet in `pglazyfree`.
    pub lru_batch_pending: Option<u64>,
    /// Free memory.
    pub mem_free_kb: u64,
    /// Memory available without swapping; it includes pending lazyfree pages.
    pub mem_available_kb: u64,
    /// Memory.
    pub mem_total_kb: u64,
    /// Swap in use.
    pub swap_used_kb: u64,
    /// Free memory below which marking buys nothing: 1.5 times `min_free_kbytes`.
    pub throttle_threshold_kb: u64,
    /// Share of one CPU that this process used over the last interval.
    pub self_cpu_ratio: f64,
    /// CPU time that this process has used.
    pub self_cpu_seconds: f64,
    /// Resident memory of this process.
    pub self_rss_bytes: u64,
}

/// Folio by folio, at `try_to_unmap`; counted independently of the signals, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are signals")]
pub struct Audit {
    pub attempts: u64,
    pub hit: u64,
    pub redirtied: u64,
    pub reclaim_pinned: u64,
    pub kept: u64,
}

/// Rates over one interval, in pages per second; `None` where not observed.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are signals")]
pub struct Point {
    pub unix_seconds: u64,
    pub marked: Option<f64>,
    pub hit: Option<f64>,
    pub redirtied: Option<f64>,
    pub reclaim_pinned: Option<f64>,
    pub compaction_pinned: Option<f64>,
}
