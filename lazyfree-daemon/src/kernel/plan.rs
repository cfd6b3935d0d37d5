//! From what could be attached to what each signal is worth. Pure.

use lazyfree_common::layout::ABSENT;

use super::{hook::Hook, layout::Resolved, release::Release};
use crate::{
    sample::{FamilyName, SignalPlan},
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

    /// `fentry` or `kprobe`, by what most hooks that count got; `vmstat` if nothing is attached.
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
            .and_then(|row| row.needs(&resolved.pages))
            .and_then(|row| match () {
                () if facts.vmemmap == 0 => Err(no_vmemmap(resolved)),
                () if resolved.layout.page_size != STRUCT_PAGE => Err(format!(
                    "a struct page has {} bytes on this kernel, and the probes read {STRUCT_PAGE}",
                    resolved.layout.page_size
                )),
                () => Ok(row),
            }),
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
    Ok(row.adding(FamilyName::Compaction))
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

fn no_vmemmap(resolved: &Resolved) -> String {
    match resolved.vmemmap_base {
        Some(_) => "vmemmap_base could not be read, so page frames can't be turned into pages",
        None => {
            "the kernel's symbol table has no vmemmap_base (CONFIG_KALLSYMS_ALL is off, or the \
             addresses are hidden: see kernel.kptr_restrict), so page frames can't be turned \
             into pages"
        }
    }
    .to_owned()
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
        SignalPlan { signal, hook, kind, accuracy, adds_up_calls, reason }
    }
}
