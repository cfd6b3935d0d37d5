use std::collections::BTreeMap;

use lazyfree_common::{
    Counter, Family, Reclaimer,
    counter::{PerFamily, PerReclaimer},
};

use super::{
    FAILURES, HISTORY, Snapshot,
    fixture::{Batch, Host},
};
use crate::{
    sample::HookSample,
    signal::{Accuracy, HookKind, Signal},
    vmstat::Vmstat,
};

fn pages(snapshot: &Snapshot, signal: Signal) -> Option<u64> {
    snapshot.signal(signal).unwrap().pages
}

fn rate(snapshot: &Snapshot, signal: Signal) -> Option<f64> {
    snapshot.signal(signal).unwrap().pages_per_second
}

#[test]
fn totals_count_from_the_first_sample_and_rates_from_the_one_before() {
    let mut host = Host::new();
    host.mark(1_000);
    let first = host.advance(1);
    assert_eq!(pages(&first, Signal::Marked), Some(0));
    host.mark(600);
    let second = host.advance(2);
    assert_eq!(pages(&second, Signal::Marked), Some(600));
    assert_eq!(rate(&second, Signal::Marked), Some(300.0));
    host.mark(100);
    let third = host.advance(4);
    assert_eq!(pages(&third, Signal::Marked), Some(700));
    assert_eq!(rate(&third, Signal::Marked), Some(25.0));
    assert_eq!((third.seconds, third.interval_seconds), (7.0, 4.0));
    assert_eq!(third.vmstat.get("pglazyfree"), Some(700));
    let family = &third.families[Family::Madvise as usize];
    assert_eq!((family.started, family.finished), (3, 3));
    assert_eq!(family.durations.buckets.iter().sum::<u64>(), 3);
}

#[test]
fn there_is_no_rate_over_no_time() {
    let mut host = Host::new();
    host.advance(1);
    host.mark(100);
    let snapshot = host.advance(0);
    assert_eq!(pages(&snapshot, Signal::Marked), Some(100));
    assert_eq!(rate(&snapshot, Signal::Marked), None);
    assert_eq!(snapshot.context.self_cpu_ratio, 0.0);
}

#[test]
fn a_counter_may_wrap_around() {
    let mut host = Host::new();
    host.sample.counters.set(Counter::AdvisedPages, u64::MAX - 4);
    host.advance(1);
    host.sample.counters.set(Counter::AdvisedPages, 5);
    assert_eq!(pages(&host.advance(1), Signal::Advised), Some(10));
}

#[test]
fn a_total_waits_for_a_counter_that_stepped_back() {
    let mut host = Host::new();
    host.advance(1);
    // Below its start: a batched folio that was marked before wasn't on an LRU list any more.
    host.sample.counters.set(Counter::MarkedPages, 30_u64.wrapping_neg());
    assert_eq!(pages(&host.advance(1), Signal::Marked), Some(0));
    for (counter, total, per_second, ahead) in
        [(100, 100, 100.0, 0), (70, 100, 0.0, 30), (90, 100, 0.0, 10), (120, 120, 20.0, 0)]
    {
        host.sample.counters.set(Counter::MarkedPages, counter);
        let snapshot = host.advance(1);
        assert_eq!(pages(&snapshot, Signal::Marked), Some(total));
        assert_eq!(rate(&snapshot, Signal::Marked), Some(per_second));
        let marked = snapshot.signal(Signal::Marked).unwrap();
        if ahead == 0 {
            assert_eq!(marked.accuracy, Accuracy::Exact);
        } else {
            assert_eq!(marked.accuracy, Accuracy::Estimate);
            assert!(marked.reason.starts_with(&format!("{ahead} pages too many")), "{marked:?}");
        }
    }
}

#[test]
fn no_reclaimer_steps_back_and_their_sum_is_the_total() {
    let mut host = Host::new();
    host.advance(1);
    let before = host.sample.counters.clone();
    let hits = |kswapd, memcg| {
        let mut counters = before.clone();
        counters.bump_of(PerReclaimer::Hit, Reclaimer::Kswapd, kswapd);
        counters.bump_of(PerReclaimer::Hit, Reclaimer::Memcg, memcg);
        counters
    };
    host.sample.counters = hits(40, 2);
    host.advance(1);
    host.sample.counters = hits(30, 7);
    let snapshot = host.advance(1);
    let hit = snapshot.signal(Signal::Hit).unwrap();
    assert_eq!(hit.by_reclaimer, Some([40, 0, 7, 0]));
    assert_eq!(hit.pages, Some(47));
}

