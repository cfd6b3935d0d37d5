//! From what came of the hooks to what each number is worth. Pure.

use std::collections::BTreeMap;

use lazyfree_common::{Family, layout::ABSENT};

use super::{
    hook::Hook,
    layout::{Missing, Resolved},
    plan::{Candidate, Outcome},
    release::Release,
};
use crate::{
    sample::{FamilyName, HookOutcome, LimitedBy, Refused, SignalPlan, StallPlan},
    signal::{Accuracy, HookKind, Signal},
};

/// Bytes of a struct page that the probes step over; so many on all kernels for x86-64 with memory
/// cgroups.
const STRUCT_PAGE: u32 = 64;

/// From here on `reclaim_stat.nr_lazyfree_fail` counts only pages that were written to again
/// (measured: not yet in 6.12).
pub const LAZYFREE_FAIL_IS_REDIRTY: Release = Release::new(6, 16);

/// From here on `mm_vmscan_reclaim_pages` tells of the batches of `reclaim_pages`.
const RECLAIM_PAGES_IS_TRACED: Release = Release::new(6, 16);

/// From here on the multi-generational LRU leaves dirty lazyfree folios to `shrink_folio_list`.
const MGLRU_LEAVES_DIRTY: Release = Release::new(6, 12);

/// What came of each hook.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(BTreeMap<Hook, Outcome>);

/// Why a number isn't to be had, or not as well as it could be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Gap {
    reason: String,
    /// The same in a few words, for a reason that has more to say.
    short: String,
    fix: String,
}

impl Gap {
    fn new(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { short: reason.clone(), reason, fix: fix.into() }
    }

    /// What a number is instead, as there is no probe.
    fn instead(self, reason: &str) -> Self {
        Self { reason: format!("{reason}; no probe: {}", self.short), ..self }
    }

    /// Of candidates that were refused.
    fn of<'a>(refused: impl Iterator<Item = &'a Refused> + Clone) -> Self {
        let mut reasons: Vec<String> = Vec::new();
        let mut short: Vec<String> = Vec::new();
        for Refused { kind, reason, cause, .. } in refused.clone() {
            short.push(format!("{} {}", kind.name(), cause.name().replace('_', " ")));
            // What is true of all of them is said once.
            if !reasons.iter().any(|said| said.ends_with(reason)) {
                reasons.push(format!("{}: {reason}", kind.name()));
            }
        }
        for said in [&mut reasons, &mut short] {
            if said.is_empty() {
                said.push("not asked for".to_owned());
            }
        }
        let mut fixes: Vec<&str> = Vec::new();
        for Refused { fix, .. } in refused {
            if !fix.is_empty() && !fixes.contains(&&**fix) {
                fixes.push(fix);
            }
        }
        Self { reason: reasons.join("; "), short: short.join(", "), fix: fixes.join("; or ") }
    }
}

impl From<&Missing> for Gap {
    fn from(missing: &Missing) -> Self {
        Self::new(missing.to_string(), missing.fix())
    }
}

impl Outcomes {
    /// Takes in what came of a hook.
    pub fn insert(&mut self, hook: Hook, outcome: Outcome) {
        self.0.insert(hook, outcome);
    }

    /// The reasons why a hook isn't attached; `None` if it is.
    pub fn reason(&self, hook: Hook) -> Option<String> {
        self.any(hook).err().map(|gap| gap.reason)
    }

    /// How the functions that count are hooked; `tracepoint` where none of them is, and `procfs`
    /// where nothing is attached.
    pub fn mode(&self) -> &'static str {
        let counting = [Hook::Madvise, Hook::Reclaim, Hook::Isolate];
        let kinds = || counting.iter().filter_map(|hook| Some(self.attached(*hook)?.entry));
        if kinds().any(|kind| kind == HookKind::Fentry) {
            "fentry"
        } else if kinds().any(|kind| kind == HookKind::Kprobe) {
            "kprobe"
        } else if self.0.iter().any(|(hook, outcome)| {
            // Neither says anything by itself.
            !matches!(hook, Hook::SwapFree | Hook::Unmap) && outcome.attached.is_some()
        }) {
            "tracepoint"
        } else {
            "procfs"
        }
    }

    /// One row for each hook, for people.
    pub fn rows(&self) -> Vec<HookOutcome> {
        let row = |(hook, outcome): (&Hook, &Outcome)| HookOutcome {
            name: hook.name().to_owned(),
            attached: outcome.attached.as_ref().map(at_entry).map(|(name, _)| name),
            refused: outcome.refused.clone(),
        };
        self.0.iter().map(row).collect()
    }

    fn attached(&self, hook: Hook) -> Option<&Candidate> {
        self.0.get(&hook)?.attached.as_ref()
    }

    fn refused(&self, hook: Hook) -> &[Refused] {
        self.0.get(&hook).map_or(&[], |outcome| &outcome.refused)
    }

    /// What is attached, to whatever.
    fn any(&self, hook: Hook) -> Result<&Candidate, Gap> {
        self.attached(hook).ok_or_else(|| Gap::of(self.refused(hook).iter()))
    }

    /// What is attached to the function itself.
    fn function(&self, hook: Hook) -> Result<&Candidate, Gap> {
        let function = |kind| matches!(kind, HookKind::Fentry | HookKind::Kprobe);
        self.attached(hook).filter(|candidate| function(candidate.entry)).ok_or_else(|| {
            Gap::of(self.refused(hook).iter().filter(|refused| function(refused.kind)))
        })
    }
}

