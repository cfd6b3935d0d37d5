//! `lazyfree run`: what it serves, how it ends, and what it leaves behind.

use std::{collections::BTreeSet, io};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::{
    Case, Family, Outcome, bpf,
    process::{lazyfree, read, run, succeed, wait_until},
    stat::count,
};
use crate::{
    daemon::{Daemon, Scrape},
    workloads::expected,
};

pub fn cases() -> Vec<Case> {
    let mut cases = Case::for_each_family("metrics", metrics);
    cases.extend(Case::for_each_family("two_daemons", two_daemons));
    let leaves = [
        ("sigterm", (|family| leaves_nothing(family, Signal::TERM)) as fn(Family) -> _),
        ("sigkill", |family| leaves_nothing(family, Signal::KILL)),
    ];
    for (signal, leaves_nothing) in leaves {
        cases.extend(Case::for_each_family(&format!("{signal}_leaves_nothing"), leaves_nothing));
    }
    cases.push(Case::new("a_taken_place_is_an_error", taken));
    cases
}

/// What a workload did is in /metrics, in bytes, beside the kernel's own counters.
fn metrics(family: Family) -> Result<Outcome> {
    let daemon = Daemon::start(family, 19749)?;
    let before = daemon.scrape()?;
    let report = succeed(&mut lazyfree(["workload", "redirty", "--pages", "4096"]))?;
    let report: Value = serde_json::from_str(&report)?;
    counted_since(&daemon, &before, &report)?;
    daemon.end(Signal::TERM)?;
    Ok(Outcome::Passed)
}

/// Each expected number of a workload has come to /metrics since `before`.
fn counted_since(daemon: &Daemon, before: &Scrape, report: &Value) -> Result<()> {
    let expected = expected(report, "expected")?;
    ensure!(!expected.is_empty(), "nothing is expected: {report}");
    let page = report.get("page_size").and_then(Value::as_f64).context("no page size")?;
    let mut found = String::new();
    // The workload ended after a sample; the next one has all of it.
    wait_until("the next sample has the workload's numbers", || {
        let Ok(after) = daemon.scrape() else { return false };
        found = format!("{after:?}");
        let grown = |family: &str| Some(after.sum(family).ok()? - before.sum(family).ok()?);
        let right = |(signal, pages): (&String, &i64)| {
            let pages = *pages as f64;
            match signal.as_str() {
                "swap_entries_freed" => grown("lazyfree_swap_entries_freed_total") == Some(pages),
                name => grown(&format!("lazyfree_{name}_bytes_total")) == Some(pages * page),
            }
        };
        let kernel = |family: &str, signal: &str| {
            grown(family) == expected.get(signal).map(|pages| *pages as f64 * page)
        };
        expected.iter().all(right)
            && kernel("lazyfree_vmstat_pglazyfree_bytes_total", "marked")
            && kernel("lazyfree_vmstat_pglazyfreed_bytes_total", "hit")
            && after.sum("lazyfree_residual_pages").is_ok_and(|residual| residual == 0.0)
    })
    .with_context(|| format!("expected {expected:?}, found {found}"))
}

/// Two daemons don't disturb each other, nor a `stat` beside them.
fn two_daemons(family: Family) -> Result<Outcome> {
    let daemons = [Daemon::start(family, 19751)?, Daemon::start(family, 19752)?];
    let before = [daemons[0].scrape()?, daemons[1].scrape()?];
    let counted = count(family, &[], "redirty --pages 2048")?;
    counted.is_sound()?;
    for (signal, pages) in counted.expected("expected")? {
        counted.is(&signal, pages)?;
    }
    for (daemon, before) in daemons.iter().zip(&before) {
        counted_since(daemon, before, &counted.workload)?;
    }
    Ok(Outcome::Passed)
}

/// The kernel holds no program and no map that it did not before the daemon.
fn leaves_nothing(family: Family, signal: Signal) -> Result<Outcome> {
    const KPROBES: &str = "/sys/kernel/debug/kprobes/list";
    let before = bpf::held()?;
    // Those that a test before this one left may go meanwhile: they too are freed after a grace
    // period of RCU. An id isn't given again soon (`idr_alloc_cyclic`).
    let new = || -> io::Result<(BTreeSet<u32>, BTreeSet<u32>)> {
        let (programs, maps) = bpf::held()?;
        Ok((&programs - &before.0, &maps - &before.1))
    };
    let daemon = Daemon::start(family, 19753)?;
    let (programs, maps) = new()?;
    ensure!(programs.len() >= 6, "programs: {programs:?}");
    ensure!(maps.len() >= 5, "maps: {maps:?}");
    let kprobes = read(KPROBES)?.contains("madvise_free_pte_range");
    ensure!(kprobes == (family == Family::Kprobe), "kprobes: {}", read(KPROBES)?);
    daemon.end(signal)?;
    wait_until("programs and maps are gone", || {
        new().is_ok_and(|(programs, maps)| programs.is_empty() && maps.is_empty())
    })
    .with_context(|| format!("programs and maps that stay: {:?}", new()))?;
    wait_until("kprobes are gone", || {
        read(KPROBES).is_ok_and(|list| !list.contains("madvise_free_pte_range"))
    })?;
    Ok(Outcome::Passed)
}

/// A port or a socket that is taken is named, with what to do, before anything is attached.
fn taken() -> Result<Outcome> {
    let daemon = Daemon::start(Family::Fentry, 19754)?;
    let elsewhere = "/run/e2e-elsewhere.sock";
    let socket = daemon.socket().to_str().context("the path of the socket")?;
    for (arguments, says) in [
        (["--listen", "127.0.0.1:19754", "--socket", elsewhere], ["19754", "--listen"]),
        (["--listen", "127.0.0.1:19755", "--socket", socket], [socket, "--socket"]),
    ] {
        let finished = run(lazyfree(["run"]).args(arguments))?;
        let error = &finished.stderr;
        if finished.status.success() || !says.iter().all(|text| error.contains(text)) {
            bail!("{arguments:?}: {}: {error}", finished.status);
        }
    }
    // The one that was there first goes on.
    daemon.scrape()?;
    Ok(Outcome::Passed)
}
