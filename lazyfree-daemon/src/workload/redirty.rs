//! Marks pages, and writes to every second one again before reclaim comes.
//!
//! MADV_FREE cleans the page table entry; the write makes it dirty again, unseen by the kernel.
//! `try_to_unmap_one` then finds the dirty bit, makes the page swap-backed again and fails, which
//! counts in `nr_lazyfree_fail` (5.10 to 7.3). The other half is freed.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    Common, Workload, expect::Plan, mark::mark, pagemap::Tally, region::Region, session::Session,
    trigger::Trigger,
};

/// `lazyfree workload redirty`
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Redirty {
    /// Pages to mark; half of them are written to again
    #[arg(long, default_value = "4096", value_parser = |text: &str| super::multiple_of(2, text))]
    pages: u64,
    /// What makes reclaim act
    #[arg(long, value_enum, default_value_t = Trigger::Pageout)]
    trigger: Trigger,
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

impl Workload for Redirty {
    fn name(&self) -> &'static str {
        "redirty"
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bytes(&self, page_size: u64) -> Result<u64> {
        super::bytes(self.pages, page_size)
    }

    fn run(&self, session: &Session) -> Result<()> {
        let plan = Plan { pages: self.pages, redirtied: self.pages / 2, pinned: 0 };
        let region = Region::of_base_pages(self.pages)?;
        region.touch();
        let start = session.start()?;
        mark(&region)?;
        region.touch_every(2);
        self.trigger.pull(&region, session)?;
        let mut report = session.finish(&start, Some(self.trigger))?;
        let tally = Tally::of(&region)?;
        report.expect(plan.expect(self.trigger));
        report.observe_pages(&tally);
        report.require_marks(plan.pages);
        if self.trigger != Trigger::None {
            report.require_freed(&tally, plan.hits());
            // Only MADV_PAGEOUT is sure to get to each of them: MGLRU from 6.16 to 7.1 promotes pages
            // whose dirty bit it comes across before they are tried.
            if let (Trigger::Pageout, Some(frames)) = (self.trigger, tally.frames) {
                report.require(frames.lazyfree == 0, || {
                    format!("{} pages that were written to are still lazyfree", frames.lazyfree)
                });
            }
        }
        session.publish(report)
    }
}
