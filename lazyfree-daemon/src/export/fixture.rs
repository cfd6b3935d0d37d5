//! Snapshots for the tests of this module, made by the model from two samples.

use std::sync::Arc;

use lazyfree_common::{
    Counter, Family, Reclaimer,
    counter::{PerFamily, PerReclaimer, SLOTS},
    duration::{self, BUCKETS},
};

use crate::{
    model::{
        Model, Snapshot,
        fixture::{procfs_only, stall_hooks, tracepoints_only, watched},
    },
    sample::{
        CgroupSample, Durations, FamilyName, HookOutcome, HookSample, LimitedBy, Pressure,
        ProcessSample, Sample, Session, SignalPlan,
    },
    signal::{Accuracy, HookKind, Signal},
    vmstat::Vmstat,
};

const PLANS: [(Signal, &str, HookKind, Option<FamilyName>); 13] = {
    use FamilyName::{Isolate, Madvise, Reclaim};
    use HookKind::{Fentry, Fexit};
    const MARK: &str = "fexit:madvise_free_pte_range";
    const SHRINK: &str = "fexit:shrink_folio_list";
    const ISOLATE: &str = "fexit:isolate_migratepages_block";
    [
        (Signal::Advised, "fentry:madvise_free_pte_range", Fentry, Some(Madvise)),
        (Signal::Marked, MARK, Fexit, None),
        (Signal::MarkedUnderPressure, MARK, Fexit, None),
        (Signal::Deactivated, MARK, Fexit, None),
        (Signal::SwapEntriesFreed, MARK, Fexit, Some(Madvise)),
        (Signal::Attempts, SHRINK, Fexit, Some(Reclaim)),
        (Signal::Hit, SHRINK, Fexit, None),
        (Signal::Redirtied, SHRINK, Fexit, Some(Reclaim)),
        (Signal::ReclaimPinned, SHRINK, Fexit, Some(Reclaim)),
        (Signal::Kept, SHRINK, Fexit, Some(Reclaim)),
        (Signal::CompactionScanned, ISOLATE, Fexit, Some(Isolate)),
        (Signal::CompactionIsolated, ISOLATE, Fexit, Some(Isolate)),
        (Signal::CompactionPinned, ISOLATE, Fexit, Some(Isolate)),
    ]
};

/// Ten seconds on a host where all is observed, exactly but for `deactivated`; nothing was lost.
pub fn full() -> Snapshot {
    snapshot(full_session())
}

fn full_session() -> (Session, [Sample; 2]) {
    session("fentry", |signal| {
        let (_, hook, kind, adds_up_calls) = PLANS[signal as usize];
        let (accuracy, reason) = match signal {
            Signal::Deactivated => (Accuracy::Estimate, "one folio in 16 is looked at"),
            _ => (Accuracy::Exact, ""),
        };
        plan(signal, hook, Some(kind), accuracy, adds_up_calls, reason)
    })
}

/// The same ten seconds on a host where only tracepoints can be attached.
pub fn tracepoint() -> Snapshot {
    let (mut session, mut samples) = full_session();
    tracepoints_only(&mut session);
    for sample in &mut samples {
        sample.hooks.retain(|hook| hook.kind == HookKind::RawTracepoint);
    }
    snapshot((session, samples))
}

/// The same ten seconds for a user who may attach nothing.
pub fn procfs() -> Snapshot {
    let (mut session, mut samples) = full_session();
    procfs_only(&mut session);
    for sample in &mut samples {
        *sample = Sample {
            time_ns: sample.time_ns,
            unix_seconds: sample.unix_seconds,
            vmstat: sample.vmstat.clone(),
            pressure: sample.pressure,
            processes: sample
                .processes
                .iter()
                .filter(|row| row.rss_kb.is_some())
                .map(|row| ProcessSample { calls: None, advised_pages: None, ..row.clone() })
                .collect(),
            cgroups: sample.cgroups.clone(),
            mem_free_kb: sample.mem_free_kb,
            min_free_kb: sample.min_free_kb,
            ..Sample::default()
        };
    }
    snapshot((session, samples))
}

/// As [`full`], and one call of reclaim was lost, two events were dropped.
pub fn lossy() -> Snapshot {
    let (session, [first, mut second]) = session("fentry", |signal| {
        let (_, hook, kind, adds_up_calls) = PLANS[signal as usize];
        plan(signal, hook, Some(kind), Accuracy::Exact, adds_up_calls, "")
    });
    second.counters.bump(PerFamily::ReturnsLost, Family::Reclaim, 1);
    second.counters.set(Counter::EventsDropped, 2);
    snapshot((session, [first, second]))
}

