//! How a guest is made to differ from what its kernel boots as, before anything is counted.

use std::{ffi::CStr, fs};

use anyhow::{Context as _, Result};
use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use crate::{
    host::{LRU_GEN, mglru},
    process::read,
};

/// A difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The other LRU: multi-generational where the kernel boots with the classic one, and the
    /// reverse.
    OtherLru,
    /// The memory controller of cgroup v1.
    CgroupV1,
}

impl Switch {
    const ALL: [Self; 2] = [Self::OtherLru, Self::CgroupV1];

    /// How it is asked for on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::OtherLru => "lru=other",
            Self::CgroupV1 => "cgroup=v1",
        }
    }

    /// Reads it from the command line.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|switch| switch.word() == word)
    }

    /// Turns the guest over; the answer is why this kernel has no such thing.
    pub fn turn(self) -> Result<Option<String>> {
        match self {
            Self::OtherLru => other_lru(),
            Self::CgroupV1 => cgroup_v1(),
        }
    }
}

fn other_lru() -> Result<Option<String>> {
    let Some(is_on) = mglru() else {
        return Ok(Some("the kernel has no multi-generational LRU".to_owned()));
    };
    let value = if is_on { "n" } else { "y" };
    fs::write(LRU_GEN, value).with_context(|| format!("cannot write {value} to {LRU_GEN}"))?;
    Ok(None)
}

fn cgroup_v1() -> Result<Option<String>> {
    const FOLDER: &str = "/sys/fs/cgroup";
    // A controller is in one hierarchy only.
    unmount(FOLDER, UnmountFlags::empty()).with_context(|| format!("cannot unmount {FOLDER}"))?;
    let options: &CStr = c"memory";
    match mount("memory", FOLDER, "cgroup", MountFlags::empty(), Some(options)) {
        Ok(()) => Ok(None),
        Err(Errno::INVAL) => Ok(Some(
            "cgroup v1 has no memory controller in this kernel (CONFIG_MEMCG_V1 is off)".to_owned(),
        )),
        Err(error) => Err(error).context("cannot mount the memory controller of cgroup v1"),
    }
}

/// Huge pages are off at boot in a guest as small as these (hugepage_init), and a workload needs
/// some.
pub fn allow_huge_pages() -> Result<()> {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    if read(ENABLED)?.contains("[never]") {
        fs::write(ENABLED, "madvise").with_context(|| format!("cannot write to {ENABLED}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_no_name_of_a_workload() {
        for switch in Switch::ALL {
            assert_eq!(Switch::parse(switch.word()), Some(switch));
        }
        assert_eq!(Switch::parse("mark"), None);
    }
}
