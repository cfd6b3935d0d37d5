//! The file systems a distribution would have mounted, and what else its init sets up in them.

use std::{ffi::CString, fs, io::ErrorKind, os::unix::fs::symlink, path::Path};

use anyhow::{Context as _, Result};
use rustix::{
    io::Errno,
    mount::{MountFlags, mount},
};

/// Where, what, and with which options; in the order to mount in.
const MOUNTS: [(&str, &str, &str); 12] = [
    ("/proc", "proc", ""),
    ("/sys", "sysfs", ""),
    ("/dev", "devtmpfs", ""),
    ("/dev/pts", "devpts", "ptmxmode=0666"),
    ("/dev/shm", "tmpfs", "mode=1777"),
    ("/run", "tmpfs", "mode=0755"),
    ("/tmp", "tmpfs", "mode=1777"),
    ("/sys/kernel/security", "securityfs", ""),
    ("/sys/kernel/debug", "debugfs", ""),
    ("/sys/kernel/tracing", "tracefs", ""),
    ("/sys/fs/bpf", "bpf", ""),
    (CGROUP, "cgroup2", ""),
];

const CGROUP: &str = "/sys/fs/cgroup";

/// Mounts everything that this kernel knows; one that it doesn't know is left out, as some
/// configurations lack some.
pub fn mount_all() -> Result<()> {
    for (target, kind, options) in MOUNTS {
        match fs::create_dir_all(target) {
            // The folders in sysfs are the kernel's to make: no folder, no such file system.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => continue,
            result => result.with_context(|| format!("cannot create {target}"))?,
        }
        let options = CString::new(options).context("mount options")?;
        match mount(kind, target, kind, MountFlags::empty(), Some(options.as_c_str())) {
            // devtmpfs may be mounted by the kernel itself.
            Ok(()) | Err(Errno::NODEV | Errno::BUSY) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot mount {kind} on {target}"));
            }
        }
    }
    link_streams()?;
    delegate_controllers()
}

/// The names that programs know their own streams by; devtmpfs doesn't have them.
fn link_streams() -> Result<()> {
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ] {
        symlink(target, link).with_context(|| format!("cannot link {link} to {target}"))?;
    }
    Ok(())
}

/// Lets cgroups below the root use the controllers that matter here.
fn delegate_controllers() -> Result<()> {
    let control = Path::new(CGROUP).join("cgroup.subtree_control");
    if !control.exists() {
        return Ok(());
    }
    fs::write(&control, "+memory +cpu")
        .with_context(|| format!("cannot enable controllers in {}", control.display()))
}
