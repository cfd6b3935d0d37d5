//! What is counted of each process, keyed by its tgid in the initial pid namespace.

use bytemuck::{Pod, Zeroable};

/// Most processes counted at once. The map is preallocated; the calls of further ones are counted
/// together ([`crate::Counter::OtherCalls`]).
pub const MAX_PROCESSES: u32 = 8192;

/// What a process did. Its threads add to it from several CPUs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ProcessCounts {
    /// Calls: of `madvise_free_pte_range`, or where that can't be hooked, of `madvise`.
    pub calls: u64,
    /// Pages in the ranges given to MADV_FREE.
    pub advised_pages: u64,
    /// Name of the task that made the first call, NUL padded.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<ProcessCounts>() == 32);
