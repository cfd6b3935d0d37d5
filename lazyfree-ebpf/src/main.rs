//! The kernel side of lazyfree.
//!
//! One file for each hooked function holds what is done at its entry and return; here are the
//! thin programs around it, once as fentry/fexit and once as kprobe/kretprobe. The loader loads
//! one of each pair. A probe filters, adds to this CPU's counters, and returns: nothing is
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
mod reclaim;
mod telescope;

use aya_ebpf::{
    macros::{fentry, fexit, kprobe, kretprobe, raw_tracepoint},
    programs::{FEntryContext, FExitContext, ProbeContext, RawTracePointContext, RetProbeContext},
};

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

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The helpers that read kernel memory are for programs under a GPL-compatible licence.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
