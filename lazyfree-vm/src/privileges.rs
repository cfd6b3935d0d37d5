//! Running a program with fewer rights than root has.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities,
};

/// A user without any rights.
const NOBODY: u32 = 65534;

/// The capabilities that can be kept, by the name that an administrator knows, lower case.
const KNOWN: [(&str, CapabilitySet); 4] = [
    ("bpf", CapabilitySet::BPF),
    ("perfmon", CapabilitySet::PERFMON),
    ("syslog", CapabilitySet::SYSLOG),
    ("sys_resource", CapabilitySet::SYS_RESOURCE),
];

/// Becomes another program, as a user that has only these capabilities. Comes back only if it
/// can't.
pub fn become_nobody_with(kept: &str, command: &[OsString]) -> Result<()> {
    let mut capabilities = CapabilitySet::empty();
    for name in kept.split(',').filter(|name| !name.is_empty()) {
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        capabilities |= known.with_context(|| format!("no capability {name}"))?.1;
    }
    let [program, arguments @ ..] = command else { bail!("no command to run") };
    set_keep_capabilities(true).context("cannot keep capabilities")?;
    drop_ids()?;
    let sets = CapabilitySets {
        effective: capabilities,
        permitted: capabilities,
        inheritable: capabilities,
    };
    set_capabilities(None, sets).context("cannot set the capabilities")?;
    for capability in capabilities {
        configure_capability_in_ambient_set(capability, true)
            .context("cannot hand a capability down")?;
    }
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.to_string_lossy()))
}

/// The process has one thread, so that the ids of it are those of all.
fn drop_ids() -> Result<()> {
    // SAFETY: none of the three takes a pointer that is read.
    let failed = unsafe {
        libc::setgroups(0, std::ptr::null()) != 0
            || libc::setresgid(NOBODY, NOBODY, NOBODY) != 0
            || libc::setresuid(NOBODY, NOBODY, NOBODY) != 0
    };
    ensure!(!failed, "cannot become nobody: {}", std::io::Error::last_os_error());
    Ok(())
}
