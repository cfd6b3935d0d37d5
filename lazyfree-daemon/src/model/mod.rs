//! From samples to what is shown. Pure: no clock, no file, no thread.
//!
//! [`Model::advance`] takes the next [`Sample`] and returns a [`Snapshot`]: totals since the first
//! sample, rates over the last interval, residuals against the kernel's own counters, and how far
//! each number can be trusted given what was lost.

#[cfg(test)]
pub(crate) mod fixture;
mod snapshot;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use lazyfree_common::{
    Counter, Family, Reclaimer,
    counter::{PerFamily, PerReclaimer},
};

pub use snapshot::{
    Audit, CgroupState, Context, Events, FamilyState, HookState, Ledger, OtherProcesses, Point,
    ProcessState, Residual, SignalState, Snapshot, StallState,
};

use crate::{
    sample::{
        CgroupSample, Durations, Failure, FamilyName, Pressure, Sample, Session, SignalPlan,
        StallPlan,
    },
    signal::{Accuracy, HookKind, Signal},
};

/// Points of the time line: ten minutes at one a second.
pub const HISTORY: usize = 600;

/// Failures that are remembered.
const FAILURES: usize = 50;

/// Why a number isn't what the plan promised.
const LRU_SWITCHED: &str = "the multi-generational LRU was switched on or off since the start, and this \
                            number hangs on which LRU there is; restart lazyfree";

/// What is known so far.
#[derive(Clone, Debug)]
pub struct Model {
    session: Arc<Session>,
    first: Sample,
    last: Sample,
    totals: Vec<Option<Total>>,
    /// Whether the LRU was another than at the start in any sample.
    lru_switched: bool,
    history: VecDeque<Point>,
    failures: VecDeque<Failure>,
}

/// A signal's total since the first sample. It never steps back: a counter that did is waited for,
/// and until then the total is ahead of what is counted, and no longer exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    pages: u64,
    by_reclaimer: Option<[u64; Reclaimer::COUNT]>,
}

impl Total {
    fn split(by_reclaimer: [u64; Reclaimer::COUNT]) -> Self {
        Self { pages: by_reclaimer.iter().sum(), by_reclaimer: Some(by_reclaimer) }
    }

    /// Pages that are shown and no longer counted.
    fn ahead_of(self, counted: Self) -> u64 {
        self.pages.saturating_sub(counted.pages)
    }

    /// This total, or where it has stepped back, the one before.
    fn no_less_than(self, before: Self) -> Self {
        match (self.by_reclaimer, before.by_reclaimer) {
            (Some(now), Some(before)) => {
                Self::split(std::array::from_fn(|index| now[index].max(before[index])))
            }
            _ => Self { pages: self.pages.max(before.pages), ..self },
        }
    }
}

impl Model {
    /// Starts counting at `first`.
    pub fn new(session: Arc<Session>, first: Sample) -> Self {
        let totals = totals(&session, &first, &first);
        Self {
            session,
            last: first.clone(),
            first,
            totals,
            lru_switched: false,
            history: VecDeque::with_capacity(HISTORY),
            failures: VecDeque::with_capacity(FAILURES),
        }
    }

