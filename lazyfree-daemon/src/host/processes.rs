//! Lazyfree memory that is still resident, process by process, from `/proc/PID/smaps_rollup`.
//!
//! The kernel walks all page tables of the process for it, with its `mmap_lock` held: some 10 us,
//! and 5 us for each MiB that is resident in base pages. So the processes take turns.

use std::{
    collections::BTreeSet,
    fs::{self, File, ReadDir},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    time::Duration,
};

use super::{ration::Ration, rounds::Rounds, timed};
use crate::sample::ProcessSample;

/// Processes that a search keeps at most.
const MAX_FOUND: usize = 1024;

/// Time from the start of one search through `/proc` to that of the next.
const SEARCH_EVERY: Duration = Duration::from_secs(10);

/// What the first search may cost: enough to go through all of a usual host.
const FIRST_SEARCH: Duration = Duration::from_millis(100);

/// Inode of the initial pid namespace: `PROC_PID_INIT_INO`, part of the kernel's interface.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What was read of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Memory {
    comm: String,
    rollup: Rollup,
}

/// The lines of `smaps_rollup` that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rollup {
    rss_kb: u64,
    lazyfree_kb: u64,
}

impl Rollup {
    /// `None` if it is cut short, as that of a process that is just ending may be.
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
            values.next()?.trim().strip_suffix(" kB")?.parse().ok()
        };
        Some(Self { rss_kb: value("Rss:")?, lazyfree_kb: value("LazyFree:")? })
    }
}

/// Pending lazyfree memory of processes, kept from one reading to the next.
#[derive(Debug)]
pub struct Pending {
    rounds: Rounds<u32, Memory>,
    /// Of those that the caller names, the ones that turned out to be gone or closed to us.
    unreadable: BTreeSet<u32>,
    ration: Ration,
    search: Search,
}

/// A search through `/proc` for processes that have lazyfree memory, a stretch each tick.
#[derive(Debug)]
struct Search {
    ration: Ration,
    /// Where it is; `None` between two searches.
    entries: Option<ReadDir>,
    /// When it began.
    began: Option<Duration>,
}

impl Pending {
    /// Takes `share` of CPU time for each reading at most, on average.
    pub fn new(share: Duration) -> Self {
        let search = share / 4;
        let turns = share - search;
        Self {
            rounds: Rounds::new(),
            unreadable: BTreeSet::new(),
            ration: Ration::new(turns, turns),
            search: Search {
                ration: Ration::new(search, FIRST_SEARCH),
                entries: None,
                began: None,
            },
        }
    }

    /// Reads some of the processes that the caller names, and forgets all others. One that can't be
    /// read isn't tried again as long as it is named: callers name processes long after their end.
    pub fn read(&mut self, tgids: impl IntoIterator<Item = u32>) {
        let mut wanted: BTreeSet<u32> = tgids.into_iter().collect();
        self.unreadable.retain(|tgid| wanted.remove(tgid));
        self.rounds.keep_only(wanted);
        self.take_turns();
    }

    /// Looks for processes that have lazyfree memory among those that may be read, and reads some
    /// of those found. A process that had some stays, until it ends or its place is needed. `now` is
    /// of any clock that doesn't step.
    pub fn search(&mut self, now: Duration) {
        self.take_turns();
        // A later process may get the same tgid.
        self.unreadable.clear();
        let Self { rounds, search, .. } = self;
        search.ration.begin();
        if search.entries.is_none() {
            let due = search.began.is_none_or(|began| now.saturating_sub(began) >= SEARCH_EVERY);
            if !due {
                return;
            }
            search.began = Some(now);
            search.entries = fs::read_dir("/proc").ok();
            if rounds.len() >= MAX_FOUND {
                rounds.retain(|memory| memory.rollup.lazyfree_kb > 0);
            }
        }
        while search.ration.is_left() {
            let (entry, cost) = timed(|| search.entries.as_mut()?.next());
            search.ration.spend(cost);
            let Some(entry) = entry.filter(|_| rounds.len() < MAX_FOUND) else {
                search.entries = None;
                return;
            };
            let name = entry.ok().and_then(|entry| entry.file_name().into_string().ok());
            let Some(tgid) = name.and_then(|name| name.parse().ok()) else { continue };
            if rounds.contains(&tgid) {
                continue;
            }
            let (memory, cost) = timed(|| read(tgid));
            search.ration.spend(cost);
            if let Some(memory) = memory.filter(|memory| memory.rollup.lazyfree_kb > 0) {
                rounds.insert(tgid, memory);
            }
        }
    }

    /// What was read last of each, in the order of their tgids.
    pub fn rows(&self) -> Vec<ProcessSample> {
        let row = |(tgid, memory): (&u32, &Memory)| ProcessSample {
            tgid: *tgid,
            comm: memory.comm.clone(),
            calls: None,
            advised_pages: None,
            rss_kb: Some(memory.rollup.rss_kb),
            lazyfree_kb: Some(memory.rollup.lazyfree_kb),
        };
        self.rounds.iter().map(row).collect()
    }

    fn take_turns(&mut self) {
        self.ration.begin();
        self.rounds.turn(&mut self.ration, |tgid, _| {
            let (memory, cost) = timed(|| read(*tgid));
            if memory.is_none() {
                self.unreadable.insert(*tgid);
            }
            (memory, cost)
        });
    }
}

/// Whether the pids in `/proc` are those that probes see, which are of the initial namespace.
pub fn pids_are_initial() -> bool {
    let namespace = fs::metadata("/proc/self/ns/pid");
    namespace.is_ok_and(|namespace| namespace.ino() == INITIAL_PID_NAMESPACE)
}

/// Reads one process. `None` if it is gone, has no memory of its own or may not be read.
fn read(tgid: u32) -> Option<Memory> {
    // Large enough that the kernel gives all of it at once.
    let mut text = String::with_capacity(2048);
    let mut file = File::open(format!("/proc/{tgid}/smaps_rollup")).ok()?;
    file.read_to_string(&mut text).ok()?;
    let rollup = Rollup::parse(&text)?;
    let comm = fs::read(format!("/proc/{tgid}/comm")).ok()?;
    let comm = String::from_utf8_lossy(&comm).trim_end_matches('\n').to_owned();
    Some(Memory { comm, rollup })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 5.10 prints it; later kernels put lines in between.
    const ROLLUP: &str = "\
55f87feb5000-7ffe03a00000 ---p 00000000 00:00 0                          [rollup]
Rss:               16012 kB
Pss:                 291 kB
Pss_Anon:            112 kB
Anonymous:         15112 kB
LazyFree:           4096 kB
AnonHugePages:         0 kB
Locked:                0 kB
";

    #[test]
    fn takes_the_two_lines_wherever_they_are() {
        assert_eq!(Rollup::parse(ROLLUP), Some(Rollup { rss_kb: 16_012, lazyfree_kb: 4096 }));
    }

    #[test]
    fn half_a_text_is_no_reading() {
        let (half, _) = ROLLUP.split_once("LazyFree").unwrap();
        assert_eq!(Rollup::parse(half), None);
        assert_eq!(Rollup::parse(""), None);
        assert_eq!(Rollup::parse("Rss: 1 kB\nLazyFree: many kB\n"), None);
    }
}
