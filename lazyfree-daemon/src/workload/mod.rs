//! Workloads with known numbers: each sends a known number of pages down one lazyfree path.
//!
//! They are the ground truth of the end-to-end tests, and give people non-zero numbers to look at.
//! What a workload does, and which kernel function makes its count exact, is said in the file of its
//! name. Each prints one JSON object, a `report::Report`, and fails when the kernel didn't do to
//! its memory what it should have.
//!
//! The command that is started only supervises (`supervisor`): it makes a memory cgroup, starts
//! itself again as the worker that touches memory (`worker`), and removes the cgroup however the
//! worker ends.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use self::{budget::Budget, session::Session};

mod bomb;
mod budget;
mod cgroup;
mod compact;
mod expect;
mod hierarchy;
mod mark;
mod pagemap;
mod pin;
mod pins;
mod redirty;
mod region;
mod report;
mod session;
mod supervisor;
mod swap;
mod thp;
mod tracefs;
mod trigger;
mod worker;

/// `lazyfree workload …`
#[derive(Clone, Debug, clap::Subcommand, Serialize, Deserialize)]
pub enum Command {
    /// Mark pages lazyfree with MADV_FREE
    Mark(mark::Mark),
    /// Mark pages, write to every second one again, reclaim
    Redirty(redirty::Redirty),
    /// Mark pages, take an extra reference to every second one, reclaim
    Pin(pin::Pin),
    /// Mark transparent huge pages as a whole, reclaim
    Thp(thp::Thp),
    /// Swap pages out, then give them back with MADV_FREE
    Swap(swap::Swap),
    /// Scatter pinned pages, compact memory, count those that the scanner met
    Compact(compact::Compact),
    /// Touch and give back in a loop in several processes: MADV_FREE against MADV_DONTNEED
    Bomb(bomb::Bomb),
    /// A process that another workload process starts
    #[command(hide = true)]
    Internal {
        /// JSON of a `worker::Job`.
        job: String,
    },
}

/// Options that every workload has.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub struct Common {
    /// Keep the memory for SECS seconds after the report, before it is unmapped
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    hold: Option<Duration>,
    /// Do it again and again for SECS seconds (0: until killed), a report each time
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    repeat: Option<Duration>,
    /// Start a run every SECS seconds, until killed if there is no --repeat
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    every: Option<Duration>,
}

/// What the supervisor and the worker need of a workload.
trait Workload {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The options it shares with the others.
    fn common(&self) -> &Common;

    /// The most memory it has resident at a time, in bytes.
    fn bytes(&self, page_size: u64) -> Result<u64>;

    /// What its cgroup is limited to, in bytes, where it is to run into that; else the limit is
    /// one that it doesn't reach.
    fn limit(&self, _page_size: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Whether one process does all the work; it is then bound to one CPU.
    fn is_single(&self) -> bool {
        true
    }

    /// Does it once, and publishes a report.
    fn run(&self, session: &Session) -> Result<()>;
}

impl Command {
    fn workload(&self) -> Option<&dyn Workload> {
        Some(match self {
            Command::Mark(mark) => mark,
            Command::Redirty(redirty) => redirty,
            Command::Pin(pin) => pin,
            Command::Thp(thp) => thp,
            Command::Swap(swap) => swap,
            Command::Compact(compact) => compact,
            Command::Bomb(bomb) => bomb,
            Command::Internal { .. } => return None,
        })
    }

    /// Fills in sizes that were left to the machine.
    fn sized(self, budget: &Budget) -> Self {
        match self {
            Command::Bomb(bomb) => Command::Bomb(bomb.sized(budget)),
            other => other,
        }
    }
}

/// Runs a workload and prints its reports on standard output, one JSON object a line.
///
/// Blocks until the workload is over. On SIGINT, SIGTERM and SIGHUP it stops the workload and
/// cleans up first; that is an error only if nothing was reported yet.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Internal { job } => worker::run(&job),
        command => supervisor::run(command),
    }
}

/// Reads a number of seconds, with a fraction if need be.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} isn't a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Reads a number of pages or folios that is at least `least` and a multiple of it.
fn multiple_of(least: u64, text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(count) if count > 0 && count % least == 0 => Ok(count),
        Ok(_) => Err(format!("must be a multiple of {least}, and not 0")),
        Err(error) => Err(error.to_string()),
    }
}

/// Bytes in `count` pieces of `size` bytes.
fn bytes(count: u64, size: u64) -> Result<u64> {
    count.checked_mul(size).context("more memory than there are addresses")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Arguments::try_parse_from(line.split(' ')).map(|arguments| arguments.command)
    }

    #[test]
    fn every_workload_has_defaults_and_survives_the_way_to_the_worker() {
        for name in ["mark", "redirty", "pin", "thp", "swap", "compact", "bomb"] {
            let command = parse(&format!("workload {name}")).unwrap();
            let json = serde_json::to_string(&command).unwrap();
            let back: Command = serde_json::from_str(&json).unwrap();
            let workload = back.workload().unwrap();
            assert_eq!(workload.name(), name);
            assert_eq!(format!("{back:?}"), format!("{command:?}"));
        }
    }

    #[test]
    fn refuses_counts_that_have_no_half() {
        assert!(parse("workload redirty --pages 3").is_err());
        assert!(parse("workload pin --pages 0").is_err());
        assert!(parse("workload compact --pages 12").is_err());
        assert!(parse("workload mark --pages 3").is_ok());
    }

    #[test]
    fn seconds_may_have_a_fraction_but_no_sign() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(seconds("-1").is_err());
        assert!(seconds("soon").is_err());
    }
}