    /// Takes in the next sample.
    pub fn advance(&mut self, sample: Sample) -> Snapshot {
        let interval = seconds_between(&self.last, &sample);
        self.lru_switched |= sample.mglru != self.first.mglru;
        let counted = totals(&self.session, &self.first, &sample);
        let hold = |(now, before): (&Option<Total>, &Option<Total>)| match (now, before) {
            (Some(now), Some(before)) => Some(now.no_less_than(*before)),
            (now, _) => *now,
        };
        let totals: Vec<_> = counted.iter().zip(&self.totals).map(hold).collect();
        let families = families(&self.first, &sample);
        let hooks = hooks(&self.first, &sample);
        let signals: Vec<_> = self
            .session
            .signals
            .iter()
            .zip(counted.iter().zip(totals.iter().zip(&self.totals)))
            .map(|(plan, (counted, (now, before)))| {
                let ahead = now.zip(*counted).map_or(0, |(now, counted)| now.ahead_of(counted));
                let switched = self.lru_switched
                    && plan.accuracy != Accuracy::None
                    && self.session.dependent_on_lru.contains(&plan.signal);
                let trust = || {
                    if switched {
                        (Accuracy::Estimate, LRU_SWITCHED.to_owned())
                    } else {
                        trust(plan, &families, &hooks, &self.first, &sample, ahead)
                    }
                };
                signal_state(plan, *now, *before, interval, trust)
            })
            .collect();

        let rate = |signal| {
            let state = signals.iter().find(|state: &&SignalState| state.signal == signal)?;
            state.pages_per_second
        };
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Point {
            unix_seconds: sample.unix_seconds,
            marked: rate(Signal::Marked),
            hit: rate(Signal::Hit),
            redirtied: rate(Signal::Redirtied),
            reclaim_pinned: rate(Signal::ReclaimPinned),
            compaction_pinned: rate(Signal::CompactionPinned),
        });
        for failure in &sample.failures {
            if self.failures.len() == FAILURES {
                self.failures.pop_front();
            }
            self.failures.push_back(failure.clone());
        }

        let stalls = stalls(&self.session.stalls, &families, &hooks, &self.last, &sample, interval);
        let pressure = |earlier: &Sample| {
            let (now, before) = sample.pressure.zip(earlier.pressure)?;
            Some(Pressure {
                some_us: now.some_us.saturating_sub(before.some_us),
                full_us: now.full_us.saturating_sub(before.full_us),
            })
        };
        let pressure_ratio = |of: fn(Pressure) -> u64| {
            let waited = pressure(&self.last).filter(|_| interval > 0.0)?;
            Some(of(waited) as f64 / 1e6 / interval)
        };
        let counted = |counter| delta(&self.first, &sample, counter);
        let snapshot = Snapshot {
            session: Arc::clone(&self.session),
            seconds: seconds_between(&self.first, &sample),
            interval_seconds: interval,
            unix_seconds: sample.unix_seconds,
            residual: residual(&signals, &self.first, &sample),
            ledger: ledger(&signals),
            signals,
            batches: std::array::from_fn(|index| {
                let slot = |s: &Sample| s.counters.of(PerReclaimer::Batches, Reclaimer::ALL[index]);
                slot(&sample).wrapping_sub(slot(&self.first))
            }),
            families: families
                .into_iter()
                .filter(|state| Family::FUNCTIONS.contains(&state.family))
                .collect(),
            stalls,
            processes: processes(&self.first, &sample),
            other_processes: OtherProcesses {
                calls: counted(Counter::OtherCalls),
                advised_pages: counted(Counter::OtherAdvisedPages),
            },
            cgroups: cgroups(&self.first, &sample),
            events: Events {
                submitted: counted(Counter::EventsSubmitted),
                dropped: counted(Counter::EventsDropped),
            },
            hooks,
            vmstat: sample.vmstat.since(&self.first.vmstat),
            context: Context {
                lru_batch_pending: sample.lru_batch_pending,
                pressure: pressure(&self.first),
                pressure_some_ratio: pressure_ratio(|pressure| pressure.some_us),
                pressure_full_ratio: pressure_ratio(|pressure| pressure.full_us),
                mem_free_kb: sample.mem_free_kb,
                mem_available_kb: sample.mem_available_kb,
                mem_total_kb: sample.mem_total_kb,
                swap_used_kb: sample.swap_used_kb,
                throttle_threshold_kb: sample.min_free_kb * 3 / 2,
                self_cpu_ratio: if interval > 0.0 {
                    (sample.self_cpu_seconds - self.last.self_cpu_seconds).max(0.0) / interval
                } else {
                    0.0
                },
                self_cpu_seconds: sample.self_cpu_seconds,
                self_rss_bytes: sample.self_rss_bytes,
            },
            audit: audit(&self.first, &sample),
            history: self.history.iter().cloned().collect(),
            failures: self.failures.iter().cloned().collect(),
        };
        self.totals = totals;
        self.last = sample;
        snapshot
    }
}

