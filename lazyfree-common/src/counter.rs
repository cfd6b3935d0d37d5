//! The counters that probes add to, one slot each, per CPU.
//!
//! A slot is a position in [`crate::percpu::PerCpu::counters`]. What a slot means, and in which
//! unit, is written here and nowhere else. [`Counter`] has those that exist once, [`PerReclaimer`]
//! and [`PerFamily`] those that exist once for each of something.

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
    /// What a task is followed through from entry to return: calls of a hooked function, and the
    /// waits that stall it.
    pub enum Family {
        /// `madvise_free_pte_range`.
        Madvise,
        /// `shrink_folio_list`, up to 5.15 `shrink_page_list`.
        Reclaim,
        /// `isolate_migratepages_block`.
        Isolate,
        /// A task that could not allocate reclaims by itself.
        DirectReclaim,
        /// A task whose memory cgroup is at its limit reclaims from it.
        MemcgReclaim,
        /// A task that could not allocate a large enough block compacts by itself.
        DirectCompaction,
        /// Reclaim makes a task wait, for writeback or for others' progress.
        Throttle,
    }
}

impl Family {
    /// The hooked functions.
    pub const FUNCTIONS: [Family; 3] = [Family::Madvise, Family::Reclaim, Family::Isolate];

    /// The waits. Throttling happens inside of reclaim, so its time is part of the others'.
    pub const STALLS: [Family; 4] =
        [Family::DirectReclaim, Family::MemcgReclaim, Family::DirectCompaction, Family::Throttle];

    /// Name used in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Madvise => "madvise_free",
            Family::Reclaim => "reclaim",
            Family::Isolate => "isolate",
            Family::DirectReclaim => "direct_reclaim",
            Family::MemcgReclaim => "memcg_reclaim",
            Family::DirectCompaction => "compaction",
            Family::Throttle => "throttle",
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
    /// What each CPU counts once. Pages are of `PAGE_SIZE`: a large folio counts all its pages.
    pub enum Counter {
        /// Pages in the ranges given to MADV_FREE.
        AdvisedPages,
        /// Pages that became lazyfree, or wait for it in this CPU's LRU batch. May step back when
        /// a batched folio turns out not to be on an LRU list any more: add up as signed.
        MarkedPages,
        /// Of those, pages marked while free memory was under the throttle threshold.
        MarkedUnderPressurePages,
        /// Of the marked pages, those that were on an active list, estimated call by call from
        /// PG_active of the folios that wait in the batch when it returns.
        DeactivatedPages,
        /// Swap entries freed inside `madvise_free_pte_range`.
        SwapEntriesFreed,
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
        /// Calls of processes for which there was no room.
        OtherCalls,
        /// Pages that these were about.
        OtherAdvisedPages,
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

slots! {
    /// What is counted once for each [`Reclaimer`].
    pub enum PerReclaimer {
        /// Batches.
        Batches,
        /// Lazyfree pages freed.
        Hit,
        /// Lazyfree pages found written to again.
        Redirtied,
        /// Attempts on a clean lazyfree page with an extra reference, in pages.
        Pinned,
        /// Attempts on a lazyfree page that was put back for another reason, in pages.
        Kept,
    }
}

impl PerReclaimer {
    /// The slot of one reclaimer; those of the others follow in the order of [`Reclaimer::ALL`].
    pub const fn slot(self, reclaimer: Reclaimer) -> usize {
        Counter::COUNT + self as usize * Reclaimer::COUNT + reclaimer as usize
    }
}

slots! {
    /// What is counted once for each [`Family`].
    pub enum PerFamily {
        /// Calls seen at entry.
        Started,
        /// Calls seen at entry and at return.
        Finished,
        /// Calls whose return never came: the task entered the function again.
        ReturnsLost,
        /// Returns whose entry was not seen.
        EntriesLost,
        /// Calls not followed because the map of calls in flight was full.
        MapFull,
    }
}

impl PerFamily {
    /// The slot of one family.
    pub const fn slot(self, family: Family) -> usize {
        Counter::COUNT
            + PerReclaimer::COUNT * Reclaimer::COUNT
            + self as usize * Family::COUNT
            + family as usize
    }
}

/// Number of slots: of [`Counter`], then of [`PerReclaimer`], then of [`PerFamily`].
pub const SLOTS: usize =
    Counter::COUNT + PerReclaimer::COUNT * Reclaimer::COUNT + PerFamily::COUNT * Family::COUNT;

const _: () = assert!(PerFamily::MapFull.slot(Family::Throttle) + 1 == SLOTS);
