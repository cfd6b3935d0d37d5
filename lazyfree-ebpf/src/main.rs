//! The kernel side of lazyfree.
//!
//! One file for each hooked function holds what is done at its entry and return; here are the
//! thin programs around it: as fentry/fexit, as kprobe/kretprobe, and where a tracepoint tells as
//! much or at least something, on that. The loader loads one of them. A probe filters, adds to this CPU's counters, and returns: nothing is
//! streamed but rare records.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod audit;
mod compaction;
mod folio;
mod kernel;
mod madvise;
mod maps;
mod peek;
mod process;
mod reclaim;
mod stall;
mod telescope;

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, fexit, kprobe, kretprobe, raw_tracepoint, tracepoint},
    programs::{
        FEntryContext, FExitContext, ProbeContext, RawTracePointContext, RetProbeContext,
        TracePointContext,
    },
};
use lazyfree_common::Family;

/// Argument `n`; a kprobe can't tell whether there is one.
fn arg(ctx: &ProbeContext, n: usize) -> u64 {
    ctx.arg(n).unwrap_or(0)
}

// madvise_free_pte_range(pmd, addr, end, walk)

#[fentry]
fn fentry_madvise_free(ctx: FEntryContext) -> i32 {
    madvise::entered(ctx.arg(1), ctx.arg(2));
    0
}

#[fexit]
fn fexit_madvise_free(_ctx: FExitContext) -> i32 {
    madvise::returned();
    0
}

#[kprobe]
fn kprobe_madvise_free(ctx: ProbeContext) -> u32 {
    madvise::entered(arg(&ctx, 1), arg(&ctx, 2));
    0
}

#[kretprobe]
fn kretprobe_madvise_free(_ctx: RetProbeContext) -> u32 {
    madvise::returned();
    0
}

/// A field of a tracepoint's record at a fixed offset. The plan compares the offsets with the
/// kernel's format.
fn field(ctx: &TracePointContext, offset: usize) -> u64 {
    // SAFETY: the verifier checks that the record has that many bytes.
    unsafe { ctx.as_ptr().byte_add(offset).cast::<u64>().read() }
}

#[tracepoint]
fn tracepoint_madvise_enter(ctx: TracePointContext) -> u32 {
    madvise::called(field(&ctx, 24), field(&ctx, 32));
    0
}

#[tracepoint]
fn tracepoint_madvise_exit(ctx: TracePointContext) -> u32 {
    madvise::call_returned(field(&ctx, 16) as i64);
    0
}

// free_swap_and_cache(entry): one entry a call, up to 6.8

#[fentry]
fn fentry_swap_free_one(_ctx: FEntryContext) -> i32 {
    madvise::swap_entries_freed(1);
    0
}

#[kprobe]
fn kprobe_swap_free_one(_ctx: ProbeContext) -> u32 {
    madvise::swap_entries_freed(1);
    0
}

// free_swap_and_cache_nr(entry, nr), from 7.0 on swap_put_entries_direct(entry, nr)

#[fentry]
fn fentry_swap_free_many(ctx: FEntryContext) -> i32 {
    madvise::swap_entries_freed(u64::from(ctx.arg::<u32>(1)));
    0
}

#[kprobe]
fn kprobe_swap_free_many(ctx: ProbeContext) -> u32 {
    madvise::swap_entries_freed(arg(&ctx, 1) & 0xffff_ffff);
    0
}

// shrink_folio_list(list, pgdat, sc, stat, …)

#[fentry]
fn fentry_reclaim(ctx: FEntryContext) -> i32 {
    reclaim::entered(ctx.arg(0), ctx.arg(1), ctx.arg(2), ctx.arg(3));
    0
}

#[fexit]
fn fexit_reclaim(_ctx: FExitContext) -> i32 {
    reclaim::returned();
    0
}

