//! Compaction: `isolate_migratepages_block`, called for up to one pageblock.
//!
//! The kernel passes over an anonymous page whose references exceed its mappings, in what its
//! comment calls an admittedly racy check, and counts it nowhere. At return the range that was
//! scanned is walked with the same check.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_probe_read_kernel};
use lazyfree_common::{
    Counter, Family,
    call::{CompactionCall, CompactionRun},
    percpu::PerCpu,
};

use crate::{
    folio::{Page, large_mapcount, large_mapcount_known, large_nr_pages},
    kernel::{layout, now_ns, read, reads_memory},
    maps::{
        BUFFER_PAGES, COMPACTION_CALLS, COMPACTION_RUNS, CONTROL, PAGES, enter, leave, this_cpu,
    },
};

/// Most pages of a range that are looked at: the largest pageblock of x86-64.
const MAX_WALK: u64 = 1024;

/// Size of a struct page. The loader refuses the hook where it is another.
const PAGE_BYTES: u64 = size_of::<Page>() as u64;

/// An order that no block has: the scanner doesn't give up blocks.
const NO_SKIPPING: u64 = 63;

/// Address of a `struct compact_control` that isn't known.
const UNKNOWN: u64 = 0;

/// The order that goes with it: whether the scanner looks at a large folio can't be told.
const UNKNOWN_ORDER: i64 = i64::MIN;

/// `enum migrate_mode`: MIGRATE_ASYNC.
const MIGRATE_ASYNC: u32 = 0;

/// What an isolation went over.
#[derive(Clone, Copy)]
pub struct Range {
    /// First page frame.
    pub low_pfn: u64,
    /// One past the last.
    pub end: u64,
    /// Pages that the kernel counts as scanned.
    pub scanned: u64,
}

/// Entry, with the kernel's arguments.
#[inline(always)]
pub fn entered(control: u64, low_pfn: u64) {
    let Some(cpu) = this_cpu() else { return };
    let call = CompactionCall {
        start_ns: now_ns(),
        control,
        low_pfn,
        scanned: scanned(control),
        isolated: isolated(control),
    };
    enter(&COMPACTION_CALLS, Family::Isolate, cpu, bpf_get_current_pid_tgid(), &call);
}

/// Return; `value` is what the function returned.
#[inline(always)]
pub fn returned(value: u64) {
    let Some(cpu) = this_cpu() else { return };
    let task = bpf_get_current_pid_tgid();
    let Some(call) = leave(&COMPACTION_CALLS, Family::Isolate, cpu, task) else { return };
    cpu.durations[Family::Isolate as usize].record(now_ns().wrapping_sub(call.start_ns));

    let scanned = scanned(call.control).wrapping_sub(call.scanned);
    let isolated = isolated(call.control).wrapping_sub(call.isolated);
    if scanned == 0 {
        // Too many isolated pages: the kernel looked at nothing.
        return;
    }
    cpu.counters[Counter::CompactionScannedPages as usize] += scanned;
    if (isolated as i64) > 0 {
        cpu.counters[Counter::CompactionIsolatedPages as usize] += isolated;
    }
    let range = Range { low_pfn: call.low_pfn, end: stopped_at(&call, value), scanned };
    walk(range, call.control, cpu);
}

/// An isolation that a tracepoint reports at its end, where the function can't be hooked.
#[inline(always)]
pub fn reported(range: Range, isolated: u64) {
    let Some(cpu) = this_cpu() else { return };
    cpu.counters[Counter::CompactionScannedPages as usize] += range.scanned;
    cpu.counters[Counter::CompactionIsolatedPages as usize] += isolated;
    if range.scanned == 0 {
        return;
    }
    let task = bpf_get_current_pid_tgid();
    // SAFETY: only this task inserts or removes its key.
    let run = unsafe { COMPACTION_RUNS.get(task) }.copied();
    walk(range, run.map_or(UNKNOWN, |run| run.control), cpu);
}

/// A run of compaction over a zone begins.
#[inline(always)]
pub fn run_begins(control: u64) {
    let run = CompactionRun { control };
    // Without room for it the isolations of the run count as not looked at.
    let _full = COMPACTION_RUNS.insert(bpf_get_current_pid_tgid(), run, 0);
}

/// And ends.
#[inline(always)]
pub fn run_ends() {
    let _absent = COMPACTION_RUNS.remove(bpf_get_current_pid_tgid());
}

/// Whether a run is on behalf of an allocation that waits for it.
#[inline(always)]
pub fn is_direct(control: u64) -> bool {
    read::<u8>(control + u64::from(layout!(cc_direct_compaction))).is_some_and(|direct| direct != 0)
}

/// `compact_control.total_migrate_scanned`: pages that the scanner stepped over.
#[inline(always)]
fn scanned(control: u64) -> u64 {
    read(control + u64::from(layout!(cc_total_migrate_scanned))).unwrap_or(0)
}

/// `compact_control.nr_migratepages`: pages isolated and not yet migrated.
#[inline(always)]
fn isolated(control: u64) -> u64 {
    read::<u32>(control + u64::from(layout!(cc_nr_migratepages))).map_or(0, u64::from)
}

/// One past the last page frame of the range that was scanned.
#[inline(always)]
fn stopped_at(call: &CompactionCall, value: u64) -> u64 {
    if layout!(isolate_returns_pfn) != 0 {
        return value;
    }
    read(call.control + u64::from(layout!(cc_migrate_pfn))).unwrap_or(call.low_pfn)
}