#[test]
fn attempts_are_hit_redirtied_pinned_and_kept() {
    let mut host = Host::new();
    host.advance(1);
    host.reclaim(Reclaimer::Kswapd, Batch { hit: 20, redirtied: 7, pinned: 4, kept: 1 });
    host.reclaim(Reclaimer::Proactive, Batch { hit: 300, redirtied: 0, pinned: 0, kept: 50 });
    let snapshot = host.advance(1);
    for (signal, by_reclaimer) in [
        (Signal::Hit, [20, 0, 0, 300]),
        (Signal::Redirtied, [7, 0, 0, 0]),
        (Signal::ReclaimPinned, [4, 0, 0, 0]),
        (Signal::Kept, [1, 0, 0, 50]),
        (Signal::Attempts, [32, 0, 0, 350]),
    ] {
        let state = snapshot.signal(signal).unwrap();
        assert_eq!(state.by_reclaimer, Some(by_reclaimer), "{signal:?}");
        assert_eq!(state.pages, Some(by_reclaimer.iter().sum()), "{signal:?}");
    }
    assert_eq!(snapshot.batches, [1, 0, 0, 1]);
}

#[test]
fn every_counter_is_shown_by_its_signal_alone() {
    let direct = |what: PerReclaimer| what.slot(Reclaimer::Direct);
    for (slot, expected) in [
        (Counter::AdvisedPages as usize, vec![Signal::Advised]),
        (Counter::MarkedPages as usize, vec![Signal::Marked]),
        (Counter::MarkedUnderPressurePages as usize, vec![Signal::MarkedUnderPressure]),
        (Counter::DeactivatedPages as usize, vec![Signal::Deactivated]),
        (Counter::SwapEntriesFreed as usize, vec![Signal::SwapEntriesFreed]),
        (direct(PerReclaimer::Hit), vec![Signal::Attempts, Signal::Hit]),
        (direct(PerReclaimer::Redirtied), vec![Signal::Attempts, Signal::Redirtied]),
        (direct(PerReclaimer::Pinned), vec![Signal::Attempts, Signal::ReclaimPinned]),
        (direct(PerReclaimer::Kept), vec![Signal::Attempts, Signal::Kept]),
        (Counter::CompactionScannedPages as usize, vec![Signal::CompactionScanned]),
        (Counter::CompactionIsolatedPages as usize, vec![Signal::CompactionIsolated]),
        (Counter::CompactionPinnedPages as usize, vec![Signal::CompactionPinned]),
        (Counter::AuditHitPages as usize, vec![]),
    ] {
        let mut host = Host::new();
        host.advance(1);
        host.sample.counters.bump_slot(slot, 3);
        let snapshot = host.advance(1);
        let moved = snapshot.signals.iter().filter(|state| state.pages != Some(0));
        let moved: Vec<_> = moved.map(|state| (state.signal, state.pages)).collect();
        let expected: Vec<_> = expected.into_iter().map(|signal| (signal, Some(3))).collect();
        assert_eq!(moved, expected, "{slot}");
    }
}

#[test]
fn the_residual_is_ours_less_the_kernels_and_what_waits_in_the_batches() {
    let mut host = Host::new();
    host.sample.lru_batch_pending = Some(4);
    host.advance(1);
    // Ten pages more in the batches now than at the start, so the kernel counted ten less.
    host.count(Counter::MarkedPages, 512);
    host.vmstat("pglazyfree", 502);
    host.sample.lru_batch_pending = Some(14);
    host.reclaim(Reclaimer::Direct, Batch { hit: 32, ..Batch::default() });
    let snapshot = host.advance(1);
    assert_eq!((snapshot.residual.marked, snapshot.residual.hit), (Some(0), Some(0)));
    // The batches drain, and somebody else's pages go through.
    host.vmstat("pglazyfree", 10 + 7);
    host.vmstat("pglazyfreed", 3);
    host.sample.lru_batch_pending = Some(4);
    let snapshot = host.advance(1);
    assert_eq!((snapshot.residual.marked, snapshot.residual.hit), (Some(-7), Some(-3)));
}

