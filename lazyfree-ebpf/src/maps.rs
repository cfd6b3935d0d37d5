//! Every map.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};
use aya_log_ebpf::debug;
use lazyfree_common::{
    Family,
    call::{
        CompactionCall, CompactionRun, MAX_IN_FLIGHT, MadviseCall, ReclaimCall, Stall, StallKey,
        UnmapCall,
    },
    control::{AllocatedPage, Control, MAX_PEEKS},
    counter::PerFamily,
    event::RING_BYTES,
    percpu::PerCpu,
    process::{MAX_PROCESSES, ProcessCounts},
};

use crate::folio::Page;

/// What probes count.
#[map]
pub static PER_CPU: PerCpuArray<PerCpu> = PerCpuArray::with_max_entries(1, 0);

/// Calls of `madvise_free_pte_range` in flight, by `pid_tgid`.
#[map]
pub static MADVISE_CALLS: HashMap<u64, MadviseCall> = HashMap::with_max_entries(MAX_IN_FLIGHT, 0);

/// Calls of `shrink_folio_list` in flight, by `pid_tgid`.
#[map]
pub static RECLAIM_CALLS: HashMap<u64, ReclaimCall> = HashMap::with_max_entries(MAX_IN_FLIGHT, 0);

/// Calls of `isolate_migratepages_block` in flight, by `pid_tgid`.
#[map]
pub static COMPACTION_CALLS: HashMap<u64, CompactionCall> =
    HashMap::with_max_entries(MAX_IN_FLIGHT, 0);

/// Runs of compaction, by `pid_tgid`. Used where `isolate_migratepages_block` can't be hooked.
#[map]
pub static COMPACTION_RUNS: HashMap<u64, CompactionRun> =
    HashMap::with_max_entries(MAX_IN_FLIGHT, 0);

/// Tasks that wait.
#[map]
pub static STALLS: HashMap<StallKey, Stall> = HashMap::with_max_entries(MAX_IN_FLIGHT, 0);

/// What each process did, by tgid.
#[map]
pub static PROCESSES: HashMap<u32, ProcessCounts> = HashMap::with_max_entries(MAX_PROCESSES, 0);

/// Calls of `try_to_unmap` on lazyfree folios in flight, by `pid_tgid`. Used by the audit only.
#[map]
pub static UNMAP_CALLS: HashMap<u64, UnmapCall> = HashMap::with_max_entries(MAX_IN_FLIGHT, 0);

/// Rare records.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Struct pages that are looked at together; see [`PageBuffer`].
pub const BUFFER_PAGES: u64 = 64;

/// Consecutive struct pages, read with one helper call.
pub type PageBuffer = [Page; BUFFER_PAGES as usize];

/// Scratch of the compaction program at return.
#[map]
pub static PAGES: PerCpuArray<PageBuffer> = PerCpuArray::with_max_entries(1, 0);

/// What the daemon sets.
#[map]
pub static CONTROL: Array<Control> = Array::with_max_entries(1, 0);

/// Kernel addresses to read, and after a run of the peek program the `u64`s found there.
#[map]
pub static PEEKS: Array<u64> = Array::with_max_entries(MAX_PEEKS, 0);

/// The page that was allocated last for [`Control::reported_task`].
#[map]
pub static ALLOCATED: Array<AllocatedPage> = Array::with_max_entries(1, 0);

/// `BPF_NOEXIST`: insert only.
pub const NO_EXIST: u64 = 1;

/// This CPU's counters. The program can't leave the CPU while it runs, but on a preemptible
/// kernel another task's program can run in between: words that more than one program writes to
/// are added to atomically.
pub fn this_cpu() -> Option<&'static mut PerCpu> {
    // SAFETY: the value lives as long as the map, and the words that programs share on one CPU
    // are only touched atomically.
    PER_CPU.get_ptr_mut(0).map(|value| unsafe { &mut *value })
}

/// Counts a call and remembers it until its return.
pub fn enter<K, T>(calls: &HashMap<K, T>, family: Family, cpu: &mut PerCpu, task: K, call: &T)
where
    K: Copy,
{
    cpu.counters[PerFamily::Started.slot(family)] += 1;
    if calls.insert(task, call, NO_EXIST).is_ok() {
        return;
    }
    // Either the call before never returned as far as we saw, or the map is full.
    if calls.get_ptr(task).is_some() {
        cpu.counters[PerFamily::ReturnsLost.slot(family)] += 1;
        debug!((), "a task entered family {} again without a return", family as u32);
        let _replaced = calls.insert(task, call, 0);
    } else {
        cpu.counters[PerFamily::MapFull.slot(family)] += 1;
        debug!((), "no room for a call in family {}", family as u32);
    }
}

/// Takes back what [`enter`] remembered.
pub fn leave<K: Copy, T: Copy>(
    calls: &HashMap<K, T>,
    family: Family,
    cpu: &mut PerCpu,
    task: K,
) -> Option<T> {
    // SAFETY: only this task inserts or removes its key, so the value stays while it is copied.
    let Some(call) = unsafe { calls.get(task) }.copied() else {
        cpu.counters[PerFamily::EntriesLost.slot(family)] += 1;
        debug!((), "a task returned in family {} without an entry", family as u32);
        return None;
    };
    let _removed = calls.remove(task);
    cpu.counters[PerFamily::Finished.slot(family)] += 1;
    Some(call)
}
