//! The numbers of the running kernel that the probes need. Pure.

use lazyfree_common::layout::{ABSENT, Layout};

use super::{
    observation::LAZYFREE_FAIL_IS_REDIRTY,
    offer::{Memory, Offer},
    release::Release,
    symbols::Symbols,
    types::Types,
};

/// Something that a hook needs of the kernel, and that can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// A member or an enumerator.
    #[error("{0} is not in this kernel's type information")]
    Type(String),
    /// A symbol.
    #[error("{0} is not in this kernel's symbol table")]
    Symbol(String),
    /// Every address is shown as 0.
    #[error("/proc/kallsyms hides its addresses (kernel.kptr_restrict, CAP_SYSLOG)")]
    Hidden,
    /// No type information at all.
    #[error("{0}")]
    Types(String),
    /// The addresses are known and may not be read.
    #[error("{why}")]
    Memory {
        /// Why.
        why: String,
        /// What to do about it; empty where that isn't known.
        fix: &'static str,
    },
}

impl Missing {
    /// What to do about it; empty where nothing can be done.
    pub const fn fix(&self) -> &'static str {
        match self {
            Missing::Type(_) => "",
            Missing::Symbol(_) => "a kernel built with CONFIG_KALLSYMS_ALL=y",
            Missing::Hidden => {
                "run as root or with CAP_SYSLOG, and set kernel.kptr_restrict to 0 or 1"
            }
            Missing::Types(_) => "a kernel built with CONFIG_DEBUG_INFO_BTF=y, and /sys",
            Missing::Memory { fix, .. } => fix,
        }
    }
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
            self.note(if names.iter().any(|name| symbols.hides(name)) {
                Missing::Hidden
            } else {
                Missing::Symbol(names[0].to_owned())
            });
        }
        found.unwrap_or(0)
    }
}

impl Resolved {
    /// Where nothing of the kernel is known, or none of it may be looked at, and what is said of
    /// it.
    fn nothing(layout: Layout, missing: &Missing) -> Self {
        let missing = || Err(missing.clone());
        Self {
            layout,
            vmemmap_base: None,
            pages: missing(),
            marks: missing(),
            hits: missing(),
            free_memory: missing(),
            reclaim: missing(),
            compaction: missing(),
        }
    }
}

