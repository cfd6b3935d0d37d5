//! A guest: one real kernel, one command, and how it ended.

mod attempt;
mod initramfs;
mod qemu;
mod relay;
mod terminal;

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use lazyfree_vm::{
    job::{self, Terminal},
    report::{Exit, Report},
};
use signal_hook::consts::{SIGINT, SIGPIPE};

pub use self::{
    attempt::{Ended, run_and_keep},
    terminal::of_this_process as terminal,
};
use self::{
    initramfs::Initramfs,
    qemu::Qemu,
    relay::{Event, Stream},
    terminal::RawMode,
};
use crate::{build::Binaries, cache::Cache, interrupt, kernel::Kernel, setup::Emulator, step};

/// A guest is up within 3 to 6 seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

/// Debian's statically linked one.
const BUSYBOX: &str = "/bin/busybox";

/// Lines of the console that an error shows.
const CONSOLE_LINES: usize = 30;

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Accelerator {
    /// Emulation: works everywhere.
    Tcg,
    /// The processor itself. Not tried by default: there are machines whose /dev/kvm opens and
    /// whose guests then hang.
    Kvm,
}

/// The machine a guest runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Memory.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
    /// What executes instructions.
    pub accelerator: Accelerator,
    /// Makes the guest's clock count instructions, so that times repeat; with one processor.
    pub count_instructions: bool,
    /// More words for the kernel's command line.
    pub append: String,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            memory_mib: 1024,
            cpus: 2,
            accelerator: Accelerator::Tcg,
            count_instructions: false,
            append: String::new(),
        }
    }
}

/// A file or folder of the host that the guest gets a copy of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostFile {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Where it will be in the guest; absolute.
    pub guest: String,
}

/// What the guest is to do.
#[derive(Debug)]
pub struct Job {
    /// The command; empty for a shell.
    pub command: Vec<OsString>,
    /// What to put into the guest beside the usual.
    pub files: Vec<HostFile>,
    /// The size of its swap, if it is to have any.
    pub swap_mib: Option<u32>,
    /// The terminal to lend it.
    pub terminal: Option<Terminal>,
    /// How long the command may take.
    pub limit: Option<Duration>,
}

/// Boots a guest and runs the job in it, with the command's standard output and error written to
/// `output` and `error`. Returns the command's exit status.
pub fn run(
    cache: &Cache,
    kernel: &Kernel,
    machine: &Machine,
    job: &Job,
    binaries: &Binaries,
    output: impl Write + Send + 'static,
    error: impl Write + Send + 'static,
) -> Result<u8> {
    ensure!(
        !machine.count_instructions || machine.cpus == 1,
        "counting instructions works with one processor only: add --cpus 1"
    );
    let scratch = cache.scratch()?;
    let path = |name: &str| scratch.path().join(name);
    let (initramfs, console, log) = (path("initramfs"), path("console"), path("qemu.log"));
    write_initramfs(&initramfs, kernel, job, binaries)?;
    let booting = step::announce(&format!("booting Linux {}", kernel.release));
    let qemu_log =
        File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;

    let (sender, events) = channel();
    let interception = {
        let sender = sender.clone();
        interrupt::on_signal(move |signal| {
            // Nobody listens once the guest has ended, which is what was asked for.
            let _ = sender.send(Event::Signal(signal));
        })
    };
    let emulator = Emulator::find(cache)?;
    let (mut qemu, ports) =
        Qemu::start(&emulator, machine, &kernel.image(), &initramfs, &console, qemu_log)?;
    let raw_mode = match &job.terminal {
        Some(_) => {
            eprintln!("xtask: Ctrl-] ends the guest");
            let keyboard = ports.output.try_clone().context("cannot copy a port")?;
            relay::type_into(keyboard, sender.clone());
            Some(RawMode::enter()?)
        }
        None => None,
    };
    let writers = [
        relay::forward(Stream::Output, ports.output, output, sender.clone()),
        relay::forward(Stream::Error, ports.error, error, sender.clone()),
    ];
    relay::listen(ports.report, sender);
    let ended = follow(&events, job.limit, || booting.done());
    qemu.kill();
    match &ended {
        // All is written; this only takes leave of the threads.
        Ok(_) => writers.into_iter().for_each(|writer| drop(writer.join())),
        // Whoever reads our output may have stopped, so there is no waiting for all to be read.
        Err(_) => linger(&events),
    }
    drop(raw_mode);
    drop(interception);
    ended.map_err(|error| {
        if error.is::<Interrupted>() {
            return error;
        }
        let said = [&log, &console].map(|path| tail(path)).concat();
        let kept = keep_console(cache, kernel, &console)
            .map_or_else(|_| String::new(), |path| format!(", in full in {}", path.display()));
        anyhow!("{error:#}\nthe guest's console{kept}:\n{said}")
    })
}