/// Direct compaction that may not block gives up an aligned block of its order at the first page
/// that it can't isolate, and steps to the next one (`skip_on_failure`). The order, if so.
#[inline(always)]
fn skips_on_failure(control: u64) -> Option<u64> {
    let direct = read::<u8>(control + u64::from(layout!(cc_direct_compaction)))?;
    let mode = read::<u32>(control + u64::from(layout!(cc_mode)))?;
    let order = read::<i32>(control + u64::from(layout!(cc_order)))?;
    (direct != 0 && mode == MIGRATE_ASYNC && order > 0).then_some(order as u64)
}

/// Counts the pinned pages of the range into the CPU's counters.
#[inline(always)]
fn walk(range: Range, control: u64, cpu: &mut PerCpu) {
    let Range { low_pfn, end, scanned } = range;
    let length = end.wrapping_sub(low_pfn);
    let vmemmap = CONTROL.get(0).map_or(0, |control| control.vmemmap);
    let mut pages = length;
    cpu.walk.skip_order = NO_SKIPPING;
    cpu.walk.skip_to = 0;
    if scanned < length {
        if control == UNKNOWN {
            // The kernel may have given up blocks, or skipped the rest of this one.
            cpu.counters[Counter::CompactionUnwalkedPages as usize] += length - scanned;
        } else if let Some(order) = skips_on_failure(control) {
            // Which pages of an abandoned block were looked at before can't be told afterwards.
            cpu.counters[Counter::CompactionUnwalkedPages as usize] += length - scanned;
            cpu.walk.skip_order = order;
        } else if layout!(isolate_counts_free) != 0 {
            // The rest of the block was marked to be skipped.
            pages = scanned;
        } else if scanned == 1 {
            // All of the block was, or it is free; free pages that are stepped over don't count
            // here, so a larger number says nothing about where the scanner stopped.
            pages = 1;
        }
    }
    let walked = if vmemmap == 0 { 0 } else { MAX_WALK };
    if pages > walked {
        cpu.counters[Counter::CompactionUnwalkedPages as usize] += pages - walked;
        pages = walked;
    }
    cpu.walk.order = if control == UNKNOWN {
        UNKNOWN_ORDER
    } else {
        read::<i32>(control + u64::from(layout!(cc_order))).map_or(0, i64::from)
    };
    cpu.walk.end = low_pfn + pages;
    for step in 0..MAX_WALK / BUFFER_PAGES {
        let pfn = low_pfn + step * BUFFER_PAGES;
        if pfn >= cpu.walk.end {
            return;
        }
        lazyfree_read_pages(vmemmap, pfn);
        for index in 0..BUFFER_PAGES {
            lazyfree_count_pinned(vmemmap, pfn, index);
        }
    }
}

/// Fills the buffer with the struct pages from `pfn` on.
///
/// As the next one a function of its own with a global name, which the verifier looks at once
/// instead of at each turn of the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lazyfree_read_pages(vmemmap: u64, pfn: u64) -> u64 {
    let Some(cpu) = this_cpu() else { return 0 };
    let Some(buffer) = PAGES.get_ptr_mut(0) else { return 0 };
    if !reads_memory() {
        return 0;
    }
    let number = cpu.walk.end.wrapping_sub(pfn).min(BUFFER_PAGES);
    // SAFETY: the helper checks the address, and the verifier the bounds of the buffer.
    let failed = unsafe {
        bpf_probe_read_kernel(
            buffer.cast(),
            (number * PAGE_BYTES) as u32,
            (vmemmap + pfn * PAGE_BYTES) as *const c_void,
        )
    };
    if failed != 0 {
        // What can't be read is zeroed, and no page of zeroes is pinned.
        cpu.counters[Counter::CompactionUnwalkedPages as usize] += number;
    }
    number
}

/// Counts page `index` of the buffer, which starts at `pfn`, if the scanner passed over it as
/// pinned. Its check: on an LRU list, no file or swap cache behind it, and more references than
/// mappings. A free page is on no list.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lazyfree_count_pinned(vmemmap: u64, first: u64, index: u64) -> u64 {
    let (Some(cpu), Some(buffer)) = (this_cpu(), PAGES.get_ptr_mut(0)) else { return 0 };
    // SAFETY: this program can't run twice at once on a CPU, and no other uses the buffer.
    let page = unsafe { &(*buffer)[(index & (BUFFER_PAGES - 1)) as usize] };
    let pfn = first + index;
    if pfn >= cpu.walk.end || pfn < cpu.walk.skip_to {
        return 0;
    }
    if !page.lru() || page.file() || page.swapcache() {
        return 0;
    }
    let (pages, mapcount) = if !page.head() {
        (1, page.small_mapcount())
    } else {
        let address = vmemmap + pfn * PAGE_BYTES;
        let pages = large_nr_pages(address);
        if cpu.walk.order == UNKNOWN_ORDER {
            cpu.counters[Counter::CompactionUnwalkedPages as usize] += pages;
            return 0;
        }
        if !looks_at_large(pages, cpu.walk.order) {
            return 0;
        }
        (pages, large_mapcount(address))
    };
    if !page.referenced_beyond(mapcount, 0) {
        return 0;
    }
    cpu.counters[Counter::CompactionPinnedPages as usize] += pages;
    let order = cpu.walk.skip_order;
    if order < NO_SKIPPING {
        cpu.walk.skip_to = ((pfn >> order) + 1) << order;
    }
    pages
}

/// `skip_isolation_on_order`, turned round. Order -1 is compaction of a whole node.
#[inline(always)]
fn looks_at_large(pages: u64, order: i64) -> bool {
    if layout!(isolate_takes_large) == 0 || !large_mapcount_known() {
        return false;
    }
    let fits_target = order < 0 || pages < 1u64.wrapping_shl(order as u32 & 63);
    fits_target && pages < 1u64.wrapping_shl(layout!(pageblock_order) & 63)
}
