//! What became of the pages of a region, by its page table and the flags of its page frames.
//!
//! An observation of our own memory, apart from every counter that other processes move too.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use procfs::{
    KPageFlags, PhysicalPageFlags,
    process::{MemoryPageFlags, PageInfo, Pfn, Process},
};

use super::region::Region;

/// How many pages of a region are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// In memory.
    pub present: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Neither: never touched, or freed.
    pub absent: u64,
    /// Of those present, by their page frames' flags; only root can read those.
    pub frames: Option<Frames>,
}

/// How many page frames are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Anonymous and not swap-backed.
    pub lazyfree: u64,
    /// Anonymous and swap-backed, as anonymous memory is unless MADV_FREE was here.
    pub swapbacked: u64,
}

impl Frames {
    fn count(flags: impl IntoIterator<Item = PhysicalPageFlags>) -> Self {
        let mut frames = Self::default();
        for flags in flags {
            if !flags.contains(PhysicalPageFlags::ANON) {
                continue;
            }
            match flags.contains(PhysicalPageFlags::SWAPBACKED) {
                true => frames.swapbacked += 1,
                false => frames.lazyfree += 1,
            }
        }
        frames
    }
}

impl Tally {
    /// Looks at every page of a region.
    pub fn of(region: &Region) -> Result<Self> {
        let entries = entries(region)?;
        let mut tally = Self::count(&entries);
        let frames: Vec<Pfn> = entries.iter().filter_map(frame).collect();
        // Without CAP_SYS_ADMIN the kernel shows frame 0 for every page, and no flags.
        if frames.len() as u64 == tally.present
            && let Ok(mut file) = KPageFlags::new()
        {
            let flags: Result<Vec<_>, _> =
                frames.into_iter().map(|pfn| file.get_info(pfn)).collect();
            tally.frames = Some(Frames::count(flags.context("cannot read /proc/kpageflags")?));
        }
        Ok(tally)
    }

    fn count(entries: &[PageInfo]) -> Self {
        let mut tally = Self::default();
        for entry in entries {
            match entry {
                PageInfo::SwapPage(_) => tally.swapped += 1,
                PageInfo::MemoryPage(flags) if flags.contains(MemoryPageFlags::PRESENT) => {
                    tally.present += 1;
                }
                PageInfo::MemoryPage(_) => tally.absent += 1,
            }
        }
        tally
    }
}

/// The page frames of some pages of a region that compaction's migration scanner would look at:
/// order 0, anonymous, on an LRU list, not in the swap cache. Needs root.
pub fn migratable(region: &Region, pages: &[usize]) -> Result<BTreeSet<u64>> {
    let entries = entries(region)?;
    let mut file = KPageFlags::new().context("cannot open /proc/kpageflags (run as root)")?;
    let mut frames = BTreeSet::new();
    for &page in pages {
        let pfn = entries.get(page).and_then(frame).with_context(|| {
            format!("/proc/self/pagemap shows no frame for page {page} (run as root)")
        })?;
        if is_migratable(file.get_info(pfn).context("cannot read /proc/kpageflags")?) {
            frames.insert(pfn.0);
        }
    }
    Ok(frames)
}

/// The part of the test in `isolate_migratepages_block` that page flags can show.
fn is_migratable(flags: PhysicalPageFlags) -> bool {
    let wanted = PhysicalPageFlags::LRU | PhysicalPageFlags::ANON;
    let unwanted = PhysicalPageFlags::SWAPCACHE
        | PhysicalPageFlags::COMPOUND_HEAD
        | PhysicalPageFlags::COMPOUND_TAIL;
    flags.contains(wanted) && !flags.intersects(unwanted)
}

fn entries(region: &Region) -> Result<Vec<PageInfo>> {
    let page_size = rustix::param::page_size();
    let addresses = region.addresses();
    Process::myself()
        .and_then(|process| process.pagemap())
        .and_then(|mut map| {
            map.get_range_info(addresses.start / page_size..addresses.end / page_size)
        })
        .context("cannot read /proc/self/pagemap")
}

fn frame(entry: &PageInfo) -> Option<Pfn> {
    match entry {
        PageInfo::MemoryPage(flags) if flags.contains(MemoryPageFlags::PRESENT) => {
            Some(flags.get_page_frame_number()).filter(|pfn| pfn.0 != 0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: u64 = 1 << 63;
    const SWAP: u64 = 1 << 62;

    #[test]
    fn every_page_is_in_one_state() {
        // A swap entry's offset is no frame, and a page that isn't there has neither.
        let entries = [PRESENT | 77, PRESENT | 78, SWAP | 99, 0].map(PageInfo::parse_info);
        let tally = Tally::count(&entries);
        assert_eq!(tally, Tally { present: 2, swapped: 1, absent: 1, frames: None });
        let frames: Vec<u64> = entries.iter().filter_map(frame).map(|pfn| pfn.0).collect();
        assert_eq!(frames, [77, 78]);
    }

    #[test]
    fn frame_zero_is_a_hidden_frame() {
        assert_eq!(frame(&PageInfo::parse_info(PRESENT)), None);
    }

    #[test]
    fn lazyfree_is_anonymous_without_swap_backing() {
        let anon = PhysicalPageFlags::ANON;
        let backed = PhysicalPageFlags::SWAPBACKED;
        let frames = Frames::count([anon, anon | backed, anon | backed, backed]);
        assert_eq!(frames, Frames { lazyfree: 1, swapbacked: 2 });
    }

    #[test]
    fn the_migration_scanner_wants_anonymous_pages_on_a_list() {
        let page = PhysicalPageFlags::ANON | PhysicalPageFlags::LRU;
        assert!(is_migratable(page | PhysicalPageFlags::SWAPBACKED));
        assert!(!is_migratable(PhysicalPageFlags::ANON));
        assert!(!is_migratable(page | PhysicalPageFlags::SWAPCACHE));
        assert!(!is_migratable(page | PhysicalPageFlags::COMPOUND_TAIL));
    }

    #[test]
    fn our_own_pages_are_seen() {
        let region = Region::of_base_pages(8).unwrap();
        region.touch_every(2);
        let tally = Tally::of(&region).unwrap();
        assert_eq!((tally.present + tally.swapped, tally.absent), (4, 4));
    }
}
