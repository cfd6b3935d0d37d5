//! The guest's half of `cargo xtask matrix`: runs workloads beside one daemon for each kind of
//! probe, and prints what is known of every signal and what was counted.
//!
//! It judges nothing. The lines are for `xtask`, which knows what is stated of each kernel.

mod case;
pub mod line;
mod reading;
mod switch;
mod trace;

use std::{
    io::{Write as _, stdout},
    process::ExitCode,
    thread,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

pub use self::{
    case::{Case, all as cases},
    reading::SIGNALS,
    switch::Switch,
};
use self::{
    line::{Accuracy, Count, Guest, Line, Note, Plan},
    reading::Reading,
    trace::Isolation,
};
use crate::{
    daemon::Daemon,
    family::Family,
    host::mglru,
    process::{conclude, read},
    workloads,
};

/// The daemon's port.
const PORT: u16 = 19760;

/// Runs what the words ask for: the [`Switch`]es to turn first, and the workloads to run, all of
/// them if none is named.
pub fn run(words: &[String]) -> ExitCode {
    conclude(try_run(words))
}

fn try_run(words: &[String]) -> Result<()> {
    let (switches, names): (Vec<_>, Vec<_>) =
        words.iter().map(|word| Switch::parse(word).ok_or(word)).partition(Result::is_ok);
    let names: Vec<String> = names.into_iter().filter_map(Result::err).cloned().collect();
    let cases = case::named(&names)?;
    for switch in switches.into_iter().flatten() {
        if let Some(why) = switch.turn()? {
            say(&Line::Refused(why))?;
            return say(&Line::End);
        }
    }
    switch::allow_huge_pages()?;
    say(&Line::Guest(guest()?))?;
    for family in Family::ALL {
        if let Err(error) = through(family, &cases) {
            let text = format!("{error:#}");
            say(&Line::Failed(Note { family, workload: None, text }))?;
        }
    }
    say(&Line::End)
}

fn guest() -> Result<Guest> {
    let meminfo = read("/proc/meminfo")?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kb = total.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    // `#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-1 (2026-11-20)`
    let build = read("/proc/sys/kernel/version")?;
    let version = build.split_once("Debian ").and_then(|(_, rest)| rest.split(' ').next());
    Ok(Guest {
        kernel: read("/proc/sys/kernel/osrelease")?,
        version: version.unwrap_or_default().to_owned(),
        cpus: thread::available_parallelism()?.get() as u64,
        memory_mib: kb.context("no MemTotal in /proc/meminfo")? / 1024,
        mglru: mglru(),
    })
}

/// Runs every case beside one daemon.
fn through(family: Family, cases: &[Case]) -> Result<()> {
    let mut observer = Observer::start(family)?;
    for plan in &observer.plans {
        say(&Line::Plan(plan.clone()))?;
    }
    for case in cases {
        let note = |text| Note { family, workload: Some(case.workload.name.to_owned()), text };
        if let Some(why) = case.workload.needs.missing() {
            say(&Line::Skipped(note(why)))?;
            continue;
        }
        match observer.count(case) {
            Ok(counts) => counts.into_iter().try_for_each(|count| say(&Line::Count(count)))?,
            Err(error) => say(&Line::Failed(note(format!("{error:#}"))))?,
        }
    }
    observer.daemon.end(Signal::TERM)
}

/// A daemon with one kind of probe, and what is known from elsewhere.
pub struct Observer {
    daemon: Daemon,
    plans: Vec<Plan>,
    isolation: Isolation,
    /// The reading after a workload is that before the next.
    last: Option<Reading>,
}

impl Observer {
    /// Starts the daemon.
    pub fn start(family: Family) -> Result<Self> {
        let isolation = Isolation::follow(family.name())?;
        let daemon = Daemon::start(family, PORT + family as u16)?;
        let plans = reading::plans(&daemon, family)?;
        let signals: Vec<_> = plans.iter().map(|plan| plan.signal.as_str()).collect();
        ensure!(
            signals == SIGNALS,
            "lazyfree knows the signals {signals:?}, the matrix knows {SIGNALS:?}"
        );
        Ok(Self { daemon, plans, isolation, last: None })
    }

    /// Counts one workload.
    pub fn count(&mut self, case: &Case) -> Result<Vec<Count>> {
        let surroundings = case.surround()?;
        // Something may have changed that the daemon tells the probes when it takes a sample.
        let before = match self.last.take() {
            Some(reading) if surroundings.is_none() => reading,
            _ => Reading::take(&self.daemon, &mut self.isolation)?,
        };
        let report = workloads::report(case.workload.arguments)?;
        let after = Reading::take(&self.daemon, &mut self.isolation)?;
        let kernel = after.truth.since(before.truth);
        let known = case.known(&report, kernel, mglru() == Some(true))?;
        let count = |plan: &Plan| {
            let Plan { family, signal, .. } = plan;
            let accuracy = after.accuracy(signal)?;
            let pages = after.pages_since(&before, signal)?;
            ensure!(
                pages.is_some() == (accuracy != Accuracy::None),
                "{signal} has {pages:?} pages, and is worth {}",
                accuracy.name()
            );
            Ok(Count {
                family: *family,
                workload: case.workload.name.to_owned(),
                signal: signal.clone(),
                known: known.get(signal).copied().unwrap_or_default(),
                pages,
                accuracy,
                losses: after.losses(),
                kernel: match signal.as_str() {
                    "marked" => Some(kernel.vmstat.marked),
                    "hit" => Some(kernel.vmstat.freed),
                    "compaction_scanned" => Some(kernel.vmstat.scanned),
                    _ => None,
                },
            })
        };
        let counts = self.plans.iter().map(count).collect();
        if surroundings.is_none() {
            self.last = Some(after);
        }
        counts
    }
}

fn say(line: &Line) -> Result<()> {
    let mut stdout = stdout().lock();
    writeln!(stdout, "{}", line.encode()?).context("cannot print a line")
}
