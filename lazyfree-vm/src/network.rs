//! The loopback interface: an exporter that listens on 127.0.0.1 must be reachable in a guest.

use std::{io, os::fd::AsRawFd as _};

use anyhow::{Context as _, Result};
use rustix::net::{AddressFamily, SocketType, socket};

/// Brings `lo` up. The kernel gives it its addresses by itself.
pub fn bring_up_loopback() -> Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .context("cannot open a socket to set up the loopback interface")?;
    // SAFETY: an `ifreq` is plain old data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which outlives the call; the socket is open.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error()).context("cannot bring the loopback interface up")
}
