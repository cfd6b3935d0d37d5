//! What is read at one moment: cumulative, serialisable, no rates.
//!
//! A [`Session`] says what is observed and how; it holds for all samples of one attachment. Both
//! travel to a remote screen and into recordings as they are, and everything that is shown is
//! computed from them by [`crate::model`].

use lazyfree_common::{
    Counter, Family, Reclaimer,
    counter::{PerFamily, PerReclaimer, SLOTS},
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
    /// How functions are hooked, `fentry` or `kprobe`; `tracepoint` where they can't be, and
    /// `procfs` where nothing can be attached.
    pub mode: String,
    /// One row for each [`Signal`], in its order.
    pub signals: Vec<SignalPlan>,
    /// One row for each of [`Family::STALLS`], in their order.
    #[serde(default)]
    pub stalls: Vec<StallPlan>,
    /// Signals whose rows would be others if the multi-generational LRU were switched on or off.
    #[serde(default)]
    pub dependent_on_lru: Vec<Signal>,
    /// What came of each hook that was tried.
    #[serde(default)]
    pub hooks: Vec<HookOutcome>,
    /// What was found out about the system that decides on the above.
    #[serde(default)]
    pub facts: Vec<Fact>,
}

/// One thing that was found out about the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Its name, as an administrator knows it: a sysctl, an option, a file.
    pub name: String,
    /// What it is set to.
    pub value: String,
    /// What that means here; empty if nothing needs to be said.
    pub remark: String,
}

impl Session {
    /// The row of a signal.
    pub fn plan(&self, signal: Signal) -> Option<&SignalPlan> {
        self.signals.iter().find(|plan| plan.signal == signal)
    }

    /// Whether this host, rather than its kernel, keeps a number from being better.
    pub fn degraded(&self) -> bool {
        let mut limits = (self.signals.iter().map(|plan| plan.limited_by))
            .chain(self.stalls.iter().map(|plan| plan.limited_by));
        limits.any(|by| by == LimitedBy::Host)
    }

    /// Whether there is no number for any signal.
    pub fn blind(&self) -> bool {
        self.signals.iter().all(|plan| plan.accuracy == Accuracy::None)
    }

    /// How much is observed, without a period: "all signals observed", or how many aren't.
    pub fn coverage(&self) -> String {
        let number = |accuracy| self.signals.iter().filter(|p| p.accuracy == accuracy).count();
        let (estimates, unseen) = (number(Accuracy::Estimate), number(Accuracy::None));
        let waits = self.stalls.iter().filter(|plan| plan.accuracy == Accuracy::None).count();
        if unseen + waits == 0 && !self.degraded() {
            return "all signals observed".to_owned();
        }
        let mut text =
            format!("{} of {} signals exact", number(Accuracy::Exact), self.signals.len());
        if estimates > 0 {
            text +=
                &format!(", {estimates} {}", if estimates == 1 { "estimate" } else { "estimates" });
        }
        let unseen = (unseen > 0).then(|| unseen.to_string());
        let waits = match waits {
            0 => None,
            _ if waits == self.stalls.len() => Some("all stalls".to_owned()),
            _ => Some(format!("{waits} of {} stalls", self.stalls.len())),
        };
        let missing: Vec<_> = unseen.into_iter().chain(waits).collect();
        if !missing.is_empty() {
            text += &format!(", {} not observed", missing.join(" and "));
        }
        text
    }

    /// The state of observation in one line.
    pub fn summary(&self) -> String {
        let hint = if self.degraded() { "; lazyfree doctor says why" } else { "" };
        format!("mode {}: {}{hint}", self.mode, self.coverage())
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
    /// Why the accuracy isn't `exact`, or what an exact number leaves out; else empty.
    pub reason: String,
    /// What to do about it; empty where nothing can be done.
    #[serde(default)]
    pub fix: String,
    /// What stands in the way of a better number.
    #[serde(default)]
    pub limited_by: LimitedBy,
}

/// What stands in the way of a better number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// Nothing.
    #[default]
    Nothing,
    /// The kernel as it is written: nobody sees more on it.
    Kernel,
    /// How this kernel was built or is set up, or what this process may do; or what was asked for.
    Host,
}

impl LimitedBy {
    /// Name in labels and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Kernel => "kernel",
            Self::Host => "host",
        }
    }
}

