//! The guest's half of `cargo xtask bench --kernel-side`: times workloads beside a daemon with one
//! kind of probe that does nothing else meanwhile, or with none attached.
//!
//! In a guest that counts instructions, on one CPU, a nanosecond is an instruction, and what the
//! probes add is what a run takes longer. Every kind has a guest of its own. The runs in one guest
//! agree to 0.1 %; between guests reclaim differs by up to 3 % even so, by how the pages lie that it
//! frees (seen on 6.1). It judges nothing; the lines are for `xtask`.

mod case;
pub mod line;

use std::{
    io::{Write as _, stdout},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use self::{
    case::Case,
    line::{Cost, Line, Probes},
};
use crate::{
    daemon::Daemon,
    process::{conclude, read},
};

/// The daemon's port.
const PORT: u16 = 19770;

/// Time from sample to sample: longer than the bench, so that none falls into a run.
const INTERVAL: &str = "1h";

/// Runs of each case that are timed, after one that isn't.
const RUNS: usize = 3;

/// Runs what the words ask for: the probes, by name, and the cases, all of them if none is named.
pub fn run(words: &[String]) -> ExitCode {
    conclude(try_run(words))
}

fn try_run(words: &[String]) -> Result<()> {
    let (probes, names) = words.split_first().context("which probes? none, fentry, …")?;
    let probes = Probes::parse(probes).with_context(|| format!("no probes are called {probes}"))?;
    let (able, unable): (Vec<Case>, Vec<_>) =
        case::named(names)?.into_iter().partition(|case| case.needs.missing().is_none());
    say(&Line::Kernel(read("/proc/sys/kernel/osrelease")?))?;
    for case in unable {
        let reason = case.needs.missing().unwrap_or_default();
        say(&Line::Skipped { case: case.name.to_owned(), reason })?;
    }
    // A daemon, too, where nothing is to be attached: it has done the same until then.
    let kind = if probes == Probes::None { "procfs" } else { probes.name() };
    match Daemon::start_every(INTERVAL, kind, PORT) {
        Ok(daemon) => {
            for case in &able {
                say(&Line::Cost(cost(case, probes)?))?;
            }
            daemon.end(Signal::TERM)?;
        }
        Err(error) => say(&Line::Refused { probes, reason: format!("{error:#}") })?,
    }
    say(&Line::End)
}

fn cost(case: &Case, probes: Probes) -> Result<Cost> {
    // Caches, page tables and code that patches itself are warm after the first.
    case.run().with_context(|| case.name)?;
    let runs: Result<Vec<_>> =
        (0..RUNS).map(|_| Ok(u64::try_from(case.run()?.as_nanos())?)).collect();
    let runs_ns = runs.with_context(|| case.name)?;
    Ok(Cost { case: case.name.to_owned(), probes, pages: case.pages, runs_ns })
}

fn say(line: &Line) -> Result<()> {
    let mut stdout = stdout().lock();
    writeln!(stdout, "{}", line.encode()?).context("cannot print a line")
}