/// `kind:symbol` of the program that does the counting at entry.
fn at_entry(candidate: &Candidate) -> (String, HookKind) {
    (format!("{}:{}", candidate.entry.name(), candidate.symbol), candidate.entry)
}

/// The same for the return.
fn at_exit(candidate: &Candidate) -> (String, HookKind) {
    let kind = candidate.exit.unwrap_or(candidate.entry);
    (format!("{}:{}", kind.name(), candidate.symbol), kind)
}

/// What is known of the kernel besides its types.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its release.
    pub release: Release,
    /// Whether the multi-generational LRU is on.
    pub mglru: bool,
    /// Address of the struct page of page frame 0; 0 if unknown.
    pub vmemmap: u64,
}

/// What the rows are made from.
#[derive(Clone, Copy)]
struct Known<'a> {
    outcomes: &'a Outcomes,
    resolved: &'a Resolved,
    facts: Facts,
}

/// One row for each signal.
pub fn signals(outcomes: &Outcomes, resolved: &Resolved, facts: Facts) -> Vec<SignalPlan> {
    let known = Known { outcomes, resolved, facts };
    let row = |signal| known.signal(signal).unwrap_or_else(Row::unobserved).into_plan(signal);
    Signal::ALL.map(row).into()
}

/// The signals whose rows would be others if the LRU were switched.
pub fn dependent_on_lru(outcomes: &Outcomes, resolved: &Resolved, facts: Facts) -> Vec<Signal> {
    let switched = Facts { mglru: !facts.mglru, ..facts };
    let rows = signals(outcomes, resolved, facts);
    let pairs = rows.iter().zip(signals(outcomes, resolved, switched));
    pairs.filter(|(row, other)| *row != other).map(|(row, _)| row.signal).collect()
}

/// One row for each kind of stall.
pub fn stalls(outcomes: &Outcomes, resolved: &Resolved) -> Vec<StallPlan> {
    let row = |family: Family| {
        let (hook, row) = stall(family, outcomes, resolved);
        row.unwrap_or_else(Row::unobserved).into_stall(hook)
    };
    Family::STALLS.map(row).into()
}

impl Known<'_> {
    fn signal(self, signal: Signal) -> Result<Row, Gap> {
        let Self { outcomes, resolved, facts } = self;
        match signal {
            Signal::Advised => self.advised(),
            Signal::Marked => self
                .madvise()
                .and_then(|row| row.needs(&resolved.marks))
                .or_else(|gap| Ok(procfs("pglazyfree").lagging("the CPUs' batches", gap))),
            Signal::MarkedUnderPressure => self
                .madvise()
                .and_then(|row| row.needs(&resolved.marks)?.needs(&resolved.free_memory))
                .map(|row| row.adding(FamilyName::Madvise)),
            Signal::Deactivated => self.deactivated(),
            Signal::SwapEntriesFreed => {
                // Freed by whom is told by being inside MADV_FREE.
                outcomes.any(Hook::Madvise)?;
                let row = Row::exact(at_entry(outcomes.any(Hook::SwapFree)?));
                Ok(row.adding(FamilyName::Madvise))
            }
            Signal::Hit => outcomes
                .function(Hook::Reclaim)
                .and_then(|candidate| Row::exact(at_exit(candidate)).needs(&resolved.hits))
                .or_else(|gap| Ok(procfs("pglazyfreed").without_reclaimers(gap))),
            Signal::Attempts => {
                let row = self.batch()?.needs(&resolved.hits)?;
                Ok(self.blind_spot(row))
            }
            Signal::Redirtied => match self.batch() {
                Ok(row) => Ok(self.blind_spot(row)),
                Err(gap) => self.reported_redirtied(gap),
            },
            Signal::ReclaimPinned | Signal::Kept => self.batch(),
            Signal::CompactionScanned => self.isolation().or_else(|gap| {
                Ok(procfs("compact_migrate_scanned").lagging("compactions under way", gap))
            }),
            Signal::CompactionIsolated => self.isolation(),
            Signal::CompactionPinned => {
                let row = self.isolation()?.needs(&resolved.pages)?;
                page_frames(resolved, facts)?;
                Ok(row)
            }
        }
    }

    fn madvise(self) -> Result<Row, Gap> {
        self.outcomes.function(Hook::Madvise).map(|candidate| Row::exact(at_exit(candidate)))
    }

    fn advised(self) -> Result<Row, Gap> {
        let candidate = self.outcomes.any(Hook::Madvise)?;
        let row = Row::exact(at_entry(candidate)).adding(FamilyName::Madvise);
        Ok(match self.outcomes.function(Hook::Madvise) {
            Ok(_) => row,
            Err(gap) => row.estimate(
                gap.instead(
                    "the ranges of the system calls, with parts that have no page table; calls of \
                     32-bit programs and through io_uring are not seen",
                ),
                LimitedBy::Host,
            ),
        })
    }

    fn deactivated(self) -> Result<Row, Gap> {
        let Self { resolved, facts, .. } = self;
        let row = self.madvise()?.needs(&resolved.marks)?.needs(&resolved.pages)?;
        if facts.mglru {
            let gap = Gap::new(
                "the multi-generational LRU has no active list to move pages from",
                "`echo n > /sys/kernel/mm/lru_gen/enabled` brings the active list back; restart \
                 lazyfree then",
            );
            return Ok(Row { limited_by: LimitedBy::Kernel, ..Row::unobserved(gap) });
        }
        if resolved.layout.batch_folios == ABSENT {
            let reason = "the folios in the CPU's LRU batch can't be found on this kernel";
            return Err(Gap::new(reason, ""));
        }
        let reason = "scaled from the flags of up to 4 small folios of each call; large folios \
                      aren't sampled";
        Ok(row.estimate(Gap::new(reason, ""), LimitedBy::Kernel))
    }

    fn batch(self) -> Result<Row, Gap> {
        let Self { outcomes, resolved, .. } = self;
        let row = Row::exact(at_exit(outcomes.function(Hook::Reclaim)?));
        Ok(row.needs(&resolved.reclaim)?.needs(&resolved.pages)?.adding(FamilyName::Reclaim))
    }

    /// Up to 6.11 the multi-generational LRU reinstates a lazyfree folio that it finds dirty in
    /// `sort_folio`, which is inlined, before reclaim gets to see it.
    fn blind_spot(self, row: Row) -> Row {
        if self.facts.mglru && self.facts.release < MGLRU_LEAVES_DIRTY {
            return row.estimate(
                Gap::new(
                    "before 6.12 the multi-generational LRU reinstates dirty lazyfree pages in \
                     sort_folio(), where no hook sees them",
                    "`echo n > /sys/kernel/mm/lru_gen/enabled` makes the count exact; restart \
                     lazyfree then",
                ),
                LimitedBy::Host,
            );
        }
        row
    }

    /// What the tracepoint at the end of a batch tells.
    fn reported_redirtied(self, gap: Gap) -> Result<Row, Gap> {
        let Self { outcomes, resolved, facts } = self;
        if outcomes.function(Hook::Reclaim).is_ok() {
            return Err(gap);
        }
        // Neither the function nor the tracepoint: all the reasons.
        let candidate = outcomes.any(Hook::Reclaim)?;
        let row = Row::exact(at_entry(candidate)).needs(&resolved.reclaim)?;
        let mut missing = Vec::new();
        if facts.release < LAZYFREE_FAIL_IS_REDIRTY {
            missing.push("before 6.16 reclaim_stat.nr_lazyfree_fail counts pinned pages as well");
        }
        if !candidate.is_on("mm_vmscan_reclaim_pages") {
            missing.push(if facts.release < RECLAIM_PAGES_IS_TRACED {
                "before 6.16 no tracepoint tells of MADV_PAGEOUT and DAMON"
            } else {
                "MADV_PAGEOUT and DAMON are not seen without tracepoint mm_vmscan_reclaim_pages"
            });
        }
        if facts.mglru && facts.release < MGLRU_LEAVES_DIRTY {
            missing.push("before 6.12 the multi-generational LRU tells of none of its batches");
        }
        if missing.is_empty() {
            return Ok(row);
        }
        Ok(row.estimate(gap.instead(&missing.join("; ")), LimitedBy::Host))
    }

    fn isolation(self) -> Result<Row, Gap> {
        let Self { outcomes, resolved, .. } = self;
        let candidate = outcomes.any(Hook::Isolate)?;
        let row = Row::exact(at_exit(candidate));
        // The end of an isolation tells by its arguments what was scanned; what the compaction was
        // for is in its compact_control, if something gives us that and it may be read.
        let reads_control = candidate.is_on("mm_compaction_begin")
            && !matches!(resolved.compaction, Err(Missing::Memory { .. }));
        Ok(match candidate.family {
            Some(family) => row.needs(&resolved.compaction)?.adding(family),
            None if reads_control => row.needs(&resolved.compaction)?,
            None => row,
        })
    }
}