#[kprobe]
fn kprobe_reclaim(ctx: ProbeContext) -> u32 {
    reclaim::entered(arg(&ctx, 0), arg(&ctx, 1), arg(&ctx, 2), arg(&ctx, 3));
    0
}

#[kretprobe]
fn kretprobe_reclaim(_ctx: RetProbeContext) -> u32 {
    reclaim::returned();
    0
}

// mm_vmscan_lru_shrink_inactive(nid, nr_scanned, nr_reclaimed, stat, …), at the end of each batch

#[raw_tracepoint(tracepoint = "mm_vmscan_lru_shrink_inactive")]
fn raw_tracepoint_shrink_inactive(ctx: RawTracePointContext) -> i32 {
    reclaim::reported(ctx.arg(3), false);
    0
}

// mm_vmscan_reclaim_pages(nid, nr_scanned, nr_reclaimed, stat), from 6.16 on

#[raw_tracepoint(tracepoint = "mm_vmscan_reclaim_pages")]
fn raw_tracepoint_reclaim_pages(ctx: RawTracePointContext) -> i32 {
    reclaim::reported(ctx.arg(3), true);
    0
}

// isolate_migratepages_block(cc, low_pfn, end_pfn, mode)

#[fentry]
fn fentry_isolate(ctx: FEntryContext) -> i32 {
    compaction::entered(ctx.arg(0), ctx.arg(1));
    0
}

#[fexit]
fn fexit_isolate(ctx: FExitContext) -> i32 {
    compaction::returned(ctx.arg(4));
    0
}

#[kprobe]
fn kprobe_isolate(ctx: ProbeContext) -> u32 {
    compaction::entered(arg(&ctx, 0), arg(&ctx, 1));
    0
}

#[kretprobe]
fn kretprobe_isolate(ctx: RetProbeContext) -> u32 {
    compaction::returned(ctx.ret());
    0
}

// mm_compaction_isolate_migratepages(start_pfn, end_pfn, nr_scanned, nr_taken)

#[raw_tracepoint(tracepoint = "mm_compaction_isolate_migratepages")]
fn raw_tracepoint_isolate(ctx: RawTracePointContext) -> i32 {
    let range = compaction::Range { low_pfn: ctx.arg(0), end: ctx.arg(1), scanned: ctx.arg(2) };
    compaction::reported(range, ctx.arg(3));
    0
}

// mm_compaction_begin(cc, …) and mm_compaction_end(cc, …)

#[raw_tracepoint(tracepoint = "mm_compaction_begin")]
fn raw_tracepoint_compaction_begin(ctx: RawTracePointContext) -> i32 {
    compaction::run_begins(ctx.arg(0));
    0
}

#[raw_tracepoint(tracepoint = "mm_compaction_end")]
fn raw_tracepoint_compaction_end(_ctx: RawTracePointContext) -> i32 {
    compaction::run_ends();
    0
}

#[raw_tracepoint(tracepoint = "mm_compaction_begin")]
fn raw_tracepoint_direct_compaction_begin(ctx: RawTracePointContext) -> i32 {
    if compaction::is_direct(ctx.arg(0)) {
        stall::begins(Family::DirectCompaction);
    }
    0
}

#[raw_tracepoint(tracepoint = "mm_compaction_end")]
fn raw_tracepoint_direct_compaction_end(ctx: RawTracePointContext) -> i32 {
    if compaction::is_direct(ctx.arg(0)) {
        stall::ends(Family::DirectCompaction);
    }
    0
}

// try_to_compact_pages(…)

#[fentry]
fn fentry_direct_compaction(_ctx: FEntryContext) -> i32 {
    stall::begins(Family::DirectCompaction);
    0
}

#[fexit]
fn fexit_direct_compaction(_ctx: FExitContext) -> i32 {
    stall::ends(Family::DirectCompaction);
    0
}

#[kprobe]
fn kprobe_direct_compaction(_ctx: ProbeContext) -> u32 {
    stall::begins(Family::DirectCompaction);
    0
}

