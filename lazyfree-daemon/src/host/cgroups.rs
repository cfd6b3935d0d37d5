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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    pglazyfree: u64,
    pglazyfreed: u64,
}

impl Counts {
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
            pairs.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        Some(Self { pglazyfree: value("pglazyfree")?, pglazyfreed: value("pglazyfreed")? })
    }
}

/// Counts of all cgroups, kept from one reading to the next.
#[derive(Debug)]
pub struct Cgroups {
    mount: Mount,
    rounds: Rounds<PathBuf, Counts>,
    ration: Ration,
    walk: Walk,
    walk_ration: Ration,
    /// When the walk began.
    began: Option<Duration>,
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
        let room = MAX_AHEAD.saturating_sub(self.ahead.len());
        self.ahead.extend(children.take(room).map(|entry| entry.path()));
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
        }
    }

    /// Reads some of the cgroups, and looks for new ones. `now` is of any clock that doesn't step.
    pub fn read(&mut self, now: Duration) {
        self.ration.begin();
        self.rounds.turn(&mut self.ration, |folder| timed(|| read(folder)));

        self.walk_ration.begin();
        let due = self.began.is_none_or(|began| now.saturating_sub(began) >= WALK_EVERY);
        if due && self.walk.ahead.is_empty() {
            self.began = Some(now);
            self.walk.ahead.push_back(self.mount.point.clone());
        }
        while self.walk_ration.is_left() && self.rounds.len() < MAX_CGROUPS {
            let (folder, cost) = timed(|| self.walk.next());
            self.walk_ration.spend(cost);
            let Some(folder) = folder else { return };
            if self.rounds.contains(&folder) {
                continue;
            }
            let (counts, cost) = timed(|| read(&folder));
            self.walk_ration.spend(cost);
            if let Some(counts) = counts {
                self.rounds.insert(folder, counts);
            }
        }
    }

    /// What was read last of each, in the order of their paths.
    pub fn rows(&self) -> Vec<CgroupSample> {
        let row = |(folder, counts): (&PathBuf, &Counts)| CgroupSample {
            path: self.mount.path(folder),
            pglazyfree: counts.pglazyfree,
            pglazyfreed: counts.pglazyfreed,
        };
        self.rounds.iter().map(row).collect()
    }
}

/// Whether a `cgroup.controllers` has the one that counts memory.
fn has_memory(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "memory")
}

/// Reads one cgroup. `None` if it is gone or has no counts of its own.
fn read(folder: &Path) -> Option<Counts> {
    // Large enough that the kernel gives all of it at once.
    let mut text = String::with_capacity(4096);
    File::open(folder.join("memory.stat")).ok()?.read_to_string(&mut text).ok()?;
    Counts::parse(&text)
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
        const LATER: Duration = Duration::from_secs(10);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        make(root, 9, 4);
        make(&root.join("system.slice/a"), 5, 2);
        // Without the memory controller there is no such file.
        assert!(!root.join("system.slice/memory.stat").exists());
        let mut cgroups = at(root);
        cgroups.read(Duration::ZERO);
        assert_eq!(cgroups.rows(), [row("/", 9, 4), row("/system.slice/a", 5, 2)]);

        make(&root.join("system.slice/a"), 6, 3);
        make(&root.join("b"), 1, 0);
        cgroups.read(LATER - Duration::from_millis(1));
        assert_eq!(cgroups.rows(), [row("/", 9, 4), row("/system.slice/a", 6, 3)]);

        fs::remove_dir_all(root.join("system.slice")).unwrap();
        cgroups.read(LATER);
        assert_eq!(cgroups.rows(), [row("/", 9, 4), row("/b", 1, 0)]);
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
        // Enough walks, however slow the disk is.
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
