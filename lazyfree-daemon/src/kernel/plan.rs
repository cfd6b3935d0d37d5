//! From what could be attached to what each signal is worth. Pure.

use lazyfree_common::layout::ABSENT;

use super::{hook::Hook, layout::Resolved, release::Release};
use crate::{
    sample::{FamilyName, LimitedBy, SignalPlan},
    signal::{Accuracy, HookKind, Signal},
};

/// Bytes of a struct page that the probes step over; so many on all kernels for x86-64 with memory
/// cgroups.
const STRUCT_PAGE: u32 = 64;

/// How a hook is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Kernel function.
    pub symbol: &'static str,
    /// Kind of the program at entry.
    pub entry: HookKind,
    /// Kind of the program at return, where there is one.
    pub exit: Option<HookKind>,
}

impl Attached {
    /// `kind:symbol` of the program that does the counting at entry.
    fn at_entry(self) -> (String, Option<HookKind>) {
        (format!("{}:{}", self.entry.name(), self.symbol), Some(self.entry))
    }

    /// The same for the return.
    fn at_exit(self) -> (String, Option<HookKind>) {
        let kind = self.exit.unwrap_or(self.entry);
        (format!("{}:{}", kind.name(), self.symbol), Some(kind))
    }
}

/// What came of each hook: how it is attached, or why it isn't.
#[derive(Clone, Debug)]
pub struct Outcomes {
    pub madvise: Result<Attached, String>,
    pub swap_free: Result<Attached, String>,
    pub reclaim: Result<Attached, String>,
    pub isolate: Result<Attached, String>,
    pub unmap: Result<Attached, String>,
}

impl Outcomes {
    /// The same outcome for all hooks.
    pub fn all(outcome: &Result<Attached, String>) -> Self {
        Self {
            madvise: outcome.clone(),
            swap_free: outcome.clone(),
            reclaim: outcome.clone(),
            isolate: outcome.clone(),
            unmap: outcome.clone(),
        }
    }

    /// The outcome of one hook.
    pub fn get_mut(&mut self, hook: Hook) -> &mut Result<Attached, String> {
        match hook {
            Hook::Madvise => &mut self.madvise,
            Hook::SwapFree => &mut self.swap_free,
            Hook::Reclaim => &mut self.reclaim,
            Hook::Isolate => &mut self.isolate,
            Hook::Unmap => &mut self.unmap,
        }
    }

    /// `fentry` where a hook that counts got it, else `kprobe`; `vmstat` if none is attached.
    pub fn mode(&self) -> &'static str {
        let counting = [&self.madvise, &self.reclaim, &self.isolate];
        let kinds = || counting.iter().filter_map(|outcome| outcome.as_ref().ok());
        if kinds().any(|attached| attached.entry == HookKind::Fentry) {
            "fentry"
        } else if kinds().next().is_some() {
            "kprobe"
        } else {
            "vmstat"
        }
    }
}

/// What is known of the kernel besides its types.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its release.
    pub release: Release,
    /// Whether the multi-generational LRU is on.
    pub mglru: bool,
    /// Value of `vmemmap_base`; 0 if unknown.
    pub vmemmap: u64,
}

/// One row for each signal.
pub fn signals(outcomes: &Outcomes, resolved: &Resolved, facts: Facts) -> Vec<SignalPlan> {
    Signal::ALL.iter().map(|signal| row(*signal, outcomes, resolved, facts)).collect()
}

