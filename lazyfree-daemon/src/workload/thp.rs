//! Marks transparent huge pages as a whole.
//!
//! A range that covers a huge page goes through `madvise_free_huge_pmd`, which marks the folio
//! without splitting it: PGLAZYFREE moves by all its pages at once, and so does PGLAZYFREED when
//! reclaim frees it (5.10 to 7.3). Huge pages are made by the page fault, so the region is aligned
//! and every stretch is touched once.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use super::{
    Common, Workload, expect::Plan, mark::mark, pagemap::Tally, region::Region, session::Session,
    trigger::Trigger,
};

/// `lazyfree workload thp`
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Thp {
    /// Huge pages to mark
    #[arg(long, default_value = "8", value_parser = |text: &str| super::multiple_of(1, text))]
    folios: u64,
    /// What makes reclaim take them
    #[arg(long, value_enum, default_value_t = Trigger::Pageout)]
    trigger: Trigger,
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

impl Workload for Thp {
    fn name(&self) -> &'static str {
        "thp"
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bytes(&self, _page_size: u64) -> Result<u64> {
        super::bytes(self.folios, pmd_bytes()? as u64)
    }

    fn run(&self, session: &Session) -> Result<()> {
        let region = Region::of_huge_pages(self.folios, pmd_bytes()?)?;
        region.touch();
        ensure_huge(&region)?;
        let plan = Plan { pages: region.pages() as u64, redirtied: 0, pinned: 0 };
        let start = session.start()?;
        mark(&region)?;
        self.trigger.pull(&region, session)?;
        let mut report = session.finish(&start, Some(self.trigger))?;
        let tally = Tally::of(&region)?;
        report.expect(plan.expect(self.trigger));
        report.observed.set("folios", self.folios);
        report.observe_pages(&tally);
        report.require_marks(plan.pages);
        if self.trigger != Trigger::None {
            report.require_freed(&tally, plan.hits());
        }
        session.publish(report)
    }
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Bytes that one entry of a page middle directory maps: 2 MiB on x86-64, up to 512 MiB on arm64.
fn pmd_bytes() -> Result<usize> {
    let path = format!("{THP}/hpage_pmd_size");
    let text = fs::read_to_string(&path).with_context(|| {
        format!("cannot read {path}: this kernel has no transparent huge pages")
    })?;
    text.trim().parse().with_context(|| format!("{path} isn't a number: {text:?}"))
}

/// Fails unless the page faults made huge pages, and nothing but huge pages.
fn ensure_huge(region: &Region) -> Result<()> {
    let (got, wanted) = (huge_bytes(region)?, region.bytes() as u64);
    let enabled = fs::read_to_string(format!("{THP}/enabled")).unwrap_or_default();
    ensure!(
        got == wanted,
        "only {} of {} MiB is in huge pages ({THP}/enabled is {}): {}",
        got >> 20,
        wanted >> 20,
        enabled.trim(),
        if enabled.contains("[never]") {
            format!("as root, run: echo madvise > {THP}/enabled")
        } else {
            "memory is fragmented; as root, run: echo 1 > /proc/sys/vm/compact_memory".to_owned()
        }
    );
    Ok(())
}

/// Huge pages in the mappings that a region lies in. No other mapping of this process was advised
/// MADV_HUGEPAGE, so none was merged with it.
fn huge_bytes(region: &Region) -> Result<u64> {
    let maps = Process::myself().and_then(|process| process.smaps());
    let addresses = region.addresses();
    let huge = maps
        .context("cannot read /proc/self/smaps")?
        .iter()
        .filter(|map| {
            map.address.0 < addresses.end as u64 && map.address.1 > addresses.start as u64
        })
        .filter_map(|map| map.extension.map.get("AnonHugePages"))
        .sum();
    Ok(huge)
}
