//! Swaps pages out, then gives them back with MADV_FREE.
//!
//! MADV_PAGEOUT swaps the pages out. `madvise_free_pte_range` then finds swap entries instead of
//! pages, and frees each with its slot (`free_swap_and_cache` up to 6.1, `free_swap_and_cache_nr`
//! from 6.12, `swap_put_entries_direct` from 7.0): no swap-in will ever happen. No vmstat counter
//! shows that, so the truth is the number of swap entries in the page table just before.

use anyhow::{Context as _, Result, ensure};
use procfs::{Current as _, Meminfo, process::Process};
use rustix::mm::Advice;
use serde::{Deserialize, Serialize};

use super::{
    Common, Workload, expect::Expectation, mark::mark, pagemap::Tally, region::Region,
    session::Session,
};
use crate::signal::Signal;

/// `lazyfree workload swap`
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Swap {
    /// Pages to swap out and give back
    #[arg(long, default_value = "4096", value_parser = |text: &str| super::multiple_of(1, text))]
    pages: u64,
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// How often pages are paged out that weren't the last time, such as those under writeback.
const ATTEMPTS: u32 = 5;

impl Workload for Swap {
    fn name(&self) -> &'static str {
        "swap"
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bytes(&self, page_size: u64) -> Result<u64> {
        super::bytes(self.pages, page_size)
    }

    fn run(&self, session: &Session) -> Result<()> {
        ensure_swap(self.bytes(rustix::param::page_size() as u64)?)?;
        let region = Region::of_base_pages(self.pages)?;
        region.touch();
        let start = session.start()?;
        let before = page_out(&region)?;
        let vm_swap = vm_swap_pages()?;
        mark(&region)?;
        let after = Tally::of(&region)?;
        let mut report = session.finish(&start, None)?;

        let mut expectation = Expectation::default();
        expectation.exact.set(Signal::Advised.name(), self.pages);
        expectation.exact.set(Signal::SwapEntriesFreed.name(), before.swapped);
        // A page that is back from swap and still in the swap cache loses that first.
        expectation.exact.set(Signal::Marked.name(), before.present);
        report.expect(expectation);
        report.observed.set("vm_swap_before", vm_swap);
        report.observed.set("vm_swap_after", vm_swap_pages()?);
        report.observe_pages(&after);
        report.require_marks(before.present);
        report.require(after.swapped == 0, || {
            format!("MADV_FREE left {} of {} swap entries", after.swapped, before.swapped)
        });
        session.publish(report)
    }
}

fn ensure_swap(bytes: u64) -> Result<()> {
    let meminfo = Meminfo::current().context("cannot read /proc/meminfo")?;
    ensure!(
        meminfo.swap_total > 0,
        "there is no swap; for some in compressed memory, run as root: modprobe zram && \
         echo {}M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0",
        (2 * bytes).div_ceil(1 << 20).max(64)
    );
    ensure!(
        meminfo.swap_free >= bytes,
        "{} KiB of swap is free, but {} KiB is needed: ask for fewer pages, or add swap",
        meminfo.swap_free >> 10,
        bytes >> 10
    );
    Ok(())
}

/// Swaps a region out as far as the kernel goes along.
fn page_out(region: &Region) -> Result<Tally> {
    let mut tally = Tally::default();
    for _ in 0..ATTEMPTS {
        region.advise(Advice::LinuxPageOut)?;
        tally = Tally::of(region)?;
        if tally.present == 0 {
            break;
        }
    }
    ensure!(tally.swapped > 0, "the kernel swapped out none of {} pages", region.pages());
    Ok(tally)
}

/// Swap entries of the whole process, as `/proc/self/status` has them; from 6.2 on that is a
/// per-CPU counter, and may lag.
fn vm_swap_pages() -> Result<u64> {
    let status = Process::myself().and_then(|process| process.status());
    let kib = status.context("cannot read /proc/self/status")?.vmswap.unwrap_or(0);
    Ok(kib * 1024 / rustix::param::page_size() as u64)
}
