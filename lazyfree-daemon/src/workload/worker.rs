//! The process that does the work: confined, first in line for the OOM killer, bound to one CPU.
//!
//! It talks to its supervisor on standard output, a line at a time. A JSON object is a report; a
//! JSON string is the reason why it failed.

use std::{
    ffi::CString,
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{CpuSet, sched_getcpu, sched_setaffinity, set_name},
};
use serde::{Deserialize, Serialize};

use super::{
    Command, Common, Workload, bomb,
    session::{Confinement, Session},
};

/// What a process that was started by another one is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Run a workload.
    Work {
        /// Which one.
        command: Command,
        /// Where the supervisor wants it.
        confinement: Confinement,
    },
    /// Be one process of the bomb.
    Explode(bomb::Charge),
}

impl Job {
    /// The arguments that make the binary do it.
    pub fn arguments(&self) -> Result<[String; 3]> {
        let json = serde_json::to_string(self).context("cannot write the job as JSON")?;
        Ok(["workload".into(), "internal".into(), json])
    }
}

/// Does a job, given as JSON.
pub fn run(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job)
        .context("not a job; `workload internal` is only for the program itself")?;
    // Whatever becomes of the parent, nothing of the workload stays behind.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie up with the parent")?;
    match job {
        Job::Explode(charge) => {
            rename("bomb")?;
            charge.explode()
        }
        Job::Work { command, confinement } => {
            let workload = command.workload().context("not a workload")?;
            if let Err(error) = work(workload, confinement) {
                println!("{}", serde_json::Value::from(format!("{error:#}")));
            }
            Ok(())
        }
    }
}

fn work(workload: &dyn Workload, confinement: Confinement) -> Result<()> {
    if let Confinement::Cgroup(cgroup) = &confinement {
        cgroup.join()?;
    }
    fs::write("/proc/self/oom_score_adj", "1000").context("cannot raise oom_score_adj")?;
    let comm = rename(workload.name())?;
    if workload.is_single() {
        bind_to_this_cpu()?;
    }
    let Common { hold, .. } = workload.common();
    let session = Session::new(workload.name(), comm, confinement, hold.unwrap_or_default());
    let schedule = Schedule::of(workload.common());
    let started = Instant::now();
    for run in 1.. {
        workload.run(&session)?;
        match schedule.until_next(run, started.elapsed()) {
            Some(pause) => thread::sleep(pause),
            None => break,
        }
    }
    Ok(())
}

/// Names the process, which is called `exe` after the link it was started by.
fn rename(workload: &str) -> Result<String> {
    let comm = format!("lf-{workload}");
    set_name(&CString::new(comm.as_str())?).context("cannot set the process's name")?;
    Ok(comm)
}

/// One CPU means one set of folio batches, which draining then empties for certain.
fn bind_to_this_cpu() -> Result<()> {
    let mut set = CpuSet::new();
    set.set(sched_getcpu());
    sched_setaffinity(None, &set).context("cannot bind to a CPU")
}

/// When runs start.
#[derive(Debug, PartialEq, Eq)]
struct Schedule {
    /// Time from start to start.
    every: Duration,
    /// No run starts after this much time; `None` is forever.
    until: Option<Duration>,
}

impl Schedule {
    fn of(common: &Common) -> Self {
        let until = match (common.repeat, common.every) {
            (None, None) => Some(Duration::ZERO),
            (Some(Duration::ZERO), _) | (None, Some(_)) => None,
            (until, _) => until,
        };
        Self { every: common.every.unwrap_or_default(), until }
    }

    /// How long to wait after run `run` has ended, `elapsed` after the first began; `None` when it
    /// was the last.
    fn until_next(&self, run: u32, elapsed: Duration) -> Option<Duration> {
        let next = (self.every * run).max(elapsed);
        match self.until {
            Some(until) if next >= until => None,
            _ => Some(next - elapsed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule(repeat: Option<Duration>, every: Option<Duration>) -> Schedule {
        Schedule::of(&Common { hold: None, repeat, every })
    }

    #[test]
    fn once_unless_told_otherwise() {
        assert_eq!(schedule(None, None).until_next(1, Duration::ZERO), None);
    }

    #[test]
    fn every_keeps_its_beat_however_long_a_run_takes() {
        let forever = schedule(None, Some(SECOND));
        assert_eq!(forever.until_next(3, SECOND * 5 / 2), Some(SECOND / 2));
        assert_eq!(forever.until_next(3, SECOND * 7), Some(Duration::ZERO));
    }

    #[test]
    fn repeat_ends_in_time_and_zero_never_does() {
        let limited = schedule(Some(SECOND * 2), Some(SECOND));
        assert_eq!(limited.until_next(1, SECOND / 2), Some(SECOND / 2));
        assert_eq!(limited.until_next(2, SECOND * 3 / 2), None);
        let busy = schedule(Some(SECOND), None);
        assert_eq!(busy.until_next(9, SECOND / 2), Some(Duration::ZERO));
        assert_eq!(busy.until_next(10, SECOND), None);
        assert!(schedule(Some(Duration::ZERO), None).until_next(1, SECOND * 99).is_some());
    }
}
