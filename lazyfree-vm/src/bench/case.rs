//! What is timed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use serde_json::Value;

use crate::workloads::{Needs, report};

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Pages that it works on.
    pub pages: u64,
    /// What it needs.
    pub needs: Needs,
    work: Work,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    /// `lazyfree workload` with these arguments, timed by itself.
    Workload(&'static str),
    /// Reclaim of ordinary anonymous memory; only the reclaim is timed.
    AnonPageout,
}

/// All of them.
const CASES: [Case; 7] = [
    workload("mark", 32_768, "mark --pages 32768"),
    workload("reclaim", 8192, "mark --pages 8192 --trigger memcg"),
    workload("reclaim_pageout", 8192, "mark --pages 8192 --trigger pageout"),
    workload("redirty", 8192, "redirty --pages 8192 --trigger memcg"),
    workload("pin", 8192, "pin --pages 8192"),
    Case { name: "no_lazyfree", pages: 16_384, needs: Needs::Swap, work: Work::AnonPageout },
    workload("compact_pinned", 8192, "compact --pages 8192"),
];

const fn workload(name: &'static str, pages: u64, arguments: &'static str) -> Case {
    Case { name, pages, needs: Needs::Nothing, work: Work::Workload(arguments) }
}

/// The cases with these names, all of them if there is none.
pub fn named(names: &[String]) -> Result<Vec<Case>> {
    if names.is_empty() {
        return Ok(CASES.into());
    }
    let find = |name: &String| {
        let case = CASES.into_iter().find(|case| case.name == name);
        case.with_context(|| {
            let known = CASES.map(|case| case.name).join(", ");
            format!("no case {name}; there are {known}")
        })
    };
    names.iter().map(find).collect()
}

impl Case {
    /// Does it once; returns how long it took.
    pub fn run(&self) -> Result<Duration> {
        match self.work {
            Work::Workload(arguments) => {
                let report = report(arguments)?;
                let seconds = report.get("seconds").and_then(Value::as_f64);
                Ok(Duration::from_secs_f64(seconds.context("the workload's report has no time")?))
            }
            Work::AnonPageout => pageout(self.pages as usize * rustix::param::page_size()),
        }
    }
}

/// Touches anonymous memory, and times how long MADV_PAGEOUT takes with it. The pages compress to
/// next to nothing: no swap is faster, so that the share of probes is the largest it can be.
fn pageout(bytes: usize) -> Result<Duration> {
    let step = rustix::param::page_size();
    // SAFETY: a fresh mapping, which nothing else knows of, and which is used within its bounds.
    unsafe {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let start = mmap_anonymous(std::ptr::null_mut(), bytes, access, kind)
            .context("cannot map memory")?;
        for offset in (0..bytes).step_by(step) {
            start.cast::<u8>().add(offset).write_volatile(1);
        }
        let begun = Instant::now();
        let done = madvise(start, bytes, Advice::LinuxPageOut);
        let elapsed = begun.elapsed();
        munmap(start, bytes).context("cannot unmap memory")?;
        if let Err(error) = done {
            bail!("MADV_PAGEOUT: {error}");
        }
        Ok(elapsed)
    }
}
