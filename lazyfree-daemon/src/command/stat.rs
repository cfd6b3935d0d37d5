//! `lazyfree stat`: counts one interval, or the run of a command.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{ProbeArgs, asked_to_end, runtime};
use crate::{
    export::json::{CommandOutcome, Report},
    model::Model,
    source::{Live, LiveOptions, Source as _},
};

/// Exit status of a command that can't be run, as shells have it.
const NOT_FOUND: u8 = 127;

/// Arguments of `lazyfree stat`.
#[derive(Clone, Debug, Args)]
pub struct StatArgs {
    /// Time to count, if no command is given
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Write the report to a file; otherwise it goes to stdout, with a command to stderr
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What to attach
    #[command(flatten)]
    pub probes: ProbeArgs,
    /// Count from before this command starts until after it has ended, and pass on its exit status
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "duration")]
    pub command: Vec<OsString>,
}

/// Where the report goes.
enum Output {
    Stdout,
    Stderr,
    File(File, PathBuf),
}

impl Output {
    fn open(args: &StatArgs) -> anyhow::Result<Self> {
        match &args.output {
            Some(path) => {
                let file = File::create(path)
                    .with_context(|| format!("cannot create {}", path.display()))?;
                Ok(Output::File(file, path.clone()))
            }
            None if args.command.is_empty() => Ok(Output::Stdout),
            None => Ok(Output::Stderr),
        }
    }

    fn write(self, text: &str) -> anyhow::Result<()> {
        match self {
            Output::Stdout => io::stdout().lock().write_all(text.as_bytes()).context("stdout"),
            Output::Stderr => io::stderr().lock().write_all(text.as_bytes()).context("stderr"),
            Output::File(mut file, path) => file
                .write_all(text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display())),
        }
    }
}

/// Counts, reports, and returns the command's exit status or 0.
pub fn stat(args: &StatArgs) -> anyhow::Result<ExitCode> {
    let output = Output::open(args)?;
    let (report, status) = runtime()?.block_on(count(args))?;
    // The table has the line itself, and a report on stderr is to be read as a whole.
    if args.json && report.degraded && !matches!(output, Output::Stderr) {
        tracing::warn!("{}", report.summary);
    }
    let mut text = if args.json { serde_json::to_string(&report)? } else { report.to_string() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    output.write(&text)?;
    Ok(status)
}

async fn count(args: &StatArgs) -> anyhow::Result<(Report, ExitCode)> {
    // The interval is not used: there is one sample before and one after.
    let options = LiveOptions { probes: args.probes.into(), interval: Duration::from_secs(1) };
    let mut live = Live::open(options)?;
    let first = live.read()?;
    let mut exit = ExitCode::SUCCESS;
    let mut outcome = None;
    if args.command.is_empty() {
        // An interrupt ends the interval early; what was counted until then is reported.
        tokio::select! {
            () = sleep(args.duration) => {}
            ended = asked_to_end() => ended?,
        }
    } else {
        match run_to_end(&args.command).await {
            Ok(status) => {
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                let code = code.unwrap_or(1);
                exit = ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
                outcome = Some(CommandOutcome {
                    argv: args.command.iter().map(|arg| arg.to_string_lossy().into()).collect(),
                    exit_status: code,
                });
            }
            Err(error) => {
                let name = args.command[0].to_string_lossy();
                eprintln!("error: cannot run `{name}`: {error}");
                return Err(super::Exit(NOT_FOUND).into());
            }
        }
    }
    let last = live.read()?;
    let snapshot = Model::new(live.session(), first).advance(last);
    Ok((Report::new(&snapshot, outcome), exit))
}

/// Runs a command. An interrupt from the terminal reaches it directly, and must not end us before
/// the report; a request to end is passed on.
async fn run_to_end(command: &[OsString]) -> io::Result<ExitStatus> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut child = Command::new(&command[0]).args(&command[1..]).spawn()?;
    let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
    loop {
        tokio::select! {
            status = child.wait() => return status,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                // Not waited for yet, so the pid is still the child's.
                if let Some(pid) = pid {
                    let _gone = kill_process(pid, Signal::TERM);
                }
            }
        }
    }
}
