//! The kernel's own counters as metric families, so that a dashboard can put them beside ours.
//!
//! A family is named for what the kernel's counters have in common, and has a label where they
//! differ: `pgscan_kswapd` is `lazyfree_vmstat_pgscan_bytes_total{reclaimer="kswapd"}`. The sum
//! over a family is a number that means something.

use super::series::Series;
use crate::{model::Snapshot, signal::Unit};

/// One family and the counters in it.
pub struct Row {
    /// Metric family.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// The label, if the family has more than one counter.
    pub labels: &'static [&'static str],
    /// `Pages` for counters of pages, which are exported in bytes.
    pub unit: Unit,
    /// Each counter as the kernel spells it, with the value of the label.
    pub counters: &'static [(&'static str, &'static str)],
}

/// Every family made of the kernel's counters.
pub static ROWS: [Row; 15] = [
    Row {
        name: "lazyfree_vmstat_pglazyfree_bytes_total",
        help: "Memory that became lazyfree, as the kernel counts it (pglazyfree).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("pglazyfree", "")],
    },
    Row {
        name: "lazyfree_vmstat_pglazyfreed_bytes_total",
        help: "Lazyfree memory that reclaim freed, as the kernel counts it (pglazyfreed).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("pglazyfreed", "")],
    },
    Row {
        name: "lazyfree_vmstat_pgscan_bytes_total",
        help: "Memory that reclaim scanned, as the kernel counts it (pgscan_*).",
        labels: &["reclaimer"],
        unit: Unit::Pages,
        counters: &[
            ("pgscan_kswapd", "kswapd"),
            ("pgscan_direct", "direct"),
            ("pgscan_khugepaged", "khugepaged"),
            ("pgscan_proactive", "proactive"),
        ],
    },
    Row {
        name: "lazyfree_vmstat_pgsteal_bytes_total",
        help: "Memory that reclaim freed, as the kernel counts it (pgsteal_*).",
        labels: &["reclaimer"],
        unit: Unit::Pages,
        counters: &[
            ("pgsteal_kswapd", "kswapd"),
            ("pgsteal_direct", "direct"),
            ("pgsteal_khugepaged", "khugepaged"),
            ("pgsteal_proactive", "proactive"),
        ],
    },
    Row {
        name: "lazyfree_vmstat_pgactivate_bytes_total",
        help: "Memory moved to an active list (pgactivate).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("pgactivate", "")],
    },
    Row {
        name: "lazyfree_vmstat_pgdeactivate_bytes_total",
        help: "Memory moved to an inactive list (pgdeactivate).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("pgdeactivate", "")],
    },
    Row {
        name: "lazyfree_vmstat_pgrotated_bytes_total",
        help: "Memory moved to the tail of an inactive list (pgrotated).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("pgrotated", "")],
    },
    Row {
        name: "lazyfree_vmstat_pswpin_bytes_total",
        help: "Memory read from swap (pswpin).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("pswpin", "")],
    },
    Row {
        name: "lazyfree_vmstat_pswpout_bytes_total",
        help: "Memory written to swap (pswpout).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("pswpout", "")],
    },
    Row {
        name: "lazyfree_vmstat_allocstall_total",
        help: "Allocations that had to reclaim memory themselves (allocstall_*).",
        labels: &["zone"],
        unit: Unit::Entries,
        counters: &[
            ("allocstall_dma", "dma"),
            ("allocstall_dma32", "dma32"),
            ("allocstall_normal", "normal"),
            ("allocstall_movable", "movable"),
            ("allocstall_device", "device"),
        ],
    },
    Row {
        name: "lazyfree_vmstat_compact_scanned_bytes_total",
        help: "Memory that compaction's two scanners went over, as the kernel counts it (compact_*_scanned).",
        labels: &["scanner"],
        unit: Unit::Pages,
        counters: &[("compact_migrate_scanned", "migrate"), ("compact_free_scanned", "free")],
    },
    Row {
        name: "lazyfree_vmstat_compact_isolated_bytes_total",
        help: "Memory that compaction isolated, as source or as target (compact_isolated).",
        labels: &[],
        unit: Unit::Pages,
        counters: &[("compact_isolated", "")],
    },
    Row {
        name: "lazyfree_vmstat_compact_total",
        help: "Direct compactions by whether the allocation succeeded (compact_success, compact_fail).",
        labels: &["outcome"],
        unit: Unit::Entries,
        counters: &[("compact_success", "success"), ("compact_fail", "fail")],
    },
    Row {
        name: "lazyfree_vmstat_pgmigrate_bytes_total",
        help: "Memory that was to be migrated, by whether it was (pgmigrate_success, pgmigrate_fail).",
        labels: &["outcome"],
        unit: Unit::Pages,
        counters: &[("pgmigrate_success", "success"), ("pgmigrate_fail", "fail")],
    },
    Row {
        name: "lazyfree_vmstat_oom_kill_total",
        help: "Processes killed for want of memory (oom_kill).",
        labels: &[],
        unit: Unit::Entries,
        counters: &[("oom_kill", "")],
    },
];

impl Row {
    /// Adds the counters that this kernel has.
    pub fn read(&self, snapshot: &Snapshot, series: &mut Series) {
        let scale = match self.unit {
            Unit::Pages => snapshot.session.page_size,
            Unit::Entries => 1,
        };
        for (counter, label) in self.counters {
            if let Some(value) = snapshot.vmstat.get(counter) {
                let label = [*label];
                series.add(&label[..self.labels.len()], value as f64 * scale as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmstat::NAMES;

    /// Read for the report, but no metric: the pages of `pgscan_*` and `pgsteal_*` once more by
    /// type, stalls as the sum of their outcomes, and huge pages as part of `pgmigrate_fail`.
    const LEFT_OUT: [&str; 6] = [
        "pgscan_anon",
        "pgscan_file",
        "pgsteal_anon",
        "pgsteal_file",
        "compact_stall",
        "thp_migration_fail",
    ];

    #[test]
    fn each_counter_that_is_read_is_in_one_family_or_left_out_on_purpose() {
        let exported = ROWS.iter().flat_map(|row| row.counters).map(|(counter, _)| *counter);
        let mut listed: Vec<_> = exported.chain(LEFT_OUT).collect();
        listed.sort_unstable();
        let mut read = NAMES.to_vec();
        read.sort_unstable();
        assert_eq!(listed, read);
    }

    #[test]
    fn only_a_family_of_one_counter_goes_without_a_label() {
        for row in &ROWS {
            assert_eq!(row.labels.len(), usize::from(row.counters.len() > 1), "{}", row.name);
            assert_eq!(row.unit == Unit::Pages, row.name.ends_with("_bytes_total"), "{}", row.name);
        }
    }
}
