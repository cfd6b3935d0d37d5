//! `lazyfree stat --json`, and what has to hold for each of its objects.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{
    Family,
    process::{lazyfree, run},
};
use crate::{host::Vmstat, workloads::expected};

/// What one run of `lazyfree stat` counted while a workload ran, with the workload's own report.
pub struct Counted {
    stat: Value,
    /// What the kernel counted meanwhile, by our own reading of `/proc/vmstat`.
    kernel: Vmstat,
    /// The workload's report.
    pub workload: Value,
}

/// Counts a workload.
pub fn count(family: Family, options: &[&str], workload: &str) -> Result<Counted> {
    let report = "/tmp/e2e-stat.json";
    let mut command = lazyfree(["stat", "--json", "--probes", family.name(), "-o", report]);
    command.args(options).args(["--", "lazyfree", "workload"]).args(workload.split(' '));
    let before = Vmstat::read()?;
    let finished = run(&mut command)?;
    let kernel = Vmstat::read()?.since(before);
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    ensure!(finished.status.success(), "{workload}: {}: {printed}", finished.status);
    let stat = fs::read_to_string(report).context("no report")?;
    Ok(Counted {
        kernel,
        stat: serde_json::from_str(&stat).with_context(|| format!("bad report: {stat}"))?,
        workload: serde_json::from_str(&finished.stdout)
            .with_context(|| format!("the workload printed no JSON: {printed}"))?,
    })
}

impl Counted {
    /// For a report that is not of a single workload.
    pub fn new(stat: Value, kernel: Vmstat) -> Self {
        Self { stat, kernel, workload: Value::Null }
    }

    /// A number in the report, by its path.
    pub fn number(&self, path: &str) -> Result<i64> {
        let value = self.stat.pointer(path).and_then(Value::as_i64);
        value.with_context(|| format!("no number {path} in {}", self.stat))
    }

    /// Pages of a signal.
    pub fn pages(&self, signal: &str) -> Result<i64> {
        self.number(&format!("/signals/{signal}/pages"))
    }

    /// Pages of a signal in reclaim by one reclaimer.
    pub fn pages_by(&self, signal: &str, reclaimer: &str) -> Result<i64> {
        self.number(&format!("/signals/{signal}/by_reclaimer/{reclaimer}"))
    }

    /// Accuracy of a signal.
    pub fn accuracy(&self, signal: &str) -> Result<&str> {
        let value = self.stat.pointer(&format!("/signals/{signal}/accuracy"));
        value.and_then(Value::as_str).with_context(|| format!("no {signal} in {}", self.stat))
    }

    /// The report, for a message.
    pub fn text(&self) -> String {
        format!("\n  stat: {}\n  workload: {}", self.stat, self.workload)
    }

    /// What the workload says it did, as pages by signal.
    pub fn expected(&self, kind: &str) -> Result<BTreeMap<String, i64>> {
        expected(&self.workload, kind)
    }

    /// A signal has to have this number, and to be sure of it.
    pub fn is(&self, signal: &str, pages: i64) -> Result<()> {
        let (found, accuracy) = (self.pages(signal)?, self.accuracy(signal)?);
        if found != pages || accuracy != "exact" {
            bail!("{signal} should be {pages} exact, is {found} {accuracy}{}", self.text());
        }
        Ok(())
    }

    /// What holds whatever was counted: the numbers agree with the kernel's, with each other, and
    /// nothing was lost.
    pub fn is_sound(&self) -> Result<()> {
        self.reconciles()?;
        for function in ["madvise_free", "reclaim", "isolate"] {
            for loss in ["in_flight", "returns_lost", "entries_lost", "map_full"] {
                let lost = self.number(&format!("/calls/{function}/{loss}"))?;
                ensure!(lost == 0, "{loss} of {function}: {lost}{}", self.text());
            }
        }
        for hook in self.hooks() {
            let misses = hook.get("misses").and_then(Value::as_u64).unwrap_or(0);
            ensure!(misses == 0, "missed runs: {hook}{}", self.text());
        }
        ensure!(self.number("/events/dropped")? == 0, "events dropped{}", self.text());
        Ok(())
    }

    /// The numbers agree with the kernel's and with each other.
    pub fn reconciles(&self) -> Result<()> {
        let scanned = self.number("/vmstat/compact_migrate_scanned")?;
        for (signal, kernel) in [
            ("marked", self.kernel.marked),
            ("hit", self.kernel.freed),
            ("compaction_scanned", scanned),
        ] {
            let ours = self.pages(signal)?;
            ensure!(ours == kernel, "{signal} {ours}, the kernel's {kernel}{}", self.text());
        }
        for signal in ["marked", "hit"] {
            let residual = self.number(&format!("/residual/{signal}"))?;
            ensure!(residual == 0, "residual of {signal}: {residual}{}", self.text());
        }
        let outcomes = ["hit", "redirtied", "reclaim_pinned", "kept"];
        let outcomes = outcomes.map(|signal| self.pages(signal));
        let sum = outcomes.into_iter().sum::<Result<i64>>()?;
        let attempts = self.pages("attempts")?;
        ensure!(attempts == sum, "attempts {attempts}, outcomes {sum}{}", self.text());
        Ok(())
    }

    /// The programs attached.
    pub fn hooks(&self) -> &[Value] {
        self.stat.get("hooks").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}