fn plan(
    signal: Signal,
    hook: &str,
    kind: Option<HookKind>,
    accuracy: Accuracy,
    adds_up_calls: Option<FamilyName>,
    reason: &str,
) -> SignalPlan {
    let (hook, reason) = (hook.to_owned(), reason.to_owned());
    SignalPlan {
        signal,
        hook,
        kind,
        accuracy,
        adds_up_calls,
        reason,
        fix: String::new(),
        limited_by: LimitedBy::Nothing,
    }
}

fn snapshot((session, [first, second]): (Session, [Sample; 2])) -> Snapshot {
    Model::new(Arc::new(session), first).advance(second)
}

fn session(mode: &str, plan: impl Fn(Signal) -> SignalPlan) -> (Session, [Sample; 2]) {
    let session = Session {
        dependent_on_lru: Vec::new(),
        kernel: "6.1.0-44-cloud-amd64".into(),
        host: "host".into(),
        page_size: 4096,
        cpus: 2,
        mode: mode.into(),
        signals: Signal::ALL.map(plan).into(),
        stalls: Family::STALLS.map(watched).into(),
        hooks: vec![HookOutcome {
            name: "reclaim".into(),
            attached: Some("fentry:shrink_folio_list".into()),
            refused: Vec::new(),
        }],
        facts: Vec::new(),
    };
    (session, [sample(0), sample(1)])
}

/// The sample after `steps` intervals of ten seconds. In each, 8,192 pages are marked; of them
/// 4,096 are hit, 1,024 redirtied, 512 tried in vain since they are pinned, and 128 kept.
fn sample(steps: u64) -> Sample {
    let mut sample = Sample {
        time_ns: 5_000_000_000 + steps * 10_000_000_000,
        unix_seconds: 1_800_000_000 + steps * 10,
        durations: Family::ALL
            .iter()
            .map(|family| match family {
                Family::Madvise => durations(&[(1_500, 10)], steps),
                Family::Reclaim => durations(&[(20_000, 96), (3_000_000, 4)], steps),
                Family::Isolate => durations(&[(70_000, 7)], steps),
                Family::DirectReclaim => durations(&[(4_000_000, 20), (200_000_000, 1)], steps),
                Family::MemcgReclaim => durations(&[(1_000_000, 4)], steps),
                Family::DirectCompaction => durations(&[(30_000_000, 2)], steps),
                Family::Throttle => durations(&[], steps),
            })
            .collect(),
        in_flight: vec![0, 1, 0, 2, 0, 0, 0],
        hooks: hooks(),
        vmstat: vmstat(steps),
        lru_batch_pending: Some(steps * 12),
        pressure: Some(Pressure { some_us: 900_000 + steps * 250_000, full_us: steps * 50_000 }),
        processes: vec![
            process(2211, "postgres", 8 * steps, 9_216 * steps, Some((65_536, 8_192))),
            process(977, "cc1", 2 * steps, 1_000 * steps, None),
        ],
        cgroups: vec![CgroupSample {
            path: "/system.slice/postgresql.service".into(),
            pglazyfree: 50_000 + 7_000 * steps,
            pglazyfreed: 20_000 + 3_500 * steps,
        }],
        mem_free_kb: 200_000,
        mem_available_kb: 400_000,
        mem_total_kb: 1_000_000,
        swap_used_kb: 0,
        min_free_kb: 4_000,
        self_cpu_seconds: 0.5 + 0.125 * steps as f64,
        self_rss_bytes: 12 << 20,
        ..Sample::default()
    };
    for (counter, value) in [
        (Counter::AdvisedPages, 10_240),
        (Counter::MarkedPages, 8_192),
        (Counter::MarkedUnderPressurePages, 64),
        (Counter::DeactivatedPages, 2_048),
        (Counter::SwapEntriesFreed, 16),
        (Counter::CompactionScannedPages, 3_584),
        (Counter::CompactionIsolatedPages, 900),
        (Counter::CompactionPinnedPages, 40),
        (Counter::EventsSubmitted, 2),
        (Counter::OtherAdvisedPages, 24),
        (Counter::AuditAttemptPages, 5_760),
        (Counter::AuditHitPages, 4_096),
        (Counter::AuditRedirtiedPages, 1_024),
        (Counter::AuditPinnedPages, 512),
        (Counter::AuditKeptPages, 128),
    ] {
        sample.counters.set(counter, steps * value);
    }
    let mut of = [0; SLOTS];
    for (what, reclaimer, value) in [
        (PerReclaimer::Batches, Reclaimer::Kswapd, 97),
        (PerReclaimer::Batches, Reclaimer::Direct, 3),
        (PerReclaimer::Hit, Reclaimer::Kswapd, 4_000),
        (PerReclaimer::Hit, Reclaimer::Direct, 96),
        (PerReclaimer::Redirtied, Reclaimer::Kswapd, 1_024),
        (PerReclaimer::Pinned, Reclaimer::Kswapd, 512),
        (PerReclaimer::Kept, Reclaimer::Kswapd, 128),
    ] {
        of[what.slot(reclaimer)] = steps * value;
    }
    for (family, calls) in [
        (Family::Madvise, 10),
        (Family::Reclaim, 100),
        (Family::Isolate, 7),
        (Family::DirectReclaim, 21),
        (Family::MemcgReclaim, 4),
        (Family::DirectCompaction, 2),
    ] {
        of[PerFamily::Started.slot(family)] = steps * calls;
        of[PerFamily::Finished.slot(family)] = steps * calls;
    }
    sample.counters.add(&of);
    sample
}

