//! What decides on what is observed, as an administrator knows it. Pure.

use procfs::ConfigSetting;

use super::{
    offer::{Memory, Offer},
    privileges::{Capability, Lockdown, Privileges, Tracefs},
};
use crate::sample::Fact;

/// The capabilities that matter, those first that everything depends on.
const CAPABILITIES: [Capability; 7] = [
    Capability::Bpf,
    Capability::Perfmon,
    Capability::Syslog,
    Capability::SysAdmin,
    Capability::SysResource,
    Capability::SysPtrace,
    Capability::DacReadSearch,
];

/// The options that a kernel needs for all signals to be exact.
const OPTIONS: [&str; 7] = [
    "CONFIG_DEBUG_INFO_BTF",
    "CONFIG_BPF_SYSCALL",
    "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
    "CONFIG_KPROBES",
    "CONFIG_KPROBE_EVENTS",
    "CONFIG_KALLSYMS_ALL",
    "CONFIG_FTRACE_SYSCALLS",
];

/// Everything that was found out.
pub fn facts(offer: &Offer) -> Vec<Fact> {
    let privileges = &offer.privileges;
    let fact = |name: &str, value: String, remark: &str| Fact {
        name: name.to_owned(),
        value,
        remark: remark.to_owned(),
    };
    let (types, remark) = match &offer.types {
        Ok(_) => ("/sys/kernel/btf/vmlinux".to_owned(), ""),
        Err(why) => (
            why.clone(),
            "functions and structures of this kernel can't be known, so most programs can't run",
        ),
    };
    let mut facts = vec![fact("type information", types, remark), capabilities(privileges)];
    let lockdown = match privileges.lockdown {
        None => ("unknown", ""),
        Some(Lockdown::None) => ("none", ""),
        Some(Lockdown::Integrity) => ("integrity", ""),
        Some(Lockdown::Confidentiality) => (
            "confidentiality",
            "programs may not read kernel memory, and kprobes and tracefs are closed",
        ),
    };
    facts.push(fact("lockdown", lockdown.0.to_owned(), lockdown.1));
    facts.push(match &offer.memory {
        Memory::Readable => fact("kernel memory", "readable".to_owned(), ""),
        Memory::Untried => {
            fact("kernel memory", "unknown".to_owned(), "no program was loaded that tried")
        }
        Memory::Closed { why, .. } => fact("kernel memory", "closed".to_owned(), why),
    });
    facts.extend(sysctls(privileges).map(|(name, value, remark)| fact(name, value, remark)));
    let tracefs = match &privileges.tracefs {
        Tracefs::At(path) => (path.display().to_string(), ""),
        Tracefs::Forbidden(path) => {
            (format!("{} may not be read", path.display()), "system calls can't be followed")
        }
        Tracefs::Absent => ("not mounted".to_owned(), "system calls can't be followed"),
    };
    facts.push(fact("tracefs", tracefs.0, tracefs.1));
    let lru = if offer.mglru { "multi-generational (lru_gen/enabled)" } else { "classic" };
    facts.push(fact("LRU", lru.to_owned(), ""));
    facts.push(options(offer));
    facts
}

fn capabilities(privileges: &Privileges) -> Fact {
    let name = "capabilities".to_owned();
    let Some(capabilities) = privileges.capabilities else {
        return Fact { name, value: "unknown".to_owned(), remark: String::new() };
    };
    let (has, lacks): (Vec<_>, Vec<_>) =
        CAPABILITIES.iter().partition(|capability| capabilities.has(**capability));
    let list = |capabilities: Vec<&Capability>| {
        capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let value = if has.is_empty() { "none of those that matter".to_owned() } else { list(has) };
    let mut remarks = Vec::new();
    if !lacks.is_empty() {
        remarks.push(format!("without {}", list(lacks)));
    }
    if privileges.host_user_ids == Some(false) {
        remarks.push("of a user namespace, where they don't count for BPF".to_owned());
    }
    Fact { name, value, remark: remarks.join("; ") }
}

fn sysctls(privileges: &Privileges) -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let kptr_restrict = match privileges.kptr_restrict {
        Some(2..) => "addresses are hidden from everybody",
        _ => "",
    };
    let paranoid = match privileges.perf_event_paranoid {
        Some(3..) => "on kernels with Debian's patch kprobes and tracepoints take root",
        _ => "",
    };
    [
        ("kernel.kptr_restrict", privileges.kptr_restrict, kptr_restrict),
        ("kernel.perf_event_paranoid", privileges.perf_event_paranoid, paranoid),
        ("kernel.unprivileged_bpf_disabled", privileges.unprivileged_bpf_disabled, ""),
    ]
    .into_iter()
    .map(|(name, value, remark)| {
        let value = value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
        (name, value, remark)
    })
}

