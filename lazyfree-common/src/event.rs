//! What the ring buffer carries: rare records only, never a count.

use bytemuck::{Pod, Zeroable};

/// Size of the ring buffer in bytes; the kernel wants a power of two of pages.
pub const RING_BYTES: u32 = 256 * 1024;

/// At most one event in this many nanoseconds from each CPU.
pub const MIN_INTERVAL_NS: u64 = 100_000_000;

/// A reclaim batch that met lazyfree pages it could not free. A sample: see [`MIN_INTERVAL_NS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ReclaimFailure {
    /// End of the batch, `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// How long the batch took.
    pub duration_ns: u64,
    /// Lazyfree pages freed by the batch.
    pub hit_pages: u64,
    /// Pages found written to again.
    pub redirtied_pages: u64,
    /// Pages with an extra reference.
    pub pinned_pages: u64,
    /// Pages put back for another reason.
    pub kept_pages: u64,
    /// Process that ran the reclaim (not the owner of the pages), in the initial pid namespace.
    pub tgid: u32,
    /// Discriminant of [`crate::Reclaimer`].
    pub reclaimer: u32,
    /// Name of the task that ran the reclaim, NUL padded.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<ReclaimFailure>() == 72);