fn row(signal: Signal, outcomes: &Outcomes, resolved: &Resolved, facts: Facts) -> SignalPlan {
    let planned = match signal {
        Signal::Advised => entry(&outcomes.madvise).map(|row| row.adding(FamilyName::Madvise)),
        Signal::Marked => exit(&outcomes.madvise)
            .and_then(|row| row.needs(&resolved.marks))
            .or_else(|reason| fallback("pglazyfree", reason)),
        Signal::MarkedUnderPressure => exit(&outcomes.madvise)
            .and_then(|row| row.needs(&resolved.marks)?.needs(&resolved.free_memory))
            .map(|row| row.adding(FamilyName::Madvise)),
        Signal::Deactivated => deactivated(outcomes, resolved, facts),
        Signal::SwapEntriesFreed => entry(&outcomes.madvise)
            .and_then(|_inside| entry(&outcomes.swap_free))
            .map(|row| row.adding(FamilyName::Madvise)),
        Signal::Hit => exit(&outcomes.reclaim)
            .and_then(|row| row.needs(&resolved.hits))
            .or_else(|reason| fallback("pglazyfreed", reason)),
        Signal::Attempts => batch(outcomes, resolved)
            .and_then(|row| row.needs(&resolved.hits))
            .map(|row| blind_spot(row, facts)),
        Signal::Redirtied => batch(outcomes, resolved).map(|row| blind_spot(row, facts)),
        Signal::ReclaimPinned | Signal::Kept => batch(outcomes, resolved),
        Signal::CompactionScanned | Signal::CompactionIsolated => isolation(outcomes, resolved),
        Signal::CompactionPinned => isolation(outcomes, resolved)
            .and_then(|row| row.needs(&resolved.pages)?.needs(&page_frames(resolved, facts))),
    };
    planned.unwrap_or_else(Row::unobserved).into_plan(signal)
}

fn entry(outcome: &Result<Attached, String>) -> Result<Row, String> {
    outcome.clone().map(|attached| Row::exact(attached.at_entry()))
}

fn exit(outcome: &Result<Attached, String>) -> Result<Row, String> {
    outcome.clone().map(|attached| Row::exact(attached.at_exit()))
}

fn batch(outcomes: &Outcomes, resolved: &Resolved) -> Result<Row, String> {
    let row = exit(&outcomes.reclaim)?.needs(&resolved.reclaim)?.needs(&resolved.pages)?;
    Ok(row.adding(FamilyName::Reclaim))
}

fn isolation(outcomes: &Outcomes, resolved: &Resolved) -> Result<Row, String> {
    let row = exit(&outcomes.isolate)?.needs(&resolved.compaction)?;
    Ok(row.adding(FamilyName::Isolate))
}

fn deactivated(outcomes: &Outcomes, resolved: &Resolved, facts: Facts) -> Result<Row, String> {
    let row = exit(&outcomes.madvise)?.needs(&resolved.marks)?.needs(&resolved.pages)?;
    if facts.mglru {
        return Err("the multi-generational LRU has no active list to move pages from; \
                    `echo n > /sys/kernel/mm/lru_gen/enabled` brings the active list back"
            .to_owned());
    }
    if resolved.layout.batch_folios == ABSENT {
        return Err("the folios in the CPU's LRU batch can't be found on this kernel".to_owned());
    }
    Ok(row.estimate(
        "scaled from the flags of up to 4 small folios of each call; large folios aren't sampled",
    ))
}

/// Up to 6.11 the multi-generational LRU reinstates a lazyfree folio that it finds dirty in
/// `sort_folio`, which is inlined, before reclaim gets to see it.
fn blind_spot(row: Row, facts: Facts) -> Row {
    if facts.mglru && facts.release < Release::new(6, 12) {
        return row.estimate(
            "before 6.12 the multi-generational LRU reinstates dirty lazyfree pages in \
             sort_folio(), where no hook sees them; \
             `echo n > /sys/kernel/mm/lru_gen/enabled` makes the count exact",
        );
    }
    row
}

/// What turning page frames into pages needs.
fn page_frames(resolved: &Resolved, facts: Facts) -> Result<(), String> {
    let bytes = resolved.layout.page_size;
    if facts.vmemmap == 0 {
        Err(match resolved.vmemmap_base {
            Some(_) => "vmemmap_base could not be read, so page frames can't be turned into pages",
            None => {
                "the kernel's symbol table has no vmemmap_base (CONFIG_KALLSYMS_ALL is off, or the \
                 addresses are hidden: see kernel.kptr_restrict), so page frames can't be turned \
                 into pages"
            }
        }
        .to_owned())
    } else if bytes != STRUCT_PAGE {
        Err(format!(
            "a struct page has {bytes} bytes on this kernel, and the probes read {STRUCT_PAGE}"
        ))
    } else {
        Ok(())
    }
}

/// The kernel's own counter, where no probe counts.
fn fallback(counter: &str, reason: String) -> Result<Row, String> {
    let row = Row::exact((format!("procfs:{counter}"), Some(HookKind::Procfs)));
    Ok(row.estimate(&format!(
        "the kernel's own counter, which lags by what waits in the CPUs' batches; no probe: {reason}"
    )))
}

