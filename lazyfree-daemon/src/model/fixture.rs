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
    sample::{Durations, Failure, FamilyName, HookSample, LimitedBy, Sample, Session, SignalPlan},
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
            ..Sample::default()
        };
        Self {
            session: Session {
                kernel: "6.12.48+deb13-cloud-amd64".to_owned(),
                host: "build-07".to_owned(),
                page_size: 4096,
                cpus: 8,
                mode: "fentry".to_owned(),
                signals,
                stalls: Vec::new(),
                hooks: Vec::new(),
            },
            sample,
            vmstat: BTreeMap::from([("pglazyfree", 40_000), ("pglazyfreed", 30_000)]),
            model: None,
        }
    }

    /// A host where no probe could be attached.
    pub fn in_procfs_mode() -> Self {
        let mut host = Self::new();
        "procfs".clone_into(&mut host.session.mode);
        for signal in Signal::ALL {
            match signal {
                Signal::Marked => host.plan(signal).hook = "procfs:pglazyfree".to_owned(),
                Signal::Hit => host.plan(signal).hook = "procfs:pglazyfreed".to_owned(),
                _ => {
                    host.unobserve(signal, "this kernel refuses BPF tracing programs (EPERM)");
                    continue;
                }
            }
            let plan = host.plan(signal);
            (plan.kind, plan.adds_up_calls) = (Some(HookKind::Procfs), None);
        }
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
        *self.plan(signal) = SignalPlan {
            signal,
            hook: String::new(),
            kind: None,
            accuracy: Accuracy::None,
            adds_up_calls: None,
            reason: reason.to_owned(),
            fix: String::new(),
            limited_by: LimitedBy::Host,
        };
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
        for second in 0..seconds {
            self.mark(1024 + 512 * (second % 9));
            self.count(Counter::AdvisedPages, 640);
            self.count(Counter::DeactivatedSampled, 16);
            self.count(Counter::DeactivatedActive, second % 4);
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

fn hooks() -> Vec<HookSample> {
    let both = |program: &str, symbol: &str, family| {
        [("entry", HookKind::Fentry), ("return", HookKind::Fexit)].map(|(end, kind)| HookSample {
            program: format!("{program}_{end}"),
            symbol: symbol.to_owned(),
            family: Some(family),
            kind,
            misses: Some(0),
        })
    };
    [
        both("madvise", "madvise_free_pte_range", FamilyName::Madvise),
        both("reclaim", "shrink_folio_list", FamilyName::Reclaim),
        both("compaction", "isolate_migratepages_block", FamilyName::Isolate),
    ]
    .concat()
}
