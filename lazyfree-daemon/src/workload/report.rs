//! The JSON object that a workload prints.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{expect::Expectation, pagemap::Tally, trigger::Trigger};
use crate::vmstat::Vmstat;

/// Numbers by name, in pages of the kernel's page size unless the name has another unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Sets a number.
    pub fn set(&mut self, name: &str, value: u64) {
        self.0.insert(name.to_owned(), value);
    }

    /// A number, if there is one.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Whether there is no number at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What one run of a workload did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name on the command line.
    pub workload: &'static str,
    /// Release of the kernel.
    pub kernel: String,
    /// Bytes in a page.
    pub page_size: u64,
    /// Process that did it, the owner of the pages.
    pub pid: u32,
    /// The name of that process.
    pub comm: String,
    /// How long it took, from the first counter read to the last.
    pub seconds: f64,
    /// Whether the process is in a memory cgroup made for it.
    pub confined: bool,
    /// Directory of that cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What made reclaim act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// What must be counted, by signal name.
    pub expected: Counts,
    /// Lower bounds of what can't be known exactly.
    #[serde(skip_serializing_if = "Counts::is_empty")]
    pub at_least: Counts,
    /// Upper bounds of the same.
    #[serde(skip_serializing_if = "Counts::is_empty")]
    pub at_most: Counts,
    /// What was seen: movements of `/proc/vmstat`, in which other processes have a part, and the
    /// state of the workload's own pages afterwards, in which they have none.
    pub observed: Counts,
    /// A row for each policy of the bomb.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<super::bomb::Outcome>,
    /// What the kernel did not do as it should have. The command then fails with these words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Report {
    /// Adds what must be counted.
    pub fn expect(&mut self, expectation: Expectation) {
        let Expectation { exact, at_least, at_most } = expectation;
        (self.expected, self.at_least, self.at_most) = (exact, at_least, at_most);
    }

    /// Adds movements of the kernel's counters.
    pub fn observe_vmstat(&mut self, delta: &Vmstat) {
        for (name, value) in delta.iter() {
            self.observed.set(name, value);
        }
    }

    /// Adds the state of the workload's pages, as `pages_…`.
    pub fn observe_pages(&mut self, tally: &Tally) {
        let Tally { present, swapped, absent, frames } = *tally;
        self.observed.set("pages_present", present);
        self.observed.set("pages_swapped", swapped);
        self.observed.set("pages_absent", absent);
        if let Some(frames) = frames {
            self.observed.set("pages_lazyfree", frames.lazyfree);
            self.observed.set("pages_swapbacked", frames.swapbacked);
        }
    }

    /// Notes a failure unless `holds`; the first one stays.
    pub fn require(&mut self, holds: bool, failure: impl FnOnce() -> String) {
        if !holds && self.failure.is_none() {
            self.failure = Some(failure());
        }
    }

    /// Requires that vmstat shows every mark. Marks by other processes may be in it too.
    pub fn require_marks(&mut self, marked: u64) {
        let counted = self.observed.get("pglazyfree").unwrap_or(0);
        self.require(counted >= marked, || {
            format!(
                "vmstat's pglazyfree moved by {counted}, but {marked} pages should have been marked"
            )
        });
    }

    /// Requires that exactly `freed` pages are gone.
    pub fn require_freed(&mut self, tally: &Tally, freed: u64) {
        let gone = tally.absent;
        self.require(gone == freed, || {
            format!("reclaim should have freed {freed} pages, but {gone} are gone")
        });
    }
}