/// A [`SignalPlan`] in the making.
struct Row {
    hook: String,
    kind: Option<HookKind>,
    accuracy: Accuracy,
    adds_up_calls: Option<FamilyName>,
    reason: String,
}

impl Row {
    fn exact((hook, kind): (String, Option<HookKind>)) -> Self {
        Self { hook, kind, accuracy: Accuracy::Exact, adds_up_calls: None, reason: String::new() }
    }

    fn unobserved(reason: String) -> Self {
        Self {
            hook: String::new(),
            kind: None,
            accuracy: Accuracy::None,
            adds_up_calls: None,
            reason,
        }
    }

    fn needs<E: ToString>(self, what: &Result<(), E>) -> Result<Self, String> {
        match what {
            Ok(()) => Ok(self),
            Err(missing) => Err(missing.to_string()),
        }
    }

    fn adding(self, family: FamilyName) -> Self {
        Self { adds_up_calls: Some(family), ..self }
    }

    fn estimate(self, reason: &str) -> Self {
        Self { accuracy: Accuracy::Estimate, reason: reason.to_owned(), ..self }
    }

    fn into_plan(self, signal: Signal) -> SignalPlan {
        let Self { hook, kind, accuracy, adds_up_calls, reason } = self;
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
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{KERNELS, Kernel},
        *,
    };

    const FENTRY: (HookKind, HookKind) = (HookKind::Fentry, HookKind::Fexit);
    const KPROBE: (HookKind, HookKind) = (HookKind::Kprobe, HookKind::Kretprobe);
    const VMEMMAP: u64 = 0xffff_ea00_0000_0000;

    /// A hook on a recorded kernel, attached as a pair of these kinds.
    fn attached(kernel: Kernel, hook: Hook, (entry, exit): (HookKind, HookKind)) -> Attached {
        let target = hook.find(&kernel.types()).unwrap();
        Attached { symbol: target.symbol, entry, exit: target.returns.then_some(exit) }
    }

    fn all(kernel: Kernel, kinds: (HookKind, HookKind)) -> Outcomes {
        let mut outcomes = Outcomes::all(&Err("not asked for".to_owned()));
        for hook in Hook::ALL {
            *outcomes.get_mut(hook) = Ok(attached(kernel, hook, kinds));
        }
        outcomes
    }

