//! `cargo xtask bench`: what watching costs.
//!
//! The guest counts instructions (`-icount shift=0,sleep=off`, one CPU), so that what it measures
//! repeats, however busy this machine is. The cases are in `lazyfree_vm::bench`, the arithmetic and
//! the budgets in [`table`].

mod table;

use std::time::Duration;

use anyhow::{Result, bail};
use lazyfree_vm::bench::line::Probes;

use self::table::Table;
use crate::{
    build::{self, Binaries},
    cache::Cache,
    guest::{self, Ended, Job, Machine},
    kernel::{self, Kernel, Series},
    setup,
};

/// How long one guest may take; on an idle machine it is done in a fifth of it.
const LIMIT: Duration = Duration::from_secs(900);

const MEMORY_MIB: u32 = 1024;

const SWAP_MIB: u32 = 256;

/// Measure what watching costs
///
/// Without a part all of them are measured.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Instructions that the probes add to workloads, in a guest that counts instructions
    #[arg(long)]
    kernel_side: bool,
    /// Kernel series to measure on
    #[arg(long, value_name = "SERIES", value_delimiter = ',', default_values_t = [kernel::DEFAULT])]
    kernels: Vec<Series>,
    /// Cases of the kernel side to measure, all of them if none is named
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    cases: Vec<String>,
    /// Print one JSON object a kernel instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the verb; returns the status to exit with.
pub fn run(cache: &Cache, args: &BenchArgs) -> Result<u8> {
    let BenchArgs { kernel_side: _, kernels, cases, json } = args;
    setup::for_guests(cache)?;
    let binaries = build::release(cache)?;
    let mut within = true;
    for kernel in kernel::ensure(cache, kernels)? {
        let table = measure(cache, &kernel, &binaries, cases)?;
        if *json {
            println!("{}", table.json());
        } else {
            print!("{table}");
        }
        within &= table.is_within_budgets();
    }
    Ok(u8::from(!within))
}

/// Boots one guest for each kind of probes.
fn measure(cache: &Cache, kernel: &Kernel, binaries: &Binaries, cases: &[String]) -> Result<Table> {
    let mut table = Table::default();
    for probes in Probes::ALL {
        let machine = Machine {
            memory_mib: MEMORY_MIB,
            cpus: 1,
            count_instructions: true,
            ..Machine::default()
        };
        let command = ["lazyfree-bench", probes.name()].into_iter();
        let command = command.chain(cases.iter().map(String::as_str));
        let job = Job {
            command: command.map(Into::into).collect(),
            files: Vec::new(),
            swap_mib: kernel.has_zram().then_some(SWAP_MIB),
            terminal: None,
            limit: Some(LIMIT),
        };
        let Ended { status, output } =
            guest::run_and_keep(cache, kernel, &machine, &job, binaries, false);
        match status? {
            0 => table.read(&output)?,
            status => bail!("lazyfree-bench ended with status {status}"),
        }
    }
    Ok(table)
}
