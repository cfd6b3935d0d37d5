//! The report of `lazyfree stat`: one object, whose keys scripts rely on. Keys are added, never
//! renamed. Sizes are in pages of `page_size` bytes.
//!
//! [`Report`] is also what the table for people is made from; see its `Display`.

use lazyfree_common::Reclaimer;
use serde::{Serialize, Serializer};

use super::{as_map, duration::Summary};
use crate::{
    model::{
        Audit, CgroupState, Context, FamilyState, HookState, ProcessState, Snapshot, StallState,
    },
    sample::{HookOutcome, LimitedBy},
    signal::{Accuracy, HookKind, Signal},
    vmstat::Vmstat,
};

/// What was counted between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// `fentry`, `kprobe`, `tracepoint` or `procfs`.
    pub mode: String,
    /// The state of observation in one line.
    pub summary: String,
    /// Whether this host, rather than its kernel, keeps a number from being better.
    pub degraded: bool,
    /// Bytes in a page.
    pub page_size: u64,
    /// Length of the interval.
    pub seconds: f64,
    /// The command that ran meanwhile, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandOutcome>,
    /// Every signal, by name, in table order.
    #[serde(serialize_with = "as_map")]
    pub signals: Vec<(&'static str, SignalRow)>,
    /// Every kind of stall, by name.
    #[serde(serialize_with = "as_map")]
    pub stalls: Vec<(&'static str, StallRow)>,
    /// Time that tasks waited for memory (PSI); absent where the kernel doesn't tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Processes that gave memory back, those that gave most first; absent where nothing is known
    /// of any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<Process>>,
    /// What the processes did that have no row; absent where calls aren't observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_processes: Option<OtherProcesses>,
    /// Memory cgroups, their descendants included, in which pages became lazyfree or were reclaimed,
    /// by the kernel's own count; absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<Cgroup>,
    /// What each of the kernel's counters moved by.
    pub vmstat: Vmstat,
    /// Ours less the kernel's; `null` where one of the two is missing.
    pub residual: Residual,
    /// Events of the ring buffer.
    pub events: Events,
    /// Reclaim batches by reclaimer; absent if reclaim isn't probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<ByReclaimer>,
    /// Calls of the hooked functions that are probed, and how many of them were lost.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, Calls)>,
    /// How long these calls took; a function that wasn't called is absent.
    #[serde(serialize_with = "as_map")]
    pub durations: Vec<(&'static str, Summary)>,
    /// Every attached program.
    pub hooks: Vec<Hook>,
    /// What came of each hook that was tried: what is attached, and what was refused, why.
    pub plan: Vec<HookOutcome>,
    /// Folio by folio; absent unless the audit hooks are attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditRow>,
}

/// A command and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandOutcome {
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Exit status as a shell gives it: 128 and the signal's number if a signal ended it.
    pub exit_status: i32,
}

/// One signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignalRow {
    /// Which; the key in the map.
    #[serde(skip)]
    pub signal: Signal,
    /// Pages (or swap entries); absent if not observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// How far the number can be trusted.
    pub accuracy: Accuracy,
    /// `kind:symbol`, or the counter; empty if there is none.
    pub hook: String,
    /// Why it isn't exact; absent if it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What to do about it; absent where nothing can be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// What stands in the way of a better number.
    pub limited_by: LimitedBy,
    /// The same pages by reclaimer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_reclaimer: Option<ByReclaimer>,
}

/// A number for each reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByReclaimer(pub [u64; Reclaimer::COUNT]);

impl Serialize for ByReclaimer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = Reclaimer::ALL.iter().map(|reclaimer| reclaimer.name());
        serializer.collect_map(names.zip(self.0))
    }
}

/// One kind of stall.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallRow {
    /// The numbers; absent if not observed.
    #[serde(flatten)]
    pub waits: Option<Waits>,
    /// How far they can be trusted.
    pub accuracy: Accuracy,
    /// `kind:name`; empty if there is none.
    pub hook: String,
    /// Why it isn't exact; absent if it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What to do about it; absent where nothing can be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// What stands in the way of a better number.
    pub limited_by: LimitedBy,
}

/// Waits of one kind. Several tasks can wait at once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waits {
    /// Waits that ended.
    pub count: u64,
    /// Waits that go on.
    pub in_flight: u64,
    /// Waits whose beginning or end was not seen.
    pub lost: u64,
    /// Time waited in all, of waits that ended.
    pub seconds: f64,
    /// Half of the waits were shorter; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_below_ns: Option<u64>,
    /// 99 % of the waits were shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_below_ns: Option<u64>,
    /// All of the waits were shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_below_ns: Option<u64>,
}

