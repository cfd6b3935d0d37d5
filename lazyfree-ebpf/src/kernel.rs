//! Reading kernel memory, and the numbers of the running kernel.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use bytemuck::Zeroable;
use lazyfree_common::layout::Layout;

/// Filled by the loader before the programs are loaded; see [`lazyfree_common::layout::GLOBAL`].
#[unsafe(no_mangle)]
pub static LAYOUT: Layout = Layout::ZERO;

/// A field of [`LAYOUT`], read so that the compiler can't take the zeroes of the object for the
/// value. The verifier knows the value, so a branch on it costs nothing at run time.
macro_rules! layout {
    ($field:ident) => {
        // SAFETY: a plain read of an initialised static.
        unsafe { core::ptr::read_volatile(&raw const $crate::kernel::LAYOUT.$field) }
    };
}
pub(crate) use layout;

/// Reads a value at a kernel address; `None` if there is nothing to read.
#[inline(always)]
pub fn read<T: Zeroable>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address, and any bit pattern is a T.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}