/// The user, or the reader of our output, wants no more of it; not a failure of the guest.
#[derive(Debug)]
pub struct Interrupted {
    /// The status to exit with.
    pub status: u8,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Interrupted {
    fn by_signal(signal: i32) -> Self {
        Self { status: u8::try_from(128 + signal).unwrap_or(u8::MAX) }
    }
}

/// Follows what happens until the command has ended and all its output is here.
fn follow(
    events: &Receiver<Event>,
    limit: Option<Duration>,
    on_ready: impl FnOnce(),
) -> Result<u8> {
    let mut on_ready = Some(on_ready);
    let mut deadline = Instant::now().checked_add(BOOT_LIMIT);
    let mut received = Exit { status: 0, output_bytes: 0, error_bytes: 0 };
    let mut exit = None;
    let mut open = relay::PORTS;
    loop {
        if let Some(Exit { status, output_bytes, error_bytes }) = exit
            && received.output_bytes >= output_bytes
            && received.error_bytes >= error_bytes
        {
            return Ok(status);
        }
        let event = match deadline {
            Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Received(Stream::Output, total)) => received.output_bytes = total,
            Ok(Event::Received(Stream::Error, total)) => received.error_bytes = total,
            Ok(Event::Report(Report::Ready)) => {
                on_ready.take().into_iter().for_each(|ready| ready());
                deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
            }
            Ok(Event::Report(Report::Exit(report))) => exit = Some(report),
            Ok(Event::Report(Report::Failed(reason))) => bail!("the guest's init: {reason}"),
            Ok(Event::Garbled(line)) => bail!("the guest's init reported {line:?}"),
            Ok(Event::Escape) => return Err(Interrupted::by_signal(SIGINT).into()),
            Ok(Event::Signal(signal)) => return Err(Interrupted::by_signal(signal).into()),
            Ok(Event::Unwritable(error)) if error.kind() == ErrorKind::BrokenPipe => {
                return Err(Interrupted::by_signal(SIGPIPE).into());
            }
            Ok(Event::Unwritable(error)) => {
                return Err(error).context("cannot write the command's output");
            }
            // What was read of the other ports is still in the queue.
            Ok(Event::Closed) if open > 1 => open -= 1,
            Ok(Event::Closed) if exit.is_some() => {
                bail!("the guest ended before all of the command's output had arrived")
            }
            Ok(Event::Closed) => bail!(
                "the guest ended without a report: its kernel panicked, or qemu could not start it"
            ),
            Err(RecvTimeoutError::Timeout) if on_ready.is_some() => {
                bail!("the guest was not up within {} s", BOOT_LIMIT.as_secs())
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = limit.unwrap_or_default().as_secs();
                bail!("the command was still running after {seconds} s, its time limit")
            }
            Err(RecvTimeoutError::Disconnected) => bail!("lost touch with the guest"),
        }
    }
}

