//! Each workload alone: its known numbers are lazyfree's, page for page, through both kinds of
//! probe.

use anyhow::{Result, ensure};

use super::{
    Case, Family, Outcome,
    stat::{Counted, count},
};
use crate::{
    host::mglru,
    workloads::{KNOWN, Known, Needs, is_5_10, quiet},
};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for Known { name, arguments, needs } in KNOWN {
        for family in Family::ALL {
            cases.push(Case::new(format!("{name}[{}]", family.name()), move || {
                if let Some(why) = needs.missing().or_else(|| refused(needs, family)) {
                    return Ok(Outcome::Skipped(why));
                }
                exact(family, arguments)
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

/// Why probes of this kind can't see what a workload needs them for.
fn refused(needs: Needs, family: Family) -> Option<String> {
    let refused = matches!(needs, Needs::Swap) && family == Family::Fentry && is_5_10();
    let why = "trampolines of 5.10 don't take free_swap_and_cache(swp_entry_t): arg0 type STRUCT \
               is unsupported";
    refused.then(|| why.to_owned())
}

/// Every signal is what the workload says, and the rest is sound.
fn exact(family: Family, workload: &str) -> Result<Outcome> {
    let counted = count(family, &[], workload)?;
    counted.is_sound()?;
    for signal in quiet(&counted.workload, mglru() == Some(true)) {
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

/// Every program is of the kind that was asked for.
fn kind_of_probe(counted: &Counted, family: Family) -> Result<()> {
    ensure!(!counted.hooks().is_empty(), "no hooks{}", counted.text());
    for hook in counted.hooks() {
        let kind = hook.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default();
        ensure!(family.kinds().contains(&kind), "{hook} is no {}", family.name());
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
