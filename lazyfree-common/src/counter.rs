//! The counters that probes add to, one slot each, per CPU.
//!
//! A slot is a position in [`crate::percpu::PerCpu::counters`]. What a slot means, and in which
//! unit, is written here and nowhere else.

/// Defines an enum whose variants are consecutive slots, with the list of all of them.
macro_rules! slots {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        $vis enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// Every variant, in slot order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// Number of variants.
            pub const COUNT: usize = $name::ALL.len();
        }
    };
}

slots! {
    /// A group of hooks: an entry and a return on one kernel function.
    pub enum Family {
        /// `madvise_free_pte_range`.
        Madvise,
        /// `shrink_folio_list`, up to 5.15 `shrink_page_list`.
        Reclaim,
        /// `isolate_migratepages_block`.
        Compaction,
    }
}

impl Family {
    /// Name used in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Madvise => "madvise_free",
            Family::Reclaim => "reclaim",
            Family::Compaction => "isolate",
        }
    }
}

slots! {
    /// Who runs a reclaim batch, read from the arguments of `shrink_folio_list`.
    pub enum Reclaimer {
        /// The node's kswapd: `pgdat->kswapd` is the running task.
        Kswapd,
        /// A task that could not allocate: neither of the others.
        Direct,
        /// A memory cgroup at its limit: `scan_control.target_mem_cgroup` is set.
        Memcg,
        /// Somebody asked for it: `memory.reclaim` (`scan_control.proactive`), or a caller that
        /// brings its own list (`MADV_PAGEOUT`, DAMON, CMA; `scan_control.nr_to_reclaim` is 0).
        Proactive,
    }
}

impl Reclaimer {
    /// Value of the `reclaimer` label.
    pub const fn name(self) -> &'static str {
        match self {
            Reclaimer::Kswapd => "kswapd",
            Reclaimer::Direct => "direct",
            Reclaimer::Memcg => "memcg",
            Reclaimer::Proactive => "proactive",
        }
    }
}

slots! {
    /// One per-CPU counter. Pages are of `PAGE_SIZE`: a large folio counts all of its pages.
    pub enum Counter {
        /// Pages in the ranges that `madvise_free_pte_range` was called with.
        AdvisedPages,
        /// Pages that became lazyfree, or wait for it in this CPU's LRU batch. May step back when
        /// a batched folio turns out not to be on an LRU list any more: add up as signed.
        MarkedPages,
        /// Of those, pages marked while free memory was under the throttle threshold.
        MarkedUnderPressurePages,
        /// Marked folios whose flags were looked at.
        DeactivatedSampled,
        /// Of those, folios with PG_active set.
        DeactivatedActive,
        /// Swap entries freed inside `madvise_free_pte_range`.
        SwapEntriesFreed,
        /// Batches of kswapd; the other reclaimers follow in the order of [`Reclaimer`].
        BatchesKswapd,
        /// See [`Counter::BatchesKswapd`].
        BatchesDirect,
        /// See [`Counter::BatchesKswapd`].
        BatchesMemcg,
        /// See [`Counter::BatchesKswapd`].
        BatchesProactive,
        /// Lazyfree pages freed by kswapd.
        HitKswapd,
        /// See [`Counter::HitKswapd`].
        HitDirect,
        /// See [`Counter::HitKswapd`].
        HitMemcg,
        /// See [`Counter::HitKswapd`].
        HitProactive,
        /// Lazyfree pages that kswapd found written to again.
        RedirtiedKswapd,
        /// See [`Counter::RedirtiedKswapd`].
        RedirtiedDirect,
        /// See [`Counter::RedirtiedKswapd`].
        RedirtiedMemcg,
        /// See [`Counter::RedirtiedKswapd`].
        RedirtiedProactive,
        /// Attempts of kswapd on a clean lazyfree page with an extra reference.
        PinnedKswapd,
        /// See [`Counter::PinnedKswapd`].
        PinnedDirect,
        /// See [`Counter::PinnedKswapd`].
        PinnedMemcg,
        /// See [`Counter::PinnedKswapd`].
        PinnedProactive,
        /// Attempts of kswapd on a lazyfree page that was put back for another reason.
        KeptKswapd,
        /// See [`Counter::KeptKswapd`].
        KeptDirect,
        /// See [`Counter::KeptKswapd`].
        KeptMemcg,
        /// See [`Counter::KeptKswapd`].
        KeptProactive,
        /// Pages in batches whose failures could not be told apart one by one; they are in
        /// `Redirtied*` and `Pinned*`, but the split between the two is a guess.
        UnresolvedPages,
        /// Returned batches that were not looked at to their end, since they were too long.
        UnwalkedBatches,
        /// Pages that compaction's migration scanner stepped over or looked at.
        CompactionScannedPages,
        /// Pages that it isolated.
        CompactionIsolatedPages,
        /// Anonymous pages passed over because references exceed mappings.
        CompactionPinnedPages,
        /// Pages in scanned ranges that were not looked at, since the range was too long or
        /// could not be read.
        CompactionUnwalkedPages,
        /// Calls of `madvise_free_pte_range` seen at entry; the other families follow.
        MadviseStarted,
        /// See [`Counter::MadviseStarted`].
        ReclaimStarted,
        /// See [`Counter::MadviseStarted`].
        CompactionStarted,
        /// Calls seen at entry and at return.
        MadviseFinished,
        /// See [`Counter::MadviseFinished`].
        ReclaimFinished,
        /// See [`Counter::MadviseFinished`].
        CompactionFinished,
        /// Calls whose return never came: the task entered the function again.
        MadviseReturnsLost,
        /// See [`Counter::MadviseReturnsLost`].
        ReclaimReturnsLost,
        /// See [`Counter::MadviseReturnsLost`].
        CompactionReturnsLost,
        /// Returns whose entry was not seen.
        MadviseEntriesLost,
        /// See [`Counter::MadviseEntriesLost`].
        ReclaimEntriesLost,
        /// See [`Counter::MadviseEntriesLost`].
        CompactionEntriesLost,
        /// Calls not followed because the map of calls in flight was full.
        MadviseMapFull,
        /// See [`Counter::MadviseMapFull`].
        ReclaimMapFull,
        /// See [`Counter::MadviseMapFull`].
        CompactionMapFull,
        /// Events handed to the ring buffer.
        EventsSubmitted,
        /// Events lost because the ring buffer was full.
        EventsDropped,
        /// Folio by folio (`try_to_unmap`), only with the audit hooks: lazyfree pages tried.
        AuditAttemptPages,
        /// Audit: unmapped.
        AuditHitPages,
        /// Audit: still mapped and dirty.
        AuditRedirtiedPages,
        /// Audit: still mapped, clean, with an extra reference.
        AuditPinnedPages,
        /// Audit: still mapped for another reason.
        AuditKeptPages,
    }
}