fn seconds_between(earlier: &Sample, later: &Sample) -> f64 {
    later.time_ns.saturating_sub(earlier.time_ns) as f64 / 1e9
}

fn delta(first: &Sample, now: &Sample, counter: Counter) -> u64 {
    now.counters.get(counter).wrapping_sub(first.counters.get(counter))
}

/// The total of each signal of the session; `None` for those that aren't observed.
fn totals(session: &Session, first: &Sample, now: &Sample) -> Vec<Option<Total>> {
    session
        .signals
        .iter()
        .map(|plan| (plan.accuracy != Accuracy::None).then(|| total(plan, first, now))?)
        .collect()
}

/// A counter that was read while it had stepped back below its start counts as 0.
fn forward(delta: u64) -> u64 {
    if delta > i64::MAX as u64 { 0 } else { delta }
}

fn total(plan: &SignalPlan, first: &Sample, now: &Sample) -> Option<Total> {
    // Without a probe a signal can still have the kernel's own counter.
    if let Some(name) = plan.hook.strip_prefix("procfs:") {
        let pages = now.vmstat.get(name)?.saturating_sub(first.vmstat.get(name)?);
        return Some(Total { pages, by_reclaimer: None });
    }
    let counted =
        |counter| Total { pages: forward(delta(first, now, counter)), by_reclaimer: None };
    let split = |what: &[PerReclaimer]| {
        let by_reclaimer = std::array::from_fn(|index| {
            let of = |s: &Sample| {
                let slots = what.iter().map(|what| s.counters.of(*what, Reclaimer::ALL[index]));
                slots.fold(0, u64::wrapping_add)
            };
            forward(of(now).wrapping_sub(of(first)))
        });
        Total::split(by_reclaimer)
    };
    Some(match plan.signal {
        Signal::Advised => counted(Counter::AdvisedPages),
        Signal::Marked => counted(Counter::MarkedPages),
        Signal::MarkedUnderPressure => counted(Counter::MarkedUnderPressurePages),
        Signal::Deactivated => counted(Counter::DeactivatedPages),
        Signal::SwapEntriesFreed => counted(Counter::SwapEntriesFreed),
        Signal::Attempts => split(&[
            PerReclaimer::Hit,
            PerReclaimer::Redirtied,
            PerReclaimer::Pinned,
            PerReclaimer::Kept,
        ]),
        Signal::Hit => split(&[PerReclaimer::Hit]),
        Signal::Redirtied => split(&[PerReclaimer::Redirtied]),
        Signal::ReclaimPinned => split(&[PerReclaimer::Pinned]),
        Signal::Kept => split(&[PerReclaimer::Kept]),
        Signal::CompactionScanned => counted(Counter::CompactionScannedPages),
        Signal::CompactionIsolated => counted(Counter::CompactionIsolatedPages),
        Signal::CompactionPinned => counted(Counter::CompactionPinnedPages),
    })
}

fn signal_state(
    plan: &SignalPlan,
    now: Option<Total>,
    before: Option<Total>,
    interval: f64,
    trust: impl Fn() -> (Accuracy, String),
) -> SignalState {
    let (accuracy, reason) = if now.is_some() {
        trust()
    } else if plan.accuracy == Accuracy::None {
        (Accuracy::None, plan.reason.clone())
    } else {
        (Accuracy::None, format!("{} is missing on this kernel", plan.hook))
    };
    let rate = now.zip(before).filter(|_| interval > 0.0);
    SignalState {
        signal: plan.signal,
        accuracy,
        hook: plan.hook.clone(),
        kind: plan.kind,
        reason,
        fix: plan.fix.clone(),
        limited_by: plan.limited_by,
        pages: now.map(|total| total.pages),
        by_reclaimer: now.and_then(|total| total.by_reclaimer),
        pages_per_second: rate
            .map(|(now, before)| now.pages.saturating_sub(before.pages) as f64 / interval),
    }
}

