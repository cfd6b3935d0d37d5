//! Runs the workloads on this machine's kernel. None needs probes, most need no privilege.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_getcpu, sched_setaffinity},
};
use serde_json::Value;

fn workload(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lazyfree"));
    command.arg("workload").args(arguments.split(' '));
    command
}

fn output(arguments: &str) -> Output {
    workload(arguments).output().unwrap()
}

/// The report of a workload that must succeed.
fn report(arguments: &str) -> Value {
    let output = output(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_no_cgroup_left(&report);
    report
}

fn assert_no_cgroup_left(report: &Value) {
    match report["confined"].as_bool().unwrap() {
        true => assert!(!Path::new(report["cgroup"].as_str().unwrap()).exists(), "{report}"),
        false => assert!(!report["reason"].as_str().unwrap().is_empty(), "{report}"),
    }
}

/// Asserts numbers of a part of the report. Those of page frames are there for root only.
fn assert_counts(report: &Value, part: &str, counts: &[(&str, u64)]) {
    for (name, value) in counts {
        match report[part].get(name) {
            None if ["pages_lazyfree", "pages_swapbacked"].contains(name) => {
                println!("skipped: {name} can be read by root only");
            }
            found => assert_eq!(found.and_then(Value::as_u64), Some(*value), "{name}: {report}"),
        }
    }
}

/// Asserts that a counter of the whole machine moved by at least our part in it.
fn assert_moved(report: &Value, counter: &str, least: u64) {
    let moved = report["observed"][counter].as_u64().unwrap();
    assert!(moved >= least, "{counter} moved by {moved}: {report}");
}

/// Whether the kernel leaves a pinned page lazyfree: not yet in 6.12, surely in 6.16.
fn pinned_stay_lazyfree(report: &Value) -> Option<bool> {
    let mut numbers = report["kernel"].as_str().unwrap().split('.').map(|n| n.parse::<u32>());
    match (numbers.next()?.ok()?, numbers.next()?.ok()?) {
        (6, 13..=15) => None,
        version => Some(version >= (6, 16)),
    }
}

#[test]
fn mark_leaves_its_pages_lazyfree() {
    let report = report("mark --pages 1000");
    assert_counts(&report, "expected", &[("advised", 1000), ("marked", 1000)]);
    assert_counts(&report, "observed", &[("pages_lazyfree", 1000), ("pages_swapbacked", 0)]);
    assert_moved(&report, "pglazyfree", 1000);
}

#[test]
fn what_is_marked_only_is_all_hit() {
    let report = report("mark --pages 1000 --trigger pageout");
    assert_counts(&report, "expected", &[("hit", 1000), ("redirtied", 0)]);
    assert_counts(&report, "observed", &[("pages_absent", 1000), ("pages_present", 0)]);
    assert_moved(&report, "pglazyfreed", 1000);
}

#[test]
fn half_is_hit_and_half_redirtied() {
    let report = report("redirty --pages 4096");
    let expected = [("marked", 4096), ("hit", 2048), ("redirtied", 2048), ("attempts", 4096)];
    assert_counts(&report, "expected", &expected);
    let observed = [("pages_absent", 2048), ("pages_swapbacked", 2048), ("pages_lazyfree", 0)];
    assert_counts(&report, "observed", &observed);
    assert_moved(&report, "pglazyfree", 4096);
    assert_moved(&report, "pglazyfreed", 2048);
}

#[test]
fn pinned_pages_outlive_reclaim() {
    let report = report("pin --pages 2000");
    assert_counts(&report, "expected", &[("hit", 1000), ("reclaim_pinned", 1000)]);
    assert_counts(&report, "observed", &[("pages_absent", 1000), ("pages_present", 1000)]);
    let (lazyfree, swapbacked) = match pinned_stay_lazyfree(&report) {
        Some(true) => (1000, 0),
        Some(false) => (0, 1000),
        None => {
            return println!("skipped: what becomes of pinned pages changed around this kernel");
        }
    };
    let frames = [("pages_lazyfree", lazyfree), ("pages_swapbacked", swapbacked)];
    assert_counts(&report, "observed", &frames);
}

#[test]
fn huge_pages_count_all_their_pages() {
    let output = output("thp --folios 2");
    if !output.status.success() {
        // Whether the kernel has huge pages to give isn't up to us; silence would be.
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("huge pages"), "{stderr}");
        return println!("skipped: {stderr}");
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let pmd = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let pmd: u64 = pmd.unwrap().trim().parse().unwrap();
    let pages = 2 * pmd / report["page_size"].as_u64().unwrap();
    assert_counts(&report, "expected", &[("marked", pages), ("hit", pages)]);
    assert_counts(&report, "observed", &[("pages_absent", pages)]);
}

#[test]
fn a_cgroup_that_shrinks_frees_what_is_clean() {
    let output = output("redirty --pages 1000 --trigger memcg");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("no memory cgroup of its own") {
        return println!("skipped: {stderr}");
    }
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_counts(&report, "expected", &[("marked", 1000), ("hit", 500)]);
    assert_counts(&report, "at_most", &[("redirtied", 500)]);
    assert_counts(&report, "observed", &[("pages_absent", 500)]);
    assert_no_cgroup_left(&report);
}

#[test]
fn the_bomb_advises_every_page_in_every_loop() {
    // Nowhere else can pages be that its processes touched. The processes inherit it.
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    let report = report("bomb --procs 2 --size 1M --loops 3");
    let pages = (1 << 20) / report["page_size"].as_u64().unwrap();
    assert_counts(&report, "expected", &[("advised", 2 * 3 * pages)]);
    assert_counts(&report, "at_least", &[("marked", 2 * pages)]);
    let policies: Vec<_> =
        report["policies"].as_array().unwrap().iter().map(|row| &row["policy"]).collect();
    assert_eq!(policies, ["free", "dontneed"]);
}

#[test]
fn sizes_that_endanger_the_machine_are_refused() {
    let output = output("mark --pages 1000000000000");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    assert!(stderr.contains("ask for at most"), "{stderr}");
}

#[test]
fn repeats_in_one_process_until_terminated_and_leaves_nothing() {
    let mut child =
        workload("mark --pages 16 --every 0.01").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reports: Vec<Value> =
        lines.take(3).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let pids: Vec<_> = reports.iter().map(|report| report["pid"].as_i64().unwrap()).collect();
    assert_eq!(pids, [pids[0]; 3]);

    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    assert_no_cgroup_left(&reports[0]);
    assert!(!Path::new(&format!("/proc/{}", pids[0])).exists());
}

#[test]
fn a_worker_that_is_killed_is_reported_and_cleaned_up_after() {
    let mut child = workload("mark --pages 16 --hold 600")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let report: Value = serde_json::from_str(&line).unwrap();

    let worker = i32::try_from(report["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("killed by signal 9"), "{stderr}");
    assert_no_cgroup_left(&report);
}
