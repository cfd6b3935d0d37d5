//! The thread that reads keys, so that they are never late because of anything else.
//!
//! It reads the terminal itself. crossterm 0.29 has a reader, which spins for ever in a read once
//! the terminal has hung up, as when a connection drops, can't be told to end, and loses sight of
//! a key that comes together with a change of the window's size.

use std::{
    fs::File,
    io::{self, IsTerminal as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};
use tokio::sync::mpsc;

use super::key::{self, Key};

/// Keys that may wait for the screen.
const PENDING: usize = 64;

/// How long an escape waits for the rest of its sequence.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Longest wait for the thread at the end; it is awake in microseconds.
const LAST_CALL: Duration = Duration::from_millis(100);

/// Keys as they are pressed. Dropping it ends the thread.
#[derive(Debug)]
pub struct Input {
    keys: mpsc::Receiver<Result<Key>>,
    end: Arc<OwnedFd>,
}

impl Input {
    /// Starts the thread.
    pub fn start() -> Result<Self> {
        let end = eventfd(0, EventfdFlags::CLOEXEC).context("cannot create an eventfd")?;
        let end = Arc::new(end);
        let (sender, keys) = mpsc::channel(PENDING);
        let ended = Arc::clone(&end);
        thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || {
                if let Err(error) = read_keys(&ended, &sender) {
                    // Nobody is left to tell if this fails.
                    let _ = sender.blocking_send(Err(error));
                }
            })
            .context("cannot start the thread that reads keys")?;
        Ok(Self { keys, end })
    }

    /// The next key, or why there will be none.
    pub async fn next(&mut self) -> Result<Key> {
        self.keys.recv().await.unwrap_or_else(|| bail!("the thread that reads keys has ended"))
    }

    /// Ends the thread and waits for it, so that what is typed from now on is left to the shell.
    pub async fn stop(mut self) {
        self.end();
        let ended = async { while self.keys.recv().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_CALL, ended).await;
    }

    fn end(&mut self) {
        self.keys.close();
        // Fails only if the counter is full, and then the thread is awake as well.
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_keys(end: &OwnedFd, keys: &mpsc::Sender<Result<Key>>) -> Result<()> {
    let opened;
    let terminal = if io::stdin().is_terminal() {
        rustix::stdio::stdin()
    } else {
        opened = File::open("/dev/tty").context("cannot open /dev/tty to read keys")?;
        opened.as_fd()
    };
    let mut bytes = Vec::new();
    loop {
        let woken = wait(terminal, end, !bytes.is_empty())?;
        match woken {
            Woken::Ended => return Ok(()),
            Woken::Quiet => {}
            Woken::Readable => {
                let mut buffer = [0; 256];
                match rustix::io::read(terminal, &mut buffer) {
                    Ok(0) | Err(Errno::IO) => bail!("the terminal has hung up"),
                    Ok(number) => bytes.extend_from_slice(&buffer[..number]),
                    Err(Errno::INTR | Errno::AGAIN) => continue,
                    Err(error) => return Err(error).context("cannot read keys"),
                }
            }
        }
        let (pressed, taken) = key::decode(&bytes, woken == Woken::Quiet);
        bytes.drain(..taken);
        for key in pressed {
            // With nobody left to take it the thread is about to be ended.
            if keys.blocking_send(Ok(key)).is_err() {
                return Ok(());
            }
        }
    }
}

/// Why the thread is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// There is something to read, or the terminal has hung up.
    Readable,
    /// A sequence has begun, and nothing more has come.
    Quiet,
    /// It is to end.
    Ended,
}

fn wait(terminal: BorrowedFd<'_>, end: &OwnedFd, incomplete: bool) -> Result<Woken> {
    loop {
        let mut fds = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        match poll(&mut fds, incomplete.then_some(&REST)) {
            Ok(0) => return Ok(Woken::Quiet),
            Ok(_) if !fds[1].revents().is_empty() => return Ok(Woken::Ended),
            Ok(_) => return Ok(Woken::Readable),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for keys"),
        }
    }
}
