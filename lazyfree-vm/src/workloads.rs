//! Workloads whose every number is known, and what they say of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::process::{lazyfree, read, succeed};

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it is called in tests.
    pub name: &'static str,
    /// Arguments of `lazyfree workload`.
    pub arguments: &'static str,
    /// What it needs.
    pub needs: Needs,
}

/// What a workload needs of the guest beyond the usual.
#[derive(Clone, Copy, Debug)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Swap.
    Swap,
    /// `memory.reclaim` of cgroup v2.
    MemoryReclaim,
}

/// All of them.
pub const KNOWN: [Known; 11] = [
    known("mark", "mark --pages 4096", Needs::Nothing),
    known("mark_and_reclaim", "mark --pages 4096 --trigger pageout", Needs::Nothing),
    known("mark_memcg", "mark --pages 4096 --trigger memcg", Needs::Nothing),
    known("mark_proactive", "mark --pages 4096 --trigger reclaim", Needs::MemoryReclaim),
    known("redirty", "redirty --pages 4096", Needs::Nothing),
    known("redirty_memcg", "redirty --pages 4096 --trigger memcg", Needs::Nothing),
    known("pin", "pin --pages 4096", Needs::Nothing),
    known("pin_memcg", "pin --pages 1024 --trigger memcg", Needs::Nothing),
    known("thp", "thp --folios 4", Needs::Nothing),
    known("swap", "swap --pages 4096", Needs::Swap),
    known("compact", "compact --pages 8192", Needs::Nothing),
];

const fn known(name: &'static str, arguments: &'static str, needs: Needs) -> Known {
    Known { name, arguments, needs }
}

/// Signals that stay 0 in a quiet guest unless a workload moves them.
const QUIET: [&str; 7] = [
    "marked",
    "marked_under_pressure",
    "swap_entries_freed",
    "hit",
    "redirtied",
    "reclaim_pinned",
    "compaction_pinned",
];

/// The signals that have to stay 0 beside a workload with this report, `mglru` being whether the
/// multi-generational LRU is on.
pub fn quiet(report: &Value, mglru: bool) -> impl Iterator<Item = &'static str> {
    let trigger = report.get("trigger").and_then(Value::as_str);
    let by_size = matches!(trigger, Some("memcg" | "reclaim"));
    let kinds = ["expected", "at_least", "at_most"];
    QUIET.into_iter().filter(move |signal| {
        // lru_gen_look_around activates the young neighbours of a page through a batch of this CPU
        // (folio_activate), which holds a reference to each that nobody else knows of. Seen on 7.3:
        // a page or none in each run, and never with the classic LRU or with MADV_PAGEOUT, which
        // doesn't look around.
        let may_be_batched = *signal == "reclaim_pinned" && by_size && mglru;
        let is_named = kinds.iter().any(|kind| report[*kind].get(*signal).is_some());
        !may_be_batched && !is_named
    })
}

impl Needs {
    /// Why this guest can't have it.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Needs::Nothing => None,
            Needs::Swap => (read("/proc/swaps").ok()?.lines().count() < 2)
                .then(|| "this guest was booted without swap".to_owned()),
            Needs::MemoryReclaim => {
                is_5_10().then(|| "5.10 has no memory.reclaim, which came with 5.19".to_owned())
            }
        }
    }
}

/// Whether the kernel is 5.10, the only one here that lacks this and that.
#[must_use]
pub fn is_5_10() -> bool {
    read("/proc/sys/kernel/osrelease").is_ok_and(|release| release.starts_with("5.10."))
}

/// Runs a workload; returns its report.
pub fn report(arguments: &str) -> Result<Value> {
    let report = succeed(lazyfree(["workload"]).args(arguments.split(' ')))?;
    serde_json::from_str(&report).with_context(|| format!("the workload printed no JSON: {report}"))
}

/// What a workload's report says of numbers of one kind, `expected`, `at_least` or `at_most`: pages
/// by signal.
pub fn expected(report: &Value, kind: &str) -> Result<BTreeMap<String, i64>> {
    match report.get(kind) {
        None => Ok(BTreeMap::new()),
        Some(map) => serde_json::from_value(map.clone()).context("the workload's report"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_report_names_is_not_quiet() {
        let report = json!({
            "trigger": "pageout", "expected": {"marked": 1}, "at_most": {"redirtied": 2},
        });
        let quiet: Vec<_> = quiet(&report, true).collect();
        assert_eq!(quiet.len(), QUIET.len() - 2);
        assert!(!quiet.contains(&"marked") && !quiet.contains(&"redirtied"));
    }

    #[test]
    fn batches_pin_only_what_mglru_reclaims_by_size() {
        let is_quiet = |trigger, mglru| {
            quiet(&json!({"trigger": trigger}), mglru).any(|signal| signal == "reclaim_pinned")
        };
        assert!(!is_quiet("memcg", true) && !is_quiet("reclaim", true));
        assert!(is_quiet("memcg", false) && is_quiet("pageout", true));
    }
}
