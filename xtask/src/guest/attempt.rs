//! A guest whose output is kept, and that gets a second chance to boot.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;

use super::{Interrupted, Job, Machine, run};
use crate::{build::Binaries, cache::Cache, kernel::Kernel};

/// What became of a guest's command.
pub struct Ended {
    /// Its exit status, or what went wrong with the guest.
    pub status: Result<u8>,
    /// What it wrote to its standard output.
    pub output: String,
}

/// Runs a job in a guest. What it writes to standard output is kept, and `shown` as it comes.
///
/// qemu runs the guest's processors in threads of its own, and a kernel that rewrites its code
/// while it boots now and then runs into its own breakpoint (`Oops: int3`). So a guest that dies
/// before its command has written anything is booted again, once; after that it is a failure.
pub fn run_and_keep(
    cache: &Cache,
    kernel: &Kernel,
    machine: &Machine,
    job: &Job,
    binaries: &Binaries,
    shown: bool,
) -> Ended {
    let boot = || {
        let log = Log { bytes: Arc::default(), shown };
        let status = run(cache, kernel, machine, job, binaries, log.clone(), io::stderr());
        Ended { status, output: log.text() }
    };
    let ended = boot();
    match &ended.status {
        Err(error) if !error.is::<Interrupted>() && ended.output.is_empty() => {
            eprintln!("xtask: the guest died before it began; booting it again: {error:#}");
            boot()
        }
        _ => ended,
    }
}

#[derive(Clone)]
struct Log {
    bytes: Arc<Mutex<Vec<u8>>>,
    shown: bool,
}

impl Log {
    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        if self.shown {
            io::stdout().write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.shown { io::stdout().flush() } else { Ok(()) }
    }
}
