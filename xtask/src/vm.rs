//! `cargo xtask vm`: boots a guest and runs one command in it.

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use anyhow::{Result, ensure};

use crate::{
    build,
    cache::Cache,
    guest::{self, Accelerator, HostFile, Job, Machine},
    kernel::{self, Series},
    setup,
};

/// The status for a failure of the guest, as distinct from one of the command in it.
pub const GUEST_FAILED: u8 = 125;

/// Which guest to boot.
#[derive(Debug, clap::Args)]
pub struct MachineArgs {
    /// Kernel series, such as 6.1
    #[arg(long, default_value_t = kernel::DEFAULT)]
    kernel: Series,
    /// Memory, in MiB
    #[arg(long, default_value_t = Machine::default().memory_mib)]
    mem: u32,
    /// Processors
    #[arg(long, default_value_t = Machine::default().cpus)]
    cpus: u32,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    append: String,
    /// What executes the guest's instructions
    #[arg(long, value_enum, default_value_t = Accelerator::Tcg)]
    accel: Accelerator,
    /// Make the guest's clock count instructions, so that times repeat (needs --cpus 1)
    #[arg(long)]
    icount: bool,
}

impl MachineArgs {
    /// The kernel series asked for, and the machine to boot it on.
    pub fn machine(&self) -> (Series, Machine) {
        let Self { kernel, mem, cpus, append, accel, icount } = self;
        let machine = Machine {
            memory_mib: *mem,
            cpus: *cpus,
            accelerator: *accel,
            count_instructions: *icount,
            append: append.clone(),
        };
        (*kernel, machine)
    }
}

/// Boot a guest with a Debian kernel and run a command in it, as root, with lazyfree on PATH
///
/// The command's output, error and exit status are passed through. Without a command, and on a
/// terminal: a shell. Status 125 says that the guest failed, not the command.
#[derive(Debug, clap::Args)]
pub struct VmArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Give the guest that much swap, in MiB, in compressed memory
    #[arg(long, value_name = "MIB")]
    swap: Option<u32>,
    /// Put a copy of a file or folder into the guest
    #[arg(long, value_name = "HOST:GUEST", value_parser = parse_copy)]
    copy: Vec<HostFile>,
    /// End the guest, as a failure, when the command takes longer
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// The command
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the verb; returns the status to exit with.
pub fn run(cache: &Cache, args: VmArgs) -> Result<u8> {
    let VmArgs { machine, swap, copy, timeout, command } = args;
    let terminal = guest::terminal();
    ensure!(
        terminal.is_some() || !command.is_empty(),
        "a shell in the guest needs a terminal; give a command: cargo xtask vm -- CMD"
    );
    let (series, machine) = machine.machine();
    let job = Job {
        command,
        files: copy,
        swap_mib: swap,
        terminal,
        limit: timeout.map(Duration::from_secs),
    };
    boot(cache, series, &machine, &job)
}

/// Sets up and builds what a guest needs, and runs the job in it, on our own output.
pub fn boot(cache: &Cache, series: Series, machine: &Machine, job: &Job) -> Result<u8> {
    setup::for_guests(cache)?;
    let binaries = build::release(cache)?;
    let kernels = kernel::ensure(cache, &[series])?;
    let [kernel] = kernels.as_slice() else { unreachable!("one series was asked for") };
    guest::run(cache, kernel, machine, job, &binaries, io::stdout(), io::stderr())
}

fn parse_copy(text: &str) -> Result<HostFile, String> {
    match text.rsplit_once(':') {
        Some((host, guest)) if !host.is_empty() && guest.len() > 1 && guest.starts_with('/') => {
            Ok(HostFile { host: PathBuf::from(host), guest: guest.to_owned() })
        }
        _ => Err("expected HOST:GUEST, GUEST being an absolute path".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_names_both_sides() {
        let copy = |host: &str, guest: &str| HostFile { host: host.into(), guest: guest.into() };
        assert_eq!(parse_copy("a/b:/c"), Ok(copy("a/b", "/c")));
        assert_eq!(parse_copy("odd:name:/c/d"), Ok(copy("odd:name", "/c/d")));
        for text in ["a", "a:", ":/c", "a:c", "a:/"] {
            assert!(parse_copy(text).is_err(), "{text}");
        }
    }
}
