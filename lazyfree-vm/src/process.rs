//! Programs that are run with a limit, and small files of the kernel.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::PathBuf,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// What a program may take; the guest has no hardware virtualisation.
const LIMIT: Duration = Duration::from_secs(120);

/// How often a condition is looked at while it is waited for.
const POLL: Duration = Duration::from_millis(50);

/// What a program did.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All that it printed.
    pub stdout: String,
    /// All that it complained.
    pub stderr: String,
}

/// A program that runs beside the caller. It is killed when this is dropped.
pub struct Running {
    child: Child,
    what: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// A file name of its own below /tmp.
fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("/tmp/lazyfree-vm-{}-{number}-{name}", std::process::id()))
}

/// `lazyfree` with arguments.
pub fn lazyfree<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("lazyfree");
    command.args(arguments);
    command
}

impl Running {
    /// Starts a program without a terminal.
    pub fn start(command: &mut Command) -> Result<Self> {
        let what = format!("{command:?}");
        let (stdout, stderr) = (scratch("out"), scratch("err"));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        Ok(Self { child, what, stdout, stderr })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).with_context(|| format!("kill {}", self.what))
    }

    /// Whether it hasn't ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<Finished> {
        let until = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > until {
                bail!("{} did not end within {LIMIT:?}; it said: {}", self.what, self.complaints());
            }
            thread::sleep(POLL);
        };
        let stdout = fs::read(&self.stdout)?;
        let stdout = String::from_utf8(stdout).context("what was printed is not UTF-8")?;
        Ok(Finished { status, stdout, stderr: self.complaints() })
    }

    fn complaints(&self) -> String {
        fs::read(&self.stderr).map_or_else(
            |error| format!("({error})"),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
        let _absent = fs::remove_file(&self.stdout);
        let _absent = fs::remove_file(&self.stderr);
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Result<Finished> {
    Running::start(command)?.finish()
}

/// Runs a program that has to succeed, and returns what it printed.
pub fn succeed(command: &mut Command) -> Result<String> {
    let what = format!("{command:?}");
    let finished = run(command)?;
    if !finished.status.success() {
        bail!("{what}: {}: {}{}", finished.status, finished.stdout, finished.stderr);
    }
    Ok(finished.stdout)
}

/// What this process ends with; an error is printed.
pub fn conclude(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while !condition() {
        if Instant::now() > until {
            bail!("waited {LIMIT:?} in vain: {what}");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Reads a small file of the kernel's.
pub fn read(path: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}
