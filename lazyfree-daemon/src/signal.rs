//! The signals: what is measured, under which names it is shown, and what it means.
//!
//! One table, from which JSON keys, metric families, help texts, table titles and
//! `docs/metrics.md` are made.

use serde::{Deserialize, Serialize};

/// One signal. The order is the order of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is described by its row in Signal::info")]
pub enum Signal {
    Advised,
    Marked,
    MarkedUnderPressure,
    Deactivated,
    SwapEntriesFreed,
    Attempts,
    Hit,
    Redirtied,
    ReclaimPinned,
    Kept,
    CompactionScanned,
    CompactionIsolated,
    CompactionPinned,
}

/// What a signal's metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Exported in bytes, shown in bytes to people, kept in pages everywhere else.
    Pages,
    /// A plain number (of swap entries, one page each).
    Entries,
}

/// A signal's names and meaning.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Key in JSON, and value of a `signal` label.
    pub name: &'static str,
    /// Title for people, lower case.
    pub title: &'static str,
    /// Metric family.
    pub family: &'static str,
    /// Help text of the family, one sentence.
    pub help: &'static str,
    /// Unit of the family.
    pub unit: Unit,
    /// Whether the family has the label `reclaimer`.
    pub by_reclaimer: bool,
}

impl Signal {
    /// Every signal, in table order.
    pub const ALL: [Signal; 13] = [
        Signal::Advised,
        Signal::Marked,
        Signal::MarkedUnderPressure,
        Signal::Deactivated,
        Signal::SwapEntriesFreed,
        Signal::Attempts,
        Signal::Hit,
        Signal::Redirtied,
        Signal::ReclaimPinned,
        Signal::Kept,
        Signal::CompactionScanned,
        Signal::CompactionIsolated,
        Signal::CompactionPinned,
    ];

    /// The signal's row of the table.
    pub const fn info(self) -> Info {
        let (name, title, family, help, unit, by_reclaimer) = match self {
            Signal::Advised => (
                "advised",
                "advised",
                "lazyfree_advised_bytes_total",
                "Memory in the ranges given to MADV_FREE, whether present or not.",
                Unit::Pages,
                false,
            ),
            Signal::Marked => (
                "marked",
                "marked",
                "lazyfree_marked_bytes_total",
                "Memory that MADV_FREE turned into lazyfree pages.",
                Unit::Pages,
                false,
            ),
            Signal::MarkedUnderPressure => (
                "marked_under_pressure",
                "marked under pressure",
                "lazyfree_marked_under_pressure_bytes_total",
                "Memory marked while free memory was below 1.5 times min_free_kbytes.",
                Unit::Pages,
                false,
            ),
            Signal::Deactivated => (
                "deactivated",
                "deactivated",
                "lazyfree_deactivated_bytes_total",
                "Marked memory that sat on an active list, estimated from a sample of folios.",
                Unit::Pages,
                false,
            ),
            Signal::SwapEntriesFreed => (
                "swap_entries_freed",
                "swap entries freed",
                "lazyfree_swap_entries_freed_total",
                "Swapped-out pages whose swap entry MADV_FREE freed, so that no swap-in will happen.",
                Unit::Entries,
                false,
            ),
            Signal::Attempts => (
                "attempts",
                "attempts",
                "lazyfree_attempts_bytes_total",
                "Lazyfree memory that reclaim tried: hit + redirtied + pinned + kept; a page can be tried many times.",
                Unit::Pages,
                true,
            ),
            Signal::Hit => (
                "hit",
                "hit",
                "lazyfree_hit_bytes_total",
                "Lazyfree memory that reclaim freed without I/O.",
                Unit::Pages,
                true,
            ),
            Signal::Redirtied => (
                "redirtied",
                "redirtied",
                "lazyfree_redirtied_bytes_total",
                "Lazyfree memory that reclaim found written to again and made swap-backed.",
                Unit::Pages,
                true,
            ),
            Signal::ReclaimPinned => (
                "reclaim_pinned",
                "pinned in reclaim",
                "lazyfree_reclaim_pinned_bytes_total",
                "Lazyfree memory that reclaim could not take because of an extra reference; counts attempts.",
                Unit::Pages,
                true,
            ),
            Signal::Kept => (
                "kept",
                "kept",
                "lazyfree_kept_bytes_total",
                "Lazyfree memory that reclaim put back for another reason (locked, young); counts attempts.",
                Unit::Pages,
                true,
            ),
            Signal::CompactionScanned => (
                "compaction_scanned",
                "compaction scanned",
                "lazyfree_compaction_scanned_bytes_total",
                "Memory that compaction's migration scanner went over.",
                Unit::Pages,
                false,
            ),
            Signal::CompactionIsolated => (
                "compaction_isolated",
                "compaction isolated",
                "lazyfree_compaction_isolated_bytes_total",
                "Memory that compaction isolated for migration.",
                Unit::Pages,
                false,
            ),
            Signal::CompactionPinned => (
                "compaction_pinned",
                "compaction pinned",
                "lazyfree_compaction_pinned_bytes_total",
                "Anonymous memory that compaction passed over because its references exceed its mappings.",
                Unit::Pages,
                false,
            ),
        };
        Info { name, title, family, help, unit, by_reclaimer }
    }

    /// Key in JSON, and value of a `signal` label.
    pub const fn name(self) -> &'static str {
        self.info().name
    }
}

/// How far a number can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    /// Every page is counted once.
    Exact,
    /// Counted with a known gap, or scaled from a sample; the reason says which.
    Estimate,
    /// Not observed; there is no number.
    None,
}

impl Accuracy {
    /// Value of the `accuracy` label.
    pub const fn name(self) -> &'static str {
        match self {
            Accuracy::Exact => "exact",
            Accuracy::Estimate => "estimate",
            Accuracy::None => "none",
        }
    }
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    /// BPF trampoline at entry.
    Fentry,
    /// BPF trampoline at return.
    Fexit,
    /// Breakpoint or ftrace hook at entry.
    Kprobe,
    /// Replaced return address.
    Kretprobe,
    /// Tracepoint, with the kernel's own arguments.
    RawTracepoint,
    /// Tracepoint, with the record that its format describes.
    Tracepoint,
    /// A counter in `/proc`.
    Procfs,
}

impl HookKind {
    /// Value of the `kind` label.
    pub const fn name(self) -> &'static str {
        match self {
            HookKind::Fentry => "fentry",
            HookKind::Fexit => "fexit",
            HookKind::Kprobe => "kprobe",
            HookKind::Kretprobe => "kretprobe",
            HookKind::RawTracepoint => "raw_tracepoint",
            HookKind::Tracepoint => "tracepoint",
            HookKind::Procfs => "procfs",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_json_spells_them_the_same() {
        let names: BTreeSet<_> = Signal::ALL.iter().map(|s| s.name()).collect();
        let families: BTreeSet<_> = Signal::ALL.iter().map(|s| s.info().family).collect();
        assert_eq!((names.len(), families.len()), (Signal::ALL.len(), Signal::ALL.len()));
        for signal in Signal::ALL {
            let json = serde_json::to_value(signal).unwrap();
            assert_eq!(json, signal.name());
        }
    }

    #[test]
    fn families_follow_the_conventions_for_counters() {
        for signal in Signal::ALL {
            let Info { family, help, unit, .. } = signal.info();
            assert!(family.starts_with("lazyfree_") && family.ends_with("_total"), "{family}");
            assert_eq!(unit == Unit::Pages, family.ends_with("_bytes_total"), "{family}");
            assert!(help.ends_with('.'), "{help}");
        }
    }
}