/// What turning page frames into pages needs.
fn page_frames(resolved: &Resolved, facts: Facts) -> Result<(), Gap> {
    let bytes = resolved.layout.page_size;
    if facts.vmemmap == 0 {
        let reason = match resolved.vmemmap_base {
            Some(_) => "vmemmap_base could not be read, so page frames can't be turned into pages",
            None => {
                "the kernel's symbol table has no vmemmap_base (CONFIG_KALLSYMS_ALL is off, or the \
                 addresses are hidden: see kernel.kptr_restrict), and it could not be derived from \
                 pages of our own, which takes CAP_SYS_ADMIN, so page frames can't be turned into \
                 pages"
            }
        };
        Err(Gap::new(reason, "run as root"))
    } else if bytes != STRUCT_PAGE {
        Err(Gap::new(
            format!(
                "a struct page has {bytes} bytes on this kernel, and the probes read {STRUCT_PAGE}"
            ),
            "",
        ))
    } else {
        Ok(())
    }
}

fn stall(
    family: Family,
    outcomes: &Outcomes,
    resolved: &Resolved,
) -> (FamilyName, Result<Row, Gap>) {
    let hook = match family {
        Family::MemcgReclaim => Hook::MemcgReclaim,
        Family::DirectCompaction => Hook::DirectCompaction,
        Family::Throttle => Hook::Throttle,
        _ => Hook::DirectReclaim,
    };
    let row = outcomes.any(hook).and_then(|candidate| {
        let row = Row::exact(at_entry(candidate)).adding(family.into());
        if hook == Hook::DirectCompaction && candidate.is_on("mm_compaction_begin") {
            // It is kcompactd's and others' as well: its compact_control tells which.
            return row.needs(&resolved.compaction);
        }
        if hook != Hook::Throttle {
            return Ok(row);
        }
        let mut reason = "the kernel tells each wait in ticks of 1/HZ s".to_owned();
        if !candidate.is_on("mm_vmscan_throttled") {
            reason +=
                "; before 5.16 waits for congested devices are counted, whoever asks for them";
        }
        Ok(row.estimate(Gap::new(reason, ""), LimitedBy::Kernel))
    });
    (family.into(), row)
}

