//! What is shown at one moment. Every surface (screen, metrics, JSON) reads this and nothing else.

use std::sync::Arc;

use lazyfree_common::{Family, Reclaimer};

use crate::{
    sample::{Durations, Failure, FamilyName, LimitedBy, Pressure, Session},
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
    /// Calls and losses of the hooked functions, in the order of [`Family::FUNCTIONS`].
    pub families: Vec<FamilyState>,
    /// Waits, in the order of [`Family::STALLS`].
    pub stalls: Vec<StallState>,
    /// Processes that gave memory back, those that gave most first.
    pub processes: Vec<ProcessState>,
    /// Processes for which there was no room in the kernel's table.
    pub other_processes: OtherProcesses,
    /// Memory cgroups in which, or below which, pages became lazyfree or were reclaimed, those that marked most first.
    pub cgroups: Vec<CgroupState>,
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

    /// The calls of a hooked function.
    pub fn family(&self, family: Family) -> Option<&FamilyState> {
        self.families.iter().find(|state| state.family == family)
    }

    /// Whether a program sees the batches of reclaim: entry and return of each, or what a
    /// tracepoint tells at its end.
    pub fn sees_batches(&self) -> bool {
        self.signal(Signal::Redirtied).is_some_and(|state| state.pages.is_some())
    }

    /// Whether programs pass on examples of batches with failures.
    pub fn sees_failures(&self) -> bool {
        self.family(Family::Reclaim).is_some_and(|state| state.followed)
    }

    /// Whether programs see the calls of each process.
    pub fn sees_processes(&self) -> bool {
        self.signal(Signal::Advised).is_some_and(|state| state.pages.is_some())
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
    /// Why it isn't exact, or what an exact number leaves out; else empty.
    pub reason: String,
    /// What to do about it; empty where nothing can be done.
    pub fix: String,
    /// What stands in the way of a better number.
    pub limited_by: LimitedBy,
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
    /// Whether programs follow its calls; if not, all else here is zero and says nothing.
    pub followed: bool,
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

/// One kind of wait.
#[derive(Clone, Debug, PartialEq)]
pub struct StallState {
    /// How far the numbers can be trusted now; `None` means there are none.
    pub accuracy: Accuracy,
    /// `kind:name`; empty if there is no hook.
    pub hook: String,
    /// Kind of the hook.
    pub kind: Option<HookKind>,
    /// As for [`SignalState::reason`].
    pub reason: String,
    /// As for [`SignalState::fix`].
    pub fix: String,
    /// As for [`SignalState::limited_by`].
    pub limited_by: LimitedBy,
    /// Numbers and durations. All zero where not observed.
    pub waits: FamilyState,
    /// Time waited in the last interval, in seconds, of waits that ended in it; `None` where not
    /// observed. Several tasks can wait at once.
    pub seconds_in_interval: Option<f64>,
}

/// One process, since the first sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// Its pid in the initial pid namespace.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
    /// Calls with MADV_FREE; `None` where they aren't observed.
    pub calls: Option<u64>,
    /// Pages in their ranges; `None` where they aren't observed.
    pub advised_pages: Option<u64>,
    /// Resident memory now; `None` where it wasn't looked at or may not be.
    pub rss_bytes: Option<u64>,
    /// Lazyfree memory that is resident now; `None` as above.
    pub lazyfree_bytes: Option<u64>,
}

/// What the processes did that have no row of their own, since the first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherProcesses {
    /// Calls with MADV_FREE.
    pub calls: u64,
    /// Pages in their ranges.
    pub advised_pages: u64,
}

/// One memory cgroup, since the first sample or since it was made, with its descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupState {
    /// Path below the root of the hierarchy, with a leading slash.
    pub path: String,
    /// Pages that became lazyfree, as the kernel counts them.
    pub marked: u64,
    /// Lazyfree pages that reclaim freed, as the kernel counts them.
    pub hit: u64,
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
    /// Kernel function or tracepoint.
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
    /// Time waited for memory since the first sample (PSI); `None` where the kernel doesn't tell.
    pub pressure: Option<Pressure>,
    /// Share of the last interval in which at least one task waited for memory.
    pub pressure_some_ratio: Option<f64>,
    /// Share of the last interval in which all tasks that could have run waited for memory.
    pub pressure_full_ratio: Option<f64>,
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
