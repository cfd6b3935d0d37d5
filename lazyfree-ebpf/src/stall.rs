//! Waits: from the tracepoint or function at which one begins to that at which it ends.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use lazyfree_common::{
    Family,
    call::{Stall, StallKey},
    counter::PerFamily,
};

use crate::{
    kernel::now_ns,
    maps::{STALLS, enter, leave, this_cpu},
};

/// A task begins to wait.
#[inline(always)]
pub fn begins(family: Family) {
    let Some(cpu) = this_cpu() else { return };
    let key = StallKey { task: bpf_get_current_pid_tgid(), family: family as u64 };
    enter(&STALLS, family, cpu, key, &Stall { start_ns: now_ns() });
}

/// It goes on.
#[inline(always)]
pub fn ends(family: Family) {
    let Some(cpu) = this_cpu() else { return };
    let key = StallKey { task: bpf_get_current_pid_tgid(), family: family as u64 };
    let Some(stall) = leave(&STALLS, family, cpu, key) else { return };
    cpu.durations[family as usize].record(now_ns().wrapping_sub(stall.start_ns));
}

/// A task has waited, as the kernel tells afterwards.
#[inline(always)]
pub fn was(family: Family, duration_us: u64) {
    let Some(cpu) = this_cpu() else { return };
    cpu.counters[PerFamily::Started.slot(family)] += 1;
    cpu.counters[PerFamily::Finished.slot(family)] += 1;
    cpu.durations[family as usize].record(duration_us * 1000);
}

/// Whether a task waits now.
#[inline(always)]
pub fn waits(family: Family, task: u64) -> bool {
    STALLS.get_ptr(StallKey { task, family: family as u64 }).is_some()
}