impl From<&FamilyState> for Waits {
    fn from(state: &FamilyState) -> Self {
        let summary = Summary::of(&state.durations);
        let below = |which: fn(&Summary) -> Option<u64>| summary.as_ref().and_then(which);
        Self {
            count: state.finished,
            in_flight: state.in_flight,
            lost: state.lost(),
            seconds: state.durations.sum_ns as f64 / 1e9,
            p50_below_ns: below(|summary| summary.p50_below_ns),
            p99_below_ns: below(|summary| summary.p99_below_ns),
            max_below_ns: below(|summary| summary.max_below_ns),
        }
    }
}

impl From<&StallState> for StallRow {
    fn from(state: &StallState) -> Self {
        Self {
            waits: (state.accuracy != Accuracy::None).then(|| (&state.waits).into()),
            accuracy: state.accuracy,
            hook: state.hook.clone(),
            reason: state.reason.clone(),
            fix: state.fix.clone(),
            limited_by: state.limited_by,
        }
    }
}

/// Time waited for memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pressure {
    /// In which at least one task waited.
    pub some_seconds: f64,
    /// In which all tasks that could have run waited.
    pub full_seconds: f64,
}

impl Pressure {
    fn of(context: &Context) -> Option<Self> {
        context.pressure.map(|pressure| Self {
            some_seconds: pressure.some_us as f64 / 1e6,
            full_seconds: pressure.full_us as f64 / 1e6,
        })
    }
}

/// One process. What isn't known of it is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its pid.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
    /// Calls with MADV_FREE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Pages in their ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advised: Option<u64>,
    /// Lazyfree memory that is resident at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazyfree_bytes: Option<u64>,
    /// Resident memory at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
}

impl From<&ProcessState> for Process {
    fn from(state: &ProcessState) -> Self {
        let ProcessState { tgid, comm, calls, advised_pages, rss_bytes, lazyfree_bytes } =
            state.clone();
        Self { tgid, comm, calls, advised: advised_pages, lazyfree_bytes, rss_bytes }
    }
}

/// Processes for which there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OtherProcesses {
    /// Calls with MADV_FREE.
    pub calls: u64,
    /// Pages in their ranges.
    pub advised: u64,
}

/// One memory cgroup with its descendants, in pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the path below the hierarchy's root; the others are signals")]
pub struct Cgroup {
    pub path: String,
    pub marked: u64,
    pub hit: u64,
}

impl From<&CgroupState> for Cgroup {
    fn from(state: &CgroupState) -> Self {
        let CgroupState { path, marked, hit } = state.clone();
        Self { path, marked, hit }
    }
}

/// Ours less the kernel's, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are signals")]
pub struct Residual {
    pub marked: Option<i64>,
    pub hit: Option<i64>,
}

/// Events of the ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Events {
    /// Handed over.
    pub submitted: u64,
    /// Lost since the ring was full.
    pub dropped: u64,
}

/// Calls of one hooked function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Seen at entry.
    pub started: u64,
    /// Seen at entry and return.
    pub finished: u64,
    /// Return awaited.
    pub in_flight: u64,
    /// The return never came.
    pub returns_lost: u64,
    /// The entry was not seen.
    pub entries_lost: u64,
    /// Not followed for want of room.
    pub map_full: u64,
}

impl Calls {
    /// Calls that were not followed from entry to return.
    pub fn lost(&self) -> u64 {
        self.returns_lost + self.entries_lost + self.map_full
    }
}

impl From<&FamilyState> for Calls {
    fn from(state: &FamilyState) -> Self {
        Self {
            started: state.started,
            finished: state.finished,
            in_flight: state.in_flight,
            returns_lost: state.returns_lost,
            entries_lost: state.entries_lost,
            map_full: state.map_full,
        }
    }
}

/// One attached program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// Name in the eBPF object.
    pub program: String,
    /// Kernel function.
    pub symbol: String,
    /// How it is attached.
    pub kind: HookKind,
    /// Runs that the kernel skipped; absent where it doesn't tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<u64>,
}

impl From<&HookState> for Hook {
    fn from(hook: &HookState) -> Self {
        let HookState { program, symbol, kind, misses, family: _ } = hook.clone();
        Self { program, symbol, kind, misses }
    }
}

/// What the audit hooks counted, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are signals")]
pub struct AuditRow {
    pub attempts: u64,
    pub hit: u64,
    pub redirtied: u64,
    pub reclaim_pinned: u64,
    pub kept: u64,
}

impl From<Audit> for AuditRow {
    fn from(audit: Audit) -> Self {
        let Audit { attempts, hit, redirtied, reclaim_pinned, kept } = audit;
        Self { attempts, hit, redirtied, reclaim_pinned, kept }
    }
}

