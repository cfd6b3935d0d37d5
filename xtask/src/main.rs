//! Developer commands: `cargo xtask VERB`.
//!
//! This file turns arguments into a verb and its result into an exit status; each verb has a
//! file of its own.

mod bench;
mod build;
mod cache;
mod debian;
mod guest;
mod interrupt;
mod kernel;
mod matrix;
mod run;
mod setup;
mod step;
mod test;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{cache::Cache, guest::Interrupted};

/// Developer commands of lazyfree
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install what this machine lacks to build and test lazyfree; every other verb does so, too
    Setup,
    /// Build target/release/lazyfree, one static binary
    Build,
    Run(run::RunArgs),
    Test(test::TestArgs),
    Matrix(matrix::MatrixArgs),
    Bench(bench::BenchArgs),
    Vm(vm::VmArgs),
}

fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    // Under `vm` every other status is the guest's command's.
    let failure = if matches!(verb, Verb::Vm(_)) { vm::GUEST_FAILED } else { 1 };
    match execute(verb) {
        Ok(status) => ExitCode::from(status),
        Err(error) => match error.downcast_ref::<Interrupted>() {
            Some(interrupted) => ExitCode::from(interrupted.status),
            None => {
                eprintln!("error: {error:#}");
                ExitCode::from(failure)
            }
        },
    }
}

fn execute(verb: Verb) -> Result<u8> {
    interrupt::install()?;
    let cache = Cache::open()?;
    match verb {
        Verb::Setup => setup::everything(&cache).map(|()| 0),
        Verb::Build => build::release(&cache).map(|binaries| {
            eprintln!("xtask: built {}", binaries.lazyfree.display());
            0
        }),
        Verb::Run(args) => run::run(&cache, args),
        Verb::Test(args) => test::run(&cache, &args),
        Verb::Matrix(args) => matrix::run(&cache, &args),
        Verb::Bench(args) => bench::run(&cache, &args),
        Verb::Vm(args) => vm::run(&cache, args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_dashes_is_the_guests_command() {
        let arguments = ["cargo xtask", "vm", "--kernel", "6.1", "--", "ls", "--all", "--", "-x"];
        let Verb::Vm(vm) = Cli::parse_from(arguments).verb else { panic!("another verb") };
        let debug = format!("{vm:?}");
        assert!(debug.contains(r#"["ls", "--all", "--", "-x"]"#), "{debug}");
        assert!(Cli::try_parse_from(["cargo xtask", "vm", "--kernel", "6.6"]).is_err());
        assert!(Cli::try_parse_from(["cargo xtask", "vm", "ls"]).is_err());
    }
}
