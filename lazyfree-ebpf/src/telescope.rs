//! Kernel counters of this CPU whose readings telescope; see [`Telescope`].

use core::arch::asm;

use aya_ebpf::helpers::bpf_get_smp_processor_id;
use lazyfree_common::percpu::{PerCpu, Telescope};

use crate::kernel::{layout, read};

/// Adds to a word that another program on this CPU may add to at the same time.
///
/// The target has no `AtomicU64::fetch_add`, since not every BPF version returns the old value;
/// the instruction that only adds is there on all of them.
#[inline(always)]
pub fn add(word: &mut u64, value: u64) {
    // SAFETY: the word is aligned and lives as long as its map.
    unsafe {
        asm!(
            "lock *(u64 *)({word} + 0) += {value}",
            word = in(reg) core::ptr::from_mut(word),
            value = in(reg) value,
            options(nostack),
        );
    }
}

/// Credits what the kernel's counter moved by since the last reading to `credit`.
///
/// Both words get the same difference by atomic addition, never a store, so that
/// `credit - telescope.last` stays constant even if a program is preempted between the two.
#[inline(always)]
pub fn credit(telescope: &mut Telescope, credit: &mut u64, now: u64) -> u64 {
    if telescope.primed == 0 {
        telescope.last = now;
        telescope.primed = 1;
        return 0;
    }
    let moved = now.wrapping_sub(telescope.last);
    if moved != 0 {
        add(&mut telescope.last, moved);
        add(credit, moved);
    }
    moved
}

/// What has to be added to a per-CPU address to get this CPU's copy.
#[inline(always)]
pub fn percpu_offset(cpu: &mut PerCpu) -> Option<u64> {
    if cpu.percpu_offset == 0 {
        // SAFETY: the helper has no conditions.
        let id = u64::from(unsafe { bpf_get_smp_processor_id() });
        cpu.percpu_offset = read(layout!(per_cpu_offset) + id * 8)?;
    }
    Some(cpu.percpu_offset)
}

/// An event counter of this CPU (`vm_event_states`, `count_vm_event`).
#[inline(always)]
pub fn vm_event(percpu_offset: u64, index: u32) -> Option<u64> {
    read(layout!(vm_event_states) + percpu_offset + u64::from(index) * 8)
}
