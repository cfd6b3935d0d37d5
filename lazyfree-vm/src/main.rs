//! The first process of a test guest: prepares the system, runs one command, reports how it
//! ended, and powers off.
//!
//! It depends on nothing else in the initramfs, so that a broken shell or a missing tool cannot
//! be mistaken for a broken kernel.

mod command;
mod filesystems;
mod modules;
mod network;
mod serial;
mod stream;
mod swap;

use std::{fs, io::Write as _, process, time::Duration};

use anyhow::{Context as _, Result};
use lazyfree_vm::{
    job, port,
    report::{Exit, Report},
};
use rustix::system::{RebootCommand, reboot, sethostname};

/// How long the guest waits for the host to end it once the report is out. The host does so at
/// once; this ends a guest whose host has other plans.
const FAREWELL: Duration = Duration::from_secs(10);

fn main() {
    if process::id() != 1 {
        eprintln!("init: this is the first process of a test guest; run it as that, in a guest");
        process::exit(2);
    }
    let report = match prepare().and_then(|()| run()) {
        Ok(exit) => Report::Exit(exit),
        Err(error) => Report::Failed(format!("{error:#}")),
    };
    rustix::fs::sync();
    if let Err(error) = say(&report) {
        eprintln!("init: {report}: {error:#}");
    }
    std::thread::sleep(FAREWELL);
    // The first process must not return: the kernel would panic.
    let error = reboot(RebootCommand::PowerOff);
    panic!("cannot power off: {error:?}");
}

fn prepare() -> Result<()> {
    filesystems::mount_all()?;
    sethostname(b"guest").context("cannot set the host name")?;
    network::bring_up_loopback()?;
    modules::load_all()?;
    match fs::read_to_string(format!("/{}", job::SWAP_MIB)) {
        Ok(mib) => swap::enable(mib.trim().parse().context("the size of the swap")?),
        Err(_) => Ok(()),
    }
}

fn run() -> Result<Exit> {
    let path = format!("/{}", job::COMMAND);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {path}"))?;
    let arguments = job::decode_command(&bytes);
    let terminal = match fs::read_to_string(format!("/{}", job::TERMINAL)) {
        Ok(text) => Some(job::Terminal::decode(&text).context("the description of the terminal")?),
        Err(_) => None,
    };
    say(&Report::Ready)?;
    match terminal {
        Some(terminal) => command::run_on_terminal(&arguments, &terminal),
        None => command::run_on_pipes(&arguments),
    }
}

fn say(report: &Report) -> Result<()> {
    let mut port = serial::open_raw(port::REPORT)?;
    writeln!(port, "{report}")
        .and_then(|()| Ok(rustix::termios::tcdrain(&port)?))
        .with_context(|| format!("cannot write to {}", port::REPORT))
}
