//! Hand-made hosts for tests: every number goes through [`Model::advance`], so that what a test
//! sees adds up as it does on a real host.

use std::{collections::BTreeMap, sync::Arc};

use lazyfree_common::{
    Counter, Family, Reclaimer,
    counter::{PerFamily, PerReclaimer},
    duration,
};

use super::{Model, Snapshot};
use crate::{
    sample::{
        Cause, CgroupSample, Durations, Fact, Failure, FamilyName, HookOutcome, HookSample,
        LimitedBy, Pressure, ProcessSample, Refused, Sample, Session, SignalPlan, StallPlan,
    },
    signal::{Accuracy, HookKind, Signal},
    vmstat::Vmstat,
};

/// What one reclaim batch met, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    pub hit: u64,
    pub redirtied: u64,
    pub pinned: u64,
    pub kept: u64,
}

/// A host: its session, its next sample, and the model that has taken in those before.
pub(crate) struct Host {
    pub session: Session,
    pub sample: Sample,
    vmstat: BTreeMap<&'static str, u64>,
    model: Option<Model>,
}

impl Host {
    /// A host of 4 KiB pages where every signal is observed.
    pub fn new() -> Self {
        let signals = Signal::ALL.into_iter().map(observed).collect();
        let sample = Sample {
            time_ns: 3_600_000_000_000,
            unix_seconds: 1_760_000_000,
            durations: Family::ALL
                .iter()
                .map(|_| Durations { sum_ns: 0, buckets: vec![0; duration::BUCKETS] })
                .collect(),
            in_flight: vec![0; Family::COUNT],
            hooks: hooks(),
            lru_batch_pending: Some(0),
            mem_free_kb: 1_258_291,
            mem_available_kb: 3_250_585,
            mem_total_kb: 8_073_908,
            min_free_kb: 45_056,
            self_rss_bytes: 12_902_400,
            pressure: Some(Pressure { some_us: 61_000_000, full_us: 7_000_000 }),
            ..Sample::default()
        };
        Self {
            session: Session {
                dependent_on_lru: Vec::new(),
                kernel: "6.12.48+deb13-cloud-amd64".to_owned(),
                host: "build-07".to_owned(),
                page_size: 4096,
                cpus: 8,
                mode: "fentry".to_owned(),
                signals,
                stalls: Family::STALLS.map(watched).into(),
                hooks: FUNCTIONS
                    .iter()
                    .map(|(name, symbol, _)| HookOutcome {
                        name: (*name).to_owned(),
                        attached: Some(format!("fentry:{symbol}")),
                        refused: Vec::new(),
                    })
                    .collect(),
                facts: vec![fact("type information", "yes", "")],
            },
            sample,
            vmstat: BTreeMap::from([("pglazyfree", 40_000), ("pglazyfreed", 30_000)]),
            model: None,
        }
    }

    /// A host where functions can't be hooked, and tracepoints can.
    pub fn in_tracepoint_mode() -> Self {
        let mut host = Self::new();
        tracepoints_only(&mut host.session);
        host.sample.hooks = tracepoint_hooks();
        host
    }

    /// A host where no program could be loaded, as for a user without privileges.
    pub fn in_procfs_mode() -> Self {
        let mut host = Self::new();
        procfs_only(&mut host.session);
        host.sample.hooks.clear();
        host.sample.lru_batch_pending = None;
        host
    }

    /// The plan of a signal.
    pub fn plan(&mut self, signal: Signal) -> &mut SignalPlan {
        self.session.signals.iter_mut().find(|plan| plan.signal == signal).unwrap()
    }

    /// Takes a signal's hook away.
    pub fn unobserve(&mut self, signal: Signal, reason: &str) {
        *self.plan(signal) = unobserved(signal, reason, "");
    }

    /// Adds to a counter.
    pub fn count(&mut self, counter: Counter, by: u64) {
        let now = self.sample.counters.get(counter);
        self.sample.counters.set(counter, now + by);
    }

