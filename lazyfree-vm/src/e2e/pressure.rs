//! Signals that depend on the state of the host: free memory, and the kind of LRU.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{Case, Family, Outcome, process::read, stat::count};

const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";

pub fn cases() -> Vec<Case> {
    let mut cases = Case::for_each_family("marked_under_pressure", under_pressure);
    cases.extend(Case::for_each_family("marked_in_plenty", in_plenty));
    cases.extend(Case::for_each_family("deactivated", deactivated));
    cases.push(Case::new("deactivated_with_mglru", deactivated_with_mglru));
    cases
}

/// `min_free_kbytes` as it was, again.
struct MinFree(String);

impl Drop for MinFree {
    fn drop(&mut self) {
        let _as_it_was = fs::write(MIN_FREE, &self.0);
    }
}

fn mem_free_kb() -> Result<u64> {
    let meminfo = read("/proc/meminfo")?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no MemFree")?;
    Ok(number.trim().parse()?)
}

/// With the threshold above what is free, every page is marked under pressure.
fn under_pressure(family: Family) -> Result<Outcome> {
    let _restored = MinFree(read(MIN_FREE)?);
    // The threshold is one and a half times the setting; reclaim starts at the watermarks, which
    // lie at and a quarter above it, so at nine tenths of what is free nothing is reclaimed.
    let free = mem_free_kb()?;
    fs::write(MIN_FREE, (free * 7 / 10).to_string()).context(MIN_FREE)?;
    let counted = count(family, &[], "mark --pages 1024")?;
    counted.reconciles()?;
    counted.is("marked", 1024)?;
    counted.is("marked_under_pressure", 1024)?;
    Ok(Outcome::Passed)
}

fn in_plenty(family: Family) -> Result<Outcome> {
    let counted = count(family, &[], "mark --pages 1024")?;
    counted.is("marked_under_pressure", 0)?;
    Ok(Outcome::Passed)
}

/// The LRU as it was, again.
struct Lru(Option<String>);

impl Lru {
    const SWITCH: &str = "/sys/kernel/mm/lru_gen/enabled";

    /// Turns the multi-generational LRU off, where there is one.
    fn classic() -> Result<Self> {
        let Ok(before) = read(Self::SWITCH) else { return Ok(Self(None)) };
        fs::write(Self::SWITCH, "n").context(Self::SWITCH)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Lru {
    fn drop(&mut self) {
        if let Self(Some(before)) = self {
            let _as_it_was = fs::write(Self::SWITCH, before);
        }
    }
}

/// On the classic LRU all or none of the pages were active, and the estimate says so.
fn deactivated(family: Family) -> Result<Outcome> {
    let _restored = Lru::classic()?;
    for (workload, pages) in [("mark --pages 4096", 0), ("mark --pages 4096 --active", 4096)] {
        let counted = count(family, &[], workload)?;
        counted.is("marked", 4096)?;
        let (found, accuracy) = (counted.pages("deactivated")?, counted.accuracy("deactivated")?);
        ensure!(
            (found, accuracy) == (pages, "estimate"),
            "{workload}: {pages} should be estimated, {found} is {accuracy}{}",
            counted.text()
        );
    }
    Ok(Outcome::Passed)
}

/// The multi-generational LRU has no active list: there is no number, and a reason.
fn deactivated_with_mglru() -> Result<Outcome> {
    let mask = read(Lru::SWITCH).unwrap_or_default();
    if mask.is_empty() || mask.ends_with("0000") {
        return Ok(Outcome::Skipped("this kernel starts with the classic LRU".to_owned()));
    }
    let counted = count(Family::Fentry, &[], "mark --pages 1024")?;
    let accuracy = counted.accuracy("deactivated")?;
    ensure!(accuracy == "none", "the accuracy is {accuracy}{}", counted.text());
    ensure!(counted.pages("deactivated").is_err(), "a number for nothing{}", counted.text());
    Ok(Outcome::Passed)
}
