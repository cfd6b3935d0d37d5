//! The process that is started by hand: confines a worker, passes its reports on, cleans up.

use std::{
    io::{Write as _, stdout},
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdout},
    runtime, select,
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    Command, budget::Budget, cgroup::Cgroup, hierarchy::Hierarchy, session::Confinement,
    worker::Job,
};

/// Runs a workload in a process of its own, and waits for it.
pub fn run(command: Command) -> Result<()> {
    // The runtime has a thread to itself, so that a caller may have one of its own.
    thread::scope(|scope| {
        let supervisor = scope.spawn(|| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("cannot start the runtime")?.block_on(supervise(command))
        });
        supervisor.join().map_err(|_| anyhow!("the supervisor of the workload panicked"))?
    })
}

async fn supervise(command: Command) -> Result<()> {
    // Before the cgroup is made, so that no signal finds it without somebody to remove it.
    let stop = Stop::new()?;
    let hierarchy = Hierarchy::find();
    let cgroup = hierarchy.as_ref().map_err(String::clone).and_then(Cgroup::create);
    let result = match Budget::read(hierarchy.as_ref().ok(), cgroup.is_ok()) {
        Ok(budget) => work(command.sized(&budget), &budget, cgroup.clone(), stop).await,
        Err(error) => Err(error),
    };
    match cgroup {
        Ok(cgroup) => result.and(cgroup.remove()),
        Err(_) => result,
    }
}

async fn work(
    command: Command,
    budget: &Budget,
    cgroup: Result<Cgroup, String>,
    mut stop: Stop,
) -> Result<()> {
    let workload = command.workload().context("not a workload")?;
    let page_size = rustix::param::page_size() as u64;
    let bytes = workload.bytes(page_size)?;
    budget.check(bytes)?;
    let safe = Budget::limit(bytes);
    let limit = workload.limit(page_size)?.map_or(safe, |limit| limit.min(safe));
    if let Ok(cgroup) = &cgroup {
        cgroup.limit(limit)?;
    }
    let confinement = cgroup.map_or_else(Confinement::None, Confinement::Cgroup);
    let mut worker = start(&Job::Work { command, confinement })?;
    let output = worker.stdout.take().context("the worker has no output")?;
    let mut pass = Pass::new(output);
    let stopped = select! {
        passed = pass.all() => { passed?; None }
        name = stop.wait() => Some(name),
    };
    if let Some(name) = stopped {
        worker.start_kill().context("cannot stop the worker")?;
        worker.wait().await.context("cannot wait for the worker")?;
        // A workload that repeats or holds its memory is ended like this.
        return if pass.reports > 0 { Ok(()) } else { Err(anyhow!("stopped by {name}")) };
    }
    let status = worker.wait().await.context("cannot wait for the worker")?;
    verdict(pass, status, limit)
}

/// `/proc/self/exe` is this very binary, even if its file was replaced since.
fn start(job: &Job) -> Result<Child> {
    tokio::process::Command::new("/proc/self/exe")
        .arg0("lazyfree")
        .args(job.arguments()?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A ^C at the terminal is for the supervisor alone, which then ends the worker in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the worker")
}

fn verdict(pass: Pass, status: ExitStatus, limit: u64) -> Result<()> {
    if let Some(failure) = pass.failure {
        bail!(failure);
    }
    match status.signal() {
        Some(signal) => bail!(
            "the worker was killed by signal {signal}; if that was the OOM killer, the workload \
             reached its limit of {} MiB: use less memory",
            limit >> 20
        ),
        None if !status.success() => bail!("the worker failed: {status}"),
        None => Ok(()),
    }
}

/// The worker's lines on their way to standard output.
struct Pass {
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
    reports: u64,
    failure: Option<String>,
}

impl Pass {
    fn new(output: ChildStdout) -> Self {
        Self { lines: BufReader::new(output).lines(), reports: 0, failure: None }
    }

    async fn all(&mut self) -> Result<()> {
        while let Some(line) = self.lines.next_line().await.context("cannot hear the worker")? {
            match serde_json::from_str(&line) {
                Ok(serde_json::Value::String(failure)) => self.failure = Some(failure),
                _ => {
                    let mut stdout = stdout().lock();
                    writeln!(stdout, "{line}")
                        .and_then(|()| stdout.flush())
                        .context("cannot print the report")?;
                    self.reports += 1;
                }
            }
        }
        Ok(())
    }
}

/// The signals that ask for an end.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    fn new() -> Result<Self> {
        let on = |kind| signal(kind).context("cannot watch for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) -> &'static str {
        select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
