//! Reading kernel memory, and the numbers of the running kernel.

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::helpers::{
    bpf_ktime_get_ns, bpf_probe_read_kernel,
    generated::bpf_probe_read_kernel as bpf_probe_read_kernel_raw,
};
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

/// `CLOCK_MONOTONIC`.
#[inline(always)]
pub fn now_ns() -> u64 {
    // SAFETY: the helper has no conditions.
    unsafe { bpf_ktime_get_ns() }
}

/// Whether kernel memory may be read at all.
#[inline(always)]
pub fn reads_memory() -> bool {
    layout!(reads_memory) != 0
}

/// Reads a value at a kernel address; zero if there is nothing to read. Without a branch at run
/// time: the helper zeroes the buffer itself (`bpf_probe_read_kernel_common`).
#[inline(always)]
pub fn read_or_zero<T: Zeroable>(address: u64) -> T {
    if !reads_memory() {
        return T::zeroed();
    }
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper checks the address and writes as many bytes as a T has, read or zero, and
    // any bit pattern is a T.
    unsafe {
        let _failed = bpf_probe_read_kernel_raw(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            address as *const c_void,
        );
        value.assume_init()
    }
}

/// Reads a value at a kernel address; `None` if there is nothing to read.
#[inline(always)]
pub fn read<T: Zeroable>(address: u64) -> Option<T> {
    if !reads_memory() {
        return None;
    }
    // SAFETY: the helper checks the address, and any bit pattern is a T.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}
