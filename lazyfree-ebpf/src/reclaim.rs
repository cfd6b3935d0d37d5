//! Reclaim: `shrink_folio_list` (`shrink_page_list`), called with a batch of isolated folios.
//!
//! Nothing is done for each page that is freed. Hits are what PGLAZYFREED of this CPU moved by.
//! Failures are in the batch's own `reclaim_stat`, which the kernel zeroes at entry. Only folios
//! that come back unfreed are looked at, to tell apart why.

use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task};
use aya_log_ebpf::debug;
use lazyfree_common::{
    Counter, Family, Reclaimer,
    call::ReclaimCall,
    counter::PerReclaimer,
    event::{MIN_INTERVAL_NS, ReclaimFailure},
    layout::ABSENT,
    percpu::{Left, PerCpu},
};

use crate::{
    folio::{Page, large_mapcount, large_mapcount_known, large_nr_pages},
    kernel::{layout, now_ns, read},
    maps::{EVENTS, RECLAIM_CALLS, enter, leave, this_cpu},
    stall,
    telescope::{credit, percpu_offset, vm_event},
};

/// Most folios of a returned batch that are looked at. LRU reclaim brings at most 128
/// (`MAX_LRU_BATCH`), MADV_PAGEOUT one PMD.
const MAX_WALK: u32 = 512;

/// Entry, with the kernel's arguments.
#[inline(always)]
pub fn entered(list: u64, pgdat: u64, scan_control: u64, stat: u64) {
    let Some(cpu) = this_cpu() else { return };
    let reclaimer = reclaimer(pgdat, scan_control);
    // What moved since the last look belongs to whoever was in reclaim on this CPU then.
    freed_since(cpu, cpu.hit_owner);
    cpu.hit_owner = reclaimer;
    cpu.counters[slot(PerReclaimer::Batches, reclaimer)] += 1;
    let call = ReclaimCall { start_ns: now_ns(), list, stat, reclaimer };
    enter(&RECLAIM_CALLS, Family::Reclaim, cpu, bpf_get_current_pid_tgid(), &call);
}

/// Return.
#[inline(always)]
pub fn returned() {
    let Some(cpu) = this_cpu() else { return };
    let task = bpf_get_current_pid_tgid();
    let Some(call) = leave(&RECLAIM_CALLS, Family::Reclaim, cpu, task) else {
        freed_since(cpu, cpu.hit_owner);
        return;
    };
    let reclaimer = call.reclaimer;
    let hit = freed_since(cpu, reclaimer);
    let now = now_ns();
    let duration = now.wrapping_sub(call.start_ns);
    cpu.durations[Family::Reclaim as usize].record(duration);

    let failed = lazyfree_failures(call.stat);
    look_at_the_rest(&call, failed, &mut cpu.left);
    let left = cpu.left;
    if left.unwalked > 0 {
        cpu.counters[Counter::UnwalkedBatches as usize] += left.unwalked;
    }
    let (redirtied, pinned_again) = tell_apart(cpu, failed, &left);
    let pinned = left.pinned + pinned_again;
    if redirtied + pinned + left.kept == 0 {
        return;
    }
    cpu.counters[slot(PerReclaimer::Redirtied, reclaimer)] += redirtied;
    cpu.counters[slot(PerReclaimer::Pinned, reclaimer)] += pinned;
    cpu.counters[slot(PerReclaimer::Kept, reclaimer)] += left.kept;

    if now.wrapping_sub(cpu.last_event_ns) < MIN_INTERVAL_NS {
        return;
    }
    cpu.last_event_ns = now;
    let event = ReclaimFailure {
        time_ns: now,
        duration_ns: duration,
        hit_pages: hit,
        redirtied_pages: redirtied,
        pinned_pages: pinned,
        kept_pages: left.kept,
        tgid: (task >> 32) as u32,
        reclaimer: reclaimer as u32,
        comm: bpf_get_current_comm().unwrap_or_default(),
    };
    let outcome = match EVENTS.output::<ReclaimFailure>(&event, 0) {
        Ok(()) => Counter::EventsSubmitted,
        Err(_full) => Counter::EventsDropped,
    };
    cpu.counters[outcome as usize] += 1;
}

/// A batch that a tracepoint reports at its end, where the function can't be hooked.
#[inline(always)]
pub fn reported(stat: u64, asked_for: bool) {
    let Some(cpu) = this_cpu() else { return };
    let reclaimer = if asked_for { Reclaimer::Proactive } else { waiting_reclaimer() } as u64;
    cpu.counters[slot(PerReclaimer::Batches, reclaimer)] += 1;
    // Up to 6.12 pinned pages are among them; the plan says so.
    cpu.counters[slot(PerReclaimer::Redirtied, reclaimer)] += lazyfree_failures(stat);
}

/// Who runs reclaim, as told by what the task waits for.
#[inline(always)]
fn waiting_reclaimer() -> Reclaimer {
    let task = bpf_get_current_pid_tgid();
    if stall::waits(Family::DirectReclaim, task) {
        Reclaimer::Direct
    } else if stall::waits(Family::MemcgReclaim, task) {
        Reclaimer::Memcg
    } else if bpf_get_current_comm().is_ok_and(|comm| comm.starts_with(b"kswapd")) {
        Reclaimer::Kswapd
    } else {
        Reclaimer::Proactive
    }
}

