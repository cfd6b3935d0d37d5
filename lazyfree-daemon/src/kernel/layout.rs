//! The numbers of the running kernel that the probes need. Pure.

use lazyfree_common::layout::{ABSENT, Layout};

use super::{release::Release, symbols::Symbols, types::Types};

/// Something that a hook needs of the kernel, and that can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// A member or an enumerator.
    #[error("{0} is not in this kernel's type information")]
    Type(String),
    /// A symbol.
    #[error("{0} is not in this kernel's symbol table; it needs CONFIG_KALLSYMS_ALL=y")]
    Symbol(String),
    /// Every address is shown as 0.
    #[error(
        "/proc/kallsyms hides its addresses; run as root or with CAP_SYSLOG, and with \
         kernel.kptr_restrict at 0 or 1"
    )]
    Hidden,
}

/// What each group of hooks needs beyond its function.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// For the probes.
    pub layout: Layout,
    /// Address of `vmemmap_base`, if the symbol table has it.
    pub vmemmap_base: Option<u64>,
    /// What reading a page needs, or what of it is missing.
    pub pages: Result<(), Missing>,
    /// What counting marks needs.
    pub marks: Result<(), Missing>,
    /// What counting hits needs.
    pub hits: Result<(), Missing>,
    /// What judging free memory needs.
    pub free_memory: Result<(), Missing>,
    /// What a reclaim batch needs.
    pub reclaim: Result<(), Missing>,
    /// What an isolation of compaction needs.
    pub compaction: Result<(), Missing>,
}

/// Collects numbers, and remembers the first that is missing.
#[derive(Clone)]
struct Need<'a> {
    types: &'a Types,
    missing: Result<(), Missing>,
}

impl<'a> Need<'a> {
    fn new(types: &'a Types) -> Self {
        Self { types, missing: Ok(()) }
    }

    fn note(&mut self, missing: Missing) {
        if self.missing.is_ok() {
            self.missing = Err(missing);
        }
    }

    fn or_missing(&mut self, found: Option<u32>, what: &str) -> u32 {
        found.unwrap_or_else(|| {
            self.note(Missing::Type(what.to_owned()));
            ABSENT
        })
    }

    /// Offset of the first of several spellings.
    fn offset(&mut self, paths: &[&str]) -> u32 {
        let found = paths.iter().find_map(|path| self.types.offset(path));
        self.or_missing(found, paths[0])
    }

    fn enumerator(&mut self, enumeration: &str, name: &str) -> u32 {
        self.or_missing(self.types.enumerator(enumeration, name), name)
    }

    fn address(&mut self, symbols: &Symbols, names: &[&str]) -> u64 {
        let found = names.iter().find_map(|name| symbols.address(name));
        if found.is_none() {
            self.note(if symbols.hidden() {
                Missing::Hidden
            } else {
                Missing::Symbol(names[0].to_owned())
            });
        }
        found.unwrap_or(0)
    }
}

