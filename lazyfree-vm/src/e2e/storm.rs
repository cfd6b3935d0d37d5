//! Everything at once: markers, reclaimers and compaction on all CPUs, with tasks that are moved
//! between CPUs while they are inside a hooked function.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use rustix::{
    process::{Pid, Signal},
    thread::{CpuSet, sched_setaffinity},
};
use serde_json::Value;

use super::{
    Case, Family, Outcome,
    process::{Running, lazyfree, wait_until},
    stat::Counted,
};

pub fn cases() -> Vec<Case> {
    let mut cases = Case::for_each_family("storm", storm);
    cases.extend(Case::for_each_family("global_pressure", global_pressure));
    cases
}

/// Workloads that mark and are reclaimed at the same time.
const WORKLOADS: [&[&str]; 5] = [
    &["mark", "--pages", "4096", "--trigger", "pageout"],
    &["mark", "--pages", "4096", "--trigger", "memcg"],
    &["redirty", "--pages", "4096"],
    &["redirty", "--pages", "2048", "--trigger", "memcg"],
    &["mark", "--pages", "8192", "--trigger", "pageout"],
];

/// How long they go on.
const SECONDS: u64 = 8;

/// Starts `lazyfree stat` around nothing, to be ended when what is to be counted is over.
fn counting(family: Family, report: &str) -> Result<Running> {
    let _old = fs::remove_file(report);
    let mut command = lazyfree(["stat", "--json", "--probes", family.name(), "-o", report]);
    // The command ends when the pipe it reads does not exist any more.
    command.args([
        "--",
        "sh",
        "-c",
        "touch /tmp/e2e-counting; while test -e /tmp/e2e-counting; do sleep 0.1; done",
    ]);
    let _old = fs::remove_file("/tmp/e2e-counting");
    let running = Running::start(&mut command)?;
    wait_until("counting has begun", || fs::exists("/tmp/e2e-counting").unwrap_or(false))?;
    Ok(running)
}

fn counted(running: Running, report: &str) -> Result<Counted> {
    // LRU batches that still hold pages are accounted for in the residual, but not in vmstat:
    // compaction begins with draining them on all CPUs.
    fs::write("/proc/sys/vm/compact_memory", "1").context("compact_memory")?;
    fs::remove_file("/tmp/e2e-counting")?;
    let finished = running.finish()?;
    ensure!(finished.status.success(), "{}: {}", finished.status, finished.stderr);
    let report = fs::read_to_string(report)?;
    Ok(Counted::new(serde_json::from_str(&report)?, Value::Null))
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

fn storm(family: Family) -> Result<Outcome> {
    let report = "/tmp/e2e-storm.json";
    let counting = counting(family, report)?;
    let seconds = SECONDS.to_string();
    let mut running = Vec::new();
    for workload in WORKLOADS {
        let mut command = lazyfree(["workload"]);
        command.args(workload).args(["--repeat", &seconds]);
        running.push(Running::start(&mut command)?);
    }
    let cpus = thread::available_parallelism()?.get();
    for turn in 0..SECONDS as usize * 5 {
        fs::write("/proc/sys/vm/compact_memory", "1").context("compact_memory")?;
        for process in &running {
            move_children(process.id(), turn % cpus);
        }
        thread::sleep(Duration::from_millis(200));
    }
    for process in running {
        let finished = process.finish()?;
        ensure!(finished.status.success(), "{}: {}", finished.status, finished.stderr);
        ensure!(finished.stdout.contains("\"workload\""), "no report: {}", finished.stderr);
    }
    let counted = counted(counting, report)?;
    totals_hold(&counted)?;
    for (signal, least) in [("marked", 20_000), ("hit", 10_000), ("compaction_scanned", 1)] {
        let pages = counted.pages(signal)?;
        ensure!(pages >= least, "only {pages} pages of {signal}{}", counted.text());
    }
    Ok(Outcome::Passed)
}

/// Moves the workers of a workload to one CPU; one that has just ended isn't moved.
fn move_children(parent: u32, cpu: usize) {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let mut set = CpuSet::new();
    set.set(cpu);
    for child in list.unwrap_or_default().split_ascii_whitespace() {
        if let Some(pid) = child.parse().ok().and_then(Pid::from_raw) {
            let _ended = sched_setaffinity(Some(pid), &set);
        }
    }
}

/// Memory of the whole guest runs short: kswapd and direct reclaimers take the marked pages.
fn global_pressure(family: Family) -> Result<Outcome> {
    let report = "/tmp/e2e-pressure.json";
    let counting = counting(family, report)?;
    let marked =
        Running::start(&mut lazyfree(["workload", "mark", "--pages", "32768", "--hold", "600"]))?;
    wait_until("the pages are marked", || vmstat("pglazyfree") - marked_before() >= 32768)?;
    let before = vmstat("pglazyfreed");
    // A tmpfs file is memory that can't be dropped. It grows until reclaim has taken the pages.
    let hog = "/tmp/e2e-hog";
    let mut file = fs::File::create(hog)?;
    let block = vec![1u8; 1 << 20];
    let taken = wait_until("reclaim takes the marked pages", || {
        use std::io::Write as _;
        file.write_all(&block).is_err() || vmstat("pglazyfreed") - before >= 16384
    });
    fs::remove_file(hog)?;
    drop(file);
    marked.signal(Signal::TERM)?;
    drop(marked.finish()?);
    taken?;
    let counted = counted(counting, report)?;
    totals_hold(&counted)?;
    let by = |reclaimer| counted.pages_by("hit", reclaimer);
    let (kswapd, direct) = (by("kswapd")?, by("direct")?);
    ensure!(kswapd + direct >= 16384, "kswapd {kswapd}, direct {direct}{}", counted.text());
    Ok(Outcome::Passed)
}
