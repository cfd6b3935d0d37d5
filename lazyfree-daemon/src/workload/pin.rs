//! Marks pages, and takes an extra reference to every second one before reclaim comes.
//!
//! `try_to_unmap_one` finds the page clean, but with more references than mappings, and puts it
//! back. Up to 6.12 it makes the page swap-backed again, like a dirty one, and counts it in
//! `nr_lazyfree_fail` too; from 6.16 the page stays lazyfree, so that reclaim tries it again and
//! again. `pages_swapbacked` and `pages_lazyfree` of the report tell which it was.
//!
//! MADV_FREE itself minds mappings, not references, so it would mark pinned pages too. They are
//! pinned after marking all the same, as by a program that still has I/O in flight.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    Common, Workload, expect::Plan, mark::mark, pagemap::Tally, pins::Pins, region::Region,
    session::Session, trigger::Trigger,
};

/// `lazyfree workload pin`
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Pin {
    /// Pages to mark; half of them are pinned
    #[arg(long, default_value = "4096", value_parser = |text: &str| super::multiple_of(2, text))]
    pages: u64,
    /// What makes reclaim act
    #[arg(long, value_enum, default_value_t = Trigger::Pageout)]
    trigger: Trigger,
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

impl Workload for Pin {
    fn name(&self) -> &'static str {
        "pin"
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bytes(&self, page_size: u64) -> Result<u64> {
        super::bytes(self.pages, page_size)
    }

    fn run(&self, session: &Session) -> Result<()> {
        let plan = Plan { pages: self.pages, redirtied: 0, pinned: self.pages / 2 };
        let region = Region::of_base_pages(self.pages)?;
        region.touch();
        let start = session.start()?;
        mark(&region)?;
        let every_second: Vec<usize> = (0..region.pages()).step_by(2).collect();
        let _pins = Pins::take(&region, &every_second)?;
        self.trigger.pull(&region, session)?;
        let mut report = session.finish(&start, Some(self.trigger))?;
        let tally = Tally::of(&region)?;
        report.expect(plan.expect(self.trigger));
        report.observed.set("pages_pinned", every_second.len() as u64);
        report.observe_pages(&tally);
        report.require_marks(plan.pages);
        if self.trigger != Trigger::None {
            report.require_freed(&tally, plan.hits());
        }
        session.publish(report)
    }
}