/// A process; `memory` is what is resident and what of it is lazyfree, in kB.
fn process(
    tgid: u32,
    comm: &str,
    calls: u64,
    pages: u64,
    memory: Option<(u64, u64)>,
) -> ProcessSample {
    ProcessSample {
        tgid,
        comm: comm.into(),
        calls: Some(calls),
        advised_pages: Some(pages),
        rss_kb: memory.map(|(rss_kb, _)| rss_kb),
        lazyfree_kb: memory.map(|(_, lazyfree_kb)| lazyfree_kb),
    }
}

fn durations(calls: &[(u64, u64)], steps: u64) -> Durations {
    let mut buckets = vec![0; BUCKETS];
    let mut sum_ns = 0;
    for (duration_ns, number) in calls {
        buckets[duration::bucket(*duration_ns)] += steps * number;
        sum_ns += steps * number * duration_ns;
    }
    Durations { sum_ns, buckets }
}

fn hooks() -> Vec<HookSample> {
    let hook = |program: &str, symbol: &str, family, kind, misses| HookSample {
        program: program.into(),
        symbol: symbol.into(),
        family,
        kind,
        misses,
    };
    vec![
        hook(
            "madvise_enter",
            "madvise_free_pte_range",
            Some(FamilyName::Madvise),
            HookKind::Fentry,
            Some(0),
        ),
        hook(
            "madvise_exit",
            "madvise_free_pte_range",
            Some(FamilyName::Madvise),
            HookKind::Fexit,
            Some(0),
        ),
        hook(
            "reclaim_enter",
            "shrink_folio_list",
            Some(FamilyName::Reclaim),
            HookKind::Fentry,
            Some(0),
        ),
        hook("reclaim_exit", "shrink_folio_list", Some(FamilyName::Reclaim), HookKind::Fexit, None),
        hook(
            "isolate_enter",
            "isolate_migratepages_block",
            Some(FamilyName::Isolate),
            HookKind::Fentry,
            Some(0),
        ),
        hook("unmap_enter", "try_to_unmap", None, HookKind::Fentry, Some(0)),
    ]
    .into_iter()
    .chain(stall_hooks())
    .collect()
}

/// Every counter that is read; those not named here don't move.
fn vmstat(steps: u64) -> Vmstat {
    let moved = [
        ("pglazyfree", 8_180),
        ("pglazyfreed", 4_096),
        ("pgscan_kswapd", 6_000),
        ("pgsteal_kswapd", 4_500),
        ("allocstall_normal", 3),
        ("compact_migrate_scanned", 3_584),
    ];
    let lines = crate::vmstat::NAMES.iter().map(|name| {
        let delta = moved.iter().find(|(moved, _)| moved == name).map_or(0, |(_, delta)| *delta);
        format!("{name} {}\n", 1_000 + steps * delta)
    });
    Vmstat::parse(&lines.collect::<String>())
}
