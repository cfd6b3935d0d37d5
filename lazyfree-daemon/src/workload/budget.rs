//! How much memory a workload may take. Pure but for [`Budget::read`].

use anyhow::{Context as _, Result, bail};
use procfs::{Current as _, Meminfo};

use super::hierarchy::Hierarchy;

/// What a workload may take whatever is available, in bytes: less than a shell does. A machine
/// under pressure, where marking is of interest, has next to nothing available.
const HARMLESS: u64 = 4 << 20;

/// The memory there is to take from.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes that are available, on the machine and within the cgroups above us.
    pub available: u64,
    /// Whether the workload gets a memory cgroup of its own.
    pub confined: bool,
}

impl Budget {
    /// Reads what is available now.
    pub fn read(hierarchy: Option<&Hierarchy>, confined: bool) -> Result<Self> {
        let meminfo = Meminfo::current().context("cannot read /proc/meminfo")?;
        let machine = meminfo.mem_available.unwrap_or(meminfo.mem_free);
        let cgroups = hierarchy.and_then(Hierarchy::headroom);
        Ok(Self { available: machine.min(cgroups.unwrap_or(u64::MAX)), confined })
    }

    /// The most a workload may have, in bytes: a small share where nothing else would stop it.
    pub fn most(&self) -> u64 {
        self.available / if self.confined { 2 } else { 8 }
    }

    /// What a workload takes that leaves its size to the machine, in bytes.
    pub fn modest(&self) -> u64 {
        self.most() / 2
    }

    /// Refuses what would endanger the machine.
    pub fn check(&self, bytes: u64) -> Result<()> {
        let most = self.most();
        if bytes <= most.max(HARMLESS) {
            return Ok(());
        }
        let share = if self.confined {
            "half"
        } else {
            "an eighth (there is no memory cgroup to confine the workload to)"
        };
        bail!(
            "this would take {} MiB, but {} MiB is available and {share} of it is the most a \
             workload takes: ask for at most {} MiB",
            bytes.div_ceil(1 << 20),
            self.available >> 20,
            most >> 20,
        )
    }

    /// A limit for the workload's cgroup that it won't reach, in bytes: its memory twice, for page
    /// tables and pipes, and room for the program itself.
    pub fn limit(bytes: u64) -> u64 {
        bytes.saturating_mul(2).saturating_add(64 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_it_is_the_most_and_an_eighth_without_a_cgroup() {
        let confined = Budget { available: 1 << 30, confined: true };
        assert!(confined.check(512 << 20).is_ok());
        let refused = confined.check((512 << 20) + 1).unwrap_err().to_string();
        assert!(refused.contains("513 MiB") && refused.contains("at most 512 MiB"), "{refused}");
        let loose = Budget { confined: false, ..confined };
        assert!(loose.check(128 << 20).is_ok());
        let refused = loose.check(512 << 20).unwrap_err().to_string();
        assert!(refused.contains("no memory cgroup"), "{refused}");
    }

    #[test]
    fn little_is_allowed_on_a_machine_under_pressure() {
        let nothing = Budget { available: 0, confined: true };
        assert!(nothing.check(4 << 20).is_ok());
        assert!(nothing.check((4 << 20) + 1).is_err());
    }

    #[test]
    fn the_default_is_allowed() {
        for confined in [true, false] {
            let budget = Budget { available: 1 << 30, confined };
            assert!(budget.modest() > 0 && budget.check(budget.modest()).is_ok());
        }
    }
}
