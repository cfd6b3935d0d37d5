//! What the loader reads from the running kernel and hands to the probes as one read-only global.
//!
//! Rust emits no CO-RE relocations, so every address, offset, bit and index comes from the
//! kernel's BTF and symbol table at start. An offset that this kernel doesn't have is [`ABSENT`].

use bytemuck::{Pod, Zeroable};

/// Name of the global in the eBPF object.
pub const GLOBAL: &str = "LAYOUT";

/// An offset or index that the running kernel doesn't have.
pub const ABSENT: u32 = u32::MAX;

/// Numbers of the running kernel. Offsets are in bytes, bits are positions, addresses are the
/// kernel's virtual addresses (0: unknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Layout {
    /// 1 if programs may read kernel memory, which `lockdown=confidentiality` forbids; then what
    /// needs it is dead code, and the rest still loads.
    pub reads_memory: u64,
    /// Address of the array `__per_cpu_offset`.
    pub per_cpu_offset: u64,
    /// Per-CPU address of `vm_event_states`.
    pub vm_event_states: u64,
    /// Per-CPU address of the lazyfree batch (`cpu_fbatches.lru_lazyfree`, in 5.10
    /// `lru_pvecs.lru_lazyfree`).
    pub lazyfree_batch: u64,
    /// Address of `vm_zone_stat[NR_FREE_PAGES]`.
    pub free_pages: u64,
    /// Index of PGLAZYFREE in `vm_event_state.event`.
    pub pglazyfree: u32,
    /// Index of PGLAZYFREED.
    pub pglazyfreed: u32,
    /// `folio_batch.folios` (`pagevec.pages`).
    pub batch_folios: u32,
    /// `page.flags`; the same in the folio.
    pub folio_flags: u32,
    /// `page.mapping`.
    pub folio_mapping: u32,
    /// `page.lru`.
    pub folio_lru: u32,
    /// `page._mapcount`.
    pub folio_mapcount: u32,
    /// `page._refcount`.
    pub folio_refcount: u32,
    /// Number of pages of a large folio, a `u32`.
    pub folio_nr_pages: u32,
    /// `folio._large_mapcount`, from 6.12 on.
    pub folio_large_mapcount: u32,
    /// Size of a `struct page`.
    pub page_size: u32,
    /// `ilog2(PAGE_SIZE)`.
    pub page_shift: u32,
    /// Bit of PG_dirty in the flags.
    pub pg_dirty: u32,
    /// Bit of PG_lru.
    pub pg_lru: u32,
    /// Bit of PG_active.
    pub pg_active: u32,
    /// Bit of PG_swapbacked.
    pub pg_swapbacked: u32,
    /// Bit of PG_swapcache.
    pub pg_swapcache: u32,
    /// Bit of PG_head.
    pub pg_head: u32,
    /// `scan_control.nr_to_reclaim`.
    pub sc_nr_to_reclaim: u32,
    /// `scan_control.target_mem_cgroup`.
    pub sc_target_mem_cgroup: u32,
    /// The byte of the bit field `scan_control.proactive`, from 5.19 on.
    pub sc_proactive: u32,
    /// Its mask in that byte.
    pub sc_proactive_mask: u32,
    /// `reclaim_stat.nr_lazyfree_fail`.
    pub stat_nr_lazyfree_fail: u32,
    /// `pglist_data.kswapd`.
    pub pgdat_kswapd: u32,
    /// `compact_control.migrate_pfn`.
    pub cc_migrate_pfn: u32,
    /// `compact_control.nr_migratepages`.
    pub cc_nr_migratepages: u32,
    /// `compact_control.total_migrate_scanned`.
    pub cc_total_migrate_scanned: u32,
    /// `compact_control.order`.
    pub cc_order: u32,
    /// 1 if `isolate_migratepages_block` returns where it stopped (up to 5.12), 0 if that is in
    /// `compact_control.migrate_pfn`.
    pub isolate_returns_pfn: u32,
    /// 1 if `reclaim_stat.nr_lazyfree_fail` counts only pages that were written to again (measured
    /// from 6.16 on); before, it also counts clean pages with an extra reference.
    pub lazyfree_fail_is_redirty: u32,
    /// `compact_control.mode`.
    pub cc_mode: u32,
    /// `compact_control.direct_compaction`, a `bool`.
    pub cc_direct_compaction: u32,
    /// 1 if compaction looks at large folios below its target order
    /// (`skip_isolation_on_order`, from 6.9 on).
    pub isolate_takes_large: u32,
    /// 1 if `total_migrate_scanned` counts the free pages that the scanner steps over (measured
    /// from 6.12 on); then, unless it skips, it counts each page of the range.
    pub isolate_counts_free: u32,
    /// `pageblock_order`: larger folios are never isolated.
    pub pageblock_order: u32,
    /// `ttu_flags` that mean "not reclaim": TTU_MIGRATION and TTU_SPLIT_FREEZE where they exist.
    pub ttu_not_reclaim: u32,
}

impl Layout {
    /// What the object holds before the loader fills it in.
    pub const ZERO: Layout = bytemuck::must_cast([0u64; size_of::<Layout>() / 8]);
}

const _: () = assert!(size_of::<Layout>() == 5 * 8 + 36 * 4);