    /// Adds to a counter of `/proc/vmstat`.
    pub fn vmstat(&mut self, name: &'static str, by: u64) {
        *self.vmstat.entry(name).or_default() += by;
    }

    /// One call of a hooked function, from entry to return.
    pub fn call(&mut self, family: Family, duration_ns: u64) {
        self.sample.counters.bump(PerFamily::Started, family, 1);
        self.sample.counters.bump(PerFamily::Finished, family, 1);
        let durations = &mut self.sample.durations[family as usize];
        durations.sum_ns += duration_ns;
        durations.buckets[duration::bucket(duration_ns)] += 1;
    }

    /// A program gives `pages` back, in calls of at most 512 pages.
    pub fn mark(&mut self, pages: u64) {
        self.count(Counter::AdvisedPages, pages);
        self.count(Counter::MarkedPages, pages);
        self.vmstat("pglazyfree", pages);
        for call in 0..pages.div_ceil(512) {
            self.call(Family::Madvise, 9_000 + 1_000 * (call % 8));
        }
    }

    /// One batch of reclaim.
    pub fn reclaim(&mut self, reclaimer: Reclaimer, batch: Batch) {
        let mut add = |what, by| self.sample.counters.bump_of(what, reclaimer, by);
        add(PerReclaimer::Batches, 1);
        add(PerReclaimer::Hit, batch.hit);
        add(PerReclaimer::Redirtied, batch.redirtied);
        add(PerReclaimer::Pinned, batch.pinned);
        add(PerReclaimer::Kept, batch.kept);
        self.vmstat("pglazyfreed", batch.hit);
        self.call(Family::Reclaim, 40_000 + 2_000 * (batch.hit + batch.redirtied));
    }

    /// One call of compaction's isolation.
    pub fn compact(&mut self, scanned: u64, isolated: u64, pinned: u64) {
        self.count(Counter::CompactionScannedPages, scanned);
        self.count(Counter::CompactionIsolatedPages, isolated);
        self.count(Counter::CompactionPinnedPages, pinned);
        self.call(Family::Isolate, 20_000 + 100 * scanned);
    }

    /// One wait of a task, from its beginning to its end.
    pub fn stall(&mut self, stall: Family, duration_ns: u64) {
        self.call(stall, duration_ns);
        let pressure = self.sample.pressure.get_or_insert_default();
        pressure.some_us += duration_ns / 1_000;
    }

    /// A process gives pages back in a number of calls.
    pub fn process(&mut self, tgid: u32, comm: &str, calls: u64, pages: u64) -> &mut ProcessSample {
        let rows = &mut self.sample.processes;
        let at = rows.iter().position(|row| row.tgid == tgid).unwrap_or_else(|| {
            let comm = comm.to_owned();
            rows.push(ProcessSample { tgid, comm, ..ProcessSample::default() });
            rows.len() - 1
        });
        *rows[at].calls.get_or_insert(0) += calls;
        *rows[at].advised_pages.get_or_insert(0) += pages;
        &mut rows[at]
    }

    /// A process as `/proc` shows it where no program counts.
    pub fn process_of_procfs(&mut self, tgid: u32, comm: &str, lazyfree_kb: u64, rss_kb: u64) {
        self.sample.processes.push(ProcessSample {
            tgid,
            comm: comm.to_owned(),
            rss_kb: Some(rss_kb),
            lazyfree_kb: Some(lazyfree_kb),
            ..ProcessSample::default()
        });
    }

    /// What a memory cgroup counts from now on.
    pub fn cgroup(&mut self, path: &str, pglazyfree: u64, pglazyfreed: u64) {
        let path = path.to_owned();
        self.sample.cgroups.push(CgroupSample { path, pglazyfree, pglazyfreed });
    }

