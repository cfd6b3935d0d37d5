//! The signal that depends on the kind of LRU.

use anyhow::{Result, ensure};

use super::{Case, Family, Outcome, stat::count};
use crate::host::{LRU_GEN, Setting, mglru};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("deactivated", deactivated),
        Case::new("deactivated_with_mglru", deactivated_with_mglru),
    ]
}

/// On the classic LRU all or none of the pages were active, and the estimate says so.
fn deactivated() -> Result<Outcome> {
    let _classic = match mglru() {
        Some(true) => Some(Setting::change(LRU_GEN, "n")?),
        _ => None,
    };
    // The last of the 8 calls may be the one that leaves no folio to look at.
    for (workload, pages) in
        [("mark --pages 4096", 0..=0), ("mark --pages 4096 --active", 4096 - 512..=4096)]
    {
        let counted = count(Family::Fentry, &[], workload)?;
        counted.is("marked", 4096)?;
        let (found, accuracy) = (counted.pages("deactivated")?, counted.accuracy("deactivated")?);
        ensure!(
            pages.contains(&found) && accuracy == "estimate",
            "{workload}: {pages:?} should be estimated, {found} is {accuracy}{}",
            counted.text()
        );
    }
    Ok(Outcome::Passed)
}

/// The multi-generational LRU has no active list: there is no number, and a reason.
fn deactivated_with_mglru() -> Result<Outcome> {
    if mglru() != Some(true) {
        return Ok(Outcome::Skipped("this kernel starts with the classic LRU".to_owned()));
    }
    let counted = count(Family::Fentry, &[], "mark --pages 1024")?;
    let accuracy = counted.accuracy("deactivated")?;
    ensure!(accuracy == "none", "the accuracy is {accuracy}{}", counted.text());
    ensure!(counted.pages("deactivated").is_err(), "a number for nothing{}", counted.text());
    Ok(Outcome::Passed)
}
