//! Compaction: `isolate_migratepages_block`, called for up to one pageblock.
//!
//! The kernel passes over an anonymous page whose references exceed its mappings, in what its
//! comment calls an admittedly racy check, and counts it nowhere. At return the range that was
//! scanned is walked with the same check.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use lazyfree_common::{Counter, Family, call::CompactionCall, duration::bucket, layout::ABSENT};

use crate::{
    folio::Page,
    kernel::{layout, read},
    maps::{COMPACTION_CALLS, CONTROL, enter, leave, this_cpu},
};

/// Most pages of a range that are looked at: the largest pageblock of x86-64.
const MAX_WALK: u64 = 1024;

/// `enum migrate_mode`: MIGRATE_ASYNC.
const MIGRATE_ASYNC: u32 = 0;

/// Entry, with the kernel's arguments.
#[inline(always)]
pub fn entered(control: u64, low_pfn: u64) {
    let Some(cpu) = this_cpu() else { return };
    let call = CompactionCall {
        // SAFETY: the helper has no conditions.
        start_ns: unsafe { bpf_ktime_get_ns() },
        control,
        low_pfn,
        scanned: scanned(control),
        isolated: isolated(control),
    };
    enter(&COMPACTION_CALLS, Family::Compaction, cpu, bpf_get_current_pid_tgid(), &call);
}

/// Return; `value` is what the function returned.
#[inline(always)]
pub fn returned(value: u64) {
    let Some(cpu) = this_cpu() else { return };
    let task = bpf_get_current_pid_tgid();
    let Some(call) = leave(&COMPACTION_CALLS, Family::Compaction, cpu, task) else { return };
    // SAFETY: the helper has no conditions.
    let duration = unsafe { bpf_ktime_get_ns() }.wrapping_sub(call.start_ns);
    let histogram = &mut cpu.durations[Family::Compaction as usize];
    histogram.sum_ns += duration;
    histogram.buckets[bucket(duration)] += 1;

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
    let walked = walk(&call, stopped_at(&call, value), scanned);
    cpu.counters[Counter::CompactionPinnedPages as usize] += walked.pinned;
    if walked.unwalked > 0 {
        cpu.counters[Counter::CompactionUnwalkedPages as usize] += walked.unwalked;
    }
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
fn skips_on_failure(control: u64) -> Option<u32> {
    let direct = read::<u8>(control + u64::from(layout!(cc_direct_compaction)))?;
    let mode = read::<u32>(control + u64::from(layout!(cc_mode)))?;
    let order = read::<i32>(control + u64::from(layout!(cc_order)))?;
    (direct != 0 && mode == MIGRATE_ASYNC && order > 0).then_some(order as u32)
}

struct Walked {
    pinned: u64,
    unwalked: u64,
}

#[inline(always)]
fn walk(call: &CompactionCall, end: u64, scanned: u64) -> Walked {
    let mut walked = Walked { pinned: 0, unwalked: 0 };
    let mut pages = end.wrapping_sub(call.low_pfn);
    let skipping = if scanned < pages { skips_on_failure(call.control) } else { None };
    if skipping.is_some() {
        // Which pages of an abandoned block were looked at before can't be told afterwards.
        walked.unwalked += pages - scanned;
    } else if scanned < pages {
        // The rest of the block was marked to be skipped.
        pages = scanned;
    }
    let vmemmap = CONTROL.get(0).map_or(0, |control| control.vmemmap);
    if vmemmap == 0 {
        walked.unwalked += pages;
        return walked;
    }
    if pages > MAX_WALK {
        walked.unwalked += pages - MAX_WALK;
        pages = MAX_WALK;
    }
    let order = read::<i32>(call.control + u64::from(layout!(cc_order))).unwrap_or(0);
    let size = u64::from(layout!(page_size));
    let first = vmemmap + call.low_pfn * size;
    let mut skip_to = 0;
    for index in 0..MAX_WALK {
        if index >= pages {
            break;
        }
        if index < skip_to {
            continue;
        }
        let address = first + index * size;
        let Some(page) = Page::read(address) else {
            walked.unwalked += 1;
            continue;
        };
        let pinned = pinned_pages(&page, address, order);
        if pinned == 0 {
            continue;
        }
        walked.pinned += pinned;
        if let Some(order) = skipping {
            let pfn = call.low_pfn + index;
            skip_to = ((pfn >> (order & 63)) + 1).wrapping_shl(order & 63) - call.low_pfn;
        }
    }
    walked
}

/// The kernel's check: on an LRU list, no file or swap cache behind it, and more references than
/// mappings. Returns the pages of the folio that starts at `address`, or 0.
#[inline(always)]
fn pinned_pages(page: &Page, address: u64, order: i32) -> u64 {
    if !page.lru() || page.refcount() <= 0 {
        return 0;
    }
    let file = !page.unmapped_address_space() && !page.anon();
    if file || page.swapcache() {
        return 0;
    }
    let pages = page.nr_pages(address);
    if page.head() && !looks_at_large(pages, order) {
        return 0;
    }
    match page.mapcount(address) {
        Some(mapped) if page.refcount() > mapped => pages,
        _ => 0,
    }
}

/// `skip_isolation_on_order`, turned round. Order -1 is compaction of a whole node.
#[inline(always)]
fn looks_at_large(pages: u64, order: i32) -> bool {
    if layout!(isolate_takes_large) == 0 || layout!(folio_large_mapcount) == ABSENT {
        return false;
    }
    let fits_target = order < 0 || pages < 1u64.wrapping_shl(order as u32 & 63);
    fits_target && pages < 1u64.wrapping_shl(layout!(pageblock_order) & 63)
}