    /// A sampled failure, at the time of the next sample.
    pub fn fail(&mut self, reclaimer: Reclaimer, tgid: u32, comm: &str, batch: Batch) {
        self.count(Counter::EventsSubmitted, 1);
        self.sample.failures.push(Failure {
            time_ns: self.sample.time_ns,
            duration_ns: 40_000 + 2_000 * batch.hit,
            hit_pages: batch.hit,
            redirtied_pages: batch.redirtied,
            pinned_pages: batch.pinned,
            kept_pages: batch.kept,
            tgid,
            reclaimer: reclaimer.name().to_owned(),
            comm: comm.to_owned(),
        });
    }

    /// Lets `seconds` pass and takes a sample. Before the first one, what has been counted so far
    /// becomes the start.
    pub fn advance(&mut self, seconds: u64) -> Snapshot {
        let text: String = self.vmstat.iter().map(|(name, n)| format!("{name} {n}\n")).collect();
        self.sample.vmstat = Vmstat::parse(&text);
        let model = self.model.get_or_insert_with(|| {
            let mut first = self.sample.clone();
            first.failures.clear();
            Model::new(Arc::new(self.session.clone()), first)
        });
        self.sample.time_ns += seconds * 1_000_000_000;
        self.sample.unix_seconds += seconds;
        self.sample.self_cpu_seconds += 0.003 * seconds as f64;
        let snapshot = model.advance(self.sample.clone());
        self.sample.failures.clear();
        snapshot
    }

    /// A host after `seconds` of a program that gives memory back, writes to some of it again and
    /// pins a little, while kswapd and a memory cgroup reclaim.
    pub fn busy(mut self, seconds: u64) -> (Self, Snapshot) {
        let mut snapshot = self.advance(1);
        for (path, pages) in
            [("/system.slice/postgresql.service", 212_000), ("/user.slice", 91_904)]
        {
            self.cgroup(path, pages, pages / 5);
        }
        for second in 0..seconds {
            for (tgid, comm, share) in
                [(2211, "postgres", 3), (40_172, "node", 2), (977, "jemalloc_bg", 1)]
            {
                let row = self.process(tgid, comm, share, share * 341);
                if tgid != 977 {
                    row.rss_kb = Some(1_310_720 * share);
                    row.lazyfree_kb = Some(96 * share * second);
                }
            }
            self.mark(1024 + 512 * (second % 9));
            self.count(Counter::AdvisedPages, 640);
            self.count(Counter::DeactivatedPages, (second % 4) * (64 + 32 * (second % 9)));
            self.count(Counter::SwapEntriesFreed, u64::from(second % 10 == 0) * 12);
            for batch in 0..second % 20 {
                let redirtied = u64::from(batch % 3 == 0) * 7;
                let pinned = u64::from(second > 20 && batch % 5 == 0);
                let of_kswapd = Batch { hit: 31 - redirtied - pinned, redirtied, pinned, kept: 1 };
                self.reclaim(Reclaimer::Kswapd, of_kswapd);
                self.reclaim(Reclaimer::Memcg, Batch { hit: 32, ..Batch::default() });
                if pinned > 0 && batch == 0 {
                    self.fail(Reclaimer::Kswapd, 87, "kswapd0", of_kswapd);
                }
            }
            if second % 7 == 0 {
                self.compact(512, 96, 3);
                self.stall(Family::DirectCompaction, 900_000);
            }
            if second % 3 == 0 {
                self.stall(Family::DirectReclaim, 1_800_000 + 400_000 * (second % 11));
                self.stall(Family::MemcgReclaim, 340_000);
            }
            snapshot = self.advance(1);
        }
        (self, snapshot)
    }
}

