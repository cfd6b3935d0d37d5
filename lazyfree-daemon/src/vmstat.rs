//! The counters of `/proc/vmstat` that stand beside our own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The counters that are read, as the kernel spells them. A kernel that doesn't have one leaves
/// it out.
pub const NAMES: [&str; 34] = [
    "pglazyfree",
    "pglazyfreed",
    "pgscan_kswapd",
    "pgscan_direct",
    "pgscan_khugepaged",
    "pgscan_proactive",
    "pgscan_anon",
    "pgscan_file",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pgsteal_khugepaged",
    "pgsteal_proactive",
    "pgsteal_anon",
    "pgsteal_file",
    "pgactivate",
    "pgdeactivate",
    "pgrotated",
    "pswpin",
    "pswpout",
    "allocstall_dma",
    "allocstall_dma32",
    "allocstall_normal",
    "allocstall_movable",
    "allocstall_device",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_isolated",
    "compact_stall",
    "compact_fail",
    "compact_success",
    "pgmigrate_success",
    "pgmigrate_fail",
    "thp_migration_fail",
    "oom_kill",
];

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vmstat(BTreeMap<String, u64>);

impl Vmstat {
    /// Reads the text of `/proc/vmstat`; lines that aren't among [`NAMES`] are left out.
    pub fn parse(text: &str) -> Self {
        let counters = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            NAMES.contains(&name).then_some(())?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        });
        Self(counters.collect())
    }

    /// The value of a counter, if the kernel has it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Every counter, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// What each counter moved by since `earlier`. A counter that `earlier` doesn't have is left
    /// out.
    pub fn since(&self, earlier: &Vmstat) -> Vmstat {
        let deltas = self.iter().filter_map(|(name, value)| {
            Some((name.to_owned(), value.saturating_sub(earlier.get(name)?)))
        });
        Self(deltas.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_is_listed_and_nothing_else() {
        let vmstat =
            Vmstat::parse("nr_free_pages 9\npglazyfree 12\npglazyfreed 0\nbroken\noom_kill x\n");
        assert_eq!(vmstat.get("pglazyfree"), Some(12));
        assert_eq!(vmstat.get("pglazyfreed"), Some(0));
        assert_eq!(vmstat.iter().count(), 2);
    }

    #[test]
    fn a_delta_needs_both_ends() {
        let earlier = Vmstat::parse("pglazyfree 12\n");
        let later = Vmstat::parse("pglazyfree 20\npswpin 4\n");
        assert_eq!(later.since(&earlier), Vmstat::parse("pglazyfree 8\n"));
    }
}
