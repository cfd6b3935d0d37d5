//! Swap in compressed memory: the guest has no disk.

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
};

use anyhow::{Context as _, Result, ensure};

const DEVICE: &str = "/dev/zram0";
const SIZE: &str = "/sys/block/zram0/disksize";

/// Makes `mib` MiB of zram, writes a swap header to it, and turns it on.
pub fn enable(mib: u64) -> Result<()> {
    let bytes = mib << 20;
    fs::write(SIZE, bytes.to_string())
        .with_context(|| format!("cannot set {SIZE}; is the zram module of this kernel loaded?"))?;
    let page_bytes = rustix::param::page_size();
    let device = OpenOptions::new()
        .write(true)
        .open(DEVICE)
        .with_context(|| format!("cannot open {DEVICE}"))?;
    let pages = u32::try_from(bytes / page_bytes as u64).context("the swap is too large")?;
    device
        .write_all_at(&header(page_bytes, pages), 0)
        .with_context(|| format!("cannot write a swap header to {DEVICE}"))?;
    drop(device);
    let path = CString::new(DEVICE).context("the path of the swap device")?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    let result = unsafe { libc::swapon(path.as_ptr(), 0) };
    ensure!(result == 0, "cannot swap on {DEVICE}: {}", io::Error::last_os_error());
    Ok(())
}

/// The first page of a swap area of `pages` pages, `union swap_header` in the kernel's swap.h:
/// after 1024 bytes for a boot sector the version, the last page and the number of bad pages;
/// a magic in the last ten bytes of the page.
fn header(page_bytes: usize, pages: u32) -> Vec<u8> {
    const MAGIC: &[u8] = b"SWAPSPACE2";
    let mut header = vec![0; page_bytes];
    header[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&(pages - 1).to_ne_bytes());
    header[page_bytes - MAGIC.len()..].copy_from_slice(MAGIC);
    header
}
