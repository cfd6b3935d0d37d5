//! Samples of this host, read from the probes and from `/proc`.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Source;
use crate::{
    host::{self, pressure, survey::Survey},
    kernel::{self, OpenError, Options, Probes, Reading, monotonic_ns},
    sample::{Sample, Session},
};

/// What to attach, and how often to read it.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// For the probes.
    pub probes: Options,
    /// Time from one sample to the next.
    pub interval: Duration,
}

/// Attached probes, where any could be.
pub struct Live {
    probes: Option<Probes>,
    session: Arc<Session>,
    survey: Survey,
    ticks: Interval,
}

impl Live {
    /// Attaches. Must be called inside a tokio runtime.
    pub fn open(options: LiveOptions) -> Result<Self, OpenError> {
        let (probes, session) = kernel::open(options.probes)?;
        host::release_startup_memory();
        let mut ticks = interval(options.interval);
        // After a stall the next sample is due an interval later, not at once for each one missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let survey = Survey::start(session.mode == "procfs", options.interval);
        Ok(Self { probes, session: Arc::new(session), survey, ticks })
    }

    /// Reads a sample now.
    pub fn read(&mut self) -> anyhow::Result<Sample> {
        let memory = host::memory();
        // The throttle threshold of the founding threads: one and a half times what the kernel
        // keeps free.
        let threshold_kb = memory.min_free_kb * 3 / 2;
        // The counters that are compared are read close together, the kernel's on both sides.
        let vmstat = host::vmstat().context("cannot read /proc/vmstat")?;
        let reading = match &mut self.probes {
            Some(probes) => {
                probes.set_throttle_threshold(threshold_kb * 1024 / self.session.page_size);
                probes.read().context("cannot read the probes' counters")?
            }
            None => Reading::default(),
        };
        // Without probes there is nothing to compare.
        let vmstat_after = match &self.probes {
            Some(_) => host::vmstat().context("cannot read /proc/vmstat")?,
            None => vmstat.clone(),
        };
        let (processes, cgroups) = self.survey.look(reading.processes);
        let (self_cpu_seconds, self_rss_bytes) = host::own_use();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Sample {
            time_ns: monotonic_ns(),
            unix_seconds: now.as_secs(),
            counters: reading.counters,
            durations: reading.durations,
            in_flight: reading.in_flight,
            hooks: reading.hooks,
            mglru: Some(kernel::mglru()),
            vmstat,
            vmstat_after,
            lru_batch_pending: reading.lru_batch_pending,
            mem_free_kb: memory.free_kb,
            mem_available_kb: memory.available_kb,
            mem_total_kb: memory.total_kb,
            swap_used_kb: memory.swap_used_kb,
            min_free_kb: memory.min_free_kb,
            pressure: pressure::read(),
            processes,
            cgroups,
            failures: reading.failures,
            self_cpu_seconds,
            self_rss_bytes,
        })
    }
}

impl Source for Live {
    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }

    async fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        self.ticks.tick().await;
        self.read().map(Some)
    }
}
