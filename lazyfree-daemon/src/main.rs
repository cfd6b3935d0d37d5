//! The `lazyfree` command: arguments, then one match over the subcommands.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use lazyfree::{
    command::{Exit, doctor, run, stat, top},
    workload,
};
use tracing_subscriber::EnvFilter;

/// Shows what Linux does with memory that programs give back lazily
#[derive(Debug, Parser)]
#[command(name = "lazyfree", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Observe, and serve metrics and the local socket, until asked to end
    Run(run::RunArgs),
    /// Show the live screen, of the running daemon or else of its own
    Top(top::TopArgs),
    /// Count one interval, or the run of a command
    Stat(stat::StatArgs),
    /// Tell what is observed on this host and how, what is lost, why, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// Take known numbers of pages through the paths that lazyfree observes
    #[command(subcommand)]
    Workload(workload::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Log lines would tear the live screen.
    if !matches!(cli.command, Command::Top(_)) || !io::stderr().is_terminal() {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .init();
    }
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Top(args) => top::top(&args),
        Command::Stat(args) => stat::stat(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Workload(command) => workload::run(command).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| match error.downcast_ref() {
        Some(Exit(status)) => ExitCode::from(*status),
        None => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    })
}
