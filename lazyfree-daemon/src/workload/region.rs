//! Anonymous memory of known size, and what is done to it.
//!
//! The one file that maps memory. Pages are written through raw pointers: the kernel takes lazyfree
//! pages away behind the program's back, so no reference to their content ever exists.

use std::{
    ffi::c_void,
    fs::File,
    ops::Range,
    os::unix::fs::FileExt as _,
    ptr::{self, NonNull},
};

use anyhow::{Context as _, Result};
use rustix::{
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap},
};

/// A private anonymous mapping, unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    /// What mmap returned, which may begin before `start`.
    mapping: NonNull<c_void>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    pages: usize,
    page_size: usize,
}

impl Region {
    /// Maps `pages` pages that are faulted in one at a time, never as a large folio.
    pub fn of_base_pages(pages: u64) -> Result<Self> {
        let page_size = rustix::param::page_size();
        let region = Self::map(usize::try_from(pages)?, page_size, page_size)?;
        match region.advise(Advice::LinuxNoHugepage) {
            // A kernel without transparent huge pages doesn't know the advice, nor need it.
            Err(error) if error.downcast_ref() != Some(&Errno::INVAL) => Err(error),
            _ => Ok(region),
        }
    }

    /// Maps `folios` stretches of `pmd_bytes`, aligned so that each can be one huge page.
    pub fn of_huge_pages(folios: u64, pmd_bytes: usize) -> Result<Self> {
        let page_size = rustix::param::page_size();
        let pages = usize::try_from(folios)? * (pmd_bytes / page_size);
        let region = Self::map(pages, page_size, pmd_bytes)?;
        region.advise(Advice::LinuxHugepage)?;
        Ok(region)
    }

    fn map(pages: usize, page_size: usize, alignment: usize) -> Result<Self> {
        let bytes = pages.checked_mul(page_size).context("too many pages")?;
        let mapped_bytes = bytes.checked_add(alignment - page_size).context("too many pages")?;
        // SAFETY: no address is asked for, so the kernel picks one where nothing is mapped.
        let mapping = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .with_context(|| format!("cannot map {mapped_bytes} bytes"))?;
        let mapping = NonNull::new(mapping).context("mmap returned address 0")?;
        let skip = mapping.cast::<u8>().as_ptr().align_offset(alignment);
        // SAFETY: the mapping is `alignment - page_size` bytes longer than needed and begins at a
        // page boundary, so an aligned stretch of `bytes` bytes lies within it.
        let start = unsafe { mapping.cast::<u8>().add(skip) };
        Ok(Self { mapping, mapped_bytes, start, pages, page_size })
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.pages * self.page_size
    }

    /// Its addresses.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr().addr();
        start..start + self.bytes()
    }

    /// Where a page begins, for handing to a system call.
    pub fn page(&self, index: usize) -> *mut u8 {
        assert!(index < self.pages, "page {index} of {}", self.pages);
        // SAFETY: the index was checked, so the result lies within the mapping.
        unsafe { self.start.add(index * self.page_size) }.as_ptr()
    }

    /// Writes to every page.
    pub fn touch(&self) {
        self.touch_every(1);
    }

    /// Writes to pages 0, `step`, 2 x `step` and so on.
    pub fn touch_every(&self, step: usize) {
        for index in (0..self.pages).step_by(step) {
            // SAFETY: the page is mapped and writable, and no reference to it exists.
            unsafe { self.page(index).write_volatile(1) };
        }
    }

    /// Brings every page to the active list, where there is one: two references make a page active
    /// (`folio_mark_accessed`, 5.10 to 7.3), and each read through `/proc/self/mem` is one
    /// (`FOLL_TOUCH` in `follow_page_pte`).
    pub fn activate(&self) -> Result<()> {
        let memory = File::open("/proc/self/mem").context("cannot open /proc/self/mem")?;
        let mut byte = [0];
        // On an LRU list first: a page that waits to be added to one isn't moved to another.
        drain_batches()?;
        for _ in 0..2 {
            for index in 0..self.pages() {
                memory
                    .read_exact_at(&mut byte, self.page(index) as u64)
                    .context("cannot read /proc/self/mem")?;
            }
            drain_batches()?;
        }
        Ok(())
    }

    /// Gives the kernel an advice about all of it.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        self.advise_range(0, self.bytes(), advice)
    }

    /// Gives the kernel an advice about one page.
    pub fn advise_page(&self, index: usize, advice: Advice) -> Result<()> {
        assert!(index < self.pages, "page {index} of {}", self.pages);
        self.advise_range(index * self.page_size, self.page_size, advice)
    }

    fn advise_range(&self, offset: usize, bytes: usize, advice: Advice) -> Result<()> {
        // SAFETY: both callers stay within the mapping. What an advice does to the content doesn't
        // matter: nothing is ever read from it.
        unsafe { madvise(self.start.add(offset).cast().as_ptr(), bytes, advice) }
            .with_context(|| format!("cannot madvise {bytes} bytes ({advice:?})"))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is what `map` mapped, and nothing refers to it any more. There is nothing to
        // be done about a failure; the mapping then lives as long as the process.
        let _ = unsafe { munmap(self.mapping.as_ptr(), self.mapped_bytes) };
    }
}

/// Moves what waits in this CPU's folio batches to the LRU lists, and so into the counters.
///
/// MADV_FREE only queues its folios (`folio_mark_lazyfree`; `mark_page_lazyfree` up to 6.1), and
/// PGLAZYFREE counts when the batch is drained. `madvise_cold` begins with `lru_add_drain` (5.10 to
/// 7.3), whatever memory it is given.
pub fn drain_batches() -> Result<()> {
    Region::of_base_pages(1)?.advise(Advice::LinuxCold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_region_is_aligned_and_whole() {
        let pmd = 64 * rustix::param::page_size();
        let region = match Region::of_huge_pages(3, pmd) {
            Err(error) if error.downcast_ref() == Some(&Errno::INVAL) => {
                println!("skipped: this kernel has no transparent huge pages");
                return;
            }
            region => region.unwrap(),
        };
        assert_eq!(region.addresses().start % pmd, 0);
        assert_eq!(region.addresses().len(), 3 * pmd);
        assert_eq!(region.pages(), 3 * 64);
        region.touch();
    }

    #[test]
    #[should_panic(expected = "page 2 of 2")]
    fn a_page_outside_is_refused() {
        Region::of_base_pages(2).unwrap().page(2);
    }
}
