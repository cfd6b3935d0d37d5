//! What this process may do on this host: its capabilities, and the switches that take rights away.
//! Facts only; what follows from them for each hook is for the plan.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use procfs::process::Process;

/// Where tracefs is mounted, the place of its own first.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Everything that was found; `None` is what couldn't be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// The capabilities in effect.
    pub capabilities: Option<Capabilities>,
    /// Whether user ids are those of the host. Where they aren't, this process runs in a user
    /// namespace, as in a container without root, and its capabilities don't count for BPF.
    pub host_user_ids: Option<bool>,
    /// `kernel.perf_event_paranoid`; from 2 on, others than root may measure only themselves.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.kptr_restrict`: 2 hides addresses from everybody, 1 from those without CAP_SYSLOG; 0
    /// shows them, but is like 1 where perf_event_paranoid is above 1.
    pub kptr_restrict: Option<i32>,
    /// `kernel.unprivileged_bpf_disabled`: 0 no, 1 for good, 2 until somebody changes it.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// How far the kernel is closed even to root. Securityfs may be missing, or the kernel built
    /// without lockdown: both are unknown.
    pub lockdown: Option<Lockdown>,
    /// The files of tracepoints.
    pub tracefs: Tracefs,
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

/// A capability that matters to us, and its bit; see capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Reading files of others, tracefs among them.
    DacReadSearch = 2,
    /// Reading the memory maps of others.
    SysPtrace = 19,
    /// Nearly everything.
    SysAdmin = 21,
    /// Raising limits, such as that of locked memory that BPF needs before 5.11.
    SysResource = 24,
    /// Seeing addresses in kallsyms.
    Syslog = 34,
    /// Attaching to perf events, kprobes, tracepoints.
    Perfmon = 38,
    /// Loading programs and creating maps.
    Bpf = 39,
}

/// What the kernel refuses even to root; see kernel_lockdown(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lockdown {
    /// Nothing.
    None,
    /// Changing the running kernel.
    Integrity,
    /// Also reading its memory: BPF programs that do aren't loaded, and tracefs is empty.
    Confidentiality,
}

/// Whether there are files of tracepoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tracefs {
    /// They are below this folder.
    At(PathBuf),
    /// This folder may not be entered.
    Forbidden(PathBuf),
    /// It is not mounted, or it is and the kernel shows no events.
    #[default]
    Absent,
}

impl Privileges {
    /// Reads what this host says of this process.
    pub fn read() -> Self {
        let sysctl = |name| parse_sysctl(&read(&format!("/proc/sys/kernel/{name}"))?);
        let status = Process::myself().and_then(|myself| myself.status()).ok();
        Self {
            capabilities: status.map(|status| Capabilities(status.capeff)),
            host_user_ids: read("/proc/self/uid_map").map(|map| maps_all_to_themselves(&map)),
            perf_event_paranoid: sysctl("perf_event_paranoid"),
            kptr_restrict: sysctl("kptr_restrict"),
            unprivileged_bpf_disabled: sysctl("unprivileged_bpf_disabled"),
            lockdown: read("/sys/kernel/security/lockdown").and_then(|text| Lockdown::parse(&text)),
            tracefs: Tracefs::find(|path| fs::metadata(path).map(drop)),
        }
    }
}

impl Capabilities {
    /// Whether this one is in the set.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u32) != 0
    }

    /// Whether what this one is for is allowed. CAP_SYS_ADMIN was all that CAP_BPF, CAP_PERFMON and
    /// CAP_SYSLOG are now, and still stands for the first two.
    pub fn allows(self, capability: Capability) -> bool {
        let stood_for = matches!(capability, Capability::Bpf | Capability::Perfmon);
        self.has(capability) || (stood_for && self.has(Capability::SysAdmin))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Syslog => "CAP_SYSLOG",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        })
    }
}

impl Lockdown {
    /// Reads `none [integrity] confidentiality`: the one in brackets is in force.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once('[')?;
        match rest.split_once(']')?.0 {
            "none" => Some(Self::None),
            "integrity" => Some(Self::Integrity),
            "confidentiality" => Some(Self::Confidentiality),
            _ => None,
        }
    }
}

