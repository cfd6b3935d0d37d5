//! The guests that every kernel is booted in.

use std::{fmt, time::Duration};

use lazyfree_vm::matrix::Switch;

use crate::{
    guest::{Job, Machine},
    kernel::Kernel,
};

/// How long one guest may take; on an idle machine it is done in a tenth of it.
const LIMIT: Duration = Duration::from_secs(300);

/// Little, so that what is short of memory is; the workloads take up to a third of it, and no more
/// than half of what is available.
pub const MEMORY_MIB: u32 = 640;

/// What a kernel takes for each CPU counts with eight of them.
const MEMORY_OF_EIGHT_MIB: u32 = 768;

const SWAP_MIB: u32 = 256;

/// A kind of guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As the kernel boots, without swap.
    Plain,
    /// With swap in compressed memory.
    Swap,
    /// With the other LRU, and with swap where there is some.
    OtherLru,
    /// With the memory controller of cgroup v1.
    CgroupV1,
    /// With one CPU.
    OneCpu,
    /// With eight CPUs.
    EightCpus,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "as it boots",
            Self::Swap => "with swap",
            Self::OtherLru => "with the other LRU",
            Self::CgroupV1 => "with cgroup v1",
            Self::OneCpu => "with 1 CPU",
            Self::EightCpus => "with 8 CPUs",
        })
    }
}

impl Variant {
    /// All of them, in the order to boot them in.
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::Swap, Self::OtherLru, Self::CgroupV1, Self::OneCpu, Self::EightCpus];

    /// Why this kernel can't be booted in such a guest.
    pub fn impossible(self, kernel: &Kernel) -> Option<&'static str> {
        (self == Self::Swap && !kernel.has_zram()).then_some(
            "the archive no longer has the modules of this kernel, of which zram is one, and \
             without a disk there is no other swap",
        )
    }

    /// Whether the guest has swap.
    pub fn has_swap(self, kernel: &Kernel) -> bool {
        match self {
            Self::Swap => true,
            Self::OtherLru => kernel.has_zram(),
            Self::Plain | Self::CgroupV1 | Self::OneCpu | Self::EightCpus => false,
        }
    }

    /// The machine.
    pub fn machine(self) -> Machine {
        let cpus = match self {
            Self::OneCpu => 1,
            Self::EightCpus => 8,
            Self::Plain | Self::Swap | Self::OtherLru | Self::CgroupV1 => 2,
        };
        let memory_mib = if self == Self::EightCpus { MEMORY_OF_EIGHT_MIB } else { MEMORY_MIB };
        Machine { memory_mib, cpus, ..Machine::default() }
    }

    /// What is to be done in the guest.
    pub fn job(self, kernel: &Kernel) -> Job {
        let mut command = vec!["lazyfree-matrix"];
        command.extend(self.switch().map(Switch::word));
        command.extend(self.workloads());
        Job {
            command: command.into_iter().map(Into::into).collect(),
            files: Vec::new(),
            swap_mib: self.has_swap(kernel).then_some(SWAP_MIB),
            terminal: None,
            limit: Some(LIMIT),
        }
    }

    fn switch(self) -> Option<Switch> {
        match self {
            Self::OtherLru => Some(Switch::OtherLru),
            Self::CgroupV1 => Some(Switch::CgroupV1),
            Self::Plain | Self::Swap | Self::OneCpu | Self::EightCpus => None,
        }
    }

    /// The workloads that may come out differently in such a guest; none for all.
    fn workloads(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::OtherLru => &[],
            Self::Swap => {
                &["mark_memcg", "redirty", "redirty_memcg", "pin", "pin_memcg", "thp", "swap"]
            }
            Self::CgroupV1 => &["mark_memcg", "redirty_memcg", "pin_memcg"],
            Self::OneCpu | Self::EightCpus => {
                &["mark", "mark_memcg", "redirty", "pin", "thp", "compact", "bomb"]
            }
        }
    }
}
