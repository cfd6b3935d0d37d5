//! Waits: as many as the kernel's own tracing saw begin and end.

use std::{
    fs::{create_dir, read_to_string, remove_dir, write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    Case, Outcome,
    process::{lazyfree, run},
};
use crate::workloads::is_5_10;

pub fn cases() -> Vec<Case> {
    [("functions", &[][..]), ("tracepoints", &["--probes", "tracepoint"])]
        .map(|(name, options)| Case::new(format!("stalls_{name}"), move || memcg(options)))
        .into()
}

/// A tracing instance of its own that records two events; gone when dropped.
struct Trace(PathBuf);

/// Where instances are made.
const INSTANCES: &str = "/sys/kernel/tracing/instances";

const BEGIN: &str = "mm_vmscan_memcg_reclaim_begin";
const END: &str = "mm_vmscan_memcg_reclaim_end";

impl Trace {
    fn start() -> Result<Self> {
        let trace = Self(Path::new(INSTANCES).join(format!("stalls-{}", std::process::id())));
        create_dir(&trace.0).context("cannot make a tracing instance")?;
        for event in [BEGIN, END] {
            write(trace.0.join("events/vmscan").join(event).join("enable"), "1")
                .with_context(|| format!("cannot trace {event}"))?;
        }
        Ok(trace)
    }

    /// How often an event was recorded.
    fn count(&self, event: &str) -> Result<i64> {
        let text = read_to_string(self.0.join("trace")).context("the trace")?;
        let event = format!(" {event}: ");
        Ok(text.lines().filter(|line| line.contains(&event)).count() as i64)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = remove_dir(&self.0);
    }
}

/// A memory cgroup is shrunk, again and again.
fn memcg(options: &[&str]) -> Result<Outcome> {
    let trace = Trace::start()?;
    let mut command = lazyfree(["stat", "--json"]);
    command.args(options).args(["--", "sh", "-c"]);
    command.arg("for n in 1 2 3; do lazyfree workload mark --pages 512 --trigger memcg; done");
    let finished = run(&mut command)?;
    ensure!(finished.status.success(), "{}: {}", finished.status, finished.stderr);
    let report = finished.stderr.lines().find(|line| line.starts_with('{'));
    let report: Value = serde_json::from_str(report.context("no report")?)?;
    let stall = |kind: &str, key: &str| {
        let value = report.pointer(&format!("/stalls/{kind}/{key}")).cloned();
        value.with_context(|| format!("no {key} of {kind}: {report}"))
    };
    let (begun, ended) = (trace.count(BEGIN)?, trace.count(END)?);
    ensure!(begun > 0 && begun == ended, "{begun} waits begun, {ended} ended");
    ensure!(stall("memcg_reclaim", "count")? == ended, "{ended} traced: {report}");
    ensure!(stall("memcg_reclaim", "in_flight")? == 0, "{report}");
    ensure!(stall("memcg_reclaim", "lost")? == 0, "{report}");
    ensure!(stall("memcg_reclaim", "accuracy")? == "exact", "{report}");
    let seconds = stall("memcg_reclaim", "seconds")?.as_f64().context("no seconds")?;
    let run = report.get("seconds").and_then(Value::as_f64).context("no seconds")?;
    ensure!(seconds > 0.0 && seconds < run, "waited {seconds} s of {run} s");
    ensure!(stall("direct_reclaim", "count")? == 0, "{report}");
    if options.contains(&"tracepoint") && is_5_10() {
        // mm_compaction_begin and _end of 5.10 don't bring a compact_control.
        ensure!(stall("compaction", "accuracy")? == "none", "{report}");
        ensure!(stall("compaction", "count").is_err(), "a number for nothing: {report}");
    } else {
        ensure!(stall("compaction", "count")? == 0, "{report}");
    }
    Ok(Outcome::Passed)
}