fn observed(signal: Signal) -> SignalPlan {
    use FamilyName::{Isolate, Madvise, Reclaim};
    let (symbol, kind, adds_up_calls) = match signal {
        Signal::Advised | Signal::MarkedUnderPressure | Signal::SwapEntriesFreed => {
            ("madvise_free_pte_range", HookKind::Fexit, Some(Madvise))
        }
        Signal::Marked => ("madvise_free_pte_range", HookKind::Fexit, None),
        Signal::Deactivated => ("madvise_free_pte_range", HookKind::Fexit, None),
        Signal::Hit => ("shrink_folio_list", HookKind::Fexit, None),
        Signal::Attempts | Signal::Redirtied | Signal::ReclaimPinned | Signal::Kept => {
            ("shrink_folio_list", HookKind::Fexit, Some(Reclaim))
        }
        Signal::CompactionScanned | Signal::CompactionIsolated | Signal::CompactionPinned => {
            ("isolate_migratepages_block", HookKind::Fexit, Some(Isolate))
        }
    };
    let sampled = signal == Signal::Deactivated;
    SignalPlan {
        signal,
        hook: format!("{}:{symbol}", kind.name()),
        kind: Some(kind),
        accuracy: if sampled { Accuracy::Estimate } else { Accuracy::Exact },
        adds_up_calls,
        reason: if sampled {
            "scaled from the folios that wait in a CPU's batch when a call returns".to_owned()
        } else {
            String::new()
        },
        fix: String::new(),
        limited_by: LimitedBy::Nothing,
    }
}

/// Name of a hook, the function that is hooked, and the family whose calls it follows.
const FUNCTIONS: [(&str, &str, FamilyName); 3] = [
    ("madvise", "madvise_free_pte_range", FamilyName::Madvise),
    ("reclaim", "shrink_folio_list", FamilyName::Reclaim),
    ("compaction", "isolate_migratepages_block", FamilyName::Isolate),
];

fn hooks() -> Vec<HookSample> {
    let both = |(program, symbol, family): (&str, &str, FamilyName)| {
        [("entry", HookKind::Fentry), ("return", HookKind::Fexit)].map(|(end, kind)| HookSample {
            program: format!("{program}_{end}"),
            symbol: symbol.to_owned(),
            family: Some(family),
            kind,
            misses: Some(0),
        })
    };
    FUNCTIONS.map(both).concat().into_iter().chain(stall_hooks()).collect()
}

/// Name of the pair of tracepoints around a wait; throttling has only one, at its end.
const fn tracepoint_of(stall: Family) -> &'static str {
    match stall {
        Family::DirectReclaim => "mm_vmscan_direct_reclaim",
        Family::MemcgReclaim => "mm_vmscan_memcg_reclaim",
        Family::DirectCompaction => "mm_compaction",
        _ => "mm_vmscan_throttled",
    }
}

pub(crate) fn stall_hooks() -> impl Iterator<Item = HookSample> {
    Family::STALLS.into_iter().flat_map(|stall| {
        let ends = if stall == Family::Throttle { &[""][..] } else { &["_begin", "_end"] };
        ends.iter().map(move |end| HookSample {
            program: format!("{}{end}", stall.name()),
            symbol: format!("{}{end}", tracepoint_of(stall)),
            family: Some(stall.into()),
            kind: HookKind::RawTracepoint,
            misses: Some(0),
        })
    })
}

fn tracepoint_hooks() -> Vec<HookSample> {
    let hook = |program: &str, symbol: &str, family, kind| HookSample {
        program: program.to_owned(),
        symbol: symbol.to_owned(),
        family,
        kind,
        misses: Some(0),
    };
    let (raw, madvise) = (HookKind::RawTracepoint, Some(FamilyName::Madvise));
    [
        hook("madvise_enter", "sys_enter_madvise", madvise, HookKind::Tracepoint),
        hook("madvise_exit", "sys_exit_madvise", madvise, HookKind::Tracepoint),
        hook("lru_shrink", "mm_vmscan_lru_shrink_inactive", None, raw),
        hook("isolate", "mm_compaction_isolate_migratepages", None, raw),
    ]
    .into_iter()
    .chain(stall_hooks())
    .collect()
}

