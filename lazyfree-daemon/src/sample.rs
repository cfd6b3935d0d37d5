//! What is read at one moment: cumulative, serialisable, no rates.
//!
//! A [`Session`] says what is observed and how; it holds for all samples of one attachment. Both
//! travel to a remote screen and into recordings as they are, and everything that is shown is
//! computed from them by [`crate::model`].

use lazyfree_common::{
    Counter, Family, Reclaimer,
    counter::{PerFamily, PerReclaimer},
    duration,
};
use serde::{Deserialize, Serialize};

use crate::{
    signal::{Accuracy, HookKind, Signal},
    vmstat::Vmstat,
};

/// What is observed on this host, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Release of the running kernel, as `uname -r` prints it.
    pub kernel: String,
    /// Name of the host.
    pub host: String,
    /// Bytes in a page.
    pub page_size: u64,
    /// CPUs that are online.
    pub cpus: u32,
    /// `fentry`, `kprobe`, or `vmstat` where no probe could be attached.
    pub mode: String,
    /// One row for each [`Signal`], in its order.
    pub signals: Vec<SignalPlan>,
}

impl Session {
    /// The row of a signal.
    pub fn plan(&self, signal: Signal) -> Option<&SignalPlan> {
        self.signals.iter().find(|plan| plan.signal == signal)
    }
}

/// How one signal is observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignalPlan {
    /// The signal.
    pub signal: Signal,
    /// The hook, as `kind:symbol`, or the counter; empty if there is none.
    pub hook: String,
    /// Kind of the hook; `None` if there is none.
    pub kind: Option<HookKind>,
    /// What the hook gives on this kernel if it loses no call.
    pub accuracy: Accuracy,
    /// Whether the number adds up calls, so that a missed call makes it inexact.
    pub adds_up_calls: Option<FamilyName>,
    /// Why the accuracy isn't `exact`, and what to do about it; empty if it is.
    pub reason: String,
}

impl SignalPlan {
    /// The kernel function whose hook gives the number.
    pub fn symbol(&self) -> Option<&str> {
        let (_kind, symbol) = self.hook.split_once(':')?;
        (self.kind != Some(HookKind::Procfs)).then_some(symbol)
    }
}

/// [`Family`], with a name in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are those of Family")]
pub enum FamilyName {
    Madvise,
    Reclaim,
    Compaction,
}

impl From<FamilyName> for Family {
    fn from(name: FamilyName) -> Family {
        match name {
            FamilyName::Madvise => Family::Madvise,
            FamilyName::Reclaim => Family::Reclaim,
            FamilyName::Compaction => Family::Compaction,
        }
    }
}

/// Everything read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// When, in seconds since 1970.
    pub unix_seconds: u64,
    /// The probes' counters, summed over CPUs.
    pub counters: Counters,
    /// Durations of calls, one histogram for each [`Family`].
    pub durations: Vec<Durations>,
    /// Calls in flight, one number for each [`Family`].
    pub in_flight: Vec<u64>,
    /// Every program attached.
    pub hooks: Vec<HookSample>,
    /// The kernel's own counters.
    pub vmstat: Vmstat,
    /// Folios in the CPUs' lazyfree batches: marked by the probes' reckoning, not yet counted in
    /// `pglazyfree`. `None` where it can't be read.
    pub lru_batch_pending: Option<u64>,
    /// Free memory in kB.
    pub mem_free_kb: u64,
    /// Memory available without swapping in kB.
    pub mem_available_kb: u64,
    /// Memory in kB.
    pub mem_total_kb: u64,
    /// Swap in use in kB.
    pub swap_used_kb: u64,
    /// `vm.min_free_kbytes`.
    pub min_free_kb: u64,
    /// Reclaim batches with failures since the sample before; a sample of them, never a count.
    pub failures: Vec<Failure>,
    /// CPU time that this process has used, in seconds.
    pub self_cpu_seconds: f64,
    /// Resident memory of this process in bytes.
    pub self_rss_bytes: u64,
}

/// Values of all [`Counter`]s, in slot order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters(Vec<u64>);

impl Default for Counters {
    fn default() -> Self {
        Self(vec![0; Counter::COUNT])
    }
}

impl Counters {
    /// Adds the counters of one CPU. A slot of a CPU may have stepped below zero: addition wraps.
    pub fn add(&mut self, slots: &[u64; Counter::COUNT]) {
        for (sum, value) in self.0.iter_mut().zip(slots) {
            *sum = sum.wrapping_add(*value);
        }
    }

    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.slot(counter as usize)
    }

    /// Sets one counter.
    pub fn set(&mut self, counter: Counter, value: u64) {
        self.0[counter as usize] = value;
    }

    /// Adds to the value for one family.
    pub fn bump(&mut self, what: PerFamily, family: Family, by: u64) {
        self.0[what.slot(family)] += by;
    }

    /// The value for one reclaimer.
    pub fn of(&self, what: PerReclaimer, reclaimer: Reclaimer) -> u64 {
        self.slot(what.slot(reclaimer))
    }

    /// The value for one family.
    pub fn in_family(&self, what: PerFamily, family: Family) -> u64 {
        self.slot(what.slot(family))
    }

    /// The value summed over all reclaimers.
    pub fn sum(&self, what: PerReclaimer) -> u64 {
        Reclaimer::ALL.iter().fold(0, |sum, reclaimer| sum.wrapping_add(self.of(what, *reclaimer)))
    }

    /// A slot that a recording of an older version doesn't have counts as 0.
    fn slot(&self, slot: usize) -> u64 {
        self.0.get(slot).copied().unwrap_or(0)
    }
}

/// A log2 histogram of durations; see [`duration`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// Sum in nanoseconds.
    pub sum_ns: u64,
    /// Number of durations for each power of two of nanoseconds.
    pub buckets: Vec<u64>,
}

impl From<&duration::Histogram> for Durations {
    fn from(histogram: &duration::Histogram) -> Self {
        Self { sum_ns: histogram.sum_ns, buckets: histogram.buckets.to_vec() }
    }
}

/// One attached program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookSample {
    /// Name of the program in the eBPF object.
    pub program: String,
    /// Kernel function.
    pub symbol: String,
    /// The family whose calls it follows; `None` for the freeing of swap entries and the audit.
    pub family: Option<FamilyName>,
    /// How it is attached.
    pub kind: HookKind,
    /// Runs that the kernel skipped (recursion guard); `None` where the kernel doesn't tell.
    pub misses: Option<u64>,
}

/// A reclaim batch that met lazyfree pages it could not free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of lazyfree_common::event::ReclaimFailure")]
pub struct Failure {
    pub time_ns: u64,
    pub duration_ns: u64,
    pub hit_pages: u64,
    pub redirtied_pages: u64,
    pub pinned_pages: u64,
    pub kept_pages: u64,
    pub tgid: u32,
    pub reclaimer: String,
    pub comm: String,
}
