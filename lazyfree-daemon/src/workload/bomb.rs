//! Touches memory and gives it back in a loop, in several processes: MADV_FREE against
//! MADV_DONTNEED.
//!
//! The case in which MADV_FREE was argued for, and against, when it was new. With memory to spare,
//! FREE saves the page faults and the zeroing of every loop, for the pages are still there, and
//! marks them once. Under pressure they are reclaimed meanwhile, and it saves nothing.
//!
//! The pressure is of the bomb's own making: its cgroup may use less than its processes mark
//! together. They take turns then, from the first touch of a loop to the end of its madvise, so that
//! all but one process's memory can be reclaimed at any time, and a host without swap has nobody to
//! kill.

use std::{
    fs::File,
    io::Read as _,
    process::{Child, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use rustix::{
    fs::{FlockOperation, flock},
    mm::Advice,
    thread::sched_getaffinity,
};
use serde::{Deserialize, Serialize};

use super::{
    Common, Workload, budget::Budget, expect::Expectation, region::Region, session::Session,
    worker::Job,
};
use crate::signal::Signal;

/// `lazyfree workload bomb`
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Bomb {
    /// How memory is given back
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    policy: Policy,
    /// Processes at a time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024))]
    procs: u64,
    /// Bytes that each process touches in a loop, such as 64M [default: 64M, or what the machine allows]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    size: Option<u64>,
    /// Times that each process touches its memory and gives it back
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    loops: u64,
    /// Bytes that the processes may use together, such as 96M, so that the kernel has to reclaim; none
    /// for no limit [default: three quarters of what they touch]
    #[arg(long, value_name = "BYTES", value_parser = limit)]
    limit: Option<Limit>,
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// What the processes may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// As much as there is.
    None,
    /// So many bytes.
    Bytes(u64),
}

/// How memory is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// MADV_FREE
    Free,
    /// MADV_DONTNEED
    Dontneed,
    /// One after the other
    Both,
}

/// What one process of the bomb is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Charge {
    free: bool,
    pages: u64,
    loops: u64,
    /// Whether it has its memory to itself until it has given it back.
    turns: bool,
}

/// What one process of the bomb used.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Usage {
    user_s: f64,
    system_s: f64,
}

/// What came of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    policy: Policy,
    elapsed_s: f64,
    /// CPU time of all processes together.
    user_s: f64,
    system_s: f64,
    /// Movements of vmstat meanwhile.
    marked: u64,
    hit: u64,
    swapped_in: u64,
}

const DEFAULT_SIZE: u64 = 64 << 20;

/// What the processes need beside the memory that they touch: programs, stacks, page tables, in bytes.
const OVERHEAD: u64 = 32 << 20;

impl Bomb {
    /// Fills in the size if it was left open.
    pub fn sized(self, budget: &Budget) -> Self {
        let page_size = rustix::param::page_size() as u64;
        let share = (budget.modest() / self.procs / page_size).max(1) * page_size;
        Self { size: Some(self.size.unwrap_or(DEFAULT_SIZE.min(share))), ..self }
    }

    fn is_limited(&self, session: &Session) -> Result<bool> {
        Ok(session.cgroup().is_ok() && self.limit_bytes()?.is_some())
    }

    fn pages(&self, page_size: u64) -> Result<u64> {
        let pages = self.size.context("no size")? / page_size;
        ensure!(pages > 0, "--size is less than a page of {page_size} bytes");
        Ok(pages)
    }

    /// The limit in force, in bytes, where there is a cgroup.
    fn limit_bytes(&self) -> Result<Option<u64>> {
        let size = self.size.context("no size")?;
        let least = size + OVERHEAD;
        let total = super::bytes(size, self.procs)?;
        match self.limit {
            Some(Limit::None) => Ok(None),
            Some(Limit::Bytes(bytes)) => {
                ensure!(
                    bytes >= least,
                    "--limit {bytes} is too little for one process with {size} bytes: give at least \
                     {}M",
                    least.div_ceil(1 << 20)
                );
                Ok((bytes < total).then_some(bytes))
            }
            None => {
                let bytes = (total / 4 * 3).max(least);
                Ok((bytes < total).then_some(bytes))
            }
        }
    }