/// A kind of wait that is followed from its beginning to its end.
pub(crate) fn watched(stall: Family) -> StallPlan {
    let end = if stall == Family::Throttle { "" } else { "_begin" };
    StallPlan {
        stall: stall.into(),
        hook: format!("raw_tracepoint:{}{end}", tracepoint_of(stall)),
        kind: Some(HookKind::RawTracepoint),
        accuracy: Accuracy::Exact,
        reason: String::new(),
        fix: String::new(),
        limited_by: LimitedBy::Nothing,
    }
}

fn fact(name: &str, value: &str, remark: &str) -> Fact {
    Fact { name: name.to_owned(), value: value.to_owned(), remark: remark.to_owned() }
}

fn refused(
    kind: HookKind,
    symbol: &str,
    cause: Cause,
    reason: &str,
    fix: &str,
    log: &str,
) -> Refused {
    Refused {
        kind,
        symbol: symbol.to_owned(),
        cause,
        reason: reason.to_owned(),
        fix: fix.to_owned(),
        verifier_log: log.to_owned(),
    }
}

/// What the verifier says of a program that reads past its argument.
const VERIFIER_LOG: &str = "\
0: R1=ctx() R10=fp0
; let stat = arg(3)
1: (79) r6 = *(u64 *)(r1 +24)
func 'shrink_folio_list' doesn't have 5-th argument
invalid bpf_context access off=24 size=8
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
";

const NO_TRAMPOLINE: &str = "this kernel refuses BPF trampolines (EBUSY)";
const NO_KPROBES: &str = "this kernel was built without CONFIG_KPROBE_EVENTS";
const WITH_KPROBES: &str = "boot a kernel with CONFIG_KPROBE_EVENTS=y, or with \
                            CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y for fentry";
const NOT_ALLOWED: &str = "this process may not load BPF programs (EPERM)";
const AS_ROOT: &str = "run lazyfree as root, or give it CAP_BPF, CAP_PERFMON and CAP_SYSLOG";

/// Makes a session that of a host where functions can't be hooked, and tracepoints can.
pub(crate) fn tracepoints_only(session: &mut Session) {
    "tracepoint".clone_into(&mut session.mode);
    for plan in &mut session.signals {
        let (kind, symbol, reason, adds_up_calls) = match plan.signal {
            Signal::Advised => (
                HookKind::Tracepoint,
                "sys_enter_madvise",
                "the ranges of the calls: parts that were never touched are in it, calls that \
                 don't go through madvise(2) are not",
                Some(FamilyName::Madvise),
            ),
            Signal::Marked => (
                HookKind::Procfs,
                "pglazyfree",
                "the kernel's own counter, which lags by what waits in the CPUs' batches",
                None,
            ),
            Signal::Hit => (HookKind::Procfs, "pglazyfreed", "", None),
            Signal::Redirtied => {
                (HookKind::RawTracepoint, "mm_vmscan_lru_shrink_inactive", "", None)
            }
            Signal::CompactionScanned | Signal::CompactionIsolated => {
                (HookKind::RawTracepoint, "mm_compaction_isolate_migratepages", "", None)
            }
            Signal::CompactionPinned => (
                HookKind::RawTracepoint,
                "mm_compaction_isolate_migratepages",
                "pages are looked at after the range was scanned, without its lock",
                None,
            ),
            signal => {
                *plan = unobserved(
                    signal,
                    "only a hook on the kernel's function sees it",
                    WITH_KPROBES,
                );
                continue;
            }
        };
        let accuracy = if reason.is_empty() { Accuracy::Exact } else { Accuracy::Estimate };
        *plan = SignalPlan {
            signal: plan.signal,
            hook: format!("{}:{symbol}", kind.name()),
            kind: Some(kind),
            accuracy,
            adds_up_calls,
            reason: reason.to_owned(),
            fix: if reason.is_empty() { String::new() } else { WITH_KPROBES.to_owned() },
            limited_by: if reason.is_empty() { LimitedBy::Nothing } else { LimitedBy::Host },
        };
    }
    session.hooks = FUNCTIONS
        .into_iter()
        .map(|(name, symbol, _)| HookOutcome {
            name: name.to_owned(),
            attached: match name {
                "madvise" => Some("tracepoint:sys_enter_madvise".to_owned()),
                "reclaim" => Some("raw_tracepoint:mm_vmscan_lru_shrink_inactive".to_owned()),
                _ => Some("raw_tracepoint:mm_compaction_isolate_migratepages".to_owned()),
            },
            refused: vec![
                if name == "reclaim" {
                    refused(
                        HookKind::Fentry,
                        symbol,
                        Cause::Verifier,
                        "the verifier refused the program",
                        "please report this with the output of `lazyfree doctor --json`",
                        VERIFIER_LOG,
                    )
                } else {
                    refused(
                        HookKind::Fentry,
                        symbol,
                        Cause::Refused,
                        NO_TRAMPOLINE,
                        WITH_KPROBES,
                        "",
                    )
                },
                refused(HookKind::Kprobe, symbol, Cause::NotBuiltIn, NO_KPROBES, WITH_KPROBES, ""),
            ],
        })
        .collect();
    session.facts = vec![
        fact("type information", "yes", "/sys/kernel/btf/vmlinux"),
        fact("lockdown", "none", ""),
        fact("capabilities", "all", ""),
        fact("kernel.kptr_restrict", "1", "addresses are shown to CAP_SYSLOG"),
        fact("CONFIG_KPROBE_EVENTS", "not set", "kprobes can't be attached"),
        fact("multi-generational LRU", "off", ""),
    ];
}