/// Gives output that has already left the guest a moment to be written.
fn linger(events: &Receiver<Event>) {
    let until = Instant::now() + Duration::from_secs(1);
    let mut open = relay::PORTS;
    while open > 0 {
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Closed | Event::Unwritable(_)) => open -= 1,
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn write_initramfs(path: &Path, kernel: &Kernel, job: &Job, binaries: &Binaries) -> Result<()> {
    let mut archive = Initramfs::new();
    archive.program("init", &binaries.init);
    archive.program("bin/lazyfree", &binaries.lazyfree);
    archive.program("bin/lazyfree-e2e", &binaries.end_to_end);
    archive.program("bin/lazyfree-matrix", &binaries.matrix);
    archive.program("bin/lazyfree-bench", &binaries.bench);
    archive.program("bin/busybox", Path::new(BUSYBOX));
    let mut list = Command::new(BUSYBOX);
    list.arg("--list");
    for applet in step::ask(list)?.lines() {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    let modules = kernel.zram_modules()?;
    for module in &modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.copy(&format!("{}/{name}", job::MODULES), module)?;
    }
    archive.bytes(job::COMMAND, job::encode_command(&job.command));
    if let Some(terminal) = &job.terminal {
        archive.bytes(job::TERMINAL, terminal.encode().into_bytes());
    }
    if let Some(mib) = job.swap_mib {
        ensure!(
            !modules.is_empty(),
            "no swap under kernel {}: Debian's archive no longer holds its modules, of which zram \
             is one",
            kernel.series
        );
        archive.bytes(job::SWAP_MIB, mib.to_string().into_bytes());
    }
    for HostFile { host, guest } in &job.files {
        archive.copy(guest, host)?;
    }
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    archive.write(BufWriter::new(file))
}

/// The last lines of a file, each ended by a newline.
fn tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
    last.iter().map(|line| format!("  {}\n", line.trim_end())).collect()
}

fn keep_console(cache: &Cache, kernel: &Kernel, console: &Path) -> Result<PathBuf> {
    let kept = cache.path(format!("console-{}.log", kernel.series));
    fs::rename(console, &kept).context("cannot keep the console")?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow_events(events: Vec<Event>) -> Result<u8> {
        let (sender, receiver) = channel();
        for event in events {
            sender.send(event).expect("the receiver is here");
        }
        drop(sender);
        follow(&receiver, None, || ())
    }

    fn exit(status: u8, output_bytes: u64, error_bytes: u64) -> Event {
        Event::Report(Report::Exit(Exit { status, output_bytes, error_bytes }))
    }

    fn message(result: Result<u8>) -> String {
        result.map(|status| status.to_string()).expect_err("an error").to_string()
    }

    #[test]
    fn the_status_waits_for_all_output() -> Result<()> {
        let early = vec![
            Event::Report(Report::Ready),
            exit(7, 10, 4),
            Event::Received(Stream::Error, 4),
            Event::Received(Stream::Output, 6),
            Event::Received(Stream::Output, 10),
        ];
        assert_eq!(follow_events(early)?, 7);
        let silent = vec![Event::Report(Report::Ready), exit(0, 0, 0)];
        assert_eq!(follow_events(silent)?, 0);
        Ok(())
    }

    #[test]
    fn lost_output_is_an_error() {
        let torn = vec![
            Event::Report(Report::Ready),
            exit(0, 10, 0),
            Event::Received(Stream::Output, 6),
            Event::Closed,
            Event::Closed,
            Event::Closed,
        ];
        assert!(message(follow_events(torn)).contains("before all of the command's output"));
    }

    #[test]
    fn a_guest_that_dies_or_gives_up_is_an_error() {
        let died = vec![Event::Report(Report::Ready), Event::Closed, Event::Closed, Event::Closed];
        assert!(message(follow_events(died)).contains("without a report"));
        let gave_up = vec![Event::Report(Report::Failed("no /proc".into()))];
        assert!(message(follow_events(gave_up)).contains("no /proc"));
    }

    #[test]
    fn an_interruption_is_told_from_a_failure() {
        let status = |events| {
            let error = follow_events(events).expect_err("an error");
            error.downcast_ref::<Interrupted>().map(|interrupted| interrupted.status)
        };
        assert_eq!(status(vec![Event::Signal(15)]), Some(143));
        assert_eq!(status(vec![Event::Escape]), Some(130));
        let pipe = std::io::Error::from(ErrorKind::BrokenPipe);
        assert_eq!(status(vec![Event::Unwritable(pipe)]), Some(141));
        assert_eq!(status(vec![Event::Closed, Event::Closed, Event::Closed]), None);
    }
}
