//! Where the struct page of a page frame is, on a kernel whose symbol table doesn't tell.
//!
//! The tracepoint mm_page_alloc has the struct page of each page that is allocated. For pages of our
//! own we know the page frame as well (`/proc/self/pagemap`), and one such pair gives the base of
//! the array of all struct pages. Several must agree.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    ptr::{NonNull, null_mut},
};

use aya::{Ebpf, programs::RawTracePoint};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::counts::Counts;

/// The program that reports our own allocations.
const PROGRAM: &str = "raw_tracepoint_page_alloc";

/// Pages that are touched at most.
const TRIES: usize = 32;

/// Pages that must agree.
const WITNESSES: usize = 4;

/// A page of ours: address of its struct page, and number of its page frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Witness {
    page: u64,
    frame: u64,
}

/// Address of the struct page of page frame 0, or why it can't be told.
pub fn derive(bpf: &mut Ebpf, counts: &mut Counts, struct_page: u32) -> Result<u64, String> {
    let mut attach = || -> Result<(), Box<dyn std::error::Error>> {
        let program: &mut RawTracePoint =
            bpf.program_mut(PROGRAM).ok_or("the program is missing")?.try_into()?;
        program.load()?;
        program.attach("mm_page_alloc")?;
        Ok(())
    };
    attach().map_err(|error| format!("cannot follow mm_page_alloc: {error}"))?;
    let witnesses = Region::map()
        .and_then(|region| witnesses(&region, counts))
        .map_err(|error| format!("cannot look at pages of our own: {error}"));
    counts.report_allocations_of(0);
    if let Some(program) = bpf.program_mut(PROGRAM)
        && let Ok(program) = <&mut RawTracePoint>::try_from(program)
        && let Err(error) = program.unload()
    {
        tracing::warn!("cannot unload {PROGRAM}: {error}");
    }
    base(&witnesses?, u64::from(struct_page))
}

/// The base that all witnesses agree on.
fn base(witnesses: &[Witness], struct_page: u64) -> Result<u64, String> {
    let base =
        |witness: &Witness| witness.page.wrapping_sub(witness.frame.wrapping_mul(struct_page));
    let [first, rest @ ..] = witnesses else {
        return Err("no page frame can be told, which takes CAP_SYS_ADMIN".to_owned());
    };
    // The same frame twice would say nothing new.
    if !rest.iter().any(|other| other.frame != first.frame) {
        return Err("only one page could be looked at".to_owned());
    }
    if rest.iter().any(|other| base(other) != base(first)) {
        return Err(format!("struct pages are in no one array: {witnesses:x?}"));
    }
    Ok(base(first))
}

fn witnesses(region: &Region, counts: &mut Counts) -> io::Result<Vec<Witness>> {
    let pagemap = File::open("/proc/self/pagemap")?;
    // The page tables are there after the first.
    region.touch(0);
    let task = u64::from(rustix::process::getpid().as_raw_pid() as u32) << 32
        | u64::from(rustix::thread::gettid().as_raw_pid() as u32);
    counts.report_allocations_of(task);
    let mut witnesses = Vec::new();
    for index in 1..TRIES {
        let before = counts.allocated();
        region.touch(index);
        let after = counts.allocated();
        // Another number means that something else was allocated on the way.
        if after.count == before.count + 1
            && let Some(frame) = region.frame(index, &pagemap)?
        {
            witnesses.push(Witness { page: after.address, frame });
        }
        if witnesses.len() == WITNESSES {
            break;
        }
    }
    Ok(witnesses)
}

/// Untouched memory of small pages.
struct Region {
    start: NonNull<u8>,
    page_size: usize,
}

impl Region {
    fn map() -> io::Result<Self> {
        let page_size = rustix::param::page_size();
        let length = TRIES * page_size;
        // SAFETY: the kernel chooses where, so that no other memory is touched.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Self { start, page_size };
        // SAFETY: the range is what was mapped, and the advice keeps what is in it.
        unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxNoHugepage) }?;
        Ok(region)
    }

    fn touch(&self, index: usize) {
        assert!(index < TRIES, "within the region");
        // SAFETY: the page is mapped, writable and ours.
        unsafe { self.start.as_ptr().add(index * self.page_size).write_volatile(1) };
    }

    /// The page frame of a page; `None` where the kernel doesn't show it.
    fn frame(&self, index: usize, pagemap: &File) -> io::Result<Option<u64>> {
        const PRESENT: u64 = 1 << 63;
        const FRAME: u64 = (1 << 55) - 1;
        let page = self.start.as_ptr() as usize / self.page_size + index;
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, page as u64 * 8)?;
        let entry = u64::from_ne_bytes(entry);
        let frame = entry & FRAME;
        Ok((entry & PRESENT != 0 && frame != 0).then_some(frame))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is what was mapped, and nobody holds a reference into it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), TRIES * self.page_size) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ea00_0000_0000;

    fn witness(frame: u64) -> Witness {
        Witness { page: BASE + frame * 64, frame }
    }

    #[test]
    fn pages_that_agree_give_the_base() {
        assert_eq!(base(&[witness(0x1234), witness(0x88), witness(0x1235)], 64), Ok(BASE));
    }

    #[test]
    fn one_page_is_not_enough_nor_is_the_same_twice() {
        assert!(base(&[], 64).unwrap_err().contains("CAP_SYS_ADMIN"));
        assert!(base(&[witness(7)], 64).is_err());
        assert!(base(&[witness(7), witness(7)], 64).is_err());
    }

    #[test]
    fn pages_that_disagree_give_nothing() {
        let other = Witness { page: BASE + 0x1000, frame: 9 };
        assert!(base(&[witness(7), other], 64).unwrap_err().contains("no one array"));
        // As with another size of struct page.
        assert!(base(&[witness(7), witness(8)], 56).is_err());
    }
}