/// The accuracy that the plan promised, less what was lost since.
fn trust(
    plan: &SignalPlan,
    families: &[FamilyState],
    hooks: &[HookState],
    first: &Sample,
    now: &Sample,
    ahead: u64,
) -> (Accuracy, String) {
    if plan.accuracy != Accuracy::Exact {
        return (plan.accuracy, plan.reason.clone());
    }
    let mut losses = Vec::new();
    if let Some(family) = plan.adds_up_calls {
        losses.extend(lost_calls(family, plan.symbol(), families, hooks));
    } else if plan.kind == Some(HookKind::RawTracepoint) {
        // Each run adds what its record tells; functions' counters telescope and lose nothing.
        let counts = |hook: &&HookState| {
            plan.symbol() == Some(&*hook.symbol)
                || (plan.signal == Signal::Redirtied && hook.symbol == "mm_vmscan_reclaim_pages")
        };
        losses.extend(hooks.iter().filter(counts).filter_map(skipped_runs));
    }
    for (counter, what) in unseen(plan.signal) {
        let number = delta(first, now, *counter);
        if number > 0 {
            losses.push(format!("{number} {what}"));
        }
    }
    if ahead > 0 {
        losses.push(format!(
            "{ahead} pages too many are shown, which were taken back since, such as one that waited in \
             the batches of two CPUs and was marked once; the total waits for as many"
        ));
    }
    if losses.is_empty() {
        (plan.accuracy, plan.reason.clone())
    } else {
        (Accuracy::Estimate, losses.join("; "))
    }
}

/// What was lost of the calls of a family, and of the runs of the programs that count it.
fn lost_calls(
    family: FamilyName,
    symbol: Option<&str>,
    families: &[FamilyState],
    hooks: &[HookState],
) -> Vec<String> {
    let mut losses = Vec::new();
    let state = &families[Family::from(family) as usize];
    if state.lost() > 0 {
        losses.push(format!(
            "{} calls of {} were not followed from entry to return",
            state.lost(),
            state.family.name()
        ));
    }
    let counts = |hook: &&HookState| hook.family == Some(family) || symbol == Some(&*hook.symbol);
    losses.extend(hooks.iter().filter(counts).filter_map(skipped_runs));
    losses
}

fn skipped_runs(hook: &HookState) -> Option<String> {
    let misses = hook.misses.filter(|misses| *misses > 0)?;
    Some(format!("the kernel skipped {misses} runs of {}", hook.program))
}

fn stalls(
    plans: &[StallPlan],
    families: &[FamilyState],
    hooks: &[HookState],
    last: &Sample,
    now: &Sample,
    interval: f64,
) -> Vec<StallState> {
    let state = |plan: &StallPlan| {
        let family = Family::from(plan.stall);
        let mut accuracy = plan.accuracy;
        let mut reason = plan.reason.clone();
        if accuracy == Accuracy::Exact {
            let losses = lost_calls(plan.stall, None, families, hooks);
            if !losses.is_empty() {
                (accuracy, reason) = (Accuracy::Estimate, losses.join("; "));
            }
        }
        let sum_ns = |s: &Sample| s.durations.get(family as usize).map_or(0, |d| d.sum_ns);
        let waited_ns = sum_ns(now).saturating_sub(sum_ns(last));
        let observed = accuracy != Accuracy::None && interval > 0.0;
        StallState {
            accuracy,
            hook: plan.hook.clone(),
            kind: plan.kind,
            reason,
            fix: plan.fix.clone(),
            limited_by: plan.limited_by,
            waits: families[family as usize].clone(),
            seconds_in_interval: observed.then_some(waited_ns as f64 / 1e9),
        }
    };
    plans.iter().map(state).collect()
}

