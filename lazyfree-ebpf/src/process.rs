//! What each process did.

use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use lazyfree_common::{Counter, percpu::PerCpu, process::ProcessCounts};

use crate::{
    maps::{NO_EXIST, PROCESSES},
    telescope::add,
};

/// The running process gave pages to MADV_FREE.
#[inline(always)]
pub fn advised(cpu: &mut PerCpu, pages: u64) {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    if PROCESSES.get_ptr(tgid).is_none() {
        let comm = bpf_get_current_comm().unwrap_or_default();
        // Another thread may have been faster, which is as well.
        let _there =
            PROCESSES.insert(tgid, ProcessCounts { calls: 0, advised_pages: 0, comm }, NO_EXIST);
    }
    match PROCESSES.get_ptr_mut(tgid) {
        Some(counts) => {
            // SAFETY: the value lives as long as its map is locked for reading, which it is while
            // a program runs, and its words are only touched atomically.
            let counts = unsafe { &mut *counts };
            add(&mut counts.calls, 1);
            add(&mut counts.advised_pages, pages);
        }
        None => {
            cpu.counters[Counter::OtherCalls as usize] += 1;
            cpu.counters[Counter::OtherAdvisedPages as usize] += pages;
        }
    }
}
