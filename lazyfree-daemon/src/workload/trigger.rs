//! Ways to make reclaim act on lazyfree pages, without memory pressure on the machine.

use anyhow::{Context as _, Result};
use rustix::mm::Advice;
use serde::{Deserialize, Serialize};

use super::{region::Region, session::Session};

/// What makes reclaim act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Nothing; the pages stay until the machine needs memory
    None,
    /// MADV_PAGEOUT on the same pages: each is tried once, in this process (5.4 and later)
    Pageout,
    /// Shrink the workload's own memory cgroup for a moment
    Memcg,
    /// Write to memory.reclaim of the workload's own memory cgroup (5.19 and later, cgroup v2)
    Reclaim,
}

impl Trigger {
    /// Makes reclaim act on a region.
    pub fn pull(self, region: &Region, session: &Session) -> Result<()> {
        match self {
            Trigger::None => Ok(()),
            // madvise_pageout isolates the folios and calls reclaim_pages, 5.10 to 7.3.
            Trigger::Pageout => region.advise(Advice::LinuxPageOut),
            Trigger::Memcg => session.cgroup()?.shrink(),
            Trigger::Reclaim => session.cgroup()?.reclaim(),
        }
        .with_context(|| format!("cannot trigger reclaim ({self:?})"))
    }
}