/// Resolves everything at once.
pub fn resolve(types: &Types, symbols: &Symbols, release: Release, page_bytes: u64) -> Resolved {
    let mut layout = Layout { page_shift: page_bytes.ilog2(), ..Layout::ZERO };

    let mut need = Need::new(types);
    layout.folio_flags = need.offset(&["page.flags"]);
    layout.folio_mapping = need.offset(&["page.mapping", "folio.mapping"]);
    layout.folio_lru = need.offset(&["page.lru", "folio.lru"]);
    layout.folio_mapcount = need.offset(&["page._mapcount", "folio._mapcount"]);
    layout.folio_refcount = need.offset(&["page._refcount", "folio._refcount"]);
    layout.page_size = need.or_missing(types.size("page"), "struct page");
    let nr_pages = ["folio._nr_pages", "folio._folio_nr_pages"];
    let nr_pages = nr_pages.iter().find_map(|path| types.offset(path)).or_else(|| {
        // Up to 6.0 the number of pages is a member of the first tail page.
        Some(types.offset("page.compound_nr")? + types.size("page")?)
    });
    layout.folio_nr_pages = need.or_missing(nr_pages, "folio._nr_pages");
    layout.pg_dirty = need.enumerator("pageflags", "PG_dirty");
    layout.pg_lru = need.enumerator("pageflags", "PG_lru");
    layout.pg_active = need.enumerator("pageflags", "PG_active");
    layout.pg_swapbacked = need.enumerator("pageflags", "PG_swapbacked");
    layout.pg_swapcache = need.enumerator("pageflags", "PG_swapcache");
    layout.pg_head = need.enumerator("pageflags", "PG_head");
    let pages = need.missing;
    layout.folio_large_mapcount = types.offset("folio._large_mapcount").unwrap_or(ABSENT);

    let mut need = Need::new(types);
    layout.per_cpu_offset = need.address(symbols, &["__per_cpu_offset"]);
    layout.vm_event_states = need.address(symbols, &["vm_event_states"]);
    let events = need.offset(&["vm_event_state.event"]);
    layout.vm_event_states = layout.vm_event_states.wrapping_add(u64::from(events));

    let mut need_of_hits = need.clone();
    layout.pglazyfreed = need_of_hits.enumerator("vm_event_item", "PGLAZYFREED");
    let hits = need_of_hits.missing;

    layout.pglazyfree = need.enumerator("vm_event_item", "PGLAZYFREE");
    let batch = need.offset(&["cpu_fbatches.lru_lazyfree", "lru_pvecs.lru_lazyfree"]);
    let number = need.offset(&["folio_batch.nr", "pagevec.nr"]);
    layout.lazyfree_batch = need
        .address(symbols, &["cpu_fbatches", "lru_pvecs"])
        .wrapping_add(u64::from(batch))
        .wrapping_add(u64::from(number));
    let marks = need.missing;
    layout.batch_folios = types
        .offset("folio_batch.folios")
        .or_else(|| types.offset("pagevec.pages"))
        .map_or(ABSENT, |folios| folios.wrapping_sub(number));
    layout.batch_size = types
        .array_len("folio_batch.folios")
        .or_else(|| types.array_len("pagevec.pages"))
        .unwrap_or(0);

    let mut need = Need::new(types);
    let index = need.enumerator("zone_stat_item", "NR_FREE_PAGES");
    layout.free_pages =
        need.address(symbols, &["vm_zone_stat"]).wrapping_add(u64::from(index).wrapping_mul(8));
    let free_memory = need.missing;

    let mut need = Need::new(types);
    layout.sc_nr_to_reclaim = need.offset(&["scan_control.nr_to_reclaim"]);
    layout.sc_target_mem_cgroup = need.offset(&["scan_control.target_mem_cgroup"]);
    layout.stat_nr_lazyfree_fail = need.offset(&["reclaim_stat.nr_lazyfree_fail"]);
    layout.pgdat_kswapd = need.offset(&["pglist_data.kswapd"]);
    let reclaim = need.missing;
    let proactive = types.member("scan_control.proactive");
    layout.sc_proactive = proactive.map_or(ABSENT, |member| member.offset());
    layout.sc_proactive_mask = proactive.map_or(0, |member| member.mask());
    layout.lazyfree_fail_is_redirty = u32::from(release >= Release::new(6, 16));

    let mut need = Need::new(types);
    layout.cc_migrate_pfn = need.offset(&["compact_control.migrate_pfn"]);
    layout.cc_nr_migratepages = need.offset(&["compact_control.nr_migratepages"]);
    layout.cc_total_migrate_scanned = need.offset(&["compact_control.total_migrate_scanned"]);
    layout.cc_order = need.offset(&["compact_control.order"]);
    layout.cc_mode = need.offset(&["compact_control.mode"]);
    layout.cc_direct_compaction = need.offset(&["compact_control.direct_compaction"]);
    let compaction = need.missing;
    let isolate = types.function("isolate_migratepages_block");
    layout.isolate_returns_pfn =
        u32::from(isolate.is_some_and(|isolate| isolate.returns_bytes == Some(8)));
    // The list of free pages became one for each order together with
    // skip_isolation_on_order(), which lets compaction look at large folios.
    layout.isolate_takes_large = u32::from(types.array_len("compact_control.freepages").is_some());
    // CONFIG_HUGETLB_PAGE makes a pageblock as large as what a PMD maps: as many pages as entries
    // of 8 bytes fit into one.
    layout.pageblock_order = layout.page_shift - 3;

    layout.ttu_not_reclaim = ["TTU_MIGRATION", "TTU_SPLIT_FREEZE"]
        .iter()
        .filter_map(|name| types.enumerator("ttu_flags", name))
        .fold(0, |flags, flag| flags | flag);

    Resolved {
        layout,
        vmemmap_base: symbols.address("vmemmap_base"),
        pages,
        marks,
        hits,
        free_memory,
        reclaim,
        compaction,
    }
}