/// A process that is new since the first sample has counted from 0.
fn processes(first: &Sample, now: &Sample) -> Vec<ProcessState> {
    let before: BTreeMap<_, _> = first.processes.iter().map(|row| (row.tgid, row)).collect();
    let since = |now: Option<u64>, before: Option<u64>| {
        now.map(|now| now.saturating_sub(before.unwrap_or(0)))
    };
    let mut rows: Vec<_> = now
        .processes
        .iter()
        .map(|row| {
            let before = before.get(&row.tgid);
            ProcessState {
                tgid: row.tgid,
                comm: row.comm.clone(),
                calls: since(row.calls, before.and_then(|row| row.calls)),
                advised_pages: since(row.advised_pages, before.and_then(|row| row.advised_pages)),
                rss_bytes: row.rss_kb.map(|kb| kb * 1024),
                lazyfree_bytes: row.lazyfree_kb.map(|kb| kb * 1024),
            }
        })
        // What it did before the first sample isn't part of this.
        .filter(|row| row.calls != Some(0) || row.lazyfree_bytes.is_some_and(|bytes| bytes > 0))
        .collect();
    rows.sort_by(|a, b| {
        let amount = |row: &ProcessState| (row.advised_pages, row.lazyfree_bytes);
        amount(b).cmp(&amount(a)).then(a.tgid.cmp(&b.tgid))
    });
    rows
}

/// A cgroup that is not in the first sample has counted from 0 since.
fn cgroups(first: &Sample, now: &Sample) -> Vec<CgroupState> {
    let before: BTreeMap<_, _> = first.cgroups.iter().map(|row| (&*row.path, row)).collect();
    let mut rows: Vec<_> = now
        .cgroups
        .iter()
        .map(|row| {
            let before = before.get(&*row.path).copied();
            let since =
                |now: u64, of: fn(&CgroupSample) -> u64| now.saturating_sub(before.map_or(0, of));
            CgroupState {
                path: row.path.clone(),
                marked: since(row.pglazyfree, |row| row.pglazyfree),
                hit: since(row.pglazyfreed, |row| row.pglazyfreed),
            }
        })
        .filter(|row| row.marked > 0 || row.hit > 0)
        .collect();
    rows.sort_by(|a, b| (b.marked, b.hit).cmp(&(a.marked, a.hit)).then(a.path.cmp(&b.path)));
    rows
}

/// What the probes count of pages that are missing in a signal, or are in the wrong one.
fn unseen(signal: Signal) -> &'static [(Counter, &'static str)] {
    const SPLIT: (Counter, &str) = (
        Counter::UnresolvedPages,
        "pages failed in batches that mix lazyfree with other anonymous pages; \
         the split between redirtied and pinned is a guess for them",
    );
    // The probe adds one for each such batch: it can't know how many folios it left out.
    const REST: (Counter, &str) =
        (Counter::UnwalkedBatches, "batches were too long to be looked at to their end");
    const RANGE: (Counter, &str) =
        (Counter::CompactionUnwalkedPages, "pages of scanned ranges were not looked at");
    match signal {
        Signal::Redirtied => &[SPLIT],
        Signal::ReclaimPinned => &[SPLIT, REST],
        Signal::Kept | Signal::Attempts => &[REST],
        Signal::CompactionPinned => &[RANGE],
        _ => &[],
    }
}

