//! Scatters pinned pages over memory, compacts it, and counts those that the scanner met.
//!
//! Compaction passes over an anonymous page whose references exceed its mappings
//! (`isolate_migratepages_block`, 5.10 to 7.3), and no counter of the kernel shows it. So the truth
//! is read from outside: the ranges that the migration scanner went over, from the tracepoint at
//! its end, and the page frames that are known to be pinned. A frame counts once for each range it
//! lies in. Whoever else pins memory adds to what a probe counts, but not to this.
//!
//! Every second page is dropped, so that there is something to compact. How many pinned pages are
//! met varies from run to run, down to none: the scanners start at the two ends of a zone and stop
//! where they meet.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use rustix::mm::Advice;
use serde::{Deserialize, Serialize};

use super::{
    Common, Workload,
    expect::Expectation,
    pagemap,
    pins::Pins,
    region::{Region, drain_batches},
    session::Session,
    tracefs::{Instance, Range},
};
use crate::signal::Signal;

/// `lazyfree workload compact`
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Compact {
    /// Pages to touch; every second one is dropped, every eighth pinned
    #[arg(long, default_value = "8192", value_parser = |text: &str| super::multiple_of(8, text))]
    pages: u64,
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// How often memory is compacted until the scanner meets a pinned page, each time with as many
/// pages more.
const ATTEMPTS: u64 = 5;

const EVENT: &str = "compaction/mm_compaction_isolate_migratepages";

impl Workload for Compact {
    fn name(&self) -> &'static str {
        "compact"
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bytes(&self, page_size: u64) -> Result<u64> {
        super::bytes(self.pages, page_size * ATTEMPTS)
    }

    fn run(&self, session: &Session) -> Result<()> {
        let trace = Instance::create(EVENT)?;
        let start = session.start()?;
        let mut scattered = Vec::new();
        let (mut met, mut attempts, mut scanned) = (0, 0, Vec::new());
        while met == 0 && attempts < ATTEMPTS {
            scattered.push(Scattered::new(self.pages)?);
            let ranges = trace.record(compact_memory)?;
            // Only frames that were pinned by then could be met.
            met = met_in(&ranges, &frames(&scattered));
            scanned.extend(ranges);
            attempts += 1;
        }
        let mut report = session.finish(&start, None)?;

        let mut expectation = Expectation::default();
        expectation.exact.set(Signal::CompactionPinned.name(), met);
        report.expect(expectation);
        report.observed.set("attempts", attempts);
        report.observed.set("known_pinned", frames(&scattered).len() as u64);
        report.observed.set("known_pinned_in_ranges", met);
        report.observed.set("ranges", scanned.len() as u64);
        report
            .observed
            .set("range_pages", scanned.iter().map(|range| range.end - range.start).sum());
        report.require(met > 0, || {
            format!("the scanner met no pinned page in {attempts} attempts: ask for more pages")
        });
        let mut moved = 0;
        for one in &scattered {
            moved += one.moved()?;
        }
        report.observed.set("known_pinned_moved", moved);
        report.require(moved == 0, || format!("{moved} pinned pages moved"));
        session.publish(report)
    }
}

/// A region with holes and pinned pages.
struct Scattered {
    // Dropped in this order: pages are let go before they are unmapped.
    _pins: Pins,
    region: Region,
    pinned: Vec<usize>,
    frames: BTreeSet<u64>,
}

impl Scattered {
    fn new(pages: u64) -> Result<Self> {
        let region = Region::of_base_pages(pages)?;
        region.touch();
        for page in (1..region.pages()).step_by(2) {
            region.advise_page(page, Advice::LinuxDontNeed)?;
        }
        let pinned: Vec<usize> = (0..region.pages()).step_by(8).collect();
        // A page in a batch isn't on an LRU list yet, and the scanner passes over it for that.
        drain_batches()?;
        let pins = Pins::take(&region, &pinned)?;
        let frames = pagemap::migratable(&region, &pinned)?;
        ensure!(
            frames.len() == pinned.len(),
            "{} of {} pinned pages aren't on an LRU list",
            pinned.len() - frames.len(),
            pinned.len()
        );
        Ok(Self { _pins: pins, region, pinned, frames })
    }

    /// How many pinned pages are in another frame now, or no longer what they were.
    fn moved(&self) -> Result<u64> {
        let now = pagemap::migratable(&self.region, &self.pinned)?;
        Ok(self.frames.difference(&now).count() as u64)
    }
}

fn frames(scattered: &[Scattered]) -> BTreeSet<u64> {
    scattered.iter().flat_map(|one| &one.frames).copied().collect()
}

/// How often a range has one of the frames in it.
fn met_in(ranges: &[Range], frames: &BTreeSet<u64>) -> u64 {
    ranges.iter().map(|range| frames.range(range.clone()).count() as u64).sum()
}

fn compact_memory() -> Result<()> {
    let path = "/proc/sys/vm/compact_memory";
    std::fs::write(path, "1").with_context(|| format!("cannot write to {path} (run as root)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_counts_in_every_range_it_lies_in() {
        let frames = BTreeSet::from([10, 11, 20]);
        assert_eq!(met_in(&[0..11, 11..20, 10..12], &frames), 1 + 1 + 2);
        assert_eq!(met_in(&[0..10, 12..20], &frames), 0);
    }
}