fn options(offer: &Offer) -> Fact {
    let (off, on): (Vec<_>, Vec<_>) =
        OPTIONS.into_iter().partition(|option| offer.config.is_off(option));
    let known = on.iter().any(|option| {
        matches!(offer.config.get(option), Some(ConfigSetting::Yes | ConfigSetting::Module))
    });
    let (value, remark) = match (off.is_empty(), known) {
        (true, true) => ("all that are needed are on".to_owned(), String::new()),
        (true, false) => ("unknown".to_owned(), "no file of this kernel's options".to_owned()),
        (false, _) => (
            off.iter().map(|option| format!("{option} is off")).collect::<Vec<_>>().join(", "),
            "this kernel was built without them".to_owned(),
        ),
    };
    Fact { name: "kernel options".to_owned(), value, remark }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{config::Config, fixture::Kernel, privileges::Capabilities},
        *,
    };

    fn value<'a>(facts: &'a [Fact], name: &str) -> (&'a str, &'a str) {
        let fact = facts.iter().find(|fact| fact.name == name).expect(name);
        (&fact.value, &fact.remark)
    }

    #[test]
    fn what_is_missing_is_told_by_the_name_it_has_for_an_administrator() {
        let text = b"CONFIG_BPF_SYSCALL=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_FTRACE_SYSCALLS=y\n\
                     CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y\n# CONFIG_KPROBES is not set\n";
        let privileges = Privileges {
            capabilities: Some(Capabilities::default()),
            kptr_restrict: Some(2),
            lockdown: Some(Lockdown::Confidentiality),
            ..Privileges::default()
        };
        let offer = Offer {
            config: Config::parse(text),
            privileges,
            memory: Memory::Closed { why: "programs may not read it".to_owned(), fix: "" },
            types: Err("cannot read /sys/kernel/btf/vmlinux".to_owned()),
            ..Kernel::of(6, 18).offer()
        };
        let facts = facts(&offer);
        assert_eq!(
            value(&facts, "kernel options").0,
            "CONFIG_KPROBES is off, CONFIG_KPROBE_EVENTS is off, CONFIG_KALLSYMS_ALL is off"
        );
        let (has, lacks) = value(&facts, "capabilities");
        assert_eq!(has, "none of those that matter");
        assert!(lacks.starts_with("without CAP_BPF, CAP_PERFMON, CAP_SYSLOG"), "{lacks}");
        assert_eq!(
            value(&facts, "kernel.kptr_restrict"),
            ("2", "addresses are hidden from everybody")
        );
        assert_eq!(value(&facts, "lockdown").0, "confidentiality");
        assert_eq!(value(&facts, "kernel memory").0, "closed");
        assert_eq!(value(&facts, "tracefs").0, "not mounted");
        assert!(value(&facts, "type information").0.contains("/sys/kernel/btf/vmlinux"));
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_not_off() {
        let facts = facts(&Offer { memory: Memory::Untried, ..Kernel::of(6, 12).offer() });
        for name in
            ["capabilities", "lockdown", "kernel memory", "kernel.kptr_restrict", "kernel options"]
        {
            assert_eq!(value(&facts, name).0, "unknown", "{name}");
        }
        assert_eq!(value(&facts, "type information"), ("/sys/kernel/btf/vmlinux", ""));
    }
}
