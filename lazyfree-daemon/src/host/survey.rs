//! Readings that cost the host something, within a share of a CPU and on a thread of their own:
//! they may have to wait for the `mmap_lock` of a process that is stuck in reclaim, which must not
//! hold up samples, least of all then.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use super::{
    cgroups::Cgroups,
    processes::{Pending, pids_are_initial},
};
use crate::sample::{CgroupSample, ProcessSample};

/// How long a sample waits for its survey. What comes later is in the next sample.
const PATIENCE: Duration = Duration::from_millis(5);

/// Part of the time between two samples that processes may take in CPU time, and cgroups too.
const SHARE: u32 = 500;

/// The most that a share may be: longer intervals don't make it grow into a stall.
const MAX_SHARE: Duration = Duration::from_millis(2);

/// Processes and cgroups, as they were seen last.
pub struct Survey {
    /// Whether processes are looked for in `/proc`; else those are read that probes saw.
    searches: bool,
    ask: SyncSender<Vec<u32>>,
    answers: Receiver<Findings>,
    /// Whether an answer is still to come.
    asked: bool,
    latest: Findings,
}

#[derive(Debug, Default)]
struct Findings {
    /// In the order of their tgids; only what `smaps_rollup` tells is filled in.
    processes: Vec<ProcessSample>,
    cgroups: Vec<CgroupSample>,
}

impl Survey {
    /// Starts the thread. `searches` is whether processes are looked for in `/proc`, as the probes see
    /// none; `interval` is the time between two samples.
    pub fn start(searches: bool, interval: Duration) -> Self {
        let share = MAX_SHARE.min(interval / SHARE);
        let cgroups = Cgroups::open(share);
        let cgroups =
            cgroups.inspect_err(|reason| tracing::info!("no counts by cgroup: {reason}")).ok();
        let mut surveyor = Surveyor {
            began: Instant::now(),
            searches,
            knows_pids: pids_are_initial(),
            pending: Pending::new(share),
            cgroups,
        };
        let (ask, questions) = sync_channel::<Vec<u32>>(1);
        let (answer, answers) = sync_channel(1);
        let survey = move || {
            for tgids in questions {
                if answer.send(surveyor.look(tgids)).is_err() {
                    return;
                }
            }
        };
        // It ends with the channel. Nobody waits for it, as it may wait for somebody else.
        if let Err(error) = thread::Builder::new().name("survey".to_owned()).spawn(survey) {
            tracing::warn!("no pending memory by process, and no counts by cgroup: {error}");
        }
        Self { searches, ask, answers, asked: false, latest: Findings::default() }
    }

    /// Looks at processes and cgroups, unless it still does from before. `observed` are the
    /// processes that probes saw; those that come back say how much is pending.
    pub fn look(
        &mut self,
        observed: Vec<ProcessSample>,
    ) -> (Vec<ProcessSample>, Vec<CgroupSample>) {
        if self.asked {
            let answer = self.answers.try_recv();
            self.hear(answer.map_err(|none| none == TryRecvError::Disconnected));
        }
        if !self.asked {
            let tgids = observed.iter().map(|row| row.tgid).collect();
            // Fails only if the thread has gone, which the answer will say.
            let _gone = self.ask.send(tgids);
            self.asked = true;
            let answer = self.answers.recv_timeout(PATIENCE);
            self.hear(answer.map_err(|none| none == RecvTimeoutError::Disconnected));
        }
        let mut processes = observed;
        if self.searches {
            processes.clone_from(&self.latest.processes);
        } else {
            complete(&mut processes, &self.latest.processes);
        }
        (processes, self.latest.cgroups.clone())
    }

    /// Takes an answer, or that there is none, because of the thread's end or not.
    fn hear(&mut self, answer: Result<Findings, bool>) {
        match answer {
            Ok(findings) => self.latest = findings,
            // What was seen last won't become true again.
            Err(true) => self.latest = Findings::default(),
            Err(false) => return,
        }
        self.asked = false;
    }
}

/// What runs on the thread.
struct Surveyor {
    began: Instant,
    searches: bool,
    /// Whether the pids that probes see are those of this `/proc`.
    knows_pids: bool,
    pending: Pending,
    cgroups: Option<Cgroups>,
}

impl Surveyor {
    fn look(&mut self, tgids: Vec<u32>) -> Findings {
        let now = self.began.elapsed();
        if self.searches {
            self.pending.search(now);
        } else if self.knows_pids {
            self.pending.read(tgids);
        }
        let cgroups = self.cgroups.as_mut().map(|cgroups| {
            cgroups.read(now);
            cgroups.rows()
        });
        Findings { processes: self.pending.rows(), cgroups: cgroups.unwrap_or_default() }
    }
}

/// Fills in what was seen of each process. What was seen of others is left out: they have been
/// dropped from the probes' tables since.
fn complete(observed: &mut [ProcessSample], seen: &[ProcessSample]) {
    for row in observed {
        let Ok(index) = seen.binary_search_by_key(&row.tgid, |row| row.tgid) else { continue };
        row.rss_kb = seen[index].rss_kb;
        row.lazyfree_kb = seen[index].lazyfree_kb;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_completed_and_none_is_added() {
        let observed = |tgid| ProcessSample {
            tgid,
            comm: "worker".to_owned(),
            calls: Some(3),
            ..ProcessSample::default()
        };
        let seen = |tgid, lazyfree_kb| ProcessSample {
            tgid,
            comm: "after exec".to_owned(),
            rss_kb: Some(100),
            lazyfree_kb: Some(lazyfree_kb),
            ..ProcessSample::default()
        };
        let mut rows = [observed(9), observed(7)];
        complete(&mut rows, &[seen(5, 1), seen(9, 40)]);
        let completed = ProcessSample { rss_kb: Some(100), lazyfree_kb: Some(40), ..observed(9) };
        assert_eq!(rows, [completed, observed(7)]);
    }

    #[test]
    fn a_thread_that_has_gone_leaves_nothing_behind() {
        let (ask, questions) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let process = ProcessSample { tgid: 7, ..ProcessSample::default() };
        let latest = Findings { processes: vec![process], cgroups: Vec::new() };
        let mut survey = Survey { searches: true, ask, answers, asked: true, latest };
        // Busy: what was seen last is shown.
        assert_eq!(survey.look(Vec::new()).0.len(), 1);
        drop((questions, answer));
        assert_eq!(survey.look(Vec::new()).0, []);
    }
}