#[test]
fn what_the_kernel_counts_while_a_sample_is_taken_is_no_residual() {
    for (ours, before, after, residual) in [
        // Nothing moves while the sample is taken.
        (10, 10, 10, 0),
        (11, 10, 10, 1),
        // It moves, and ours was read somewhere in between.
        (10, 10, 15, 0),
        (12, 10, 15, 0),
        (15, 10, 15, 0),
        // Further than it moved.
        (9, 10, 15, -1),
        (17, 10, 15, 2),
    ] {
        let mut host = Host::new();
        host.advance(1);
        let base = host.sample.vmstat.get("pglazyfreed").unwrap();
        host.sample.vmstat_after = Vmstat::parse(&format!("pglazyfreed {}", base + after));
        host.vmstat("pglazyfreed", before);
        host.sample.counters.bump_of(PerReclaimer::Hit, Reclaimer::Direct, ours);
        let found = host.advance(1).residual.hit;
        assert_eq!(found, Some(residual), "{ours} of {before} to {after}");
    }
}

#[test]
fn there_is_no_residual_of_the_kernel_against_itself() {
    let mut host = Host::in_procfs_mode();
    host.advance(1);
    host.vmstat("pglazyfree", 64);
    let snapshot = host.advance(1);
    assert_eq!(pages(&snapshot, Signal::Marked), Some(64));
    assert_eq!((snapshot.residual.marked, snapshot.residual.hit), (None, None));
}

#[test]
fn without_a_probe_the_kernels_counter_is_shown() {
    let mut host = Host::in_procfs_mode();
    host.advance(1);
    host.vmstat("pglazyfree", 64);
    host.vmstat("pglazyfreed", 32);
    let snapshot = host.advance(2);
    let hit = snapshot.signal(Signal::Hit).unwrap();
    assert_eq!((hit.pages, hit.pages_per_second), (Some(32), Some(16.0)));
    assert_eq!((hit.kind, hit.by_reclaimer), (Some(HookKind::Procfs), None));
    let redirtied = snapshot.signal(Signal::Redirtied).unwrap();
    assert_eq!((redirtied.accuracy, redirtied.pages), (Accuracy::None, None));
    assert_eq!(redirtied.reason, "this process may not load BPF programs (EPERM)");
    assert_eq!(snapshot.ledger.rest(), None);
}

#[test]
fn a_counter_that_the_kernel_lacks_is_no_zero() {
    let mut host = Host::in_procfs_mode();
    host.plan(Signal::Hit).hook = "procfs:pgxxxxfreed".to_owned();
    host.advance(1);
    let snapshot = host.advance(1);
    let hit = snapshot.signal(Signal::Hit).unwrap();
    assert_eq!((hit.accuracy, hit.pages), (Accuracy::None, None));
    assert_eq!(hit.reason, "procfs:pgxxxxfreed is missing on this kernel");
}

/// The reasons of the signals that were planned as exact and are not any more.
fn degraded(snapshot: &Snapshot) -> BTreeMap<Signal, String> {
    let planned = |signal| snapshot.session.plan(signal).unwrap().accuracy;
    let states = snapshot.signals.iter();
    let degraded = states.filter(|state| state.accuracy != planned(state.signal));
    degraded
        .map(|state| {
            assert_eq!(state.accuracy, Accuracy::Estimate, "{:?} still has a number", state.signal);
            (state.signal, state.reason.clone())
        })
        .collect()
}

const OF_MADVISE: &[Signal] =
    &[Signal::Advised, Signal::MarkedUnderPressure, Signal::SwapEntriesFreed];
const OF_RECLAIM: &[Signal] =
    &[Signal::Attempts, Signal::Redirtied, Signal::ReclaimPinned, Signal::Kept];
const OF_COMPACTION: &[Signal] =
    &[Signal::CompactionScanned, Signal::CompactionIsolated, Signal::CompactionPinned];