/// The kernel's own counter, where no probe counts.
fn procfs(counter: &str) -> Row {
    Row::exact((format!("procfs:{counter}"), HookKind::Procfs))
}

/// A row in the making.
struct Row {
    hook: String,
    kind: Option<HookKind>,
    accuracy: Accuracy,
    adds_up_calls: Option<FamilyName>,
    gap: Gap,
    limited_by: LimitedBy,
}

impl Row {
    fn exact((hook, kind): (String, HookKind)) -> Self {
        Self {
            hook,
            kind: Some(kind),
            accuracy: Accuracy::Exact,
            adds_up_calls: None,
            gap: Gap::default(),
            limited_by: LimitedBy::Nothing,
        }
    }

    fn unobserved(gap: Gap) -> Self {
        Self {
            hook: String::new(),
            kind: None,
            accuracy: Accuracy::None,
            adds_up_calls: None,
            gap,
            limited_by: LimitedBy::Host,
        }
    }

    fn needs(self, what: &Result<(), Missing>) -> Result<Self, Gap> {
        match what {
            Ok(()) => Ok(self),
            Err(missing) => Err(missing.into()),
        }
    }

    fn adding(self, family: FamilyName) -> Self {
        Self { adds_up_calls: Some(family), ..self }
    }

    fn estimate(self, gap: Gap, limited_by: LimitedBy) -> Self {
        Self { accuracy: Accuracy::Estimate, gap, limited_by, ..self }
    }

    /// A counter of the kernel's that is behind by what waits somewhere.
    fn lagging(self, where_it_waits: &str, gap: Gap) -> Self {
        let lags =
            format!("the kernel's own counter, which lags by what waits in {where_it_waits}");
        self.estimate(gap.instead(&lags), LimitedBy::Host)
    }

    /// A counter of the kernel's that is right, and tells less.
    fn without_reclaimers(self, gap: Gap) -> Self {
        let gap = gap.instead("the kernel's own counter, which doesn't tell the reclaimers apart");
        Self { gap, limited_by: LimitedBy::Host, ..self }
    }

    fn into_plan(self, signal: Signal) -> SignalPlan {
        let Self { hook, kind, accuracy, adds_up_calls, gap: Gap { reason, fix, .. }, limited_by } =
            self;
        SignalPlan { signal, hook, kind, accuracy, adds_up_calls, reason, fix, limited_by }
    }

