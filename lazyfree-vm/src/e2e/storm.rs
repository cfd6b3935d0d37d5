//! Everything at once: markers, reclaimers and compaction on all CPUs, with tasks that are moved
//! between CPUs while they are inside a hooked function.

use std::{fs, process::Command, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{Pid, Signal},
    thread::{CpuSet, sched_setaffinity},
};
use serde_json::Value;

use super::{
    Case, Family, Outcome,
    process::{Running, lazyfree, wait_until},
    stat::Counted,
};
use crate::host::Vmstat;

pub fn cases() -> Vec<Case> {
    vec![Case::new("storm", storm), Case::new("global_pressure", global_pressure)]
}

/// Workloads that mark and are reclaimed at the same time.
const WORKLOADS: [&str; 5] = [
    "mark --pages 4096 --trigger pageout",
    "mark --pages 4096 --trigger memcg",
    "redirty --pages 4096",
    "redirty --pages 2048 --trigger memcg",
    "mark --pages 8192 --trigger pageout",
];

/// How long they go on.
const SECONDS: u64 = 8;

/// `lazyfree stat` through each kind of probe, until what is to be counted is over.
struct Counting {
    stats: Vec<(Running, String)>,
    before: Vmstat,
}

/// As long as it is there, counting goes on.
const GOING_ON: &str = "/tmp/e2e-counting";

impl Counting {
    fn start() -> Result<Self> {
        let _old = fs::remove_file(GOING_ON);
        let before = Vmstat::read()?;
        let stats = Family::ALL.map(|family| {
            let report = format!("/tmp/e2e-storm-{}.json", family.name());
            let begun = format!("{report}.begun");
            for old in [&report, &begun] {
                let _old = fs::remove_file(old);
            }
            let mut command =
                lazyfree(["stat", "--json", "--probes", family.name(), "-o", &report]);
            let script =
                format!("touch {begun} {GOING_ON}; while test -e {GOING_ON}; do sleep 0.1; done");
            command.args(["--", "sh", "-c", &script]);
            let running = Running::start(&mut command)?;
            wait_until("counting has begun", || fs::exists(&begun).unwrap_or(false))?;
            anyhow::Ok((running, report))
        });
        Ok(Self { stats: stats.into_iter().collect::<Result<_>>()?, before })
    }

    /// What each counted.
    fn end(self) -> Result<Vec<Counted>> {
        let Self { stats, before } = self;
        // LRU batches that still hold pages are accounted for in the residual, but not in vmstat:
        // compaction begins with draining them on all CPUs.
        fs::write("/proc/sys/vm/compact_memory", "1").context("compact_memory")?;
        fs::remove_file(GOING_ON)?;
        let counted = |(running, report): (Running, String)| {
            let finished = running.finish()?;
            ensure!(finished.status.success(), "{}: {}", finished.status, finished.stderr);
            let report = fs::read_to_string(report)?;
            Ok(Counted::new(serde_json::from_str(&report)?, Vmstat::read()?.since(before)))
        };
        stats.into_iter().map(counted).collect()
    }
}

/// Totals that telescope are exact whatever happens. Those that add up calls are exact, or don't
/// say so.
fn totals_hold(counted: &Counted) -> Result<()> {
    counted.reconciles()?;
    ensure!(counted.accuracy("marked")? == "exact", "marked{}", counted.text());
    ensure!(counted.accuracy("hit")? == "exact", "hit{}", counted.text());
    let mut lost = 0;
    for loss in ["returns_lost", "entries_lost", "map_full"] {
        lost += counted.number(&format!("/calls/reclaim/{loss}"))?;
    }
    let misses = counted.hooks().iter().filter(|hook| {
        hook.get("program").and_then(Value::as_str).is_some_and(|name| name.ends_with("_reclaim"))
    });
    let misses: u64 = misses.filter_map(|hook| hook.get("misses")?.as_u64()).sum();
    if lost > 0 || misses > 0 {
        let accuracy = counted.accuracy("redirtied")?;
        ensure!(
            accuracy == "estimate",
            "{lost} calls lost, and still {accuracy}{}",
            counted.text()
        );
    }
    Ok(())
}

fn storm() -> Result<Outcome> {
    let counting = Counting::start()?;
    let mut running = Vec::new();
    for workload in WORKLOADS {
        // A workload fails when not each of its pages could be marked, as when compaction has just
        // isolated some. It still did what it did.
        let script = format!(
            "end=$(($(date +%s) + {SECONDS})); \
             while [ $(date +%s) -lt $end ]; do lazyfree workload {workload} >/dev/null 2>&1; done"
        );
        running.push(Running::start(Command::new("sh").args(["-c", &script]))?);
    }
    let cpus = thread::available_parallelism()?.get();
    for turn in 0..SECONDS as usize * 5 {
        fs::write("/proc/sys/vm/compact_memory", "1").context("compact_memory")?;
        move_workers(turn % cpus)?;
        thread::sleep(Duration::from_millis(200));
    }
    for process in running {
        process.finish()?;
    }
    for counted in counting.end()? {
        totals_hold(&counted)?;
        for (signal, least) in [("marked", 20_000), ("hit", 10_000), ("compaction_scanned", 1)] {
            let pages = counted.pages(signal)?;
            ensure!(pages >= least, "only {pages} pages of {signal}{}", counted.text());
        }
    }
    Ok(Outcome::Passed)
}

/// Moves every worker of a workload to one CPU; one that has just ended isn't moved.
fn move_workers(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        if let (true, Some(pid)) = (name.starts_with("lf-"), id.and_then(Pid::from_raw)) {
            let _ended = sched_setaffinity(Some(pid), &set);
        }
    }
    Ok(())
}

/// A file in memory that grows until this is dropped; without swap it can't be reclaimed.
struct Hog {
    writer: Running,
}

impl Hog {
    const FOLDER: &str = "/tmp/e2e-hog";

    fn start() -> Result<Self> {
        fs::create_dir_all(Self::FOLDER)?;
        mount("none", Self::FOLDER, "tmpfs", MountFlags::empty(), Some(c"size=100%"))?;
        // Slow enough for kswapd to keep up, and to be stopped in time.
        let script = "while dd if=/dev/zero bs=1M count=4 2>/dev/null; do sleep 0.02; done >> file";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(Self::FOLDER);
        Ok(Self { writer: Running::start(&mut command)? })
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ended = self.writer.signal(Signal::KILL);
        // Lazily: the writer may still be about to end.
        let _gone = unmount(Self::FOLDER, UnmountFlags::DETACH);
    }
}

/// Memory of the whole guest runs short: kswapd and direct reclaimers take the marked pages.
fn global_pressure() -> Result<Outcome> {
    let counting = Counting::start()?;
    let start = Vmstat::read()?;
    let moved = || Vmstat::read().map(|now| now.since(start));
    let marker =
        Running::start(&mut lazyfree(["workload", "mark", "--pages", "32768", "--hold", "600"]))?;
    wait_until("the pages are marked", || moved().is_ok_and(|by| by.marked >= 32768))?;
    let hog = Hog::start()?;
    wait_until("reclaim takes the marked pages", || moved().is_ok_and(|by| by.freed >= 16384))?;
    drop(hog);
    marker.signal(Signal::TERM)?;
    marker.finish()?;
    for counted in counting.end()? {
        totals_hold(&counted)?;
        let by = |reclaimer| counted.pages_by("hit", reclaimer);
        let (kswapd, direct) = (by("kswapd")?, by("direct")?);
        ensure!(kswapd + direct >= 16384, "kswapd {kswapd}, direct {direct}{}", counted.text());
    }
    Ok(Outcome::Passed)
}
