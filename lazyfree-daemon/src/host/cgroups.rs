//! Lazyfree counts of each memory cgroup, from the `memory.stat` of cgroup v2.
//!
//! Each reading flushes the statistics of all CPUs, and there may be thousands of cgroups: they take
//! turns, and the tree is walked a stretch each tick.
//!
//! They come late by a few pages: 5.10 adds those of a CPU when they are more than 32
//! (`__count_memcg_events`, `MEMCG_CHARGE_BATCH`).

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use procfs::{
    ProcError,
    process::{MountInfo, Process},
};

use super::{ration::Ration, rounds::Rounds, timed};
use crate::sample::CgroupSample;

/// Cgroups that are kept at most: those nearest to the root, whose counts have the others in them.
const MAX_CGROUPS: usize = 1024;

/// Folders that a walk remembers to go to at most.
const MAX_AHEAD: usize = 4 * MAX_CGROUPS;

/// Time from the start of one walk through the tree to that of the next.
const WALK_EVERY: Duration = Duration::from_secs(10);

/// What the first walk may cost: enough for a usual host.
const FIRST_WALK: Duration = Duration::from_millis(100);

/// Why there are no counts by cgroup.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// Mounts can't be read.
    #[error("cannot find out where cgroup v2 is mounted: {0}")]
    Mounts(#[from] ProcError),
    /// There is none.
    #[error("no cgroup v2 is mounted")]
    NotMounted,
    /// It can't be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// It counts no memory.
    #[error(
        "the memory controller is not on the cgroup v2 of {}: a host that boots with \
         systemd.unified_cgroup_hierarchy=1 has it there",
        .0.display()
    )]
    NoMemory(PathBuf),
}

/// The lines of `memory.stat` that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    pglazyfree: u64,
    pglazyfreed: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            pglazyfree: self.pglazyfree + other.pglazyfree,
            pglazyfreed: self.pglazyfreed + other.pglazyfreed,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            pglazyfree: self.pglazyfree.saturating_sub(before.pglazyfree),
            pglazyfreed: self.pglazyfreed.saturating_sub(before.pglazyfreed),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
            pairs.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        Some(Self { pglazyfree: value("pglazyfree")?, pglazyfreed: value("pglazyfreed")? })
    }
}

/// One reading of a cgroup.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The file's, which is another one if the cgroup was removed and made again.
    inode: u64,
    counts: Counts,
}

/// A path, and what the cgroups that were there counted since it is followed.
#[derive(Clone, Copy, Debug)]
struct Followed {
    /// Of those that have been removed.
    removed: Counts,
    /// What the one that is there had counted before.
    base: Counts,
    latest: Reading,
}

impl Followed {
    /// A path that is new. `is_new` is whether its cgroup is too: then all that it counted is since.
    fn new(reading: Reading, is_new: bool) -> Self {
        let base = if is_new { Counts::default() } else { reading.counts };
        Self { removed: Counts::default(), base, latest: reading }
    }

    fn then(self, reading: Reading) -> Self {
        if reading.inode == self.latest.inode {
            return Self { latest: reading, ..self };
        }
        Self { removed: self.counted(), base: Counts::default(), latest: reading }
    }

    fn counted(&self) -> Counts {
        self.removed.plus(self.latest.counts.since(self.base))
    }
}

/// Counts of all cgroups, kept from one reading to the next.
#[derive(Debug)]
pub struct Cgroups {
    mount: Mount,
    rounds: Rounds<PathBuf, Followed>,
    ration: Ration,
    walk: Walk,
    walk_ration: Ration,
    /// When the walk began.
    began: Option<Duration>,
    /// Whether a walk has seen every cgroup there was: one that is found afterwards is new.
    knows_all: bool,
}

/// Where the hierarchy can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// The cgroup that is seen there, `/` for the root of the hierarchy.
    root: String,
}

