//! Each workload alone: its known numbers are lazyfree's, page for page, through both kinds of
//! probe.

use std::{cell::RefCell, rc::Rc};

use anyhow::{Result, ensure};

use super::{
    Case, Family, Outcome,
    stat::{Counted, count},
};
use crate::{
    host::mglru,
    matrix::{
        self, Observer,
        line::{Accuracy, CROWD, Count},
    },
    workloads::{Known, Needs, is_5_10, quiet},
};

/// Workloads that are counted with `lazyfree stat`; the others are beside one daemon, since to
/// attach takes seconds in an emulated guest.
const WITH_STAT: [&str; 3] = ["redirty", "redirty_memcg", "mark_proactive"];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for family in Family::ALL {
        let observer = Rc::new(RefCell::new(None));
        // An observer takes the workloads it sees for all there are, so the others come after.
        let (with_stat, beside_daemon): (Vec<_>, Vec<_>) =
            matrix::cases().into_iter().partition(|case| WITH_STAT.contains(&case.workload.name));
        for case in beside_daemon.into_iter().chain(with_stat) {
            let Known { name, arguments, needs } = case.workload;
            let observer = Rc::clone(&observer);
            cases.push(Case::new(format!("{name}[{}]", family.name()), move || {
                if let Some(why) = needs.missing().or_else(|| refused(needs, family)) {
                    return Ok(Outcome::Skipped(why));
                }
                if WITH_STAT.contains(&name) {
                    return exact(family, arguments);
                }
                let mut observer = observer.borrow_mut();
                let observer = match &mut *observer {
                    Some(observer) => observer,
                    None => observer.insert(Observer::start(family)?),
                };
                beside(observer, family, &case)
            }));
        }
    }
    for workload in ["redirty --pages 2048", "pin --pages 2048", "thp --folios 2"] {
        let name = workload.split(' ').next().unwrap_or_default();
        for family in Family::ALL {
            cases.push(Case::new(format!("audit_{name}[{}]", family.name()), move || {
                audit(family, workload)
            }));
        }
    }
    cases
}

/// Whether this kernel shows a signal to no probe of this kind.
fn is_unseen(signal: &str, family: Family) -> bool {
    match signal {
        // Trampolines of 5.10 take no structure as an argument, which swp_entry_t is.
        "swap_entries_freed" => family == Family::Fentry && is_5_10(),
        // The multi-generational LRU has no active list.
        "deactivated" => mglru() == Some(true),
        _ => false,
    }
}

/// Why probes of this kind can't see what a workload needs them for.
fn refused(needs: Needs, family: Family) -> Option<String> {
    let refused = matches!(needs, Needs::Swap) && is_unseen("swap_entries_freed", family);
    let why = "trampolines of 5.10 don't take free_swap_and_cache(swp_entry_t): arg0 type STRUCT \
               is unsupported";
    refused.then(|| why.to_owned())
}

/// Every signal that a daemon shows is what is known of it, and nothing was lost.
fn beside(observer: &mut Observer, family: Family, case: &matrix::Case) -> Result<Outcome> {
    for count in observer.count(case)? {
        let Count { workload, signal, known, pages, accuracy, losses, kernel, .. } = &count;
        let Some(pages) = *pages else {
            ensure!(is_unseen(signal, family), "{signal} isn't observed");
            continue;
        };
        // A trampoline skips a program that already runs on the CPU, in a task that was preempted.
        let has_missed = workload == CROWD && family == Family::Fentry && !losses.is_empty();
        if count.is_ahead() || (has_missed && *accuracy == Accuracy::Estimate) {
            continue;
        }
        ensure!(known.allows(pages), "{signal}: {count:?}");
        ensure!(kernel.is_none_or(|kernel| kernel == pages), "{signal}: {count:?}");
        ensure!(losses.is_empty(), "{losses}");
        let promised = if signal == "deactivated" { Accuracy::Estimate } else { Accuracy::Exact };
        ensure!(*accuracy == promised, "{signal}: {count:?}");
    }
    Ok(Outcome::Passed)
}

/// Every signal is what the workload says, and the rest is sound.
fn exact(family: Family, workload: &str) -> Result<Outcome> {
    let counted = count(family, &[], workload)?;
    counted.is_sound()?;
    let quiet = quiet(&counted.workload, mglru() == Some(true));
    for signal in quiet.filter(|signal| !is_unseen(signal, family)) {
        counted.is(signal, 0)?;
    }
    for (signal, pages) in counted.expected("expected")? {
        counted.is(&signal, pages)?;
    }
    for (signal, pages) in counted.expected("at_least")? {
        let found = counted.pages(&signal)?;
        ensure!(found >= pages, "{signal} {found}, at least {pages}{}", counted.text());
    }
    for (signal, pages) in counted.expected("at_most")? {
        let found = counted.pages(&signal)?;
        ensure!(found <= pages, "{signal} {found}, at most {pages}{}", counted.text());
    }
    kind_of_probe(&counted, family)?;
    reclaimer(&counted)?;
    Ok(Outcome::Passed)
}

/// Every program on a function is of the kind that was asked for; stalls are at tracepoints.
fn kind_of_probe(counted: &Counted, family: Family) -> Result<()> {
    ensure!(!counted.hooks().is_empty(), "no hooks{}", counted.text());
    for hook in counted.hooks() {
        let text = |key| hook.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        let tells_of_stalls =
            ["mm_vmscan_", "writeback_"].iter().any(|of| text("symbol").starts_with(of));
        let is_right = match tells_of_stalls {
            true => text("kind") == "raw_tracepoint",
            false => family.kinds().contains(&text("kind")),
        };
        ensure!(is_right, "{hook} is no {}", family.name());
    }
    Ok(())
}

/// Pages are freed in the name of who asked for it.
fn reclaimer(counted: &Counted) -> Result<()> {
    let trigger = counted.workload.get("trigger").and_then(|trigger| trigger.as_str());
    let reclaimer = match trigger {
        Some("memcg") => "memcg",
        Some("pageout" | "reclaim") => "proactive",
        _ => return Ok(()),
    };
    let (all, its) = (counted.pages("hit")?, counted.pages_by("hit", reclaimer)?);
    ensure!(all == its, "of {all} hits {its} are of {reclaimer}{}", counted.text());
    Ok(())
}

/// Folio by folio at try_to_unmap the outcomes are the same as batch by batch.
fn audit(family: Family, workload: &str) -> Result<Outcome> {
    let counted = count(family, &["--audit"], workload)?;
    counted.is_sound()?;
    for signal in ["attempts", "hit", "redirtied", "reclaim_pinned", "kept"] {
        let (batch, folio) = (counted.pages(signal)?, counted.number(&format!("/audit/{signal}"))?);
        ensure!(batch == folio, "{signal}: {batch} by batch, {folio} by folio{}", counted.text());
    }
    ensure!(counted.number("/audit/attempts")? > 0, "nothing was tried{}", counted.text());
    Ok(Outcome::Passed)
}