/// `reclaim_stat.nr_lazyfree_fail`.
#[inline(always)]
fn lazyfree_failures(stat: u64) -> u64 {
    u64::from(read::<u32>(stat + u64::from(layout!(stat_nr_lazyfree_fail))).unwrap_or(0))
}

/// The slot of a reclaimer, in a way that the verifier sees can't be out of bounds.
#[inline(always)]
fn slot(what: PerReclaimer, reclaimer: u64) -> usize {
    what.slot(Reclaimer::Kswapd) + (reclaimer & 3) as usize
}

const _: () = assert!(Reclaimer::COUNT == 4);

/// Discriminant of the [`Reclaimer`] that runs this batch.
#[inline(always)]
fn reclaimer(pgdat: u64, scan_control: u64) -> u64 {
    let at = |base: u64, offset: u32| read::<u64>(base + u64::from(offset)).unwrap_or(0);
    // SAFETY: the helper has no conditions.
    let current = unsafe { bpf_get_current_task() };
    let reclaimer = if at(pgdat, layout!(pgdat_kswapd)) == current {
        Reclaimer::Kswapd
    } else if at(scan_control, layout!(sc_nr_to_reclaim)) == 0 || asked_for(scan_control) {
        Reclaimer::Proactive
    } else if at(scan_control, layout!(sc_target_mem_cgroup)) != 0 {
        Reclaimer::Memcg
    } else {
        Reclaimer::Direct
    };
    reclaimer as u64
}

/// `scan_control.proactive`.
#[inline(always)]
fn asked_for(scan_control: u64) -> bool {
    if layout!(sc_proactive) == ABSENT {
        return false;
    }
    let byte = read::<u8>(scan_control + u64::from(layout!(sc_proactive))).unwrap_or(0);
    u32::from(byte) & layout!(sc_proactive_mask) != 0
}

/// Credits the lazyfree pages freed on this CPU since the last look, and returns their number.
#[inline(always)]
pub fn freed_since(cpu: &mut PerCpu, reclaimer: u64) -> u64 {
    let freed = percpu_offset(cpu).and_then(|offset| vm_event(offset, layout!(pglazyfreed)));
    let Some(freed) = freed else { return 0 };
    credit(&mut cpu.hit, &mut cpu.counters[slot(PerReclaimer::Hit, reclaimer)], freed)
}

/// Walks what was put back on the list.
#[inline(always)]
fn look_at_the_rest(call: &ReclaimCall, failed: u64, left: &mut Left) {
    *left = Left::default();
    let mut node = read::<u64>(call.list).unwrap_or(call.list);
    // Lists are isolated from one LRU, and no lazyfree page sits on the anonymous one. Only a
    // caller that brings its own list may mix them.
    if failed == 0 && call.reclaimer & 3 != Reclaimer::Proactive as u64 && node != call.list {
        let first = Page::read_or_zero(node.wrapping_sub(u64::from(layout!(folio_lru))));
        if first.anon() && first.swapbacked() {
            return;
        }
    }
    for _ in 0..MAX_WALK {
        if node == call.list {
            return;
        }
        // A page that can't be read comes as zeroes, and leads to no other: the walk runs out.
        node = lazyfree_left_on_list(node);
    }
    left.unwalked += 1;
}

/// Adds one folio of the list to [`PerCpu::left`], and returns the next node of the list.
///
/// A function of its own with a global name, which the verifier looks at once instead of at each
/// turn of the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lazyfree_left_on_list(node: u64) -> u64 {
    let Some(cpu) = this_cpu() else { return 0 };
    let address = node.wrapping_sub(u64::from(layout!(folio_lru)));
    let page = Page::read_or_zero(address);
    if !page.anon() {
        return page.lru_next();
    }
    let (pages, mapcount) = if !page.head() {
        (1, page.small_mapcount())
    } else if large_mapcount_known() {
        (large_nr_pages(address), large_mapcount(address))
    } else {
        // Without their number the mappings can't be compared: as if there were many.
        (large_nr_pages(address), i64::from(i32::MAX))
    };
    if page.lazyfree() {
        // One reference is the isolation's.
        if page.referenced_beyond(mapcount, 1) {
            cpu.left.pinned += pages;
        } else {
            cpu.left.kept += pages;
        }
    } else if !page.swapcache() && page.active() {
        // What a page looks like that was lazyfree: active, and never was in the swap cache.
        if page.dirty() {
            cpu.left.dirty += pages;
        } else {
            cpu.left.clean += pages;
        }
    }
    page.lru_next()
}

/// Splits the pages that the kernel made swap-backed again into redirtied and pinned.
///
/// Up to 6.12 a clean page with an extra reference is treated like a dirty one, and both are in
/// `nr_lazyfree_fail`; PG_dirty, which the kernel took over from the page tables, tells.
#[inline(always)]
fn tell_apart(cpu: &mut PerCpu, failed: u64, left: &Left) -> (u64, u64) {
    if failed == 0 || layout!(lazyfree_fail_is_redirty) != 0 {
        return (failed, 0);
    }
    if left.dirty + left.clean != failed {
        // Other anonymous pages of the same list look the same.
        cpu.counters[Counter::UnresolvedPages as usize] += failed;
        debug!(
            (),
            "{} pages failed in a batch that came back with {} dirty and {} clean ones",
            failed,
            left.dirty,
            left.clean
        );
    }
    let dirty = if left.dirty < failed { left.dirty } else { failed };
    (dirty, failed - dirty)
}
