//! Each workload alone: its known numbers are lazyfree's, page for page, through both kinds of
//! probe.

use anyhow::{Result, ensure};

use super::{
    Case, Family, Outcome,
    process::read,
    stat::{Counted, count},
};

/// Workloads whose every number is known, and what they need of the kernel beyond the usual.
const EXACT: [(&str, &str, Needs); 11] = [
    ("mark", "mark --pages 4096", Needs::Nothing),
    ("mark_and_reclaim", "mark --pages 4096 --trigger pageout", Needs::Nothing),
    ("mark_memcg", "mark --pages 4096 --trigger memcg", Needs::Nothing),
    ("mark_proactive", "mark --pages 4096 --trigger reclaim", Needs::MemoryReclaim),
    ("redirty", "redirty --pages 4096", Needs::Nothing),
    ("redirty_memcg", "redirty --pages 4096 --trigger memcg", Needs::Nothing),
    ("pin", "pin --pages 4096", Needs::Nothing),
    ("pin_memcg", "pin --pages 1024 --trigger memcg", Needs::Nothing),
    ("thp", "thp --folios 4", Needs::Nothing),
    ("swap", "swap --pages 4096", Needs::Swap),
    ("compact", "compact --pages 8192", Needs::Nothing),
];

#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    Swap,
    MemoryReclaim,
}

impl Needs {
    /// Why this guest can't have it.
    fn missing(self, family: Family) -> Option<String> {
        let old = read("/proc/sys/kernel/osrelease").is_ok_and(|name| name.starts_with("5.10."));
        match self {
            Needs::Nothing => None,
            Needs::Swap if old && family == Family::Fentry => {
                let why = "trampolines of 5.10 don't take free_swap_and_cache(swp_entry_t): \
                           arg0 type STRUCT is unsupported";
                Some(why.to_owned())
            }
            Needs::Swap => (read("/proc/swaps").ok()?.lines().count() < 2)
                .then(|| "this guest was booted without swap".to_owned()),
            Needs::MemoryReclaim => {
                old.then(|| "5.10 has no memory.reclaim, which came with 5.19".to_owned())
            }
        }
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, workload, needs) in EXACT {
        for family in Family::ALL {
            cases.push(Case::new(format!("{name}[{}]", family.name()), move || {
                if let Some(why) = needs.missing(family) {
                    return Ok(Outcome::Skipped(why));
                }
                exact(family, workload)
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

/// Signals that stay 0 in a quiet guest unless a workload moves them.
const QUIET: [&str; 7] = [
    "marked",
    "marked_under_pressure",
    "swap_entries_freed",
    "hit",
    "redirtied",
    "reclaim_pinned",
    "compaction_pinned",
];

/// Every signal is what the workload says, and the rest is sound.
fn exact(family: Family, workload: &str) -> Result<Outcome> {
    let counted = count(family, &[], workload)?;
    counted.is_sound()?;
    let named = ["expected", "at_least", "at_most"].map(|kind| counted.expected(kind));
    let mut quiet = QUIET.to_vec();
    for map in named {
        let map = map?;
        quiet.retain(|signal| !map.contains_key(*signal));
    }
    for signal in quiet {
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
    let kinds = match family {
        Family::Fentry => ["fentry", "fexit"],
        Family::Kprobe => ["kprobe", "kretprobe"],
    };
    ensure!(!counted.hooks().is_empty(), "no hooks{}", counted.text());
    for hook in counted.hooks() {
        let kind = hook.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default();
        ensure!(kinds.contains(&kind), "{hook} is no {}", family.name());
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