/// Makes a session that of a user without privileges.
pub(crate) fn procfs_only(session: &mut Session) {
    "procfs".clone_into(&mut session.mode);
    for plan in &mut session.signals {
        let counter = match plan.signal {
            Signal::Marked => "pglazyfree",
            Signal::Hit => "pglazyfreed",
            signal => {
                *plan = unobserved(signal, NOT_ALLOWED, AS_ROOT);
                continue;
            }
        };
        let lags = plan.signal == Signal::Marked;
        *plan = SignalPlan {
            signal: plan.signal,
            hook: format!("procfs:{counter}"),
            kind: Some(HookKind::Procfs),
            accuracy: if lags { Accuracy::Estimate } else { Accuracy::Exact },
            adds_up_calls: None,
            reason: if lags {
                "the kernel's own counter, which lags by what waits in the CPUs' batches".to_owned()
            } else {
                String::new()
            },
            fix: if lags { AS_ROOT.to_owned() } else { String::new() },
            limited_by: if lags { LimitedBy::Host } else { LimitedBy::Nothing },
        };
    }
    session.stalls = Family::STALLS
        .map(|stall| StallPlan {
            stall: stall.into(),
            hook: String::new(),
            kind: None,
            accuracy: Accuracy::None,
            reason: NOT_ALLOWED.to_owned(),
            fix: AS_ROOT.to_owned(),
            limited_by: LimitedBy::Host,
        })
        .into();
    session.hooks = FUNCTIONS
        .into_iter()
        .map(|(name, symbol, _)| HookOutcome {
            name: name.to_owned(),
            attached: None,
            refused: [HookKind::Fentry, HookKind::Kprobe]
                .map(|kind| refused(kind, symbol, Cause::NotPermitted, NOT_ALLOWED, AS_ROOT, ""))
                .into(),
        })
        .collect();
    session.facts = vec![
        fact("capabilities", "none", "CAP_BPF, CAP_PERFMON and CAP_SYSLOG are missing"),
        fact("kernel.unprivileged_bpf_disabled", "2", ""),
    ];
}

fn unobserved(signal: Signal, reason: &str, fix: &str) -> SignalPlan {
    SignalPlan {
        signal,
        hook: String::new(),
        kind: None,
        accuracy: Accuracy::None,
        adds_up_calls: None,
        reason: reason.to_owned(),
        fix: fix.to_owned(),
        limited_by: LimitedBy::Host,
    }
}