impl Mount {
    /// The mount that shows most.
    fn choose(mounts: &[MountInfo]) -> Option<Self> {
        let cgroup2 = mounts.iter().filter(|mount| mount.fs_type == "cgroup2");
        let mount = cgroup2.min_by_key(|mount| mount.root.len())?;
        Some(Self { point: mount.mount_point.clone(), root: mount.root.clone() })
    }

    /// Path of a cgroup below the root of the hierarchy.
    fn path(&self, folder: &Path) -> String {
        let below = folder.strip_prefix(&self.point).unwrap_or(folder);
        let mut path = PathBuf::from(&self.root);
        path.extend(below);
        path.to_string_lossy().into_owned()
    }
}

/// Folders of the tree, those nearest to the root first.
#[derive(Debug, Default)]
struct Walk {
    ahead: VecDeque<PathBuf>,
    /// Whether folders were left out for want of room.
    is_cut: bool,
}

impl Iterator for Walk {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        let folder = self.ahead.pop_front()?;
        // A folder's links are its own two and one for each below it. Most have none, and to list
        // the dozens of files that each has would be the greater part of the walk.
        let has_children = fs::metadata(&folder).is_ok_and(|metadata| metadata.nlink() != 2);
        let entries = has_children.then(|| fs::read_dir(&folder).ok()).flatten();
        let children = entries.into_iter().flatten().flatten();
        let children = children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for child in children {
            if self.ahead.len() >= MAX_AHEAD {
                self.is_cut = true;
                break;
            }
            self.ahead.push_back(child.path());
        }
        Some(folder)
    }
}

impl Cgroups {
    /// Finds the hierarchy. Takes `share` of CPU time for each reading at most, on average.
    pub fn open(share: Duration) -> Result<Self, Unavailable> {
        let mounts = Process::myself()?.mountinfo()?.0;
        let mount = Mount::choose(&mounts).ok_or(Unavailable::NotMounted)?;
        let path = mount.point.join("cgroup.controllers");
        let controllers =
            fs::read_to_string(&path).map_err(|error| Unavailable::Unreadable { path, error })?;
        if !has_memory(&controllers) {
            return Err(Unavailable::NoMemory(mount.point));
        }
        Ok(Self::of(mount, share))
    }

    fn of(mount: Mount, share: Duration) -> Self {
        let walk = share / 4;
        let turns = share - walk;
        Self {
            mount,
            rounds: Rounds::new(),
            ration: Ration::new(turns, turns),
            walk: Walk::default(),
            walk_ration: Ration::new(walk, FIRST_WALK),
            began: None,
            knows_all: false,
        }
    }

    /// Reads some of the cgroups, and looks for new ones. `now` is of any clock that doesn't step.
    pub fn read(&mut self, now: Duration) {
        self.ration.begin();
        self.rounds.turn(&mut self.ration, |folder, before| {
            let (reading, cost) = timed(|| read(folder));
            let followed = reading.map(|reading| match before {
                Some(before) => before.then(reading),
                None => Followed::new(reading, false),
            });
            (followed, cost)
        });

        self.walk_ration.begin();
        let due = self.began.is_none_or(|began| now.saturating_sub(began) >= WALK_EVERY);
        if due && self.walk.ahead.is_empty() {
            self.began = Some(now);
            self.walk = Walk { ahead: [self.mount.point.clone()].into(), is_cut: false };
        }
        while self.walk_ration.is_left() && self.rounds.len() < MAX_CGROUPS {
            let (folder, cost) = timed(|| self.walk.next());
            self.walk_ration.spend(cost);
            let Some(folder) = folder else {
                self.knows_all |= !self.walk.is_cut;
                return;
            };
            if self.rounds.contains(&folder) {
                continue;
            }
            let (reading, cost) = timed(|| read(&folder));
            self.walk_ration.spend(cost);
            if let Some(reading) = reading {
                self.rounds.insert(folder, Followed::new(reading, self.knows_all));
            }
        }
        // Those that are left out now won't be new when there is room for them.
        self.knows_all &= self.rounds.len() < MAX_CGROUPS;
    }

