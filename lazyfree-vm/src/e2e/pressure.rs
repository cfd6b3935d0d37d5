//! Signals that depend on the state of the host: free memory, and the kind of LRU.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{Case, Family, Outcome, process::read, stat::count};

const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";

pub fn cases() -> Vec<Case> {
    let mut cases = Case::for_each_family("marked_under_pressure", under_pressure);
    cases.extend(Case::for_each_family("marked_in_plenty", in_plenty));
    cases.extend(Case::for_each_family("deactivated", deactivated));
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

/// Pages that were never on the active list aren't estimated to have been; with the
/// multi-generational LRU there is no such list, and no number.
fn deactivated(family: Family) -> Result<Outcome> {
    let mask = read("/sys/kernel/mm/lru_gen/enabled").unwrap_or_default();
    let mglru = !mask.is_empty() && !mask.ends_with('0');
    let counted = count(family, &[], "mark --pages 4096")?;
    let accuracy = counted.accuracy("deactivated")?;
    if mglru {
        ensure!(accuracy == "none", "with MGLRU the accuracy is {accuracy}{}", counted.text());
        ensure!(counted.pages("deactivated").is_err(), "a number for nothing{}", counted.text());
    } else {
        ensure!(accuracy == "estimate", "the accuracy is {accuracy}{}", counted.text());
        // A page is faulted in on the inactive list, and nothing promotes it before it is marked.
        let pages = counted.pages("deactivated")?;
        ensure!(pages == 0, "{pages} pages of fresh memory were active{}", counted.text());
    }
    Ok(Outcome::Passed)
}
