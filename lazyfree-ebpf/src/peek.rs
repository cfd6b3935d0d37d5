//! What the daemon needs at start: reading kernel words and first readings, which it runs by hand
//! (`BPF_PROG_TEST_RUN`), and where its own pages are.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use lazyfree_common::control::MAX_PEEKS;

use crate::{
    kernel::read,
    madvise::marked_since,
    maps::{ALLOCATED, CONTROL, PEEKS, this_cpu},
    reclaim::freed_since,
};

/// Replaces each address in the map by the word found there; what can't be read becomes 0.
#[inline(always)]
pub fn peek() {
    for index in 0..MAX_PEEKS {
        let Some(word) = PEEKS.get_ptr_mut(index) else { return };
        // SAFETY: the pointer comes from the map, and nobody else writes while a peek runs.
        let address = unsafe { *word };
        if address == 0 {
            return;
        }
        // SAFETY: as above.
        unsafe { *word = read(address).unwrap_or(0) };
    }
}

/// Takes the first readings of this CPU's telescoping counters. A task may enter reclaim on a CPU
/// that had its first reading and leave it on one that had none; what it freed there would be lost.
#[inline(always)]
pub fn prime() {
    let Some(cpu) = this_cpu() else { return };
    marked_since(cpu);
    freed_since(cpu, cpu.hit_owner);
}

/// A page was allocated. Reports those of the task that the daemon named: it knows their page
/// frames, and so learns where the struct page of a page frame is.
#[inline(always)]
pub fn allocated(page: u64, order: u32) {
    let Some(control) = CONTROL.get(0) else { return };
    if bpf_get_current_pid_tgid() != control.reported_task || order != 0 {
        return;
    }
    let Some(allocated) = ALLOCATED.get_ptr_mut(0) else { return };
    // SAFETY: only one task is reported, so nobody else writes.
    unsafe {
        (*allocated).address = page;
        (*allocated).count += 1;
    }
}