    fn facts(kernel: Kernel) -> Facts {
        Facts { release: kernel.release(), mglru: false, vmemmap: VMEMMAP }
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
        let kernel = Kernel::of(7, 3);
        let rows = signals(&all(kernel, FENTRY), &kernel.resolved(), facts(kernel));
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
    fn both_families_give_the_same_on_every_recorded_kernel() {
        for kernel in KERNELS {
            let (resolved, facts) = (kernel.resolved(), facts(kernel));
            let rows = |kinds| signals(&all(kernel, kinds), &resolved, facts);
            for (fentry, kprobe) in rows(FENTRY).iter().zip(&rows(KPROBE)) {
                let renamed = fentry.hook.replace("fexit:", "kretprobe:");
                assert_eq!(kprobe.hook, renamed.replace("fentry:", "kprobe:"));
                assert_eq!(
                    (fentry.accuracy, fentry.adds_up_calls, &fentry.reason),
                    (kprobe.accuracy, kprobe.adds_up_calls, &kprobe.reason)
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
        let mut outcomes = all(kernel, FENTRY);
        outcomes.swap_free = Ok(attached(kernel, Hook::SwapFree, KPROBE));
        outcomes.isolate = Ok(attached(kernel, Hook::Isolate, KPROBE));
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
        let kernel = Kernel::of(6, 12);
        assert_eq!(all(kernel, FENTRY).mode(), "fentry");
        assert_eq!(all(kernel, KPROBE).mode(), "kprobe");
        let mut outcomes = Outcomes::all(&Err("refused".to_owned()));
        assert_eq!(outcomes.mode(), "vmstat");
        // Neither says anything by itself.
        outcomes.swap_free = Ok(attached(kernel, Hook::SwapFree, FENTRY));
        outcomes.unmap = Ok(attached(kernel, Hook::Unmap, FENTRY));
        assert_eq!(outcomes.mode(), "vmstat");
        outcomes.isolate = Ok(attached(kernel, Hook::Isolate, KPROBE));
        assert_eq!(outcomes.mode(), "kprobe");
    }

    #[test]
    fn with_nothing_attached_the_kernels_counters_are_left() {
        let kernel = Kernel::of(6, 18);
        let outcomes = Outcomes::all(&Err("this host refuses".to_owned()));
        for row in signals(&outcomes, &kernel.resolved(), facts(kernel)) {
            let counter = match row.signal {
                Signal::Marked => "procfs:pglazyfree",
                Signal::Hit => "procfs:pglazyfreed",
                signal => {
                    assert_eq!(
                        row,
                        Row::unobserved("this host refuses".to_owned()).into_plan(signal)
                    );
                    continue;
                }
            };
            assert_eq!((&*row.hook, row.accuracy), (counter, Accuracy::Estimate));
            assert!(row.reason.ends_with("no probe: this host refuses"), "{}", row.reason);
        }
    }

    #[test]
    fn a_hook_takes_only_its_own_signals_along() {
        let kernel = Kernel::of(6, 12);
        let of_madvise = vec![
            Signal::Advised,
            Signal::MarkedUnderPressure,
            Signal::Deactivated,
            // Freed by whom is told by being inside MADV_FREE.
            Signal::SwapEntriesFreed,
        ];
        let of_reclaim =
            vec![Signal::Attempts, Signal::Redirtied, Signal::ReclaimPinned, Signal::Kept];
        let of_isolation =
            vec![Signal::CompactionScanned, Signal::CompactionIsolated, Signal::CompactionPinned];
        for (hook, expected) in [
            (Hook::Madvise, of_madvise),
            (Hook::SwapFree, vec![Signal::SwapEntriesFreed]),
            (Hook::Reclaim, of_reclaim),
            (Hook::Isolate, of_isolation),
            (Hook::Unmap, vec![]),
        ] {
            let mut outcomes = all(kernel, FENTRY);
            *outcomes.get_mut(hook) = Err("it was inlined".to_owned());
            let rows = signals(&outcomes, &kernel.resolved(), facts(kernel));
            let lost = rows.iter().filter(|row| row.accuracy == Accuracy::None);
            let lost = lost.inspect(|row| assert_eq!(row.reason, "it was inlined"));
            assert_eq!(lost.map(|row| row.signal).collect::<Vec<_>>(), expected, "{hook:?}");
        }
    }

    #[test]
    fn the_multi_generational_lru_has_no_active_list_and_a_blind_spot_before_6_12() {
        for kernel in KERNELS {
            let facts = Facts { mglru: true, ..facts(kernel) };
            let rows = signals(&all(kernel, FENTRY), &kernel.resolved(), facts);
            let deactivated = plan_of(&rows, Signal::Deactivated);
            assert_eq!(deactivated.accuracy, Accuracy::None, "{}", kernel.uname);
            assert!(deactivated.reason.contains("lru_gen/enabled"), "{}", deactivated.reason);

            let blind = kernel.release() < Release::new(6, 12);
            let estimates = rows.iter().filter(|row| row.accuracy == Accuracy::Estimate);
            let estimates = estimates.inspect(|row| assert!(row.reason.contains("sort_folio()")));
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
            let rows = signals(&all(kernel, FENTRY), resolved, facts);
            let mut lost = rows.into_iter().filter(|row| row.accuracy == Accuracy::None);
            let only = lost.next().unwrap();
            assert_eq!((only.signal, lost.next()), (Signal::CompactionPinned, None));
            only.reason
        };
        let mut resolved = kernel.resolved();
        assert!(lost(&resolved, 0).starts_with("vmemmap_base could not be read"));
        resolved.vmemmap_base = None;
        assert!(lost(&resolved, 0).contains("no vmemmap_base (CONFIG_KALLSYMS_ALL is off"));
        resolved.layout.page_size = 56;
        assert!(lost(&resolved, VMEMMAP).starts_with("a struct page has 56 bytes"));
    }

    #[test]
    fn hidden_addresses_are_the_reason_of_what_needs_one() {
        for kernel in KERNELS {
            let resolved = kernel.resolved_with(&kernel.types(), &kernel.hidden_symbols());
            let rows =
                signals(&all(kernel, FENTRY), &resolved, Facts { vmemmap: 0, ..facts(kernel) });
            for row in &rows {
                let expected = match row.signal {
                    Signal::Marked | Signal::Hit => Accuracy::Estimate,
                    Signal::MarkedUnderPressure
                    | Signal::Deactivated
                    | Signal::Attempts
                    | Signal::CompactionPinned => Accuracy::None,
                    _ => Accuracy::Exact,
                };
                assert_eq!(row.accuracy, expected, "{:?} of {}", row.signal, kernel.uname);
                if row.accuracy != Accuracy::Exact {
                    assert!(row.reason.contains("kptr_restrict"), "{}", row.reason);
                }
            }
            assert_eq!(plan_of(&rows, Signal::Marked).hook, "procfs:pglazyfree");
            assert_eq!(plan_of(&rows, Signal::Hit).hook, "procfs:pglazyfreed");
        }
    }

    #[test]
    fn a_missing_type_is_the_reason_of_what_needs_it() {
        let kernel = Kernel::of(6, 12);
        for (name, replacement, expected) in [
            ("NR_FREE_PAGES", "NR_XXXX_PAGES", &[Signal::MarkedUnderPressure] as &[_]),
            (
                "migrate_pfn",
                "xxxxxxx_pfn",
                &[Signal::CompactionScanned, Signal::CompactionIsolated, Signal::CompactionPinned],
            ),
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
            let resolved = kernel.resolved_with(&types, &kernel.symbols());
            let rows = signals(&all(kernel, FENTRY), &resolved, facts(kernel));
            let lost = rows.iter().filter(|row| row.accuracy == Accuracy::None);
            let lost = lost.inspect(|row| {
                // The batch's folios are described instead of named.
                assert!(row.reason.contains(name), "{name}: {}", row.reason);
            });
            assert_eq!(lost.map(|row| row.signal).collect::<Vec<_>>(), expected, "{name}");
        }
    }

    /// Every way in which the hooks can come out, on every recorded kernel, with and without what
    /// else can be missing.
    #[test]
    fn whatever_happens_a_row_says_what_it_is_worth_and_why() {
        for kernel in KERNELS {
            let hooks = Hook::ALL.map(|hook| {
                [
                    Err(format!("{hook:?} can't be hooked")),
                    Ok(attached(kernel, hook, KPROBE)),
                    Ok(attached(kernel, hook, FENTRY)),
                ]
            });
            let hidden = kernel.resolved_with(&kernel.types(), &kernel.hidden_symbols());
            for resolved in [kernel.resolved(), hidden] {
                for case in 0..3_usize.pow(5) * 4 {
                    let mut rest = case;
                    let mut next = |choices| {
                        let choice = rest % choices;
                        rest /= choices;
                        choice
                    };
                    let mut outcomes = Outcomes::all(&Err("not asked for".to_owned()));
                    for (hook, choices) in Hook::ALL.into_iter().zip(&hooks) {
                        *outcomes.get_mut(hook) = choices[next(3)].clone();
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
        assert_eq!(row.accuracy == Accuracy::Exact, row.reason.is_empty(), "{row:?}");
        assert_eq!(row.accuracy == Accuracy::None, row.kind.is_none(), "{row:?}");
        let Some(kind) = row.kind else {
            assert_eq!((&*row.hook, row.adds_up_calls), ("", None), "{row:?}");
            return;
        };
        let (name, what) = row.hook.split_once(':').unwrap();
        assert_eq!(name, kind.name(), "{row:?}");
        if kind == HookKind::Procfs {
            // The kernel has a counter for these two, which lags, and adds up no calls of ours.
            let counter = if row.signal == Signal::Marked { "pglazyfree" } else { "pglazyfreed" };
            assert!([Signal::Marked, Signal::Hit].contains(&row.signal), "{row:?}");
            assert_eq!((what, row.adds_up_calls), (counter, None), "{row:?}");
            assert_eq!(row.accuracy, Accuracy::Estimate, "{row:?}");
            return;
        }
        // Nothing is said to come from a hook that isn't attached in that way.
        let counting =
            [&outcomes.madvise, &outcomes.swap_free, &outcomes.reclaim, &outcomes.isolate];
        let mut attached = counting.into_iter().filter_map(|outcome| outcome.as_ref().ok());
        assert!(
            attached
                .any(|hook| hook.symbol == what && (hook.entry == kind || hook.exit == Some(kind))),
            "{row:?} of {outcomes:?}"
        );
    }
}
