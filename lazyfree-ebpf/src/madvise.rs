//! MADV_FREE: `madvise_free_pte_range`, called for up to one PMD (512 pages) at a time.
//!
//! Pages marked are not counted one by one. All marking on a CPU happens inside this function, and
//! PGLAZYFREE of this CPU plus the folios that wait in its lazyfree batch moves only there, so two
//! readings a call are enough.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use lazyfree_common::{Counter, Family, call::MadviseCall, layout::ABSENT, percpu::PerCpu};

use crate::{
    folio::Page,
    kernel::{layout, now_ns, read},
    maps::{CONTROL, MADVISE_CALLS, enter, leave, this_cpu},
    process,
    telescope::{self, credit, percpu_offset, vm_event},
};

/// Folios of a call whose flags are looked at, to estimate how many were on an active list.
const SAMPLED_FOLIOS: usize = 4;

/// The advice (`mman-common.h`).
const MADV_FREE: u64 = 8;

/// Entry, with the range.
#[inline(always)]
pub fn entered(start: u64, end: u64) {
    let Some(cpu) = this_cpu() else { return };
    let pages = (end - start) >> layout!(page_shift);
    let call = MadviseCall { start_ns: now_ns(), pages };
    cpu.counters[Counter::AdvisedPages as usize] += pages;
    process::advised(cpu, pages);
    // What moved outside of calls is a batched folio that turned out to be off the LRU.
    marked_since(cpu);
    enter(&MADVISE_CALLS, Family::Madvise, cpu, bpf_get_current_pid_tgid(), &call);
}

/// Return.
#[inline(always)]
pub fn returned() {
    let Some(cpu) = this_cpu() else { return };
    let marked = marked_since(cpu);
    let Some(call) = leave(&MADVISE_CALLS, Family::Madvise, cpu, bpf_get_current_pid_tgid()) else {
        return;
    };
    cpu.durations[Family::Madvise as usize].record(now_ns().wrapping_sub(call.start_ns));
    if (marked as i64) <= 0 {
        return;
    }
    if under_pressure() {
        telescope::add(&mut cpu.counters[Counter::MarkedUnderPressurePages as usize], marked);
    }
    sample_active(cpu, marked);
}

/// Entry of the system call, with its arguments.
#[inline(always)]
pub fn called(len: u64, behavior: u64) {
    if behavior != MADV_FREE {
        return;
    }
    let Some(cpu) = this_cpu() else { return };
    let shift = layout!(page_shift);
    let call = MadviseCall {
        start_ns: now_ns(),
        // The start is on a page, or the call fails; the length is rounded up.
        pages: (len + (1 << shift) - 1) >> shift,
    };
    enter(&MADVISE_CALLS, Family::Madvise, cpu, bpf_get_current_pid_tgid(), &call);
}

/// Return of the system call.
#[inline(always)]
pub fn call_returned(status: i64) {
    let task = bpf_get_current_pid_tgid();
    // Of any other madvise.
    if MADVISE_CALLS.get_ptr(task).is_none() {
        return;
    }
    let Some(cpu) = this_cpu() else { return };
    let Some(call) = leave(&MADVISE_CALLS, Family::Madvise, cpu, task) else { return };
    cpu.durations[Family::Madvise as usize].record(now_ns().wrapping_sub(call.start_ns));
    if status == 0 {
        cpu.counters[Counter::AdvisedPages as usize] += call.pages;
        process::advised(cpu, call.pages);
    }
}

/// Credits the pages marked on this CPU since the last look, and returns their number.
#[inline(always)]
pub fn marked_since(cpu: &mut PerCpu) -> u64 {
    let now = (|| {
        let offset = percpu_offset(cpu)?;
        let counted = vm_event(offset, layout!(pglazyfree))?;
        Some(counted + batched(offset)?)
    })();
    let Some(now) = now else { return 0 };
    credit(&mut cpu.marked, &mut cpu.counters[Counter::MarkedPages as usize], now)
}

/// Folios in this CPU's lazyfree batch. Large folios never wait there.
#[inline(always)]
fn batched(percpu_offset: u64) -> Option<u64> {
    read::<u8>(layout!(lazyfree_batch) + percpu_offset).map(u64::from)
}

#[inline(always)]
fn under_pressure() -> bool {
    let Some(control) = CONTROL.get(0) else { return false };
    let free = read::<u64>(layout!(free_pages));
    free.is_some_and(|free| free < control.throttle_threshold_pages)
}

/// Looks at the last folios in the batch, marked by this call and not yet moved, and takes their
/// share on an active list for that of all pages marked since folios were last looked at. A call
/// that leaves the batch empty is so estimated with the next one, and what was once credited stays.
#[inline(always)]
fn sample_active(cpu: &mut PerCpu, marked: u64) {
    if layout!(batch_folios) == ABSENT {
        return;
    }
    telescope::add(&mut cpu.unsampled, marked);
    let offset = cpu.percpu_offset;
    let Some(batched) = batched(offset) else { return };
    let folios = layout!(lazyfree_batch) + offset + u64::from(layout!(batch_folios));
    let (mut sampled, mut active) = (0, 0);
    for index in 1..=SAMPLED_FOLIOS as u64 {
        if index > batched || index > marked {
            break;
        }
        let Some(address) = read::<u64>(folios + (batched - index) * 8) else { break };
        sampled += 1;
        active += u64::from(Page::read_or_zero(address).active());
    }
    let pages = cpu.unsampled;
    if sampled == 0 || (pages as i64) <= 0 {
        return;
    }
    telescope::add(&mut cpu.unsampled, pages.wrapping_neg());
    telescope::add(&mut cpu.counters[Counter::DeactivatedPages as usize], pages * active / sampled);
}

/// A swap entry was freed, by whomever.
#[inline(always)]
pub fn swap_entries_freed(entries: u64) {
    // munmap and exit free swap entries too; only those freed inside MADV_FREE count.
    if MADVISE_CALLS.get_ptr(bpf_get_current_pid_tgid()).is_none() {
        return;
    }
    let Some(cpu) = this_cpu() else { return };
    cpu.counters[Counter::SwapEntriesFreed as usize] += entries;
}
