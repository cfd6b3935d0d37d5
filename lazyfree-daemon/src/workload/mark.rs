//! Marks pages lazyfree.
//!
//! `madvise_free_pte_range` (5.10 to 7.3) marks every present, exclusively mapped anonymous page of
//! the range. Pages just touched qualify: `madvise_free_single_vma` begins with `lru_add_drain`,
//! which puts them on an LRU list first. Draining this CPU's batches afterwards brings every mark
//! into PGLAZYFREE.

use anyhow::Result;
use rustix::mm::Advice;
use serde::{Deserialize, Serialize};

use super::{
    Common, Workload,
    expect::Plan,
    pagemap::Tally,
    region::{Region, drain_batches},
    session::Session,
    trigger::Trigger,
};

/// `lazyfree workload mark`
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Mark {
    /// Pages to mark
    #[arg(long, default_value = "4096", value_parser = |text: &str| super::multiple_of(1, text))]
    pages: u64,
    /// What makes reclaim take them
    #[arg(long, value_enum, default_value_t = Trigger::None)]
    trigger: Trigger,
    /// Bring the pages to the active list before they are marked
    #[arg(long)]
    active: bool,
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

impl Workload for Mark {
    fn name(&self) -> &'static str {
        "mark"
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bytes(&self, page_size: u64) -> Result<u64> {
        super::bytes(self.pages, page_size)
    }

    fn run(&self, session: &Session) -> Result<()> {
        let plan = Plan { pages: self.pages, redirtied: 0, pinned: 0 };
        let region = Region::of_base_pages(self.pages)?;
        region.touch();
        if self.active {
            region.activate()?;
        }
        let start = session.start()?;
        mark(&region)?;
        self.trigger.pull(&region, session)?;
        let mut report = session.finish(&start, Some(self.trigger))?;
        let tally = Tally::of(&region)?;
        report.expect(plan.expect(self.trigger));
        report.observe_pages(&tally);
        report.require_marks(plan.pages);
        if self.trigger != Trigger::None {
            report.require_freed(&tally, plan.hits());
        }
        session.publish(report)
    }
}

/// Marks every page of a region, and sees to it that the marks are counted.
pub fn mark(region: &Region) -> Result<()> {
    region.advise(Advice::LinuxFree)?;
    drain_batches()
}