/// How one kind of stall is observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallPlan {
    /// One of [`Family::STALLS`].
    pub stall: FamilyName,
    /// The hook, as `kind:name`; empty if there is none.
    pub hook: String,
    /// Kind of the hook; `None` if there is none.
    pub kind: Option<HookKind>,
    /// What the hook gives on this kernel if it loses none.
    pub accuracy: Accuracy,
    /// As for [`SignalPlan::reason`].
    pub reason: String,
    /// As for [`SignalPlan::fix`].
    pub fix: String,
    /// As for [`SignalPlan::limited_by`].
    pub limited_by: LimitedBy,
}

/// What came of one hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookOutcome {
    /// What it is for, such as `reclaim`.
    pub name: String,
    /// The candidate that is attached, as `kind:name`; `None` if none of them is.
    pub attached: Option<String>,
    /// The candidates that come before it, and why each is not attached.
    pub refused: Vec<Refused>,
}

/// A candidate that is not attached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// Its kind.
    pub kind: HookKind,
    /// Kernel function or tracepoint.
    pub symbol: String,
    /// Why, in a word; see [`Cause`].
    pub cause: Cause,
    /// Why, in a sentence.
    pub reason: String,
    /// What to do about it; empty where nothing can be done.
    pub fix: String,
    /// What the verifier said of the program; empty if it did not see it.
    pub verifier_log: String,
}

/// Why a candidate is not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The kernel has no such function or tracepoint.
    Absent,
    /// It has it in a shape that our programs don't know.
    UnknownShape,
    /// The kernel shows no type information, so that its shape can't be known.
    NoTypes,
    /// The kernel was built without what the kind needs.
    NotBuiltIn,
    /// Programs may not read kernel memory, which is all that this one does.
    Lockdown,
    /// This process lacks a capability, or a sysctl asks for more.
    NotPermitted,
    /// tracefs isn't mounted.
    NoTracefs,
    /// The verifier refused the program.
    Verifier,
    /// The kernel refused to load or attach it otherwise.
    Refused,
    /// Another kind was asked for.
    NotAskedFor,
}

impl Cause {
    /// Value of the `reason` label.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Absent => "absent",
            Cause::UnknownShape => "unknown_shape",
            Cause::NoTypes => "no_types",
            Cause::NotBuiltIn => "not_built_in",
            Cause::Lockdown => "lockdown",
            Cause::NotPermitted => "not_permitted",
            Cause::NoTracefs => "no_tracefs",
            Cause::Verifier => "verifier",
            Cause::Refused => "refused",
            Cause::NotAskedFor => "not_asked_for",
        }
    }
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
    Isolate,
    DirectReclaim,
    MemcgReclaim,
    DirectCompaction,
    Throttle,
}

impl From<FamilyName> for Family {
    fn from(name: FamilyName) -> Family {
        match name {
            FamilyName::Madvise => Family::Madvise,
            FamilyName::Reclaim => Family::Reclaim,
            FamilyName::Isolate => Family::Isolate,
            FamilyName::DirectReclaim => Family::DirectReclaim,
            FamilyName::MemcgReclaim => Family::MemcgReclaim,
            FamilyName::DirectCompaction => Family::DirectCompaction,
            FamilyName::Throttle => Family::Throttle,
        }
    }
}

