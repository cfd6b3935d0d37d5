//! Runs the guest's one command and carries what it writes to the host.

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use lazyfree_vm::{job::Terminal, port, report::Exit};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::Timespec,
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{
        Pid, PidfdFlags, WaitOptions, WaitStatus, ioctl_tiocsctty, pidfd_open, setsid, wait,
    },
    termios::{Winsize, tcdrain, tcsetwinsize},
};

use crate::serial;

/// How often the first process looks for orphans that ended, when nothing else wakes it. Seldom:
/// what runs in a guest is measured.
const REAP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Bytes read from a pipe at a time, and how many times in a row: together more than a pipe
/// holds, so that one turn carries over all that a command left behind, and less than for ever,
/// so that a command that never stops writing does not hide that another stream has something.
const CHUNK_BYTES: usize = 16 << 10;
const CHUNKS: usize = 8;

/// Shells' statuses for a command that cannot be run, and for one that does not exist.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs a command whose output and error are pipes, as in a script.
pub fn run_on_pipes(arguments: &[OsString]) -> Result<Exit> {
    let (mut output, output_end) = Stream::new(port::OUTPUT)?;
    let (mut error, error_end) = Stream::new(port::ERROR)?;
    let mut command = command(arguments);
    command.stdin(Stdio::null()).stdout(output_end).stderr(error_end);
    let status = match start(command, None)? {
        Started::Running(child) => {
            let mut status = None;
            let alive = watch(child)?;
            while status.is_none() {
                wait_for_event(&alive, &[&output, &error])?;
                status = reap(child)?;
                // After the look at the child: what it wrote before it ended is then all here.
                output.forward()?;
                error.forward()?;
            }
            status.unwrap_or_default()
        }
        Started::Refused { status, reason } => {
            error.send(reason.as_bytes())?;
            status
        }
    };
    Ok(Exit { status, output_bytes: output.finish()?, error_bytes: error.finish()? })
}

/// Runs a command that has a terminal of its own, which is the host's.
pub fn run_on_terminal(arguments: &[OsString], terminal: &Terminal) -> Result<Exit> {
    let Terminal { rows, columns, name } = terminal;
    let mut tty = serial::open(port::OUTPUT)?;
    let size = Winsize { ws_row: *rows, ws_col: *columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&tty, size).context("cannot set the size of the terminal")?;
    let copy = || tty.try_clone().context("cannot copy the terminal's descriptor");
    let mut command = command(arguments);
    command.env("TERM", name).stdin(copy()?).stdout(copy()?).stderr(copy()?);
    let status = match start(command, Some(copy()?))? {
        Started::Running(child) => {
            let alive = watch(child)?;
            loop {
                wait_for_event(&alive, &[])?;
                if let Some(status) = reap(child)? {
                    break status;
                }
            }
        }
        Started::Refused { status, reason } => {
            tty.write_all(reason.as_bytes()).context("cannot write to the terminal")?;
            status
        }
    };
    tcdrain(&tty).context("cannot drain the terminal")?;
    Ok(Exit { status, output_bytes: 0, error_bytes: 0 })
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

/// A descriptor that becomes readable when the child ends.
fn watch(child: Pid) -> Result<OwnedFd> {
    pidfd_open(child, PidfdFlags::empty()).context("cannot watch the command")
}

/// Waits until the command ended, one of its streams has something to say, or it is time to look
/// for orphans.
fn wait_for_event(alive: &OwnedFd, streams: &[&Stream]) -> Result<()> {
    let mut events = vec![PollFd::new(alive, PollFlags::IN)];
    // A pipe that all writers closed polls as ready for ever; it has nothing more to say.
    let open = streams.iter().filter(|stream| !stream.ended);
    events.extend(open.map(|stream| PollFd::new(&stream.pipe, PollFlags::IN)));
    match poll(&mut events, Some(&REAP)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for the command"),
    }
}

/// A pipe that the command writes to, and the port its bytes go to.
struct Stream {
    pipe: File,
    port: File,
    name: &'static str,
    bytes: u64,
    ended: bool,
}

impl Stream {
    fn new(name: &'static str) -> Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        rustix::io::ioctl_fionbio(read.as_fd(), true).context("cannot make a pipe not block")?;
        let port = serial::open_raw(name)?;
        Ok((Self { pipe: read.into(), port, name, bytes: 0, ended: false }, write))
    }

    /// Carries over what is in the pipe now.
    fn forward(&mut self) -> Result<()> {
        let mut buffer = [0; CHUNK_BYTES];
        for _ in 0..CHUNKS {
            match self.pipe.read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(length) => self.send(&buffer[..length])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot read the command's output"),
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.port.write_all(bytes).with_context(|| format!("cannot write to {}", self.name))
    }

    /// Waits until the host has been sent everything; returns how many bytes that were.
    fn finish(self) -> Result<u64> {
        tcdrain(&self.port).with_context(|| format!("cannot drain {}", self.name))?;
        Ok(self.bytes)
    }
}
