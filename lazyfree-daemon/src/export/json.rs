//! The report of `lazyfree stat`: one object, whose keys scripts rely on. Keys are added, never
//! renamed. Sizes are in pages of `page_size` bytes.
//!
//! [`Report`] is also what the table for people is made from; see its `Display`.

use lazyfree_common::Reclaimer;
use serde::{Serialize, Serializer};

use super::duration::Summary;
use crate::{
    model::{Audit, FamilyState, HookState, Snapshot},
    signal::{Accuracy, HookKind, Signal},
    vmstat::Vmstat,
};

/// What was counted between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// `fentry`, `kprobe` or `vmstat`.
    pub mode: String,
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
        Self {
            kernel: snapshot.session.kernel.clone(),
            mode: snapshot.session.mode.clone(),
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
                        by_reclaimer: state.by_reclaimer.map(ByReclaimer),
                    };
                    (state.signal.name(), row)
                })
                .collect(),
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
            audit: snapshot.audit.map(AuditRow::from),
        }
    }
}

/// Pairs as one object, in their order.
fn as_map<S: Serializer, T: Serialize>(
    pairs: &[(&'static str, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
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
            json!({"pages": 8_192, "accuracy": "exact", "hook": "fexit:madvise_free_pte_range"})
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
        let report = report(&fixture::vmstat_only());
        assert_eq!(
            report["signals"]["redirtied"],
            json!({
                "accuracy": "none",
                "hook": "",
                "reason": "the kernel has neither kprobes nor fentry"
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
