//! The `lazyfree` command.

use clap::Parser as _;
use lazyfree::workload;

#[derive(clap::Parser)]
enum Arguments {
    /// Run a workload with known numbers
    #[command(subcommand)]
    Workload(workload::Command),
}

fn main() -> std::process::ExitCode {
    let Arguments::Workload(command) = Arguments::parse();
    match workload::run(command) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazyfree: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
