//! What a workload finds in the worker: where it is confined, and where its report goes.

use std::{
    fs,
    io::{Write as _, stdout},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::{cgroup::Cgroup, report::Report, trigger::Trigger};
use crate::vmstat::Vmstat;

/// Where the worker is confined.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// To this memory cgroup.
    Cgroup(Cgroup),
    /// Nowhere, for this reason.
    None(String),
}

/// The worker's side of a workload.
pub struct Session {
    name: &'static str,
    comm: String,
    confinement: Confinement,
    hold: Duration,
}

/// The kernel's counters when a run began.
pub struct Start {
    vmstat: Vmstat,
    at: Instant,
}

impl Session {
    /// A session of the workload `name`.
    pub fn new(name: &'static str, comm: String, confinement: Confinement, hold: Duration) -> Self {
        Self { name, comm, confinement, hold }
    }

    /// The cgroup made for the workload.
    pub fn cgroup(&self) -> Result<&Cgroup> {
        match &self.confinement {
            Confinement::Cgroup(cgroup) => Ok(cgroup),
            Confinement::None(reason) => {
                bail!(
                    "the workload has no memory cgroup of its own ({reason}); use --trigger pageout"
                )
            }
        }
    }

    /// Reads the counters; what happens from here on is in the report.
    pub fn start(&self) -> Result<Start> {
        Ok(Start { vmstat: vmstat()?, at: Instant::now() })
    }

    /// Reads the counters again, and begins a report with how they moved.
    pub fn finish(&self, start: &Start, trigger: Option<Trigger>) -> Result<Report> {
        let delta = vmstat()?.since(&start.vmstat);
        let seconds = start.at.elapsed().as_secs_f64();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
            .context("cannot read /proc/sys/kernel/osrelease")?;
        let (cgroup, reason) = match &self.confinement {
            Confinement::Cgroup(cgroup) => (Some(cgroup.dir().display().to_string()), None),
            Confinement::None(reason) => (None, Some(reason.clone())),
        };
        let mut report = Report {
            workload: self.name,
            kernel: kernel.trim().to_owned(),
            page_size: rustix::param::page_size() as u64,
            pid: std::process::id(),
            comm: self.comm.clone(),
            seconds,
            confined: cgroup.is_some(),
            cgroup,
            reason,
            trigger,
            expected: Default::default(),
            at_least: Default::default(),
            at_most: Default::default(),
            observed: Default::default(),
            policies: Vec::new(),
            failure: None,
        };
        report.observe_vmstat(&delta);
        Ok(report)
    }

    /// Prints a report, then waits if asked to, so that the caller's memory lives on meanwhile.
    pub fn publish(&self, report: Report) -> Result<()> {
        let json = serde_json::to_string(&report).context("cannot write the report as JSON")?;
        let mut stdout = stdout().lock();
        writeln!(stdout, "{json}")
            .and_then(|()| stdout.flush())
            .context("cannot print the report")?;
        drop(stdout);
        thread::sleep(self.hold);
        report.failure.map_or(Ok(()), |failure| bail!(failure))
    }
}

fn vmstat() -> Result<Vmstat> {
    let text = fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
    Ok(Vmstat::parse(&text))
}
