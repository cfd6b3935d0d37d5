//! `cargo xtask run`: the live screen, on this host or in a guest that has something to show.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::{
    build,
    cache::Cache,
    guest::{self, Job, Machine},
    kernel::{self, Series},
    step, vm,
};

/// Swap of the guest, where its kernel has any: some of what the screen shows needs it.
const SWAP_MIB: u32 = 256;

/// One workload after the other, for ever, behind the screen. One that this guest cannot do, as
/// `swap` without swap, just says so to nobody. The arguments are those of `lazyfree top`.
const SCREEN_AND_WORKLOADS: &str = "\
while true; do
  for path in mark redirty pin thp swap compact; do
    lazyfree workload $path
    sleep 1
  done
done >/dev/null 2>&1 &
exec lazyfree top \"$@\"";

/// Build lazyfree and show its live screen, on this host or in a guest
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Show a guest with a real Debian kernel and a workload, not this host
    #[arg(long)]
    vm: bool,
    /// Kernel series of the guest
    #[arg(long, value_name = "SERIES", requires = "vm", default_value_t = kernel::DEFAULT)]
    kernel: Series,
    /// Arguments of `lazyfree top`
    #[arg(last = true)]
    args: Vec<OsString>,
}

/// Runs the verb; returns the status to exit with.
pub fn run(cache: &Cache, args: RunArgs) -> Result<u8> {
    let RunArgs { vm, kernel, args } = args;
    if vm { in_guest(cache, kernel, args) } else { here(cache, args) }
}

fn here(cache: &Cache, args: Vec<OsString>) -> Result<u8> {
    let binaries = build::release(cache)?;
    let mut top = Command::new(&binaries.lazyfree);
    top.arg("top").args(args);
    let shown = step::show(&top);
    // In our place: the terminal, signals and the exit status are its own.
    Err(top.exec()).with_context(|| format!("cannot start `{shown}`"))
}

fn in_guest(cache: &Cache, series: Series, args: Vec<OsString>) -> Result<u8> {
    let terminal = guest::terminal();
    ensure!(terminal.is_some(), "the live screen needs a terminal on its input and output");
    let kernels = kernel::ensure(cache, &[series])?;
    let has_zram = kernels.iter().all(|kernel| kernel.has_zram());
    let mut command: Vec<OsString> =
        ["sh", "-c", SCREEN_AND_WORKLOADS, "lazyfree"].map(OsString::from).into();
    command.extend(args);
    let job = Job {
        command,
        files: Vec::new(),
        swap_mib: has_zram.then_some(SWAP_MIB),
        terminal,
        limit: None,
    };
    vm::boot(cache, series, &Machine::default(), &job)
}
