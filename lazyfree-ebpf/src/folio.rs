//! The only file that reads struct page and struct folio.

use lazyfree_common::layout::ABSENT;

use crate::kernel::{layout, read};

/// Low bits of `mapping`; 1 alone means anonymous (`folio_test_anon` without KSM).
const MAPPING_FLAGS: u64 = 3;
const MAPPING_ANON: u64 = 1;

/// The first 64 bytes of a struct page: all there is on x86-64, and all that is looked at.
#[derive(Clone, Copy)]
pub struct Page {
    words: [u64; 8],
}

impl Page {
    /// Reads the page at a kernel address.
    #[inline(always)]
    pub fn read(address: u64) -> Option<Self> {
        read(address).map(|words| Self { words })
    }

    #[inline(always)]
    fn word(&self, offset: u32) -> u64 {
        self.words[(offset as usize / 8) & 7]
    }

    #[inline(always)]
    fn half(&self, offset: u32) -> i32 {
        (self.word(offset) >> ((offset & 4) * 8)) as i32
    }

    #[inline(always)]
    fn flag(&self, bit: u32) -> bool {
        self.word(layout!(folio_flags)) & (1 << (bit & 63)) != 0
    }

    /// PG_lru.
    #[inline(always)]
    pub fn lru(&self) -> bool {
        self.flag(layout!(pg_lru))
    }

    /// PG_active.
    #[inline(always)]
    pub fn active(&self) -> bool {
        self.flag(layout!(pg_active))
    }

    /// PG_dirty.
    #[inline(always)]
    pub fn dirty(&self) -> bool {
        self.flag(layout!(pg_dirty))
    }

    /// PG_swapbacked.
    #[inline(always)]
    pub fn swapbacked(&self) -> bool {
        self.flag(layout!(pg_swapbacked))
    }

    /// PG_swapcache, which means what it says for anonymous folios only.
    #[inline(always)]
    pub fn swapcache(&self) -> bool {
        self.flag(layout!(pg_swapcache)) && self.swapbacked()
    }

    /// PG_head: the first page of a large folio.
    #[inline(always)]
    pub fn head(&self) -> bool {
        self.flag(layout!(pg_head))
    }

    /// Anonymous, and not of KSM.
    #[inline(always)]
    pub fn anon(&self) -> bool {
        self.word(layout!(folio_mapping)) & MAPPING_FLAGS == MAPPING_ANON
    }

    /// No mapping, of whatever kind.
    #[inline(always)]
    pub fn unmapped_address_space(&self) -> bool {
        self.word(layout!(folio_mapping)) == 0
    }

    /// What MADV_FREE leaves behind (`folio_test_lazyfree`).
    #[inline(always)]
    pub fn lazyfree(&self) -> bool {
        self.anon() && !self.swapbacked()
    }

    /// `page_ref_count`.
    #[inline(always)]
    pub fn refcount(&self) -> i32 {
        self.half(layout!(folio_refcount))
    }

    /// Address of the next folio on its list.
    #[inline(always)]
    pub fn lru_next(&self) -> u64 {
        self.word(layout!(folio_lru))
    }

    /// Pages of the folio that starts here at `address`.
    #[inline(always)]
    pub fn nr_pages(&self, address: u64) -> u64 {
        if !self.head() {
            return 1;
        }
        read::<u32>(address + u64::from(layout!(folio_nr_pages))).map_or(1, u64::from)
    }

    /// Mappings of the folio that starts here at `address`; `None` for a large folio of a kernel
    /// that keeps no sum (before 6.12).
    #[inline(always)]
    pub fn mapcount(&self, address: u64) -> Option<i32> {
        let mapcount = if !self.head() {
            self.half(layout!(folio_mapcount))
        } else if layout!(folio_large_mapcount) != ABSENT {
            read(address + u64::from(layout!(folio_large_mapcount)))?
        } else {
            return None;
        };
        // The kernel stores the number of mappings less one.
        Some(mapcount.wrapping_add(1))
    }
}
