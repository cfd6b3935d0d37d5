//! The memory cgroup that a workload is confined to.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use serde::{Deserialize, Serialize};

use super::hierarchy::{Hierarchy, Version};

/// A memory cgroup that was made by [`Cgroup::create`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cgroup {
    version: Version,
    dir: PathBuf,
}

/// How long the kernel may take to get rid of killed processes.
const PATIENCE: Duration = Duration::from_secs(10);

impl Cgroup {
    /// Makes a cgroup; the error is the reason why it can't be.
    pub fn create(hierarchy: &Hierarchy) -> Result<Self, String> {
        let parent = match hierarchy.version {
            Version::V1 => &hierarchy.own,
            Version::V2 => parent_v2(hierarchy)?,
        };
        let dir = parent.join(format!("lazyfree-workload-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        Ok(Self { version: hierarchy.version, dir })
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Limits what its processes use, in bytes.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        let file = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        self.write(file, &bytes.to_string())
    }

    /// Moves this process into it.
    pub fn join(&self) -> Result<()> {
        self.write("cgroup.procs", "0")
    }

    /// Reclaims all that can be reclaimed from it, by a limit that can't be met.
    pub fn shrink(&self) -> Result<()> {
        match self.version {
            // Reclaims until there is nothing left, then fails (mem_cgroup_resize_max).
            Version::V1 => {
                let file = self.dir.join("memory.limit_in_bytes");
                let before = fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                match self.write("memory.limit_in_bytes", "1") {
                    Err(error) if is(&error, Errno::BUSY) => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => self.write("memory.limit_in_bytes", before.trim()),
                }
            }
            // The write reclaims, and succeeds in any case (memory_high_write). Whoever allocates
            // while the limit stands is put to sleep for it, so it goes at once.
            Version::V2 => {
                self.write("memory.high", "1")?;
                self.write("memory.high", "max")
            }
        }
    }

    /// Reclaims all that can be reclaimed from it, through `memory.reclaim`.
    pub fn reclaim(&self) -> Result<()> {
        if self.version == Version::V1 || !self.dir.join("memory.reclaim").exists() {
            bail!("no memory.reclaim here: it needs cgroup v2 and Linux 5.19; use --trigger memcg");
        }
        let current = fs::read_to_string(self.dir.join("memory.current"))
            .context("cannot read memory.current")?;
        match self.write("memory.reclaim", current.trim()) {
            // It got less than it was asked for: there is nothing left to take.
            Err(error) if is(&error, Errno::AGAIN) => Ok(()),
            result => result,
        }
    }

    /// Kills what is left in it, and removes it.
    pub fn remove(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match fs::remove_dir(&self.dir) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // Populated, or its last process isn't quite gone.
                Err(error)
                    if error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
                        && Instant::now() < deadline =>
                {
                    self.kill();
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("cannot remove the cgroup; try: rmdir {}", self.dir.display())
                    });
                }
            }
        }
    }

    fn kill(&self) {
        let procs = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        for pid in procs.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            // It may be gone by now, and then nothing needs doing.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value:?} to {}", path.display()))
    }
}

/// Where a cgroup with a memory controller can be made: below the nearest ancestor that hands the
/// controller down. Only the root may hand it down while it has processes, so no other cgroup with
/// processes in it, such as our own, will do.
fn parent_v2(hierarchy: &Hierarchy) -> Result<&Path, String> {
    let has_memory = |dir: &Path, file: &str| {
        let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.split_whitespace().any(|controller| controller == "memory")
    };
    let enabled = hierarchy.upwards().find(|dir| has_memory(dir, "cgroup.subtree_control"));
    if let Some(dir) = enabled {
        return Ok(dir);
    }
    let top = &hierarchy.top;
    if !has_memory(top, "cgroup.controllers") {
        return Err(format!("{} has no memory controller", top.display()));
    }
    // Stays on: another cgroup may come to rely on it.
    let file = top.join("cgroup.subtree_control");
    fs::write(&file, "+memory")
        .map_err(|error| format!("cannot enable memory in {}: {error}", file.display()))?;
    Ok(top)
}

fn is(error: &anyhow::Error, errno: Errno) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.and_then(io::Error::raw_os_error) == Some(errno.raw_os_error())
}
