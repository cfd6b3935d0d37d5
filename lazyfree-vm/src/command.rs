//! Runs the guest's one command and carries what it writes to the host.

use std::{
    ffi::OsString,
    fs::File,
    io::ErrorKind,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use lazyfree_vm::{job::Terminal, port, report::Exit};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, WaitOptions, WaitStatus, ioctl_tiocsctty, pidfd_open, setsid, wait,
    },
};

use crate::stream::{Keyboard, Stream, pipe, pseudo_terminal};

/// How often the first process looks for orphans that ended, when nothing else wakes it. Seldom:
/// what runs in a guest is measured.
const REAP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Shells' statuses for a command that cannot be run, and for one that does not exist.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs a command whose output and error are pipes, as in a script.
pub fn run_on_pipes(arguments: &[OsString]) -> Result<Exit> {
    let (mut output, output_end) = pipe(port::OUTPUT)?;
    let (mut error, error_end) = pipe(port::ERROR)?;
    let mut command = command(arguments);
    command.stdin(Stdio::null()).stdout(output_end).stderr(error_end);
    let status = match start(command, None)? {
        Started::Running(child) => follow(child, &mut [&mut output, &mut error], None)?,
        Started::Refused { status, reason } => {
            error.send(reason.as_bytes())?;
            status
        }
    };
    Ok(Exit { status, output_bytes: output.finish()?, error_bytes: error.finish()? })
}

/// Runs a command that has a terminal of its own, which is the host's.
pub fn run_on_terminal(arguments: &[OsString], terminal: &Terminal) -> Result<Exit> {
    let (mut screen, keyboard, tty) = pseudo_terminal(port::OUTPUT, terminal)?;
    let copy = || tty.try_clone().context("cannot copy the terminal's descriptor");
    let mut command = command(arguments);
    command.env("TERM", &terminal.name).env("LC_ALL", &terminal.locale);
    command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
    let status = match start(command, Some(tty))? {
        Started::Running(child) => follow(child, &mut [&mut screen], Some(keyboard))?,
        Started::Refused { status, reason } => {
            screen.send(reason.replace('\n', "\r\n").as_bytes())?;
            status
        }
    };
    Ok(Exit { status, output_bytes: screen.finish()?, error_bytes: 0 })
}

fn command(arguments: &[OsString]) -> Command {
    let (program, rest) = match arguments {
        [program, rest @ ..] => (program.clone(), rest),
        [] => ("/bin/sh".into(), arguments),
    };
    let mut command = Command::new(program);
    command
        .args(rest)
        .env_clear()
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .env("HOME", "/root")
        .env("USER", "root")
        .current_dir("/root");
    command
}

enum Started {
    Running(Pid),
    /// There is no such command, or it is none: what to say, and the status that goes with it.
    Refused {
        status: u8,
        reason: String,
    },
}

/// Starts the command in a session of its own, with `terminal` as its controlling terminal.
fn start(mut command: Command, terminal: Option<File>) -> Result<Started> {
    let become_session = move || {
        setsid()?;
        if let Some(terminal) = &terminal {
            ioctl_tiocsctty(terminal)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(become_session) };
    match command.spawn() {
        Ok(child) => {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            Ok(Started::Running(pid.context("the command has no process id")?))
        }
        Err(error) => Ok(Started::Refused {
            status: if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN },
            reason: format!("{}: {error}\n", command.get_program().display()),
        }),
    }
}

/// Takes leave of all children that ended. The first process inherits orphans, so there may be
/// others than `child`, whose status is returned.
fn reap(child: Pid) -> Result<Option<u8>> {
    let mut found = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => found = Some(shell_status(status)),
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(found),
            Err(error) => return Err(error).context("cannot wait for children"),
        }
    }
}

fn shell_status(status: WaitStatus) -> u8 {
    let number = match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => status,
        (None, Some(signal)) => 128 + signal,
        // Neither can be, without WUNTRACED.
        (None, None) => i32::from(CANNOT_RUN),
    };
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Carries bytes until the command has ended and all it wrote is on its way; returns its status.
fn follow(child: Pid, streams: &mut [&mut Stream], keyboard: Option<Keyboard>) -> Result<u8> {
    let alive = pidfd_open(child, PidfdFlags::empty()).context("cannot watch the command")?;
    loop {
        wait_for_event(&alive, streams, keyboard.as_ref())?;
        let status = reap(child)?;
        // After the look at the child: what it wrote before it ended is then all here.
        for stream in &mut *streams {
            stream.forward()?;
        }
        if let Some(keyboard) = &keyboard {
            keyboard.forward()?;
        }
        if let Some(status) = status {
            return Ok(status);
        }
    }
}

/// Waits until the command ended, there are bytes to carry, or it is time to look for orphans.
fn wait_for_event(
    alive: &OwnedFd,
    streams: &[&mut Stream],
    keyboard: Option<&Keyboard>,
) -> Result<()> {
    let sources = streams.iter().filter_map(|stream| stream.source());
    let sources = sources.chain(keyboard.map(Keyboard::source));
    let mut events = vec![PollFd::new(alive, PollFlags::IN)];
    events.extend(sources.map(|fd: BorrowedFd<'_>| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    match poll(&mut events, Some(&REAP)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for the command"),
    }
}
