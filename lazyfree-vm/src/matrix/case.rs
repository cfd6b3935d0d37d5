//! The workloads of the matrix, and what is known of every signal while one of them runs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{line::Known, reading::Truth};
use crate::{
    host::Setting,
    workloads::{self, KNOWN, Needs, expected, quiet},
};

/// A workload, with what is done around it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The workload.
    pub workload: workloads::Known,
    /// Whether all memory is made short meanwhile.
    under_pressure: bool,
    /// Signals of which more is known than the workload says.
    also: &'static [(&'static str, Known)],
}

/// Of 8 calls, the last may be the one that leaves no folio to look at.
const ALL_BUT_ONE_CALL: Known = Known { least: Some(4096 - 512), most: Some(4096) };

/// Every case, in the order to run them in: pages of a call that leaves no folio to look at are
/// `deactivated` as those of the next call are, so active pages come before any others are marked;
/// and what has two processes at once, which may cost the probes a call, comes last.
pub fn all() -> Vec<Case> {
    let of = |workload: workloads::Known| Case {
        workload,
        under_pressure: false,
        also: if workload.name == "mark" {
            &[("deactivated", const { Known::exactly(0) })]
        } else {
            &[]
        },
    };
    let own = |name, arguments| of(workloads::Known { name, arguments, needs: Needs::Nothing });
    let active = Case {
        also: &[("deactivated", ALL_BUT_ONE_CALL)],
        ..own("mark_active", "mark --pages 4096 --active")
    };
    let pressed = Case {
        under_pressure: true,
        also: &[("marked_under_pressure", const { Known::exactly(1024) })],
        ..own("mark_under_pressure", "mark --pages 1024")
    };
    let bomb = own("bomb", "bomb --procs 2 --size 8M --loops 5 --limit none");
    [active].into_iter().chain(KNOWN.map(of)).chain([pressed, bomb]).collect()
}

impl Case {
    /// Puts the guest into the state that the workload is to run in, until the value is dropped.
    pub fn surround(&self) -> Result<Option<Setting>> {
        self.under_pressure.then(Setting::pressure).transpose()
    }

    /// What is known of each signal, from the workload's report and from the kernel.
    pub fn known(
        &self,
        report: &Value,
        kernel: Truth,
        mglru: bool,
    ) -> Result<BTreeMap<String, Known>> {
        let mut known = known_by_report(report)?;
        for signal in quiet(report, mglru) {
            known.insert(signal.to_owned(), Known::exactly(0));
        }
        known.insert("compaction_scanned".to_owned(), Known::exactly(kernel.vmstat.scanned));
        known.insert("compaction_isolated".to_owned(), Known::exactly(kernel.isolated));
        for (signal, pages) in self.also {
            // The multi-generational LRU has no active list.
            if *signal != "deactivated" || !mglru {
                known.insert((*signal).to_owned(), *pages);
            }
        }
        Ok(known)
    }
}

fn known_by_report(report: &Value) -> Result<BTreeMap<String, Known>> {
    let mut known: BTreeMap<String, Known> = expected(report, "expected")?
        .into_iter()
        .map(|(signal, pages)| (signal, Known::exactly(pages)))
        .collect();
    for (signal, least) in expected(report, "at_least")? {
        known.entry(signal).or_default().least = Some(least);
    }
    for (signal, most) in expected(report, "at_most")? {
        known.entry(signal).or_default().most = Some(most);
    }
    // What was tried and came to no other end was kept.
    let exactly = |signal: &str| known.get(signal).and_then(|known| known.exact());
    let ends = ["hit", "redirtied", "reclaim_pinned"].map(exactly);
    if let (Some(attempts), [Some(hit), Some(redirtied), Some(pinned)]) =
        (exactly("attempts"), ends)
    {
        let kept = attempts - hit - redirtied - pinned;
        known.insert("kept".to_owned(), Known::exactly(kept));
    }
    Ok(known)
}

/// Finds cases by name; all of them if none is named.
pub fn named(names: &[String]) -> Result<Vec<Case>> {
    let mut cases = all();
    for name in names {
        let is_known = cases.iter().any(|case| case.workload.name == name);
        is_known.then_some(()).with_context(|| {
            let known: Vec<_> = cases.iter().map(|case| case.workload.name).collect();
            format!("no workload {name}; there are {}", known.join(", "))
        })?;
    }
    cases.retain(|case| names.is_empty() || names.iter().any(|name| name == case.workload.name));
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host::Vmstat;

    const KERNEL: Truth =
        Truth { vmstat: Vmstat { marked: 0, freed: 0, scanned: 900 }, isolated: 31 };

    fn case(name: &str) -> Case {
        named(&[name.to_owned()]).expect(name)[0]
    }

    #[test]
    fn a_report_is_what_is_known_and_the_rest_is_quiet() -> Result<()> {
        let report = json!({
            "expected": {"advised": 8, "marked": 8, "hit": 4},
            "at_least": {"redirtied": 1, "attempts": 4},
            "at_most": {"redirtied": 4},
        });
        let known = case("redirty").known(&report, KERNEL, true)?;
        assert_eq!(known["marked"], Known::exactly(8));
        assert_eq!(known["redirtied"], Known { least: Some(1), most: Some(4) });
        assert_eq!(known["attempts"], Known { least: Some(4), most: None });
        assert_eq!(known["reclaim_pinned"], Known::exactly(0));
        assert_eq!(known["compaction_scanned"], Known::exactly(900));
        assert_eq!(known["compaction_isolated"], Known::exactly(31));
        // Nothing is known of what isn't named and isn't quiet by itself.
        assert!(!known.contains_key("kept") && !known.contains_key("deactivated"));
        Ok(())
    }

    #[test]
    fn kept_is_known_where_all_other_ends_are() -> Result<()> {
        let report = json!({
            "expected": {"attempts": 8, "hit": 4, "redirtied": 3, "reclaim_pinned": 0},
        });
        assert_eq!(case("redirty").known(&report, KERNEL, true)?["kept"], Known::exactly(1));
        Ok(())
    }

    #[test]
    fn a_signal_that_the_case_moves_is_not_quiet() -> Result<()> {
        let report = json!({"expected": {"marked": 1024}});
        let known = case("mark_under_pressure").known(&report, KERNEL, true)?;
        assert_eq!(known["marked_under_pressure"], Known::exactly(1024));
        Ok(())
    }

    #[test]
    fn cases_have_names_of_their_own_and_unknown_ones_are_told() {
        let mut names: Vec<_> = all().iter().map(|case| case.workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len());
        assert_eq!(named(&[]).expect("all").len(), all().len());
        let error = named(&["melt".to_owned()]).expect_err("unknown").to_string();
        assert!(error.contains("melt") && error.contains("redirty"), "{error}");
    }
}
