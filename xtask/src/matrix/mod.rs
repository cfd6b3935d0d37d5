//! `cargo xtask matrix`: every workload on every kernel series, through both kinds of probe, against
//! the table that the repository states.
//!
//! The guests count and say what is known (`lazyfree_vm::matrix`), [`tally`] compares, [`stated`] is
//! the table, and [`page`] writes it down.

mod page;
mod stated;
mod tally;
mod variant;

use std::{env, fs, path::PathBuf, process::Command, time::Instant};

use anyhow::{Context as _, Result};

use self::{page::Page, tally::Tally, variant::Variant};
use crate::{
    build::{self, Binaries},
    cache::Cache,
    guest::{self, Ended, Interrupted},
    kernel::{self, Kernel, Offer, Series},
    setup, step,
};

/// Compare what lazyfree counts with what is known, on every kernel series
///
/// Prints one table, kernel by signal. Fails on any deviation from what the repository states.
#[derive(Debug, clap::Args)]
pub struct MatrixArgs {
    /// Kernel series to run on
    #[arg(long, value_name = "SERIES", value_delimiter = ',', default_values_t = kernel::ALL)]
    kernels: Vec<Series>,
    /// Write the result to this file (docs/kernels.md), not to standard output
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Runs the verb; returns the status to exit with.
pub fn run(cache: &Cache, args: &MatrixArgs) -> Result<u8> {
    let MatrixArgs { kernels, write } = args;
    let mut kernels = kernels.clone();
    kernels.sort_unstable();
    kernels.dedup();
    setup::for_guests(cache)?;
    let binaries = build::release(cache)?;
    let date = today()?;
    let mut tally = Tally::default();
    let (mut absent, mut old) = (Vec::new(), Vec::new());
    for (series, offer) in kernel::newest_on_offer(cache, &kernels) {
        let kernel = match offer {
            Offer::Newest(kernel) => kernel,
            Offer::Cached(kernel, why) => {
                eprintln!("xtask: Linux {series}: {} from the cache: {why}", kernel.release);
                old.push((series, why));
                kernel
            }
            Offer::Gone => {
                eprintln!("xtask: Linux {series} is gone from Debian's archive");
                absent.push((series, "gone from Debian's archive".to_owned()));
                continue;
            }
            Offer::Failed(why) => {
                tally.deviate(format!("Linux {series}: no kernel: {why}"));
                continue;
            }
        };
        every_guest(cache, &kernel, &binaries, &mut tally)?;
    }
    let command = command();
    let page = Page { date: &date, command: &command, tally: &tally, absent: &absent, old: &old };
    match write {
        Some(path) => fs::write(path, page.to_string())
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => print!("{page}"),
    }
    for deviation in &tally.deviations {
        eprintln!("deviation: {deviation}");
    }
    let checks = tally.checks();
    eprintln!(
        "{checks} numbers compared on {} kernels, {} deviations, {} series gone",
        tally.kernels.len(),
        tally.deviations.len(),
        absent.len()
    );
    // Nothing compared is nothing shown.
    Ok(u8::from(checks == 0 || !tally.deviations.is_empty()))
}

/// Boots a kernel in each kind of guest. An error only if the user wants no more.
fn every_guest(
    cache: &Cache,
    kernel: &Kernel,
    binaries: &Binaries,
    tally: &mut Tally,
) -> Result<()> {
    let series = kernel.series;
    for variant in Variant::ALL {
        let place = format!("Linux {series} {variant}");
        if let Some(why) = variant.impossible(kernel) {
            eprintln!("{place}: left out: {why}");
            tally.leave_out(series, variant, why);
            continue;
        }
        let started = Instant::now();
        let (machine, job) = (variant.machine(), variant.job(kernel));
        let Ended { status, output } =
            guest::run_and_keep(cache, kernel, &machine, &job, binaries, false);
        let ended = match status {
            Ok(0) => Ok(()),
            Ok(status) => Err(format!("lazyfree-matrix ended with status {status}")),
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                let error = format!("{error:#}");
                eprintln!("{place}: {error}");
                // The rest is the console, and paths of this machine.
                Err(error.lines().next().unwrap_or_default().to_owned())
            }
        };
        let before = tally.deviations.len();
        tally.add(series, variant, variant.has_swap(kernel), &output, ended);
        let seconds = started.elapsed().as_secs();
        let outcome = tally.runs.last().map(|run| run.outcome.to_string()).unwrap_or_default();
        eprintln!("{place}: {outcome} ({seconds} s)");
        for deviation in &tally.deviations[before..] {
            eprintln!("  {deviation}");
        }
    }
    Ok(())
}

/// The command as it was given.
fn command() -> String {
    let arguments = env::args().skip(1);
    ["cargo xtask".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
}

/// The day, as `2026-12-01`.
fn today() -> Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", "+%F"]);
    Ok(step::ask(date)?.trim().to_owned())
}