/// Slots that exist once for each reclaimer; the value is the slot of [`Reclaimer::Kswapd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerReclaimer {
    /// Batches.
    Batches = Counter::BatchesKswapd as isize,
    /// Hits, in pages.
    Hit = Counter::HitKswapd as isize,
    /// Redirty failures, in pages.
    Redirtied = Counter::RedirtiedKswapd as isize,
    /// Attempts on pinned pages, in pages.
    Pinned = Counter::PinnedKswapd as isize,
    /// Other attempts put back, in pages.
    Kept = Counter::KeptKswapd as isize,
}

impl PerReclaimer {
    /// The slot of one reclaimer.
    pub const fn slot(self, reclaimer: Reclaimer) -> usize {
        self as usize + reclaimer as usize
    }
}

/// Slots that exist once for each family; the value is the slot of [`Family::Madvise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerFamily {
    /// Calls seen at entry.
    Started = Counter::MadviseStarted as isize,
    /// Calls seen at entry and at return.
    Finished = Counter::MadviseFinished as isize,
    /// Calls whose return never came.
    ReturnsLost = Counter::MadviseReturnsLost as isize,
    /// Returns whose entry was not seen.
    EntriesLost = Counter::MadviseEntriesLost as isize,
    /// Calls not followed for want of room.
    MapFull = Counter::MadviseMapFull as isize,
}

impl PerFamily {
    /// The slot of one family.
    pub const fn slot(self, family: Family) -> usize {
        self as usize + family as usize
    }
}

// The two enums above rely on consecutive slots; a variant put between them must not compile.
const _: () = {
    assert!(Counter::BatchesProactive as usize == PerReclaimer::Batches.slot(Reclaimer::Proactive));
    assert!(Counter::HitProactive as usize == PerReclaimer::Hit.slot(Reclaimer::Proactive));
    assert!(
        Counter::RedirtiedProactive as usize == PerReclaimer::Redirtied.slot(Reclaimer::Proactive)
    );
    assert!(Counter::PinnedProactive as usize == PerReclaimer::Pinned.slot(Reclaimer::Proactive));
    assert!(Counter::KeptProactive as usize == PerReclaimer::Kept.slot(Reclaimer::Proactive));
    assert!(Counter::CompactionStarted as usize == PerFamily::Started.slot(Family::Compaction));
    assert!(Counter::CompactionFinished as usize == PerFamily::Finished.slot(Family::Compaction));
    assert!(
        Counter::CompactionReturnsLost as usize == PerFamily::ReturnsLost.slot(Family::Compaction)
    );
    assert!(
        Counter::CompactionEntriesLost as usize == PerFamily::EntriesLost.slot(Family::Compaction)
    );
    assert!(Counter::CompactionMapFull as usize == PerFamily::MapFull.slot(Family::Compaction));
};