impl From<Family> for FamilyName {
    fn from(family: Family) -> Self {
        match family {
            Family::Madvise => FamilyName::Madvise,
            Family::Reclaim => FamilyName::Reclaim,
            Family::Isolate => FamilyName::Isolate,
            Family::DirectReclaim => FamilyName::DirectReclaim,
            Family::MemcgReclaim => FamilyName::MemcgReclaim,
            Family::DirectCompaction => FamilyName::DirectCompaction,
            Family::Throttle => FamilyName::Throttle,
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
    /// Whether the multi-generational LRU is on; `None` in old recordings.
    #[serde(default)]
    pub mglru: Option<bool>,
    /// The kernel's own counters, before the probes' were read.
    pub vmstat: Vmstat,
    /// The same afterwards: on a busy host they move meanwhile. What is not in here is as in `vmstat`.
    #[serde(default)]
    pub vmstat_after: Vmstat,
    /// Folios in the CPUs' lazyfree batches: marked by the probes' reckoning, not yet counted in
    /// `pglazyfree`. `None` where it can't be read.
    pub lru_batch_pending: Option<u64>,
    /// Time that tasks waited for memory, as the kernel counts it; `None` without PSI.
    #[serde(default)]
    pub pressure: Option<Pressure>,
    /// Processes that gave memory back, or that the `/proc` of the mode `procfs` shows.
    #[serde(default)]
    pub processes: Vec<ProcessSample>,
    /// Memory cgroups; empty without cgroup v2.
    #[serde(default)]
    pub cgroups: Vec<CgroupSample>,
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

/// `/proc/pressure/memory`, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Time in which at least one task waited for memory, in microseconds.
    pub some_us: u64,
    /// Time in which all tasks that could have run waited, in microseconds.
    pub full_us: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Its pid in the initial pid namespace.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
    /// Calls with MADV_FREE, since it was first seen; `None` where they aren't observed.
    pub calls: Option<u64>,
    /// Pages in their ranges; `None` where they aren't observed.
    pub advised_pages: Option<u64>,
    /// Resident memory in kB; `None` where it wasn't looked at or may not be.
    pub rss_kb: Option<u64>,
    /// Lazyfree memory that is still resident, in kB; `None` as above.
    pub lazyfree_kb: Option<u64>,
}

/// One memory cgroup (v2): what its `memory.stat` says, with its descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSample {
    /// Path below the root of the hierarchy, with a leading slash.
    pub path: String,
    /// Pages that became lazyfree, since it was first seen, or was made if that is later.
    pub pglazyfree: u64,
    /// Lazyfree pages that reclaim freed, since then.
    pub pglazyfreed: u64,
}

/// Values of all counters, in slot order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters(Vec<u64>);

impl Default for Counters {
    fn default() -> Self {
        Self(vec![0; SLOTS])
    }
}

impl Counters {
    /// Adds the counters of one CPU. A slot of a CPU may have stepped below zero: addition wraps.
    pub fn add(&mut self, slots: &[u64; SLOTS]) {
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

    /// Adds to the value for one reclaimer.
    pub fn bump_of(&mut self, what: PerReclaimer, reclaimer: Reclaimer, by: u64) {
        self.bump_slot(what.slot(reclaimer), by);
    }

    /// Adds to the value for one family.
    pub fn bump(&mut self, what: PerFamily, family: Family, by: u64) {
        self.bump_slot(what.slot(family), by);
    }

    /// Adds to a slot of [`lazyfree_common::counter`].
    pub fn bump_slot(&mut self, slot: usize, by: u64) {
        self.0[slot] += by;
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
    /// Kernel function or tracepoint.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::Host;

    #[test]
    fn a_summary_counts_what_is_observed_and_says_where_to_ask() {
        assert_eq!(Host::new().session.summary(), "mode fentry: all signals observed");
        assert_eq!(
            Host::in_tracepoint_mode().session.summary(),
            "mode tracepoint: 4 of 13 signals exact, 3 estimates, 6 not observed; \
             lazyfree doctor says why"
        );
        assert_eq!(
            Host::in_procfs_mode().session.summary(),
            "mode procfs: 1 of 13 signals exact, 1 estimate, 11 and all stalls not observed; \
             lazyfree doctor says why"
        );
    }

    #[test]
    fn what_the_kernel_does_not_show_anybody_is_no_degradation() {
        let mut host = Host::new();
        host.unobserve(Signal::Deactivated, "there is no active list");
        host.plan(Signal::Deactivated).limited_by = LimitedBy::Kernel;
        assert!(!host.session.degraded());
        assert_eq!(host.session.summary(), "mode fentry: 12 of 13 signals exact, 1 not observed");
        host.session.stalls[3].limited_by = LimitedBy::Host;
        assert!(host.session.degraded() && !host.session.blind());
    }

    #[test]
    fn a_session_of_an_older_daemon_has_no_stalls_and_is_read() {
        let mut json = serde_json::to_value(Host::new().session).unwrap();
        let object = json.as_object_mut().unwrap();
        for key in ["stalls", "hooks", "facts"] {
            assert!(object.remove(key).is_some(), "{key}");
        }
        let session: Session = serde_json::from_value(json).unwrap();
        assert!(session.stalls.is_empty() && session.facts.is_empty());
        assert_eq!(session.summary(), "mode fentry: all signals observed");
    }
}
