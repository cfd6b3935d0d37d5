//! Where this process stands in the memory cgroups, and how much memory they leave it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use procfs::{
    ProcessCGroups,
    process::{MountInfos, Process},
};
use serde::{Deserialize, Serialize};

/// Generation of the cgroup interface that has the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One hierarchy a controller.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The mounted hierarchy with the memory controller, and our place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Which files its cgroups have.
    pub version: Version,
    /// Mount point.
    pub top: PathBuf,
    /// Directory of our own cgroup, `top` or below it.
    pub own: PathBuf,
}

impl Hierarchy {
    /// Finds the hierarchy of this process; the error is the reason why it has none.
    pub fn find() -> Result<Self, String> {
        let process = Process::myself().map_err(|error| error.to_string())?;
        let cgroups = process.cgroups().map_err(|error| format!("no cgroups: {error}"))?;
        let mounts = process.mountinfo().map_err(|error| format!("no mounts: {error}"))?;
        Self::locate(&cgroups, &mounts)
    }

    fn locate(cgroups: &ProcessCGroups, mounts: &MountInfos) -> Result<Self, String> {
        let v1 = cgroups.0.iter().find(|group| group.controllers.iter().any(|c| c == "memory"));
        let (version, group) = match v1 {
            Some(group) => (Version::V1, group),
            None => {
                let v2 = cgroups.0.iter().find(|group| group.hierarchy == 0);
                (Version::V2, v2.ok_or("this kernel has no memory cgroups")?)
            }
        };
        let mount = mounts
            .iter()
            .find(|mount| match version {
                Version::V1 => {
                    mount.fs_type == "cgroup" && mount.super_options.contains_key("memory")
                }
                Version::V2 => mount.fs_type == "cgroup2",
            })
            .ok_or("the cgroup file system isn't mounted")?;
        // A mount may show only a part of the hierarchy, such as a container's. A cgroup outside it
        // isn't visible, so the top of what is visible stands for it.
        let below = Path::new(&group.pathname).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let below = if below.starts_with("..") { Path::new("") } else { below };
        let top = mount.mount_point.clone();
        Ok(Self { version, own: top.join(below), top })
    }

    /// The directories from our own cgroup up to the top.
    pub fn upwards(&self) -> impl Iterator<Item = &Path> {
        self.own.ancestors().take_while(|dir| dir.starts_with(&self.top))
    }

    /// The memory that the tightest limit above us leaves, in bytes; `None` without a limit.
    pub fn headroom(&self) -> Option<u64> {
        self.upwards().filter_map(|dir| self.headroom_of(dir)).min()
    }

    fn headroom_of(&self, dir: &Path) -> Option<u64> {
        let (limit, usage, cache) = match self.version {
            Version::V1 => {
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            }
            Version::V2 => ("memory.max", "memory.current", "inactive_file"),
        };
        let read = |file| fs::read_to_string(dir.join(file)).ok();
        // "max" is no number, and so no limit.
        let limit = read(limit)?.trim().parse().ok()?;
        let usage = read(usage)?.trim().parse().ok()?;
        Some(left(limit, usage, stat(&read("memory.stat")?, cache).unwrap_or(0)))
    }
}

/// What may still be used: cache that reclaim would give up first counts as free.
fn left(limit: u64, usage: u64, cache: u64) -> u64 {
    limit.saturating_sub(usage.saturating_sub(cache))
}

/// One value of a `memory.stat` file.
fn stat(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;

    use super::*;

    fn locate(cgroups: &str, mounts: &str) -> Result<Hierarchy, String> {
        Hierarchy::locate(
            &ProcessCGroups::from_read(cgroups.as_bytes()).unwrap(),
            &MountInfos::from_read(mounts.as_bytes()).unwrap(),
        )
    }

    const V1: &str = "29 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const V2: &str = "30 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_hierarchy_with_the_memory_controller_is_taken() {
        let hybrid = format!("{V2}{V1}");
        let found = locate("4:memory:/jobs/7\n1:cpu:/\n0::/\n", &hybrid).unwrap();
        assert_eq!(found.version, Version::V1);
        assert_eq!(found.own, Path::new("/sys/fs/cgroup/memory/jobs/7"));
        let upwards: Vec<_> = found.upwards().collect();
        assert_eq!(upwards.last().unwrap(), &Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(upwards.len(), 3);
    }

    #[test]
    fn unified_when_no_other_has_it() {
        let found = locate("0::/user.slice/a.scope\n", V2).unwrap();
        assert_eq!(found.version, Version::V2);
        assert_eq!(found.own, Path::new("/sys/fs/cgroup/unified/user.slice/a.scope"));
    }

    #[test]
    fn a_bind_mount_shows_a_part_only() {
        let mounts = "30 24 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let inside = locate("4:memory:/docker/abc/x\n", mounts).unwrap();
        assert_eq!(inside.own, Path::new("/sys/fs/cgroup/memory/x"));
        let outside = locate("4:memory:/other\n", mounts).unwrap();
        assert_eq!(outside.own, Path::new("/sys/fs/cgroup/memory"));
        let above = locate("0::/../../other\n", V2).unwrap();
        assert_eq!(above.own, above.top);
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(locate("1:cpu:/\n", V1).unwrap_err(), "this kernel has no memory cgroups");
        assert_eq!(locate("0::/\n", V1).unwrap_err(), "the cgroup file system isn't mounted");
    }

    #[test]
    fn inactive_cache_counts_as_free() {
        assert_eq!(left(100, 90, 40), 50);
        assert_eq!(left(100, 150, 0), 0);
        let text = "inactive_file 7\ntotal_inactive_file 9\n";
        assert_eq!(stat(text, "inactive_file"), Some(7));
        assert_eq!(stat(text, "total_inactive_file"), Some(9));
        assert_eq!(stat(text, "inactive"), None);
    }
}
