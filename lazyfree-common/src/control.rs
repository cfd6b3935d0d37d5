//! What the daemon changes while probes run.

use bytemuck::{Pod, Zeroable};

/// Settings that a probe reads at each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Control {
    /// Pages marked while fewer pages than this are free count as marked under pressure.
    pub throttle_threshold_pages: u64,
    /// Value of `vmemmap_base`: address of the struct page of page frame 0; 0 if unknown.
    pub vmemmap: u64,
    /// `pid_tgid` of the task whose page allocations are reported; 0 for none.
    pub reported_task: u64,
}

const _: () = assert!(size_of::<Control>() == 24);

/// Where a page was allocated for [`Control::reported_task`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AllocatedPage {
    /// Kernel address of its struct page.
    pub address: u64,
    /// Number of allocations so far.
    pub count: u64,
}

/// Most addresses that one run of the peek program reads.
pub const MAX_PEEKS: u32 = 128;