    /// Runs all processes with one policy.
    fn explode(&self, session: &Session, policy: Policy, pages: u64) -> Result<Outcome> {
        let charge = Charge {
            free: policy == Policy::Free,
            pages,
            loops: self.loops,
            turns: self.is_limited(session)?,
        };
        let counters = session.start()?;
        let clock = Instant::now();
        let mut children = Children::default();
        for _ in 0..self.procs {
            children.0.push(ignite(charge)?);
        }
        let mut total = Usage::default();
        for child in &mut children.0 {
            let usage = outcome(child)?;
            total.user_s += usage.user_s;
            total.system_s += usage.system_s;
        }
        let elapsed_s = clock.elapsed().as_secs_f64();
        let report = session.finish(&counters, None)?;
        let moved = |name| report.observed.get(name).unwrap_or(0);
        Ok(Outcome {
            policy,
            elapsed_s,
            user_s: total.user_s,
            system_s: total.system_s,
            marked: moved("pglazyfree"),
            hit: moved("pglazyfreed"),
            swapped_in: moved("pswpin"),
        })
    }
}

impl Workload for Bomb {
    fn name(&self) -> &'static str {
        "bomb"
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bytes(&self, page_size: u64) -> Result<u64> {
        super::bytes(self.pages(page_size)? * page_size, self.procs)
    }

    fn limit(&self, _page_size: u64) -> Result<Option<u64>> {
        self.limit_bytes()
    }

    fn is_single(&self) -> bool {
        false
    }

    fn run(&self, session: &Session) -> Result<()> {
        let pages = self.pages(rustix::param::page_size() as u64)?;
        let policies: &[Policy] = match self.policy {
            Policy::Both => &[Policy::Free, Policy::Dontneed],
            Policy::Free => &[Policy::Free],
            Policy::Dontneed => &[Policy::Dontneed],
        };
        let start = session.start()?;
        let outcomes: Result<Vec<_>> =
            policies.iter().map(|&policy| self.explode(session, policy, pages)).collect();
        let mut report = session.finish(&start, None)?;
        report.policies = outcomes?;
        let mut expectation = Expectation::default();
        let Expectation { exact, at_least, at_most } = &mut expectation;
        if policies.contains(&Policy::Free) {
            let advised = self.procs * self.loops * pages;
            exact.set(Signal::Advised.name(), advised);
            // A page is marked again only if it was reclaimed meanwhile. Under a limit it may have
            // been swapped out instead of being marked.
            if !self.is_limited(session)? {
                let unmarked = pages.min(most_out_of_reach()?);
                at_least.set(Signal::Marked.name(), self.procs * (pages - unmarked));
            }
            at_most.set(Signal::Marked.name(), advised);
        } else {
            exact.set(Signal::Advised.name(), 0);
            exact.set(Signal::Marked.name(), 0);
        }
        report.expect(expectation);
        if let Some(bytes) = self.limit_bytes()?.filter(|_| session.cgroup().is_ok()) {
            report.observed.set("limit_bytes", bytes);
        }
        report.observed.set("procs", self.procs);
        report.observed.set("loops", self.loops);
        report.observed.set("pages_per_proc", pages);
        session.publish(report)
    }
}

/// Pages of one process that MADV_FREE passes over at most, call after call, if the process is moved
/// to another CPU: they aren't on a list of the LRU while they wait in the batch of the CPU they were
/// touched on, and `madvise_free_single_vma` drains only the batches of its own.
fn most_out_of_reach() -> Result<u64> {
    /// `PAGEVEC_SIZE` of newer kernels; older ones have 15.
    const BATCH: u64 = 31;
    let cpus = sched_getaffinity(None).context("cannot see on which CPUs we may run")?.count();
    Ok(BATCH * u64::from(cpus.saturating_sub(1)))
}

