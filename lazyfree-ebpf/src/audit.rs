//! The audit: `try_to_unmap`, once for each folio that reclaim tries to unmap.
//!
//! Counts the outcome of each lazyfree folio by itself, independently of the batch numbers, at the
//! price of two probes for each mapped folio. Attached only when asked for.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use lazyfree_common::{Counter, call::UnmapCall};

use crate::{
    folio::{Page, large_mapcount, large_mapcount_known, large_nr_pages},
    kernel::layout,
    maps::{UNMAP_CALLS, this_cpu},
};

/// Entry, with the folio and the flags.
#[inline(always)]
pub fn entered(folio: u64, flags: u32) {
    // Migration and splitting of a THP go through here too in 5.10, and aren't reclaim.
    if flags & layout!(ttu_not_reclaim) != 0 {
        return;
    }
    let page = Page::read_or_zero(folio);
    if !page.lazyfree() {
        return;
    }
    let Some(cpu) = this_cpu() else { return };
    let nr_pages = if !page.head() { 1 } else { large_nr_pages(folio) };
    let call = UnmapCall { folio, nr_pages };
    if UNMAP_CALLS.insert(bpf_get_current_pid_tgid(), call, 0).is_ok() {
        cpu.counters[Counter::AuditAttemptPages as usize] += call.nr_pages;
    }
}

/// Return.
#[inline(always)]
pub fn returned() {
    let task = bpf_get_current_pid_tgid();
    // SAFETY: only this task inserts or removes its key, so the value stays while it is copied.
    let Some(call) = unsafe { UNMAP_CALLS.get(task) }.copied() else { return };
    let _removed = UNMAP_CALLS.remove(task);
    let Some(cpu) = this_cpu() else { return };
    let page = Page::read_or_zero(call.folio);
    // The folio is isolated and locked by this task: it can't have been freed meanwhile.
    let mapcount = if !page.head() {
        Some(page.small_mapcount())
    } else {
        large_mapcount_known().then(|| large_mapcount(call.folio))
    };
    let outcome = match mapcount {
        Some(..=0) => Counter::AuditHitPages,
        // A kernel without a sum over the pages of a large folio makes it swap-backed on failure.
        None if page.lazyfree() => Counter::AuditHitPages,
        _ if page.dirty() => Counter::AuditRedirtiedPages,
        None => Counter::AuditPinnedPages,
        Some(mapped) if page.referenced_beyond(mapped, 1) => Counter::AuditPinnedPages,
        Some(_) => Counter::AuditKeptPages,
    };
    cpu.counters[outcome as usize] += call.nr_pages;
}