    fn into_stall(self, stall: FamilyName) -> StallPlan {
        let Self { hook, kind, accuracy, gap: Gap { reason, fix, .. }, limited_by, .. } = self;
        StallPlan { stall, hook, kind, accuracy, reason, fix, limited_by }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fixture::{KERNELS, Kernel, refusing},
            layout::resolve,
            offer::{Memory, Offer},
            plan::UNLOCK,
        },
        *,
    };
    const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
    const FENTRY: &[HookKind] = &[];
    const KPROBE: &[HookKind] = &[HookKind::Fentry];
    const TRACEPOINTS: &[HookKind] = &[HookKind::Fentry, HookKind::Kprobe];
    const NOTHING: &[HookKind] =
        &[HookKind::Fentry, HookKind::Kprobe, HookKind::RawTracepoint, HookKind::Tracepoint];

    /// What comes of every hook where the kernel refuses these kinds.
    fn without(kinds: &[HookKind], offer: &Offer) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for hook in Hook::ALL {
            outcomes.insert(hook, outcome(kinds, hook, offer));
        }
        outcomes
    }

    fn outcome(kinds: &[HookKind], hook: Hook, offer: &Offer) -> Outcome {
        refusing(kinds, hook, offer, None)
    }

    fn facts(kernel: Kernel) -> Facts {
        Facts { release: kernel.release(), mglru: false, vmemmap: VMEMMAP }
    }

    fn rows_without(kinds: &[HookKind], kernel: Kernel) -> Vec<SignalPlan> {
        signals(&without(kinds, &kernel.offer()), &kernel.resolved(), facts(kernel))
    }

    fn plan_of(rows: &[SignalPlan], signal: Signal) -> &SignalPlan {
        rows.iter().find(|row| row.signal == signal).unwrap()
    }

    /// Signal, hook, accuracy.
    fn summary(rows: &[SignalPlan]) -> Vec<(Signal, &str, Accuracy)> {
        rows.iter().map(|row| (row.signal, &*row.hook, row.accuracy)).collect()
    }

    #[test]
    fn with_everything_attached_all_but_the_sampled_is_exact() {
        use Accuracy::{Estimate, Exact};
        let rows = rows_without(FENTRY, Kernel::of(7, 3));
        let of_reclaim = "fexit:shrink_folio_list";
        let of_isolation = "fexit:isolate_migratepages_block";
        assert_eq!(
            summary(&rows),
            [
                (Signal::Advised, "fentry:madvise_free_pte_range", Exact),
                (Signal::Marked, "fexit:madvise_free_pte_range", Exact),
                (Signal::MarkedUnderPressure, "fexit:madvise_free_pte_range", Exact),
                (Signal::Deactivated, "fexit:madvise_free_pte_range", Estimate),
                (Signal::SwapEntriesFreed, "fentry:swap_put_entries_direct", Exact),
                (Signal::Attempts, of_reclaim, Exact),
                (Signal::Hit, of_reclaim, Exact),
                (Signal::Redirtied, of_reclaim, Exact),
                (Signal::ReclaimPinned, of_reclaim, Exact),
                (Signal::Kept, of_reclaim, Exact),
                (Signal::CompactionScanned, of_isolation, Exact),
                (Signal::CompactionIsolated, of_isolation, Exact),
                (Signal::CompactionPinned, of_isolation, Exact),
            ]
        );
        let telescoping = rows.iter().filter(|row| row.adds_up_calls.is_none());
        let telescoping: Vec<_> = telescoping.map(|row| row.signal).collect();
        assert_eq!(telescoping, [Signal::Marked, Signal::Deactivated, Signal::Hit]);
    }

    #[test]
    fn nothing_on_a_host_that_allows_all_is_the_hosts_fault() {
        for kernel in KERNELS {
            let offer = kernel.offer();
            let outcomes = without(FENTRY, &offer);
            for mglru in [false, kernel.release() >= MGLRU_LEAVES_DIRTY] {
                let facts = Facts { mglru, ..facts(kernel) };
                for row in signals(&outcomes, &kernel.resolved(), facts) {
                    assert_ne!(row.limited_by, LimitedBy::Host, "{row:?} of {}", kernel.uname);
                }
            }
            for row in stalls(&outcomes, &kernel.resolved()) {
                assert_ne!(row.limited_by, LimitedBy::Host, "{row:?} of {}", kernel.uname);
                assert_ne!(row.accuracy, Accuracy::None, "{row:?} of {}", kernel.uname);
            }
        }
    }

    #[test]
    fn both_families_give_the_same_on_every_recorded_kernel() {
        for kernel in KERNELS {
            let (fentry, kprobe) = (rows_without(FENTRY, kernel), rows_without(KPROBE, kernel));
            for (fentry, kprobe) in fentry.iter().zip(&kprobe) {
                let renamed = fentry.hook.replace("fexit:", "kretprobe:");
                assert_eq!(kprobe.hook, renamed.replace("fentry:", "kprobe:"));
                assert_eq!(
                    (fentry.accuracy, fentry.adds_up_calls, &fentry.reason, fentry.limited_by),
                    (kprobe.accuracy, kprobe.adds_up_calls, &kprobe.reason, kprobe.limited_by)
                );
                let sampled = fentry.signal == Signal::Deactivated;
                assert_eq!(fentry.accuracy == Accuracy::Exact, !sampled, "{}", kernel.uname);
            }
        }
    }

    #[test]
    fn a_hook_that_got_the_other_kind_is_named_by_it() {
        // As on 5.10, where fentry refuses the struct that free_swap_and_cache takes.
        let kernel = Kernel::of(5, 10);
        let offer = kernel.offer();
        let mut outcomes = without(FENTRY, &offer);
        outcomes.insert(Hook::SwapFree, outcome(KPROBE, Hook::SwapFree, &offer));
        outcomes.insert(Hook::Isolate, outcome(KPROBE, Hook::Isolate, &offer));
        let rows = signals(&outcomes, &kernel.resolved(), facts(kernel));
        let hook = |signal| {
            let row = plan_of(&rows, signal);
            (&*row.hook, row.kind.unwrap())
        };
        assert_eq!(
            hook(Signal::SwapEntriesFreed),
            ("kprobe:free_swap_and_cache", HookKind::Kprobe)
        );
        assert_eq!(
            hook(Signal::CompactionPinned),
            ("kretprobe:isolate_migratepages_block", HookKind::Kretprobe)
        );
        assert_eq!(hook(Signal::Hit), ("fexit:shrink_page_list", HookKind::Fexit));
        assert_eq!(outcomes.mode(), "fentry");
    }

    #[test]
    fn the_mode_is_that_of_the_hooks_that_count() {
        let offer = Kernel::of(6, 12).offer();
        assert_eq!(without(FENTRY, &offer).mode(), "fentry");
        assert_eq!(without(KPROBE, &offer).mode(), "kprobe");
        assert_eq!(without(TRACEPOINTS, &offer).mode(), "tracepoint");
        let mut outcomes = without(NOTHING, &offer);
        assert_eq!(outcomes.mode(), "procfs");
        // Neither says anything by itself.
        outcomes.insert(Hook::SwapFree, outcome(FENTRY, Hook::SwapFree, &offer));
        outcomes.insert(Hook::Unmap, outcome(FENTRY, Hook::Unmap, &offer));
        assert_eq!(outcomes.mode(), "procfs");
        outcomes.insert(Hook::Throttle, outcome(FENTRY, Hook::Throttle, &offer));
        assert_eq!(outcomes.mode(), "tracepoint");
        outcomes.insert(Hook::Isolate, outcome(KPROBE, Hook::Isolate, &offer));
        assert_eq!(outcomes.mode(), "kprobe");
    }

    #[test]
    fn what_tracepoints_tell_on_every_recorded_kernel() {
        use Accuracy::{Estimate, Exact, None};
        for kernel in KERNELS {
            let rows = rows_without(TRACEPOINTS, kernel);
            let of_isolation = "raw_tracepoint:mm_compaction_isolate_migratepages";
            let redirtied =
                if kernel.release() >= LAZYFREE_FAIL_IS_REDIRTY { Exact } else { Estimate };
            assert_eq!(
                summary(&rows),
                [
                    (Signal::Advised, "tracepoint:sys_enter_madvise", Estimate),
                    (Signal::Marked, "procfs:pglazyfree", Estimate),
                    (Signal::MarkedUnderPressure, "", None),
                    (Signal::Deactivated, "", None),
                    (Signal::SwapEntriesFreed, "", None),
                    (Signal::Attempts, "", None),
                    (Signal::Hit, "procfs:pglazyfreed", Exact),
                    (Signal::Redirtied, "raw_tracepoint:mm_vmscan_lru_shrink_inactive", redirtied),
                    (Signal::ReclaimPinned, "", None),
                    (Signal::Kept, "", None),
                    (Signal::CompactionScanned, of_isolation, Exact),
                    (Signal::CompactionIsolated, of_isolation, Exact),
                    (Signal::CompactionPinned, of_isolation, Exact),
                ],
                "{}",
                kernel.uname
            );
            let reason = &plan_of(&rows, Signal::Redirtied).reason;
            assert_eq!(reason.contains("pinned pages as well"), redirtied == Estimate, "{reason}");
            assert_eq!(reason.contains("MADV_PAGEOUT"), redirtied == Estimate, "{reason}");
            for row in rows.iter().filter(|row| !row.reason.is_empty()) {
                assert_eq!(row.limited_by, LimitedBy::Host, "{row:?}");
                let why = if row.accuracy == None { "this host refuses" } else { "kprobe refused" };
                assert!(row.reason.ends_with(why), "{row:?}");
                assert_eq!(row.fix, "another host", "{row:?}");
            }
        }
    }

    #[test]
    fn with_nothing_attached_the_kernels_counters_are_left() {
        let kernel = Kernel::of(6, 18);
        for row in rows_without(NOTHING, kernel) {
            let (counter, accuracy) = match row.signal {
                Signal::Marked => ("procfs:pglazyfree", Accuracy::Estimate),
                Signal::Hit => ("procfs:pglazyfreed", Accuracy::Exact),
                Signal::CompactionScanned => ("procfs:compact_migrate_scanned", Accuracy::Estimate),
                _ => ("", Accuracy::None),
            };
            assert_eq!((&*row.hook, row.accuracy), (counter, accuracy), "{row:?}");
            let why = if counter.is_empty() { "this host refuses" } else { " refused" };
            assert!(row.reason.ends_with(why), "{}", row.reason);
            assert_eq!((&*row.fix, row.limited_by), ("another host", LimitedBy::Host));
        }
        for row in stalls(&without(NOTHING, &kernel.offer()), &kernel.resolved()) {
            assert_eq!(row.accuracy, Accuracy::None, "{row:?}");
            assert!(row.reason.contains("this host refuses"), "{row:?}");
        }
    }

    #[test]
    fn a_hook_takes_only_its_own_signals_along() {
        let kernel = Kernel::of(6, 12);
        let offer = kernel.offer();
        let of_madvise = vec![
            Signal::Advised,
            Signal::MarkedUnderPressure,
            Signal::Deactivated,
            // Freed by whom is told by being inside MADV_FREE.
            Signal::SwapEntriesFreed,
        ];
        let of_reclaim =
            vec![Signal::Attempts, Signal::Redirtied, Signal::ReclaimPinned, Signal::Kept];
        let of_isolation = vec![Signal::CompactionIsolated, Signal::CompactionPinned];
        for (hook, expected) in [
            (Hook::Madvise, of_madvise),
            (Hook::SwapFree, vec![Signal::SwapEntriesFreed]),
            (Hook::Reclaim, of_reclaim),
            (Hook::Isolate, of_isolation),
            (Hook::DirectReclaim, vec![]),
            (Hook::Unmap, vec![]),
        ] {
            let mut outcomes = without(FENTRY, &offer);
            outcomes.insert(hook, outcome(NOTHING, hook, &offer));
            let rows = signals(&outcomes, &kernel.resolved(), facts(kernel));
            let lost = rows.iter().filter(|row| row.accuracy == Accuracy::None);
            assert_eq!(lost.map(|row| row.signal).collect::<Vec<_>>(), expected, "{hook:?}");
            let stalls = stalls(&outcomes, &kernel.resolved());
            let lost = stalls.iter().filter(|row| row.accuracy == Accuracy::None);
            let lost: Vec<_> = lost.map(|row| row.stall).collect();
            let of_hook = hook.family().filter(|_| hook == Hook::DirectReclaim);
            assert_eq!(lost, of_hook.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_multi_generational_lru_has_no_active_list_and_a_blind_spot_before_6_12() {
        for kernel in KERNELS {
            let facts = Facts { mglru: true, ..facts(kernel) };
            let rows = signals(&without(FENTRY, &kernel.offer()), &kernel.resolved(), facts);
            let deactivated = plan_of(&rows, Signal::Deactivated);
            assert_eq!(deactivated.accuracy, Accuracy::None, "{}", kernel.uname);
            assert_eq!(deactivated.limited_by, LimitedBy::Kernel);
            assert!(deactivated.fix.contains("lru_gen/enabled"), "{}", deactivated.fix);

            let blind = kernel.release() < Release::new(6, 12);
            let estimates = rows.iter().filter(|row| row.accuracy == Accuracy::Estimate);
            let estimates = estimates.inspect(|row| {
                assert!(row.reason.contains("sort_folio()"));
                assert!(row.fix.contains("lru_gen/enabled"), "{}", row.fix);
                assert_eq!(row.limited_by, LimitedBy::Host);
            });
            let expected: &[Signal] =
                if blind { &[Signal::Attempts, Signal::Redirtied] } else { &[] };
            assert_eq!(
                estimates.map(|row| row.signal).collect::<Vec<_>>(),
                expected,
                "{}",
                kernel.uname
            );
        }
    }

    #[test]
    fn where_page_frames_lead_to_no_page_only_compactions_pins_are_lost() {
        let kernel = Kernel::of(6, 18);
        let lost = |resolved: &Resolved, vmemmap| {
            let facts = Facts { vmemmap, ..facts(kernel) };
            let rows = signals(&without(FENTRY, &kernel.offer()), resolved, facts);
            let mut lost = rows.into_iter().filter(|row| row.accuracy == Accuracy::None);
            let only = lost.next().unwrap();
            assert_eq!((only.signal, lost.next()), (Signal::CompactionPinned, None));
            only.reason
        };
        let mut resolved = kernel.resolved();
        assert!(lost(&resolved, 0).starts_with("vmemmap_base could not be read"));
        resolved.vmemmap_base = None;
        let reason = lost(&resolved, 0);
        assert!(reason.contains("no vmemmap_base (CONFIG_KALLSYMS_ALL is off"), "{reason}");
        assert!(reason.contains("could not be derived"), "{reason}");
        resolved.layout.page_size = 56;
        assert!(lost(&resolved, VMEMMAP).starts_with("a struct page has 56 bytes"));
    }

    #[test]
    fn hidden_addresses_are_the_reason_of_what_needs_one() {
        for kernel in KERNELS {
            let resolved = kernel.resolved_with(kernel.types(), kernel.hidden_symbols());
            let facts = Facts { vmemmap: 0, ..facts(kernel) };
            let rows = signals(&without(FENTRY, &kernel.offer()), &resolved, facts);
            for row in &rows {
                let expected = match row.signal {
                    Signal::Marked => Accuracy::Estimate,
                    Signal::MarkedUnderPressure
                    | Signal::Deactivated
                    | Signal::Attempts
                    | Signal::CompactionPinned => Accuracy::None,
                    _ => Accuracy::Exact,
                };
                assert_eq!(row.accuracy, expected, "{:?} of {}", row.signal, kernel.uname);
                if row.accuracy != Accuracy::Exact || row.signal == Signal::Hit {
                    assert!(row.reason.contains("kptr_restrict"), "{}", row.reason);
                    assert!(row.fix.contains("run as root"), "{}", row.fix);
                    assert_eq!(row.limited_by, LimitedBy::Host);
                }
            }
            assert_eq!(plan_of(&rows, Signal::Marked).hook, "procfs:pglazyfree");
            assert_eq!(plan_of(&rows, Signal::Hit).hook, "procfs:pglazyfreed");
        }
    }

    #[test]
    fn unreadable_memory_and_unknown_types_leave_what_needs_neither() {
        let kernel = Kernel::of(6, 12);
        for (offer, word) in [
            (
                Offer {
                    memory: Memory::Closed { why: "lockdown".to_owned(), fix: UNLOCK },
                    ..kernel.offer()
                },
                "lockdown",
            ),
            (Offer { types: Err("no BTF".to_owned()), ..kernel.offer() }, "no BTF"),
        ] {
            let resolved = resolve(&offer, 4096);
            let facts = Facts { vmemmap: 0, ..facts(kernel) };
            let rows = signals(&without(FENTRY, &offer), &resolved, facts);
            let seen = rows.iter().filter(|row| row.accuracy != Accuracy::None);
            let seen: Vec<_> = seen.map(|row| row.signal).collect();
            let both = [Signal::Advised, Signal::Marked, Signal::Hit, Signal::CompactionScanned];
            assert!(both.iter().all(|signal| seen.contains(signal)), "{word}: {seen:?}");
            for row in rows.iter().filter(|row| row.accuracy == Accuracy::None) {
                assert!(row.reason.contains(word), "{row:?}");
                assert!(!row.fix.is_empty(), "{row:?}");
            }
        }
    }

    #[test]
    fn a_missing_type_is_the_reason_of_what_needs_it() {
        let kernel = Kernel::of(6, 12);
        for (name, replacement, expected) in [
            ("NR_FREE_PAGES", "NR_XXXX_PAGES", &[Signal::MarkedUnderPressure] as &[_]),
            ("migrate_pfn", "xxxxxxx_pfn", &[Signal::CompactionIsolated, Signal::CompactionPinned]),
            (
                "nr_lazyfree_fail",
                "nr_xxxxxxxx_fail",
                &[Signal::Attempts, Signal::Redirtied, Signal::ReclaimPinned, Signal::Kept],
            ),
            (
                "_refcount",
                "_xxxcount",
                &[
                    Signal::Deactivated,
                    Signal::Attempts,
                    Signal::Redirtied,
                    Signal::ReclaimPinned,
                    Signal::Kept,
                    Signal::CompactionPinned,
                ],
            ),
            ("folios", "xxxxxs", &[Signal::Deactivated]),
        ] {
            let types = kernel.types_with(&[(name, replacement)]);
            let resolved = kernel.resolved_with(types, kernel.symbols());
            let rows = signals(&without(FENTRY, &kernel.offer()), &resolved, facts(kernel));
            let lost = rows.iter().filter(|row| row.accuracy == Accuracy::None);
            let lost = lost.inspect(|row| {
                // The batch's folios are described instead of named.
                assert!(row.reason.contains(name), "{name}: {}", row.reason);
            });
            assert_eq!(lost.map(|row| row.signal).collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn where_no_memory_may_be_read_arguments_still_tell_of_isolations() {
        let kernel = Kernel::of(6, 12);
        let why = "programs may not read kernel memory".to_owned();
        let memory = Memory::Closed { why, fix: UNLOCK };
        let offer = Offer { memory, ..kernel.offer() };
        let resolved = resolve(&offer, 4096);
        for row in signals(&without(FENTRY, &offer), &resolved, facts(kernel)) {
            let accuracy = match row.signal {
                Signal::Advised
                | Signal::SwapEntriesFreed
                | Signal::Hit
                | Signal::CompactionScanned
                | Signal::CompactionIsolated => Accuracy::Exact,
                Signal::Marked => Accuracy::Estimate,
                _ => Accuracy::None,
            };
            assert_eq!(row.accuracy, accuracy, "{row:?}");
        }
    }

    #[test]
    fn what_hangs_on_the_lru_is_told() {
        let dependent = |kernel: Kernel, kinds| {
            let outcomes = without(kinds, &kernel.offer());
            dependent_on_lru(&outcomes, &kernel.resolved(), facts(kernel))
        };
        let (old, new) = (Kernel::of(6, 1), Kernel::of(6, 12));
        let of_old = [Signal::Deactivated, Signal::Attempts, Signal::Redirtied];
        assert_eq!(dependent(old, FENTRY), of_old);
        assert_eq!(dependent(new, FENTRY), [Signal::Deactivated]);
        assert_eq!(dependent(old, TRACEPOINTS), [Signal::Redirtied]);
        assert_eq!(dependent(new, TRACEPOINTS), []);
    }

    #[test]
    fn a_tracepoint_is_worth_no_more_than_the_types_its_program_reads() {
        for kernel in KERNELS {
            let types = kernel.types_with(&[("direct_compaction", "xxxxxx_compaction")]);
            let resolved = kernel.resolved_with(types, kernel.symbols());
            let outcomes = without(TRACEPOINTS, &kernel.offer());
            let rows = signals(&outcomes, &resolved, facts(kernel));
            let row = |signal| rows.iter().find(|row| row.signal == signal).unwrap();
            let scanned = row(Signal::CompactionScanned);
            let isolated = row(Signal::CompactionIsolated);
            let stalls = stalls(&outcomes, &resolved);
            let compaction =
                stalls.iter().find(|row| row.stall == FamilyName::DirectCompaction).unwrap();
            assert_eq!(compaction.accuracy, Accuracy::None, "{}", kernel.uname);
            let others = stalls.iter().filter(|row| row.stall != FamilyName::DirectCompaction);
            for other in others {
                assert_ne!(other.accuracy, Accuracy::None, "{other:?} of {}", kernel.uname);
            }
            if kernel.release() < Release::new(5, 11) {
                // There the tracepoints give no compact_control, and no program reads one.
                assert_eq!(isolated.accuracy, Accuracy::Exact);
                continue;
            }
            assert_eq!(isolated.accuracy, Accuracy::None, "{}", kernel.uname);
            assert_eq!(scanned.kind, Some(HookKind::Procfs), "{}", kernel.uname);
            for reason in [&compaction.reason, &isolated.reason] {
                assert!(reason.contains("compact_control.direct_compaction"), "{reason}");
            }
        }
    }

    /// Every way in which the hooks can come out, on every recorded kernel, with and without what
    /// else can be missing.
    #[test]
    fn whatever_happens_a_row_says_what_it_is_worth_and_why() {
        const COUNTING: [Hook; 4] = [Hook::Madvise, Hook::SwapFree, Hook::Reclaim, Hook::Isolate];
        for kernel in KERNELS {
            let offer = kernel.offer();
            let choices = COUNTING.map(|hook| {
                [NOTHING, TRACEPOINTS, KPROBE, FENTRY].map(|kinds| outcome(kinds, hook, &offer))
            });
            let hidden = kernel.resolved_with(kernel.types(), kernel.hidden_symbols());
            for resolved in [kernel.resolved(), hidden] {
                for case in 0..4_usize.pow(4) * 4 {
                    let mut rest = case;
                    let mut next = |choices| {
                        let choice = rest % choices;
                        rest /= choices;
                        choice
                    };
                    let mut outcomes = Outcomes::default();
                    for (hook, choices) in COUNTING.into_iter().zip(&choices) {
                        outcomes.insert(hook, choices[next(4)].clone());
                    }
                    let mglru = next(2) == 1;
                    let facts = Facts { mglru, vmemmap: next(2) as u64, ..facts(kernel) };
                    let rows = signals(&outcomes, &resolved, facts);
                    assert!(rows.iter().map(|row| row.signal).eq(Signal::ALL));
                    for row in rows {
                        check(&row, &outcomes);
                    }
                }
            }
        }
    }

    fn check(row: &SignalPlan, outcomes: &Outcomes) {
        let nothing = row.limited_by == LimitedBy::Nothing;
        assert_eq!(nothing, row.reason.is_empty(), "{row:?}");
        if nothing {
            assert_eq!((row.accuracy, &*row.fix), (Accuracy::Exact, ""), "{row:?}");
        }
        assert_eq!(row.accuracy == Accuracy::None, row.kind.is_none(), "{row:?}");
        let Some(kind) = row.kind else {
            assert_eq!((&*row.hook, row.adds_up_calls), ("", None), "{row:?}");
            return;
        };
        let (name, what) = row.hook.split_once(':').unwrap();
        assert_eq!(name, kind.name(), "{row:?}");
        if kind == HookKind::Procfs {
            // The kernel has a counter for these, and adds up no calls of ours.
            let counter = match row.signal {
                Signal::Marked => "pglazyfree",
                Signal::Hit => "pglazyfreed",
                _ => "compact_migrate_scanned",
            };
            assert_eq!((what, row.adds_up_calls), (counter, None), "{row:?}");
            return;
        }
        // Nothing is said to come from a hook that isn't attached in that way.
        let mut attached = outcomes.0.values().filter_map(|outcome| outcome.attached.as_ref());
        let is = |c: &Candidate| c.symbol == what && (c.entry == kind || c.exit == Some(kind));
        assert!(attached.any(is), "{row:?} of {outcomes:?}");
    }
}
