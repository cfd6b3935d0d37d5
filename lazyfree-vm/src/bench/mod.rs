//! The guest's half of `cargo xtask bench --kernel-side`: times workloads without probes, and beside
//! a daemon with each kind of probe that does nothing else meanwhile.
//!
//! In a guest that counts instructions, on one CPU, a nanosecond is an instruction, and what the
//! probes add is what a run takes longer. It judges nothing; the lines are for `xtask`.

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
use crate::{daemon::Daemon, process::read};

/// The daemon's port.
const PORT: u16 = 19770;

/// Time from sample to sample: longer than the bench, so that none falls into a run.
const INTERVAL: &str = "1h";

/// Runs of each case that are timed, after one that isn't.
const RUNS: usize = 5;

/// Runs the cases with these names, all of them if there is none.
pub fn run(names: &[String]) -> ExitCode {
    match try_run(names) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(names: &[String]) -> Result<()> {
    let (able, unable): (Vec<Case>, Vec<_>) =
        case::named(names)?.into_iter().partition(|case| case.needs.missing().is_none());
    say(&Line::Kernel(read("/proc/sys/kernel/osrelease")?))?;
    for case in unable {
        let reason = case.needs.missing().unwrap_or_default();
        say(&Line::Skipped { case: case.name.to_owned(), reason })?;
    }
    for probes in Probes::ALL {
        let daemon = match probes {
            Probes::None => None,
            _ => match Daemon::start_every(INTERVAL, probes.name(), PORT + probes as u16) {
                Ok(daemon) => Some(daemon),
                Err(error) => {
                    say(&Line::Refused { probes, reason: format!("{error:#}") })?;
                    continue;
                }
            },
        };
        for case in &able {
            say(&Line::Cost(cost(case, probes)?))?;
        }
        if let Some(daemon) = daemon {
            daemon.end(Signal::TERM)?;
        }
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