/// One for each [`Family`], in their order.
fn families(first: &Sample, now: &Sample) -> Vec<FamilyState> {
    Family::ALL
        .iter()
        .map(|&family| {
            let counted = |what| {
                let slot = |s: &Sample| s.counters.in_family(what, family);
                slot(now).wrapping_sub(slot(first))
            };
            let durations = |s: &Sample| s.durations.get(family as usize).cloned();
            FamilyState {
                family,
                followed: now.hooks.iter().any(|hook| hook.family == Some(family.into())),
                started: counted(PerFamily::Started),
                finished: counted(PerFamily::Finished),
                in_flight: now.in_flight.get(family as usize).copied().unwrap_or(0),
                returns_lost: counted(PerFamily::ReturnsLost),
                entries_lost: counted(PerFamily::EntriesLost),
                map_full: counted(PerFamily::MapFull),
                durations: since(
                    &durations(now).unwrap_or_default(),
                    &durations(first).unwrap_or_default(),
                ),
            }
        })
        .collect()
}

fn since(now: &Durations, first: &Durations) -> Durations {
    let before = first.buckets.iter().copied().chain(std::iter::repeat(0));
    Durations {
        sum_ns: now.sum_ns.wrapping_sub(first.sum_ns),
        buckets: now.buckets.iter().zip(before).map(|(now, b)| now.wrapping_sub(b)).collect(),
    }
}

fn hooks(first: &Sample, now: &Sample) -> Vec<HookState> {
    now.hooks
        .iter()
        .map(|hook| {
            let before = first.hooks.iter().find(|before| before.program == hook.program);
            let before = before.and_then(|before| before.misses).unwrap_or(0);
            HookState {
                program: hook.program.clone(),
                symbol: hook.symbol.clone(),
                family: hook.family,
                kind: hook.kind,
                misses: hook.misses.map(|misses| misses.saturating_sub(before)),
            }
        })
        .collect()
}

/// Ours less the kernel's, since the first sample. The kernel counted on while both samples were
/// taken: what it counted in between is in no order with what we read.
fn residual(signals: &[SignalState], first: &Sample, now: &Sample) -> Residual {
    let ours = |signal| {
        let state = signals.iter().find(|state| state.signal == signal)?;
        // A number that is the kernel's own cannot be audited against it.
        (!state.hook.starts_with("procfs:")).then_some(state.pages? as i64)
    };
    let kernel = |name| {
        let before = |sample: &Sample| Some(sample.vmstat.get(name)? as i64);
        let after = |sample: &Sample| match sample.vmstat_after.get(name) {
            Some(value) => Some(value as i64),
            None => before(sample),
        };
        Some((before(now)? - after(first)?, after(now)? - before(first)?))
    };
    let beyond = |ours: i64, (least, most): (i64, i64)| ours - ours.clamp(least, most.max(least));
    let pending = now.lru_batch_pending.unwrap_or(0) as i64;
    let pending = pending - first.lru_batch_pending.unwrap_or(0) as i64;
    Residual {
        marked: ours(Signal::Marked)
            .zip(kernel("pglazyfree"))
            .map(|(ours, kernel)| beyond(ours - pending, kernel)),
        hit: ours(Signal::Hit)
            .zip(kernel("pglazyfreed"))
            .map(|(ours, kernel)| beyond(ours, kernel)),
    }
}

fn ledger(signals: &[SignalState]) -> Ledger {
    let pages = |signal| signals.iter().find(|state| state.signal == signal)?.pages;
    Ledger {
        advised: pages(Signal::Advised),
        marked: pages(Signal::Marked),
        hit: pages(Signal::Hit),
        redirtied: pages(Signal::Redirtied),
        reclaim_pinned: pages(Signal::ReclaimPinned),
    }
}

fn audit(first: &Sample, now: &Sample) -> Option<Audit> {
    let attached = now.hooks.iter().any(|hook| hook.symbol == "try_to_unmap");
    attached.then(|| Audit {
        attempts: delta(first, now, Counter::AuditAttemptPages),
        hit: delta(first, now, Counter::AuditHitPages),
        redirtied: delta(first, now, Counter::AuditRedirtiedPages),
        reclaim_pinned: delta(first, now, Counter::AuditPinnedPages),
        kept: delta(first, now, Counter::AuditKeptPages),
    })
}