impl Report {
    /// Reports what was counted since the snapshot's first sample.
    pub fn new(snapshot: &Snapshot, command: Option<CommandOutcome>) -> Self {
        let families = || snapshot.families.iter().filter(|state| state.followed);
        let calls_are_seen = snapshot.sees_processes();
        let others = &snapshot.other_processes;
        Self {
            kernel: snapshot.session.kernel.clone(),
            mode: snapshot.session.mode.clone(),
            summary: snapshot.session.summary(),
            degraded: snapshot.session.degraded(),
            page_size: snapshot.session.page_size,
            seconds: snapshot.seconds,
            command,
            signals: snapshot
                .signals
                .iter()
                .map(|state| {
                    let row = SignalRow {
                        signal: state.signal,
                        pages: state.pages,
                        accuracy: state.accuracy,
                        hook: state.hook.clone(),
                        reason: state.reason.clone(),
                        fix: state.fix.clone(),
                        limited_by: state.limited_by,
                        by_reclaimer: state.by_reclaimer.map(ByReclaimer),
                    };
                    (state.signal.name(), row)
                })
                .collect(),
            stalls: snapshot
                .stalls
                .iter()
                .map(|state| (state.waits.family.name(), state.into()))
                .collect(),
            pressure: Pressure::of(&snapshot.context),
            processes: (calls_are_seen || !snapshot.processes.is_empty())
                .then(|| snapshot.processes.iter().map(Process::from).collect()),
            other_processes: calls_are_seen
                .then_some(OtherProcesses { calls: others.calls, advised: others.advised_pages }),
            cgroups: snapshot.cgroups.iter().map(Cgroup::from).collect(),
            vmstat: snapshot.vmstat.clone(),
            residual: Residual { marked: snapshot.residual.marked, hit: snapshot.residual.hit },
            events: Events {
                submitted: snapshot.events.submitted,
                dropped: snapshot.events.dropped,
            },
            batches: snapshot.sees_batches().then_some(ByReclaimer(snapshot.batches)),
            calls: families().map(|state| (state.family.name(), state.into())).collect(),
            durations: families()
                .filter_map(|state| Some((state.family.name(), Summary::of(&state.durations)?)))
                .collect(),
            hooks: snapshot.hooks.iter().map(Hook::from).collect(),
            plan: snapshot.session.hooks.clone(),
            audit: snapshot.audit.map(AuditRow::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::export::fixture;

    fn report(snapshot: &Snapshot) -> Value {
        serde_json::to_value(Report::new(snapshot, None)).unwrap()
    }

    #[test]
    fn the_object_has_the_keys_that_scripts_rely_on() {
        let report = report(&fixture::full());
        assert_eq!(report["kernel"], "6.1.0-44-cloud-amd64");
        assert_eq!(report["mode"], "fentry");
        assert_eq!(report["page_size"], 4096);
        assert_eq!(report["seconds"], 10.0);
        assert_eq!(report["events"], json!({"submitted": 2, "dropped": 0}));
        assert_eq!(report["residual"], json!({"marked": 0, "hit": 0}));
        assert_eq!(report["vmstat"]["pglazyfree"], 8_180);
        assert_eq!(report["batches"]["kswapd"], 97);
        assert_eq!(report["calls"]["reclaim"]["started"], 100);
        assert_eq!(report["hooks"][3]["symbol"], "shrink_folio_list");
        assert_eq!(report["hooks"][3].get("misses"), None);
        assert_eq!(report["audit"]["redirtied"], 1_024);
        assert_eq!(report.get("command"), None);
        let names: Vec<_> = report["signals"].as_object().unwrap().keys().collect();
        assert_eq!(names.len(), Signal::ALL.len());
    }

    #[test]
    fn an_exact_signal_needs_no_reason_an_estimate_has_one() {
        let signals = &report(&fixture::full())["signals"];
        assert_eq!(
            signals["marked"],
            json!({
                "pages": 8_192,
                "accuracy": "exact",
                "hook": "fexit:madvise_free_pte_range",
                "limited_by": "nothing"
            })
        );
        assert_eq!(signals["deactivated"]["accuracy"], "estimate");
        assert_eq!(signals["deactivated"]["reason"], "one folio in 16 is looked at");
        assert_eq!(
            signals["hit"]["by_reclaimer"],
            json!({"kswapd": 4_000, "direct": 96, "memcg": 0, "proactive": 0})
        );
    }

    #[test]
    fn a_signal_that_is_not_observed_has_no_pages() {
        let report = report(&fixture::procfs());
        assert_eq!(
            report["signals"]["redirtied"],
            json!({
                "accuracy": "none",
                "hook": "",
                "reason": "this process may not load BPF programs (EPERM)",
                "fix": "run lazyfree as root, or give it CAP_BPF, CAP_PERFMON and CAP_SYSLOG",
                "limited_by": "host"
            })
        );
        assert_eq!(report["signals"]["hit"]["pages"], 4_096);
        assert_eq!(report["residual"], json!({"marked": null, "hit": null}));
        assert_eq!(report["calls"], json!({}));
        for absent in ["batches", "audit"] {
            assert_eq!(report.get(absent), None, "{absent}");
        }
    }

    #[test]
    fn stalls_have_their_numbers_or_say_why_not() {
        let stalls = &report(&fixture::full())["stalls"];
        assert_eq!(
            stalls["direct_reclaim"],
            json!({
                "count": 21,
                "in_flight": 2,
                "lost": 0,
                "seconds": 0.28,
                "p50_below_ns": 4_194_304,
                "p99_below_ns": 268_435_456,
                "max_below_ns": 268_435_456,
                "accuracy": "exact",
                "hook": "raw_tracepoint:mm_vmscan_direct_reclaim_begin",
                "limited_by": "nothing"
            })
        );
        // Watched, and nobody waited: zeroes, and no quantile.
        assert_eq!(
            (&stalls["throttle"]["count"], &stalls["throttle"]["seconds"]),
            (&json!(0), &json!(0.0))
        );
        assert_eq!(stalls["throttle"].get("p99_below_ns"), None);

        let stalls = &report(&fixture::procfs())["stalls"];
        let keys: Vec<_> = stalls["direct_reclaim"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["accuracy", "fix", "hook", "limited_by", "reason"]);
    }

    #[test]
    fn processes_and_cgroups_have_what_is_known_of_them() {
        let observed = report(&fixture::full());
        assert_eq!(
            observed["processes"][0],
            json!({
                "tgid": 2211,
                "comm": "postgres",
                "calls": 8,
                "advised": 9_216,
                "lazyfree_bytes": 8 << 20,
                "rss_bytes": 64 << 20
            })
        );
        // One that has ended: nothing is resident, which is not the same as 0.
        assert_eq!(
            observed["processes"][1],
            json!({"tgid": 977, "comm": "cc1", "calls": 2, "advised": 1_000})
        );
        assert_eq!(observed["other_processes"], json!({"calls": 0, "advised": 24}));
        assert_eq!(
            observed["cgroups"],
            json!([{"path": "/system.slice/postgresql.service", "marked": 7_000, "hit": 3_500}])
        );
        assert_eq!(observed["pressure"], json!({"some_seconds": 0.25, "full_seconds": 0.05}));

        let unprivileged = report(&fixture::procfs());
        assert_eq!(
            unprivileged["processes"],
            json!([{
                "tgid": 2211,
                "comm": "postgres",
                "lazyfree_bytes": 8 << 20,
                "rss_bytes": 64 << 20
            }])
        );
        assert_eq!(unprivileged.get("other_processes"), None);

        let mut snapshot = fixture::procfs();
        snapshot.processes.clear();
        snapshot.cgroups.clear();
        snapshot.context.pressure = None;
        let nothing = report(&snapshot);
        for absent in ["processes", "cgroups", "pressure"] {
            assert_eq!(nothing.get(absent), None, "{absent}");
        }
    }

    #[test]
    fn the_plan_tells_what_was_refused_and_why() {
        let report = report(&fixture::tracepoint());
        assert!(report["summary"].as_str().unwrap().starts_with("mode tracepoint: 4 of 13"));
        let madvise = &report["plan"][0];
        assert_eq!(madvise["attached"], "tracepoint:sys_enter_madvise");
        assert_eq!(madvise["refused"][0]["kind"], "fentry");
        assert_eq!(madvise["refused"][0]["cause"], "refused");
        assert_eq!(madvise["refused"][1]["cause"], "not_built_in");
        assert_eq!(report["signals"]["advised"]["accuracy"], "estimate");
        assert_eq!(report["signals"]["redirtied"]["pages"], 1_024);
        assert_eq!(report["signals"]["kept"].get("pages"), None);
    }

    #[test]
    fn signals_keep_the_order_of_the_table() {
        let text = serde_json::to_string(&Report::new(&fixture::full(), None)).unwrap();
        let at = |signal: Signal| text.find(&format!("\"{}\":{{", signal.name())).unwrap();
        assert!(Signal::ALL.map(at).is_sorted());
    }

    #[test]
    fn a_command_comes_with_its_exit_status() {
        let argv = vec!["lazyfree".to_owned(), "workload".to_owned()];
        let outcome = CommandOutcome { argv, exit_status: 137 };
        let report = Report::new(&fixture::full(), Some(outcome));
        let report = serde_json::to_value(report).unwrap();
        assert_eq!(
            report["command"],
            json!({"argv": ["lazyfree", "workload"], "exit_status": 137})
        );
    }
}