/// Resolves everything at once.
pub fn resolve(offer: &Offer, page_bytes: u64) -> Resolved {
    let Offer { types, symbols, release, memory, .. } = offer;
    let release = *release;
    let page_shift = page_bytes.ilog2();
    let mut layout =
        Layout { page_shift, reads_memory: u64::from(memory.may_be_read()), ..Layout::ZERO };
    let types = match (memory, types) {
        (Memory::Closed { why, fix }, _) => {
            return Resolved::nothing(layout, &Missing::Memory { why: why.clone(), fix });
        }
        (_, Err(why)) => return Resolved::nothing(layout, &Missing::Types(why.clone())),
        (Memory::Untried | Memory::Readable, Ok(types)) => types,
    };

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
    layout.lazyfree_fail_is_redirty = u32::from(release >= LAZYFREE_FAIL_IS_REDIRTY);

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

    layout.isolate_counts_free = u32::from(release >= Release::new(6, 12));

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

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{KERNELS, Kernel, hide, since},
        *,
    };

    /// What was measured on each kernel, by other means: `bpftool btf dump` of the whole type
    /// information, the order of the lines of /proc/vmstat, the addresses in /proc/kallsyms.
    fn measured(kernel: Kernel) -> Layout {
        let release = kernel.release();
        let from = |first: u32, changes: &[((u32, u32), u32)]| since(release, first, changes);
        let always = |value: u32| value;
        let at = |name: &str| {
            let mut lines = kernel.kallsyms.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let line = lines.find(|line| line[2] == name).unwrap();
            u64::from_str_radix(line[0], 16).unwrap()
        };
        // A batch is a head of 8 bytes and 15 or 31 pointers.
        let (batches, batch_bytes) = since(
            release,
            ("lru_pvecs", 128),
            &[((6, 1), ("cpu_fbatches", 128)), ((6, 12), ("cpu_fbatches", 256))],
        );
        Layout {
            reads_memory: 1,
            per_cpu_offset: at("__per_cpu_offset"),
            vm_event_states: at("vm_event_states"),
            // The fourth batch; the locks before it take no room.
            lazyfree_batch: at(batches) + 3 * batch_bytes,
            free_pages: at("vm_zone_stat"),
            pglazyfree: from(19, &[((6, 1), 22)]),
            pglazyfreed: from(22, &[((6, 1), 25)]),
            batch_folios: always(8),
            folio_flags: always(0),
            folio_mapping: always(24),
            folio_lru: always(8),
            folio_mapcount: always(48),
            folio_refcount: always(52),
            folio_nr_pages: from(64 + 24, &[((6, 1), 92), ((6, 12), 96), ((6, 16), 120)]),
            folio_large_mapcount: from(ABSENT, &[((6, 12), 80)]),
            page_size: always(64),
            page_shift: always(12),
            pg_dirty: from(3, &[((6, 12), 4)]),
            pg_lru: from(4, &[((6, 12), 5)]),
            pg_active: from(5, &[((6, 12), 8)]),
            pg_swapbacked: from(19, &[((6, 12), 17)]),
            pg_swapcache: always(10),
            pg_head: from(16, &[((6, 12), 6)]),
            sc_nr_to_reclaim: always(0),
            sc_target_mem_cgroup: always(16),
            sc_proactive: from(ABSENT, &[((6, 1), 40), ((6, 12), 49)]),
            sc_proactive_mask: from(0, &[((6, 1), 1 << 7), ((6, 12), 1 << 1)]),
            stat_nr_lazyfree_fail: from(40, &[((7, 3), 36)]),
            pgdat_kswapd: from(
                171_320,
                &[((6, 1), 171_784), ((6, 16), 172_104), ((7, 1), 172_736), ((7, 2), 173_376)],
            ),
            cc_migrate_pfn: from(48, &[((6, 12), 208)]),
            cc_nr_migratepages: from(36, &[((6, 12), 196)]),
            cc_total_migrate_scanned: from(72, &[((6, 12), 232)]),
            cc_order: from(96, &[((6, 12), 256)]),
            isolate_returns_pfn: from(1, &[((6, 1), 0)]),
            lazyfree_fail_is_redirty: from(0, &[((6, 16), 1)]),
            cc_mode: from(112, &[((6, 12), 272)]),
            cc_direct_compaction: from(119, &[((6, 12), 279)]),
            isolate_takes_large: from(0, &[((6, 12), 1)]),
            isolate_counts_free: from(0, &[((6, 12), 1)]),
            pageblock_order: always(9),
            // TTU_MIGRATION and TTU_SPLIT_FREEZE.
            ttu_not_reclaim: from(0x1 | 0x100, &[((6, 1), 0)]),
        }
    }

    #[test]
    fn every_recorded_kernel_has_the_layout_that_was_measured() {
        for kernel in KERNELS {
            let resolved = kernel.resolved();
            assert_eq!(resolved.layout, measured(kernel), "{}", kernel.uname);
            let needs = [
                resolved.pages,
                resolved.marks,
                resolved.hits,
                resolved.free_memory,
                resolved.reclaim,
                resolved.compaction,
            ];
            assert_eq!(needs, [const { Ok(()) }; 6], "{}", kernel.uname);
            assert_ne!(resolved.vmemmap_base, None, "{}", kernel.uname);
        }
    }

    #[test]
    fn until_6_0_a_large_folio_has_its_number_of_pages_in_its_first_tail_page() {
        // struct folio came with 5.16, its member for that with 6.1; page.compound_nr was still there.
        let kernel = Kernel::of(6, 1);
        let types = kernel.types_with(&[("_folio_nr_pages", "_folio_xx_xxxxx")]);
        let resolved = kernel.resolved_with(types, kernel.symbols());
        assert_eq!((resolved.layout.folio_nr_pages, resolved.pages), (64 + 28, Ok(())));
    }

    #[test]
    fn a_pageblock_is_what_a_pmd_maps() {
        let kernel = Kernel::of(6, 12);
        // The last two are arm64's, where a PMD maps 32 MiB and 512 MiB.
        for (page_bytes, pageblock_bytes) in
            [(4 << 10, 2 << 20), (16 << 10, 32 << 20), (64 << 10, 512 << 20)]
        {
            let layout = resolve(&kernel.offer(), page_bytes).layout;
            assert_eq!(page_bytes << layout.pageblock_order, pageblock_bytes);
        }
    }

    #[test]
    fn what_is_missing_is_named_by_those_who_need_it() {
        let kernel = Kernel::of(6, 12);
        let missing = |name: &str, replacement| {
            let types = kernel.types_with(&[(name, replacement)]);
            let found = kernel.resolved_with(types, kernel.symbols());
            let groups = [
                ("pages", found.pages),
                ("marks", found.marks),
                ("hits", found.hits),
                ("free memory", found.free_memory),
                ("reclaim", found.reclaim),
                ("compaction", found.compaction),
            ];
            let lacking = groups.into_iter().filter_map(|(group, need)| Some((group, need.err()?)));
            lacking.collect::<Vec<_>>()
        };
        let lacks = |group, what: &str| (group, Missing::Type(what.to_owned()));
        for (name, replacement, expected) in [
            ("PG_lru", "PG_xxx", vec![lacks("pages", "PG_lru")]),
            ("_folio_nr_pages", "_folio_xx_xxxxx", vec![lacks("pages", "folio._nr_pages")]),
            ("lru_lazyfree", "lru_xxxxfree", vec![lacks("marks", "cpu_fbatches.lru_lazyfree")]),
            ("PGLAZYFREE", "PGXXXXFREE", vec![lacks("marks", "PGLAZYFREE")]),
            ("PGLAZYFREED", "PGXXXXFREED", vec![lacks("hits", "PGLAZYFREED")]),
            (
                "event",
                "xxxxx",
                vec![lacks("marks", "vm_event_state.event"), lacks("hits", "vm_event_state.event")],
            ),
            ("NR_FREE_PAGES", "NR_XXXX_PAGES", vec![lacks("free memory", "NR_FREE_PAGES")]),
            ("kswapd", "xxxxxd", vec![lacks("reclaim", "pglist_data.kswapd")]),
            (
                "direct_compaction",
                "xxxxxx_compaction",
                vec![lacks("compaction", "compact_control.direct_compaction")],
            ),
            // Not needed: without it reclaim asked for by memory.reclaim counts as memcg reclaim.
            ("proactive", "xxxxxtive", vec![]),
        ] {
            assert_eq!(missing(name, replacement), expected, "{name}");
        }
    }

    #[test]
    fn hidden_addresses_take_only_what_needs_an_address() {
        for kernel in KERNELS {
            let resolved = kernel.resolved_with(kernel.types(), kernel.hidden_symbols());
            for need in [resolved.marks, resolved.hits, resolved.free_memory] {
                assert_eq!(need, Err(Missing::Hidden), "{}", kernel.uname);
            }
            for need in [resolved.pages, resolved.reclaim, resolved.compaction] {
                assert_eq!(need, Ok(()), "{}", kernel.uname);
            }
            assert_eq!(resolved.vmemmap_base, None, "{}", kernel.uname);
        }
    }

    #[test]
    fn a_symbol_that_is_not_there_is_named() {
        let kernel = Kernel::of(7, 3);
        let lines = kernel.kallsyms.lines().filter(|line| !line.ends_with(" cpu_fbatches"));
        let symbols = Symbols::pick(lines, &super::super::symbols::DATA);
        let resolved = kernel.resolved_with(kernel.types(), symbols);
        assert_eq!(resolved.marks, Err(Missing::Symbol("cpu_fbatches".to_owned())));
        assert_eq!(resolved.hits, Ok(()));
        // Showing addresses wouldn't help where the symbol isn't there.
        let hidden: Vec<_> = hide(kernel.kallsyms).collect();
        let lines =
            hidden.iter().map(String::as_str).filter(|line| !line.ends_with("vm_zone_stat"));
        let symbols = Symbols::pick(lines, &super::super::symbols::DATA);
        let resolved = kernel.resolved_with(kernel.types(), symbols);
        assert_eq!(resolved.free_memory, Err(Missing::Symbol("vm_zone_stat".to_owned())));
        assert_eq!(resolved.hits, Err(Missing::Hidden));
    }
}