#[test]
fn what_was_lost_takes_the_word_exact_away_where_it_is_missing() {
    for (slot, expected) in [
        (PerFamily::ReturnsLost.slot(Family::Madvise), OF_MADVISE),
        (PerFamily::EntriesLost.slot(Family::Reclaim), OF_RECLAIM),
        (PerFamily::MapFull.slot(Family::Isolate), OF_COMPACTION),
        (Counter::UnresolvedPages as usize, &[Signal::Redirtied, Signal::ReclaimPinned]),
        (
            Counter::UnwalkedBatches as usize,
            &[Signal::Attempts, Signal::ReclaimPinned, Signal::Kept],
        ),
        (Counter::CompactionUnwalkedPages as usize, &[Signal::CompactionPinned]),
        // An event is an example; the counts don't come from it.
        (Counter::EventsDropped as usize, &[]),
    ] {
        let mut host = Host::new();
        host.sample.counters.bump_slot(slot, 1_000);
        assert_eq!(degraded(&host.advance(1)), BTreeMap::new(), "{slot} before the start");
        host.sample.counters.bump_slot(slot, 3);
        let degraded = degraded(&host.advance(1));
        assert_eq!(degraded.keys().copied().collect::<Vec<_>>(), expected, "{slot}");
        for reason in degraded.values() {
            assert!(reason.starts_with("3 "), "{slot}: {reason}");
        }
    }
}

/// A host whose swap entries are counted by a hook of their own, as on every real one, with the
/// audit's hook.
fn fully_hooked() -> Host {
    let mut host = Host::new();
    host.plan(Signal::SwapEntriesFreed).hook = "fentry:free_swap_and_cache_nr".to_owned();
    for (program, symbol) in
        [("swap_free_many", "free_swap_and_cache_nr"), ("unmap_return", "try_to_unmap")]
    {
        host.sample.hooks.push(HookSample {
            program: program.to_owned(),
            symbol: symbol.to_owned(),
            family: None,
            kind: HookKind::Fentry,
            misses: Some(0),
        });
    }
    host
}

#[test]
fn skipped_runs_take_the_word_exact_away_from_what_adds_up_their_calls() {
    for (program, expected) in [
        ("madvise_entry", OF_MADVISE),
        ("madvise_return", OF_MADVISE),
        ("reclaim_entry", OF_RECLAIM),
        ("reclaim_return", OF_RECLAIM),
        ("compaction_return", OF_COMPACTION),
        // Only the hook that counts the entries; who is inside MADV_FREE is known all the same.
        ("swap_free_many", &[Signal::SwapEntriesFreed]),
        // The audit counts for itself.
        ("unmap_return", &[]),
    ] {
        let mut host = fully_hooked();
        let hook = host.sample.hooks.iter().position(|hook| hook.program == program).unwrap();
        host.sample.hooks[hook].misses = Some(1_000);
        assert_eq!(degraded(&host.advance(1)), BTreeMap::new(), "{program} before the start");
        host.sample.hooks[hook].misses = Some(1_015);
        let snapshot = host.advance(1);
        assert_eq!(snapshot.hooks[hook].misses, Some(15), "{program}");
        let degraded = degraded(&snapshot);
        assert_eq!(degraded.keys().copied().collect::<Vec<_>>(), expected, "{program}");
        for reason in degraded.values() {
            assert_eq!(*reason, format!("the kernel skipped 15 runs of {program}"));
        }
    }
}

#[test]
fn skipped_runs_at_a_tracepoint_take_the_word_exact_away_from_what_its_records_tell() {
    // This host can't look at the pages of a range, so pinned ones aren't observed.
    let isolation: &[Signal] = &[Signal::CompactionScanned, Signal::CompactionIsolated];
    for (symbol, expected) in [
        ("mm_vmscan_lru_shrink_inactive", &[Signal::Redirtied] as &[_]),
        ("mm_vmscan_reclaim_pages", &[Signal::Redirtied]),
        ("mm_compaction_isolate_migratepages", isolation),
    ] {
        let mut host = Host::in_tracepoint_mode();
        if symbol == "mm_vmscan_reclaim_pages" {
            // From 6.16 on.
            host.sample.hooks.push(HookSample {
                program: "reclaim_pages".to_owned(),
                symbol: symbol.to_owned(),
                family: None,
                kind: HookKind::RawTracepoint,
                misses: Some(0),
            });
        }
        let before = degraded(&host.advance(1));
        let hook = host.sample.hooks.iter().position(|hook| hook.symbol == symbol).unwrap();
        host.sample.hooks[hook].misses = Some(3);
        let mut degraded = degraded(&host.advance(1));
        degraded.retain(|signal, _| !before.contains_key(signal));
        assert_eq!(degraded.keys().copied().collect::<Vec<_>>(), expected, "{symbol}");
        assert!(degraded.values().all(|reason| reason.starts_with("the kernel skipped 3 runs")));
    }
}