impl Tracefs {
    /// Looks for the folder `events`, which an unmounted place doesn't have.
    fn find(look: impl Fn(&Path) -> io::Result<()>) -> Self {
        let mut found = Self::Absent;
        for folder in TRACEFS.map(PathBuf::from) {
            match look(&folder.join("events")) {
                Ok(()) => return Self::At(folder),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    if found == Self::Absent {
                        found = Self::Forbidden(folder);
                    }
                }
                Err(_) => {}
            }
        }
        found
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn parse_sysctl(text: &str) -> Option<i32> {
    text.trim().parse().ok()
}

/// Whether a `uid_map` is that of the first user namespace: every id is itself.
fn maps_all_to_themselves(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits() {
        // What systemd gives a unit with CapabilityBoundingSet=CAP_BPF CAP_PERFMON.
        let few = Capabilities(0x0000_00c0_0000_0000);
        assert!(few.has(Capability::Bpf) && few.has(Capability::Perfmon));
        assert!(!few.has(Capability::Syslog) && !few.has(Capability::SysAdmin));
        // All of 41 without CAP_SYS_RESOURCE.
        let most = Capabilities(0x0000_01ff_feff_ffff);
        assert!(!most.has(Capability::SysResource));
        assert!(most.has(Capability::SysAdmin) && most.has(Capability::SysPtrace));
        assert!(!Capabilities::default().has(Capability::DacReadSearch));
    }

    #[test]
    fn sys_admin_stands_for_bpf_and_perfmon_only() {
        let admin = Capabilities(1 << 21);
        assert!(admin.allows(Capability::Bpf) && admin.allows(Capability::Perfmon));
        assert!(admin.allows(Capability::SysAdmin));
        assert!(!admin.has(Capability::Bpf));
        assert!(!admin.allows(Capability::Syslog) && !admin.allows(Capability::SysResource));
        assert!(Capabilities(1 << 34).allows(Capability::Syslog));
        assert!(!Capabilities(0).allows(Capability::Bpf));
    }

    #[test]
    fn the_lockdown_in_brackets_is_in_force() {
        for (text, expected) in [
            ("[none] integrity confidentiality\n", Some(Lockdown::None)),
            ("none [integrity] confidentiality\n", Some(Lockdown::Integrity)),
            ("none integrity [confidentiality]\n", Some(Lockdown::Confidentiality)),
            ("none integrity confidentiality\n", None),
            ("none [something] confidentiality\n", None),
            ("none [integrity", None),
            ("]integrity[", None),
            ("", None),
        ] {
            assert_eq!(Lockdown::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_sysctl_is_one_number_which_may_be_negative() {
        for (text, expected) in [
            ("2\n", Some(2)),
            ("-1\n", Some(-1)),
            ("", None),
            ("2 3\n", None),
            ("yes\n", None),
            ("99999999999\n", None),
        ] {
            assert_eq!(parse_sysctl(text), expected, "{text:?}");
        }
    }

    #[test]
    fn user_ids_of_the_host_are_themselves() {
        assert!(maps_all_to_themselves("         0          0 4294967295\n"));
        assert!(!maps_all_to_themselves("         0       1000          1\n"));
        assert!(!maps_all_to_themselves("0 1000 1\n1 100000 65536\n"));
        assert!(!maps_all_to_themselves(""));
    }

    #[test]
    fn tracefs_is_where_its_events_are() {
        let find = |own: Result<(), i32>, debugfs: Result<(), i32>| {
            Tracefs::find(|path| {
                let result = match path.to_str() {
                    Some("/sys/kernel/tracing/events") => own,
                    Some("/sys/kernel/debug/tracing/events") => debugfs,
                    other => panic!("{other:?}"),
                };
                result.map_err(io::Error::from_raw_os_error)
            })
        };
        let own = || PathBuf::from("/sys/kernel/tracing");
        let debugfs = || PathBuf::from("/sys/kernel/debug/tracing");
        let (absent, forbidden) = (Err(libc::ENOENT), Err(libc::EACCES));
        assert_eq!(find(Ok(()), Ok(())), Tracefs::At(own()));
        assert_eq!(find(absent, Ok(())), Tracefs::At(debugfs()));
        assert_eq!(find(forbidden, Ok(())), Tracefs::At(debugfs()));
        assert_eq!(find(forbidden, forbidden), Tracefs::Forbidden(own()));
        assert_eq!(find(absent, forbidden), Tracefs::Forbidden(debugfs()));
        assert_eq!(find(absent, absent), Tracefs::Absent);
    }

    #[test]
    fn every_process_can_read_its_own_capabilities() {
        let privileges = Privileges::read();
        assert!(privileges.capabilities.is_some());
        assert!(privileges.host_user_ids.is_some());
    }
}
