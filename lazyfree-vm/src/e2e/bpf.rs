//! Which BPF programs and maps the kernel holds.

use std::{collections::BTreeSet, io};

/// `enum bpf_cmd`.
const PROG_GET_NEXT_ID: libc::c_int = 11;
const MAP_GET_NEXT_ID: libc::c_int = 12;

/// The member of `union bpf_attr` for the two commands.
#[repr(C)]
#[derive(Default)]
struct NextId {
    start: u32,
    next: u32,
    flags: u32,
}

fn ids(command: libc::c_int) -> io::Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    let mut attribute = NextId::default();
    loop {
        // SAFETY: the kernel reads and writes as many bytes as it is told, all of them ours.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                &raw mut attribute,
                size_of::<NextId>() as libc::c_uint,
            )
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ENOENT) { Ok(ids) } else { Err(error) };
        }
        ids.insert(attribute.next);
        attribute.start = attribute.next;
    }
}

/// Ids of all programs and all maps.
pub fn held() -> io::Result<(BTreeSet<u32>, BTreeSet<u32>)> {
    Ok((ids(PROG_GET_NEXT_ID)?, ids(MAP_GET_NEXT_ID)?))
}