#[test]
fn what_hangs_on_the_lru_is_no_longer_exact_once_that_was_switched() {
    let mut host = Host::new();
    host.session.dependent_on_lru = vec![Signal::Redirtied];
    host.sample.mglru = Some(false);
    host.advance(1);
    assert_eq!(degraded(&host.advance(1)), BTreeMap::new());
    // And back again: what was missed meanwhile stays missed.
    for switch in [true, false] {
        host.sample.mglru = Some(switch);
        let degraded = degraded(&host.advance(1));
        assert_eq!(degraded.keys().copied().collect::<Vec<_>>(), [Signal::Redirtied]);
        assert!(degraded[&Signal::Redirtied].contains("restart lazyfree"));
    }
}

#[test]
fn misses_that_the_kernel_does_not_tell_are_not_made_up() {
    let mut host = fully_hooked();
    for hook in &mut host.sample.hooks {
        hook.misses = None;
    }
    host.advance(1);
    let snapshot = host.advance(1);
    assert_eq!(degraded(&snapshot), BTreeMap::new());
    assert_eq!(snapshot.misses(), None);
}

#[test]
fn every_loss_is_named() {
    let mut host = Host::new();
    host.advance(1);
    host.sample.counters.bump(PerFamily::ReturnsLost, Family::Reclaim, 2);
    host.sample.counters.bump(PerFamily::MapFull, Family::Reclaim, 1);
    host.count(Counter::UnwalkedBatches, 4);
    for hook in &mut host.sample.hooks {
        hook.misses = Some(6);
    }
    assert_eq!(
        degraded(&host.advance(1))[&Signal::Kept],
        "3 calls of reclaim were not followed from entry to return; \
         the kernel skipped 6 runs of reclaim_entry; the kernel skipped 6 runs of reclaim_return; \
         4 batches were too long to be looked at to their end"
    );
}

#[test]
fn what_was_no_more_than_an_estimate_keeps_its_own_reason() {
    let mut host = Host::new();
    let plan = host.plan(Signal::Redirtied);
    plan.accuracy = Accuracy::Estimate;
    plan.reason = "a known gap".to_owned();
    host.unobserve(Signal::Kept, "no such function");
    host.advance(1);
    host.sample.counters.bump(PerFamily::ReturnsLost, Family::Reclaim, 2);
    let snapshot = host.advance(1);
    let state = |signal| {
        let state = snapshot.signal(signal).unwrap();
        (state.accuracy, &*state.reason)
    };
    assert_eq!(state(Signal::Redirtied), (Accuracy::Estimate, "a known gap"));
    assert_eq!(state(Signal::Kept), (Accuracy::None, "no such function"));
}

#[test]
fn the_time_line_holds_the_newest_points() {
    let mut host = Host::new();
    let mut snapshot = host.advance(1);
    for second in 0..HISTORY as u64 {
        host.mark(second);
        snapshot = host.advance(1);
    }
    assert_eq!(snapshot.history.len(), HISTORY);
    let marked = snapshot.history.iter().map(|point| point.marked.unwrap());
    assert!(marked.eq((0..HISTORY as u64).map(|second| second as f64)));
    assert_eq!(snapshot.history.last().unwrap().unix_seconds, snapshot.unix_seconds);
}

#[test]
fn the_newest_failures_are_remembered() {
    let mut host = Host::new();
    host.advance(1);
    let mut snapshot = None;
    for tgid in 0..FAILURES as u32 + 5 {
        host.fail(Reclaimer::Direct, tgid, "victim", Batch::default());
        snapshot = Some(host.advance(1));
    }
    let failures = snapshot.unwrap().failures;
    assert!(failures.iter().map(|failure| failure.tgid).eq(5..FAILURES as u32 + 5));
}

#[test]
fn the_audit_is_shown_only_with_its_hook() {
    let mut host = Host::new();
    assert_eq!(host.advance(1).audit, None);
    let mut host = fully_hooked();
    host.count(Counter::AuditHitPages, 10);
    host.advance(1);
    host.count(Counter::AuditAttemptPages, 7);
    host.count(Counter::AuditHitPages, 5);
    let audit = host.advance(1).audit.unwrap();
    assert_eq!((audit.attempts, audit.hit, audit.redirtied), (7, 5, 0));
}
