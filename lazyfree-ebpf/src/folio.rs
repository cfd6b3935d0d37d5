//! The only file that reads struct page and struct folio.

use bytemuck::{Pod, Zeroable};
use lazyfree_common::layout::ABSENT;

use crate::kernel::{layout, read_or_zero};

/// Words of a struct page that are looked at: all there are on x86-64.
const PAGE_WORDS: usize = 8;

/// Low bits of `mapping`: 1 says anonymous, 3 KSM, 2 movable (up to 6.12).
const MAPPING_FLAGS: u64 = 3;
const MAPPING_ANON: u64 = 1;

/// A struct page, or a struct folio that starts with it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Page {
    words: [u64; PAGE_WORDS],
}

impl Page {
    /// Reads the page at a kernel address; a page of zeroes, which is nothing that is looked for,
    /// where nothing can be read.
    #[inline(always)]
    pub fn read_or_zero(address: u64) -> Self {
        read_or_zero(address)
    }

    #[inline(always)]
    fn word(&self, offset: u32) -> u64 {
        self.words[(offset as usize / 8) & 7]
    }

    #[inline(always)]
    fn half(&self, offset: u32) -> i64 {
        i64::from((self.word(offset) >> ((offset & 4) * 8)) as i32)
    }

    #[inline(always)]
    fn flag(&self, bit: u32) -> bool {
        (self.word(layout!(folio_flags)) >> (bit & 63)) & 1 != 0
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

    /// PG_swapcache, which means what it says for swap-backed folios only.
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
        let mapping = self.word(layout!(folio_mapping));
        mapping & MAPPING_FLAGS == MAPPING_ANON
    }

    /// Of a file: a mapping without flags.
    #[inline(always)]
    pub fn file(&self) -> bool {
        let mapping = self.word(layout!(folio_mapping));
        mapping != 0 && mapping & MAPPING_FLAGS == 0
    }

    /// What MADV_FREE leaves behind (`folio_test_lazyfree`).
    #[inline(always)]
    pub fn lazyfree(&self) -> bool {
        self.anon() && !self.swapbacked()
    }

    /// Whether there are more references than mappings and `others`.
    #[inline(always)]
    pub fn referenced_beyond(&self, mapcount: i64, others: i64) -> bool {
        self.half(layout!(folio_refcount)) > mapcount + others
    }

    /// Address of the next folio on its list.
    #[inline(always)]
    pub fn lru_next(&self) -> u64 {
        self.word(layout!(folio_lru))
    }

    /// Mappings of a small folio.
    #[inline(always)]
    pub fn small_mapcount(&self) -> i64 {
        // The kernel stores the number less one.
        self.half(layout!(folio_mapcount)) + 1
    }
}

/// Pages of the large folio at `address`; 0 if they can't be read.
#[inline(always)]
pub fn large_nr_pages(address: u64) -> u64 {
    u64::from(read_or_zero::<u32>(address + u64::from(layout!(folio_nr_pages))))
}

/// Whether the kernel keeps the number of mappings of a large folio (from 6.12 on).
#[inline(always)]
pub fn large_mapcount_known() -> bool {
    layout!(folio_large_mapcount) != ABSENT
}

/// Mappings of the large folio at `address`, where the kernel keeps their number.
#[inline(always)]
pub fn large_mapcount(address: u64) -> i64 {
    let stored = read_or_zero::<i32>(address + u64::from(layout!(folio_large_mapcount)));
    i64::from(stored) + 1
}