#[kretprobe]
fn kretprobe_direct_compaction(_ctx: RetProbeContext) -> u32 {
    stall::ends(Family::DirectCompaction);
    0
}

// Waits that begin and end at a tracepoint

#[raw_tracepoint(tracepoint = "mm_vmscan_direct_reclaim_begin")]
fn raw_tracepoint_direct_reclaim_begin(_ctx: RawTracePointContext) -> i32 {
    stall::begins(Family::DirectReclaim);
    0
}

#[raw_tracepoint(tracepoint = "mm_vmscan_direct_reclaim_end")]
fn raw_tracepoint_direct_reclaim_end(_ctx: RawTracePointContext) -> i32 {
    stall::ends(Family::DirectReclaim);
    0
}

#[raw_tracepoint(tracepoint = "mm_vmscan_memcg_reclaim_begin")]
fn raw_tracepoint_memcg_reclaim_begin(_ctx: RawTracePointContext) -> i32 {
    stall::begins(Family::MemcgReclaim);
    0
}

#[raw_tracepoint(tracepoint = "mm_vmscan_memcg_reclaim_end")]
fn raw_tracepoint_memcg_reclaim_end(_ctx: RawTracePointContext) -> i32 {
    stall::ends(Family::MemcgReclaim);
    0
}

// mm_vmscan_throttled(nid, usec_timeout, usec_delayed, reason), from 5.16 on

#[raw_tracepoint(tracepoint = "mm_vmscan_throttled")]
fn raw_tracepoint_throttled(ctx: RawTracePointContext) -> i32 {
    stall::was(Family::Throttle, ctx.arg::<u64>(2) & 0xffff_ffff);
    0
}

// writeback_congestion_wait(usec_timeout, usec_delayed) and writeback_wait_iff_congested, up to
// 5.15

#[raw_tracepoint(tracepoint = "writeback_congestion_wait")]
fn raw_tracepoint_congestion_wait(ctx: RawTracePointContext) -> i32 {
    stall::was(Family::Throttle, ctx.arg::<u64>(1) & 0xffff_ffff);
    0
}

#[raw_tracepoint(tracepoint = "writeback_wait_iff_congested")]
fn raw_tracepoint_wait_iff_congested(ctx: RawTracePointContext) -> i32 {
    let delayed_us = ctx.arg::<u64>(1) & 0xffff_ffff;
    // Reported, too, if nothing was congested and nobody waited.
    if delayed_us > 0 {
        stall::was(Family::Throttle, delayed_us);
    }
    0
}

// try_to_unmap(folio, flags)

#[fentry]
fn fentry_unmap(ctx: FEntryContext) -> i32 {
    audit::entered(ctx.arg(0), ctx.arg(1));
    0
}

#[fexit]
fn fexit_unmap(_ctx: FExitContext) -> i32 {
    audit::returned();
    0
}

#[kprobe]
fn kprobe_unmap(ctx: ProbeContext) -> u32 {
    audit::entered(arg(&ctx, 0), arg(&ctx, 1) as u32);
    0
}

#[kretprobe]
fn kretprobe_unmap(_ctx: RetProbeContext) -> u32 {
    audit::returned();
    0
}

/// Never attached; run by hand.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn peek(_ctx: RawTracePointContext) -> i32 {
    peek::peek();
    0
}

/// Never attached; run by hand on each CPU.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn prime(_ctx: RawTracePointContext) -> i32 {
    peek::prime();
    0
}

/// mm_page_alloc(page, order, …); attached for a moment at start.
#[raw_tracepoint(tracepoint = "mm_page_alloc")]
fn raw_tracepoint_page_alloc(ctx: RawTracePointContext) -> i32 {
    peek::allocated(ctx.arg(0), ctx.arg(1));
    0
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The helpers that read kernel memory are for programs under a GPL-compatible licence.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