    /// What each is known to have counted, in the order of their paths.
    pub fn rows(&self) -> Vec<CgroupSample> {
        let row = |(folder, followed): (&PathBuf, &Followed)| {
            let Counts { pglazyfree, pglazyfreed } = followed.counted();
            CgroupSample { path: self.mount.path(folder), pglazyfree, pglazyfreed }
        };
        self.rounds.iter().map(row).collect()
    }
}

/// Whether a `cgroup.controllers` has the one that counts memory.
fn has_memory(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "memory")
}

/// Reads one cgroup. `None` if it is gone or the memory controller is off for it.
fn read(folder: &Path) -> Option<Reading> {
    // Large enough that the kernel gives all of it at once.
    let mut text = String::with_capacity(4096);
    let mut file = File::open(folder.join("memory.stat")).ok()?;
    file.read_to_string(&mut text).ok()?;
    Some(Reading { inode: file.metadata().ok()?.ino(), counts: Counts::parse(&text)? })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;

    const SHARE: Duration = Duration::from_secs(1);

    fn make(folder: &Path, pglazyfree: u64, pglazyfreed: u64) {
        fs::create_dir_all(folder).unwrap();
        let text =
            format!("anon 0\npgscan 5\npglazyfree {pglazyfree}\npglazyfreed {pglazyfreed}\n");
        fs::write(folder.join("memory.stat"), text).unwrap();
    }

    fn at(point: &Path) -> Cgroups {
        Cgroups::of(Mount { point: point.to_owned(), root: "/".to_owned() }, SHARE)
    }

    fn row(path: &str, pglazyfree: u64, pglazyfreed: u64) -> CgroupSample {
        CgroupSample { path: path.to_owned(), pglazyfree, pglazyfreed }
    }

    #[test]
    fn names_are_taken_whole() {
        let counts = Counts::parse("workingset_pglazyfree 3\npglazyfreed 1\npglazyfree 2\n");
        assert_eq!(counts, Some(Counts { pglazyfree: 2, pglazyfreed: 1 }));
        assert_eq!(Counts::parse("anon 1\npglazyfree 2\n"), None);
        assert!(has_memory("cpuset cpu io memory pids\n"));
        assert!(!has_memory("cpu memory_recursiveprot\n"));
    }

    #[test]
    fn a_tree_is_walked_and_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        make(root, 9, 4);
        make(&root.join("system.slice/a"), 5, 2);
        // Without the memory controller there is no such file.
        assert!(!root.join("system.slice/memory.stat").exists());
        let mut cgroups = at(root);
        cgroups.read(Duration::ZERO);
        assert_eq!(cgroups.rows(), [row("/", 0, 0), row("/system.slice/a", 0, 0)]);

        make(&root.join("system.slice/a"), 6, 4);
        make(&root.join("b"), 1, 0);
        cgroups.read(WALK_EVERY - Duration::from_millis(1));
        assert_eq!(cgroups.rows(), [row("/", 0, 0), row("/system.slice/a", 1, 2)]);

        // It has been made since the walk before, and all that it counted is since then.
        fs::remove_dir_all(root.join("system.slice")).unwrap();
        cgroups.read(WALK_EVERY);
        assert_eq!(cgroups.rows(), [row("/", 0, 0), row("/b", 1, 0)]);
    }

    #[test]
    fn what_was_counted_before_is_not_ours_however_late_it_is_found() {
        const CGROUPS: u64 = 20;
        let folder = tempfile::tempdir().unwrap();
        for number in 0..CGROUPS {
            make(&folder.path().join(format!("{number:02}")), 7, 7);
        }
        let mut cgroups = at(folder.path());
        let mut ticks = 0;
        while !cgroups.knows_all && ticks < 1000 {
            // Used up by the first folder that takes any time.
            cgroups.walk_ration = Ration::new(Duration::from_nanos(1), Duration::from_nanos(1));
            cgroups.read(Duration::from_millis(ticks));
            ticks += 1;
        }
        assert!(cgroups.knows_all);
        assert!(ticks > 1, "the walk was meant to take several ticks");
        let rows = cgroups.rows();
        assert_eq!(rows.len() as u64, CGROUPS);
        assert!(rows.iter().all(|row| row.pglazyfree == 0 && row.pglazyfreed == 0), "{rows:?}");
    }

    #[test]
    fn a_walk_that_leaves_some_out_makes_none_new() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=MAX_AHEAD {
            fs::create_dir(folder.path().join(number.to_string())).unwrap();
        }
        let mut cgroups = at(folder.path());
        while cgroups.began.is_none() || !cgroups.walk.ahead.is_empty() {
            cgroups.read(Duration::ZERO);
        }
        cgroups.read(Duration::ZERO);
        assert!(!cgroups.knows_all);
    }

    #[test]
    fn a_cgroup_that_is_made_again_goes_on_from_what_the_one_before_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        make(&root.join("a"), 100, 50);
        let mut cgroups = at(root);
        cgroups.read(Duration::ZERO);
        make(&root.join("a"), 110, 51);
        cgroups.read(Duration::ZERO);
        assert_eq!(cgroups.rows(), [row("/a", 10, 1)]);

        // More than its predecessor had: only the file tells them apart.
        make(&root.join("next"), 200, 60);
        fs::remove_dir_all(root.join("a")).unwrap();
        fs::rename(root.join("next"), root.join("a")).unwrap();
        cgroups.read(Duration::ZERO);
        assert_eq!(cgroups.rows(), [row("/a", 210, 61)]);
        make(&root.join("a"), 201, 61);
        cgroups.read(Duration::ZERO);
        assert_eq!(cgroups.rows(), [row("/a", 211, 62)]);
    }

    #[test]
    fn odd_names_survive() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let names: [&[u8]; 3] =
            [br"system-serial\x2dgetty.slice", b"user@1000.service", b"caf\xe9.scope"];
        for name in names {
            make(&root.join(OsStr::from_bytes(name)), 1, 1);
        }
        let mut cgroups = at(root);
        cgroups.read(Duration::ZERO);
        let paths: Vec<String> = cgroups.rows().into_iter().map(|row| row.path).collect();
        let expected =
            ["/caf\u{fffd}.scope", r"/system-serial\x2dgetty.slice", "/user@1000.service"];
        assert_eq!(paths, expected);
    }

    #[test]
    fn those_nearest_to_the_root_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        make(&folder.path().join("a/deep"), 1, 1);
        for number in 0..MAX_CGROUPS {
            make(&folder.path().join(format!("z{number:04}")), 1, 1);
        }
        let mut cgroups = at(folder.path());
        // Enough ticks, however slow the disk is.
        for tick in 0..100 {
            cgroups.read(WALK_EVERY * tick);
        }
        let rows = cgroups.rows();
        assert_eq!(rows.len(), MAX_CGROUPS);
        assert!(rows.iter().all(|row| row.path.starts_with("/z")), "{rows:?}");
    }

    #[test]
    fn the_mount_that_shows_most_is_chosen() {
        let lines = "\
32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
50 31 0:38 /user.slice /mnt/part rw,relatime - cgroup2 cgroup2 rw
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let mounts: Vec<MountInfo> =
            lines.lines().map(|line| MountInfo::from_line(line).unwrap()).collect();
        let whole = Mount::choose(&mounts).unwrap();
        assert_eq!(whole.point, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(whole.path(Path::new("/sys/fs/cgroup/unified/a/b")), "/a/b");
        assert_eq!(whole.path(Path::new("/sys/fs/cgroup/unified")), "/");
        let part = Mount::choose(&mounts[..2]).unwrap();
        assert_eq!(part.path(Path::new("/mnt/part/a")), "/user.slice/a");
        assert_eq!(part.path(Path::new("/mnt/part")), "/user.slice");
        assert_eq!(Mount::choose(&mounts[..1]), None);
    }
}
