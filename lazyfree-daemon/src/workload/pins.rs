//! Extra references to pages, as DMA and zero-copy I/O hold them.
//!
//! vmsplice takes a reference to each page (`iov_iter_get_pages`, FOLL_GET) and keeps it in a pipe
//! buffer until the pipe is read or closed. It neither writes to the page nor dirties it when it
//! lets go. io_uring's registered buffers would dirty it (`unpin_user_page_dirty_lock`), and turn
//! the page into a redirtied one.

use std::{io, os::fd::AsRawFd as _, os::fd::OwnedFd};

use anyhow::{Context as _, Result, bail};
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

use super::region::Region;

/// Pages that are pinned for as long as this lives. Must be dropped before the region, or the pages
/// outlive it.
#[derive(Debug)]
pub struct Pins {
    /// The read ends; a pipe keeps its buffers while one end is open.
    _pipes: Vec<OwnedFd>,
}

/// The most that one vmsplice takes, UIO_MAXIOV.
const MAX_VECTORS: usize = 1024;

impl Pins {
    /// Takes one reference to each of these pages of a region. They must be in memory already.
    pub fn take(region: &Region, pages: &[usize]) -> Result<Self> {
        let page_size = rustix::param::page_size();
        let mut pipes = Vec::new();
        let mut rest = pages;
        while !rest.is_empty() {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).with_context(|| {
                let done = pages.len() - rest.len();
                format!("no pipe for more pins after {done} of {}: pin fewer pages, or raise the limit on open files", pages.len())
            })?;
            enlarge(&writer, rest.len() * page_size);
            let slots = fcntl_getpipe_size(&writer)? / page_size;
            let (batch, _) = rest.split_at(rest.len().min(slots).min(MAX_VECTORS));
            let spliced = splice(region, batch, &writer, page_size)?;
            if spliced == 0 {
                bail!("vmsplice put no page into an empty pipe of {slots} slots");
            }
            rest = &rest[spliced..];
            pipes.push(reader);
        }
        Ok(Self { _pipes: pipes })
    }
}

/// Makes room in a pipe if the user's limits allow; what it has is used otherwise.
fn enlarge(pipe: &OwnedFd, bytes: usize) {
    let max = std::fs::read_to_string("/proc/sys/fs/pipe-max-size");
    let max = max.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1 << 20);
    let _ = fcntl_setpipe_size(pipe, bytes.min(max));
}

/// Puts pages into a pipe, one a slot; the number that went in.
fn splice(region: &Region, pages: &[usize], pipe: &OwnedFd, page_size: usize) -> Result<usize> {
    let vectors: Vec<libc::iovec> = pages
        .iter()
        .map(|&page| libc::iovec { iov_base: region.page(page).cast(), iov_len: page_size })
        .collect();
    // SAFETY: each vector is one page of the region, which is mapped. SPLICE_F_GIFT isn't given, so
    // the pages stay ours. Raw vectors, not rustix's, since those want a reference to the content.
    // SPLICE_F_NONBLOCK, because a pipe with fewer slots than it said would wait for a reader.
    let bytes = unsafe {
        libc::vmsplice(pipe.as_raw_fd(), vectors.as_ptr(), vectors.len(), libc::SPLICE_F_NONBLOCK)
    };
    let bytes = usize::try_from(bytes)
        .map_err(|_| io::Error::last_os_error())
        .with_context(|| format!("cannot vmsplice {} pages", pages.len()))?;
    Ok(bytes / page_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_more_pages_than_one_pipe_holds() {
        let region = Region::of_base_pages(600).unwrap();
        region.touch();
        let pages: Vec<usize> = (0..600).collect();
        let pins = Pins::take(&region, &pages).unwrap();
        let capacity: usize =
            pins._pipes.iter().map(|pipe| fcntl_getpipe_size(pipe).unwrap()).sum();
        assert!(pins._pipes.len() > 1);
        assert!(capacity >= region.bytes());
    }
}
