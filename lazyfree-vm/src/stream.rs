//! Byte streams between the command and the host: pipes or a terminal on the one side, serial
//! ports on the other.

use std::{
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result};
use lazyfree_vm::job::Terminal;
use rustix::{
    io::{Errno, ioctl_fionbio},
    pipe::{PipeFlags, pipe_with},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcdrain, tcsetwinsize},
};

use crate::serial;

/// Bytes read at a time, and how many times in a row: together more than a pipe or a terminal
/// holds, so that one turn carries over all that a command left behind, and less than for ever,
/// so that a command that never stops writing does not hide that another stream has something.
const CHUNK_BYTES: usize = 16 << 10;
const CHUNKS: usize = 8;

/// What the command writes, on its way to the host.
pub struct Stream {
    from: File,
    port: File,
    name: &'static str,
    bytes: u64,
    ended: bool,
}

/// What is typed at the host, on its way to the command.
pub struct Keyboard {
    port: File,
    to: File,
}

/// A pipe whose contents go to a port; the other value is the end to write to.
pub fn pipe(port: &'static str) -> Result<(Stream, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
    Ok((Stream::new(read.into(), port)?, write))
}

/// A terminal of which the host sees the other side through a port.
///
/// The port is not the terminal itself, since a terminal hangs up when its session ends, and
/// loses what it still had to say.
pub fn pseudo_terminal(
    port: &'static str,
    terminal: &Terminal,
) -> Result<(Stream, Keyboard, File)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).context("cannot make a terminal")?;
    grantpt(&ours).and_then(|()| unlockpt(&ours)).context("cannot make a terminal")?;
    let theirs = File::from(ioctl_tiocgptpeer(&ours, flags).context("cannot open the terminal")?);
    let Terminal { rows, columns, name: _, locale: _ } = terminal;
    let size = Winsize { ws_row: *rows, ws_col: *columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).context("cannot set the size of the terminal")?;
    let ours = File::from(ours);
    let keyboard = Keyboard {
        // Opened a second time: this end must not block, the stream's must.
        port: serial::open_raw(port)?,
        to: ours.try_clone().context("cannot copy the terminal's descriptor")?,
    };
    ioctl_fionbio(&keyboard.port, true).context("cannot make a port not block")?;
    Ok((Stream::new(ours, port)?, keyboard, theirs))
}

impl Stream {
    fn new(from: File, name: &'static str) -> Result<Self> {
        ioctl_fionbio(&from, true).context("cannot make the command's output not block")?;
        Ok(Self { from, port: serial::open_raw(name)?, name, bytes: 0, ended: false })
    }

    /// What to wait for; nothing when the other end was closed, which polls as ready for ever.
    pub fn source(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended).then(|| self.from.as_fd())
    }

    /// Carries over what is there now.
    pub fn forward(&mut self) -> Result<()> {
        let mut buffer = [0; CHUNK_BYTES];
        for _ in 0..CHUNKS {
            match self.from.read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(length) => self.send(&buffer[..length])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // How a terminal says that nobody has it open any more.
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    self.ended = true;
                    break;
                }
                Err(error) => return Err(error).context("cannot read the command's output"),
            }
        }
        Ok(())
    }

    /// Sends bytes to the host.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.port.write_all(bytes).with_context(|| format!("cannot write to {}", self.name))
    }

    /// Waits until the host has been sent everything; returns how many bytes that were.
    pub fn finish(self) -> Result<u64> {
        tcdrain(&self.port).with_context(|| format!("cannot drain {}", self.name))?;
        Ok(self.bytes)
    }
}

impl Keyboard {
    /// What to wait for.
    pub fn source(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    /// Carries over what was typed.
    pub fn forward(&self) -> Result<()> {
        let mut buffer = [0; CHUNK_BYTES];
        let typed = match (&self.port).read(&mut buffer) {
            Ok(length) => &buffer[..length],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("cannot read what was typed"),
        };
        match (&self.to).write_all(typed) {
            // Nobody reads: keys that a terminal has no room for are lost.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result.context("cannot type into the terminal"),
        }
    }
}