impl Charge {
    /// Is one process of the bomb; prints what it used as JSON.
    pub fn explode(self) -> Result<()> {
        let region = Region::of_base_pages(self.pages)?;
        let advice = if self.free { Advice::LinuxFree } else { Advice::LinuxDontNeed };
        // The kernel lets go of it if the process dies.
        let turns = self.turns.then(|| File::open("/proc/self/exe")).transpose();
        let turns = turns.context("cannot open /proc/self/exe")?;
        let turn = |operation| match &turns {
            Some(file) => flock(file, operation).context("cannot take turns"),
            None => Ok(()),
        };
        let before = Usage::now()?;
        for _ in 0..self.loops {
            turn(FlockOperation::LockExclusive)?;
            region.touch();
            region.advise(advice)?;
            turn(FlockOperation::Unlock)?;
        }
        let after = Usage::now()?;
        let used = Usage {
            user_s: after.user_s - before.user_s,
            system_s: after.system_s - before.system_s,
        };
        println!("{}", serde_json::to_string(&used).context("cannot write the usage as JSON")?);
        Ok(())
    }
}

impl Usage {
    fn now() -> Result<Self> {
        // SAFETY: all-zero is a valid rusage, a struct of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a rusage that lives long enough.
        let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0;
        ensure!(!failed, "getrusage: {}", std::io::Error::last_os_error());
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Ok(Self { user_s: seconds(usage.ru_utime), system_s: seconds(usage.ru_stime) })
    }
}

/// Processes of the bomb, stopped when dropped.
#[derive(Default)]
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already, as all have unless something failed, isn't signalled.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn ignite(charge: Charge) -> Result<Child> {
    std::process::Command::new("/proc/self/exe")
        .args(Job::Explode(charge).arguments()?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process of the bomb")
}

fn outcome(child: &mut Child) -> Result<Usage> {
    let mut json = String::new();
    let mut output = child.stdout.take().context("a process of the bomb has no output")?;
    output.read_to_string(&mut json).context("cannot hear a process of the bomb")?;
    let status = child.wait().context("cannot wait for a process of the bomb")?;
    ensure!(status.success(), "a process of the bomb failed: {status}");
    serde_json::from_str(&json).context("a process of the bomb said something strange")
}

/// Reads a number of bytes, or `none`.
fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit::None) } else { size(text).map(Limit::Bytes) }
}

/// Reads a number of bytes with an optional suffix K, M or G, powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} isn't a number of bytes"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("3k"), Ok(3 << 10));
        assert_eq!(size("2G"), Ok(2 << 30));
        assert!(size("M").is_err() && size("1T").is_err() && size("99999999999G").is_err());
    }

    #[test]
    fn the_limit_leaves_room_for_one_process_and_not_for_all() {
        const MIB: u64 = 1 << 20;
        let bomb = |procs, size: u64, limit| Bomb {
            policy: Policy::Both,
            procs,
            size: Some(size * MIB),
            loops: 1,
            limit,
            common: Common::default(),
        };
        for (procs, size, limit, expected) in [
            (2, 64, None, Some(96)),
            (4, 64, None, Some(192)),
            // Three quarters would be less than one process and the overhead.
            (2, 40, None, Some(72)),
            // Nothing less than all would do.
            (2, 32, None, None),
            (1, 512, None, None),
            (2, 64, Some(Limit::None), None),
            (2, 64, Some(Limit::Bytes(100 * MIB)), Some(100)),
            (2, 64, Some(Limit::Bytes(128 * MIB)), None),
        ] {
            let found = bomb(procs, size, limit).limit_bytes().unwrap();
            assert_eq!(found, expected.map(|mib: u64| mib * MIB), "{procs} x {size}");
        }
        let error = bomb(2, 64, Some(Limit::Bytes(MIB))).limit_bytes().unwrap_err();
        assert!(error.to_string().contains("at least 96M"), "{error}");
        assert_eq!(limit("none"), Ok(Limit::None));
        assert_eq!(limit("96M"), Ok(Limit::Bytes(96 * MIB)));
        assert!(limit("some").is_err());
    }

    #[test]
    fn the_default_size_keeps_within_the_budget() {
        let bomb = Bomb {
            policy: Policy::Both,
            procs: 4,
            size: None,
            loops: 1,
            limit: None,
            common: Common::default(),
        };
        let page_size = rustix::param::page_size() as u64;
        for available in [64 << 20, 64 << 30] {
            let budget = Budget { available, confined: true };
            let bytes = bomb.clone().sized(&budget).bytes(page_size).unwrap();
            assert!(bytes > 0 && bytes <= available / 4, "{bytes} of {available}");
        }
    }
}
