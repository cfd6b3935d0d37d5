//! Hosts that give less: each starts in the best mode left, counts right what it can there, says
//! the mode in a line, and `lazyfree doctor` names the cause and the fix.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    Case, Outcome,
    process::{Finished, read, run},
};
use crate::{
    host::Setting,
    matrix::SIGNALS,
    workloads::{expected, is_5_10},
};

/// A host that gives less, and what is left there.
#[derive(Clone, Copy)]
struct Host {
    name: &'static str,
    /// A setting of the kernel, and its value.
    setting: Option<(&'static str, &'static str)>,
    /// Shell commands that make it so in a mount namespace of their own; empty for none.
    mounts: &'static str,
    /// Capabilities that are left to a user without any rights; `None` for root.
    capabilities: Option<&'static str>,
    /// Arguments of every command.
    arguments: &'static [&'static str],
    /// The mode that is left.
    mode: &'static str,
    /// Signals that are observed.
    observed: &'static [&'static str],
    /// Signals that are observed on some kernels.
    either: &'static [&'static str],
    /// Whether stalls are.
    stalls: bool,
    /// Whether it is worse than a host that gives all.
    degraded: bool,
    /// What `doctor` must say: the cause, and the fix.
    words: &'static [&'static str],
}

const FULL: Host = Host {
    name: "full",
    setting: None,
    mounts: "",
    capabilities: None,
    arguments: &[],
    mode: "fentry",
    observed: &SIGNALS,
    either: &["deactivated"],
    stalls: true,
    degraded: false,
    words: &[],
};

/// What the tracepoints and the kernel's own counters tell.
const OF_TRACEPOINTS: &[&str] = &[
    "advised",
    "marked",
    "hit",
    "redirtied",
    "compaction_scanned",
    "compaction_isolated",
    "compaction_pinned",
];

/// What the kernel's own counters tell.
const OF_PROCFS: &[&str] = &["marked", "hit", "compaction_scanned"];

const KPTR_RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// No folder of tracefs, wherever a distribution mounts it.
const NO_TRACEFS: &str =
    "mount -t tmpfs none /sys/kernel/tracing; mount -t tmpfs none /sys/kernel/debug";

const HOSTS: [Host; 11] = [
    FULL,
    Host {
        name: "tracepoints",
        arguments: &["--probes", "tracepoint"],
        mode: "tracepoint",
        observed: OF_TRACEPOINTS,
        degraded: true,
        words: &["not asked for"],
        ..FULL
    },
    Host {
        name: "proc_only",
        arguments: &["--probes", "procfs"],
        mode: "procfs",
        observed: OF_PROCFS,
        stalls: false,
        degraded: true,
        words: &["not asked for"],
        ..FULL
    },
    Host {
        name: "no_btf",
        mounts: "mount -t tmpfs none /sys/kernel/btf",
        mode: "tracepoint",
        // Without types only what reads no argument, and what tracefs describes.
        observed: &["advised", "marked", "hit", "compaction_scanned"],
        // Up to 6.8 the function frees one entry, whatever its arguments.
        either: &["swap_entries_freed"],
        degraded: true,
        words: &["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF=y"],
        ..FULL
    },
    Host {
        name: "no_btf_no_tracefs",
        mounts: "mount -t tmpfs none /sys/kernel/btf; \
                 mount -t tmpfs none /sys/kernel/tracing; mount -t tmpfs none /sys/kernel/debug",
        mode: "tracepoint",
        observed: OF_PROCFS,
        degraded: true,
        words: &["tracefs isn't mounted", "mount -t tracefs tracefs /sys/kernel/tracing"],
        ..FULL
    },
    Host { name: "no_tracefs", mounts: NO_TRACEFS, words: &["tracefs", "not mounted"], ..FULL },
    Host {
        name: "no_addresses",
        setting: Some((KPTR_RESTRICT, "2")),
        // Pins of compaction need an address as well, which is derived.
        observed: &[
            "advised",
            "marked",
            "swap_entries_freed",
            "hit",
            "redirtied",
            "reclaim_pinned",
            "kept",
            "compaction_scanned",
            "compaction_isolated",
            "compaction_pinned",
        ],
        degraded: true,
        words: &["kernel.kptr_restrict", "set kernel.kptr_restrict to 0 or 1"],
        ..FULL
    },
    Host {
        name: "paranoid",
        setting: Some((PARANOID, "4")),
        words: &["kernel.perf_event_paranoid", "4"],
        ..FULL
    },
    Host {
        name: "two_capabilities",
        capabilities: Some("bpf,perfmon"),
        observed: &[
            "advised",
            "marked",
            "swap_entries_freed",
            "hit",
            "redirtied",
            "reclaim_pinned",
            "kept",
            "compaction_scanned",
            "compaction_isolated",
        ],
        degraded: true,
        words: &["CAP_SYSLOG", "without CAP_SYSLOG"],
        ..FULL
    },
    Host {
        name: "two_capabilities_paranoid",
        setting: Some((PARANOID, "4")),
        arguments: &["--probes", "tracepoint"],
        capabilities: Some("bpf,perfmon"),
        mode: "tracepoint",
        observed: &["marked", "hit", "redirtied", "compaction_scanned", "compaction_isolated"],
        degraded: true,
        words: &["not_permitted"],
        ..FULL
    },
    Host {
        name: "no_capability",
        capabilities: Some(""),
        mode: "procfs",
        observed: OF_PROCFS,
        stalls: false,
        degraded: true,
        words: &["lacks CAP_BPF and CAP_PERFMON", "run as root"],
        ..FULL
    },
];

/// Memory of the kernel is closed until the next boot, so this one comes after all other tests.
const CONFIDENTIAL: Host = Host {
    name: "confidentiality",
    observed: &["advised", "marked", "hit", "compaction_scanned", "compaction_isolated"],
    // A trampoline of 5.10 doesn't take its argument, and kprobes are closed.
    either: &["deactivated", "swap_entries_freed"],
    degraded: true,
    words: &["lockdown=confidentiality", "boot with lockdown=integrity"],
    ..FULL
};

const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

pub fn cases() -> Vec<Case> {
    let case = |host: Host| Case::new(format!("degraded_{}", host.name), move || host.check());
    HOSTS.into_iter().map(case).collect()
}

/// To be run after all others: there is no way back.
pub fn last_cases() -> Vec<Case> {
    let lock = || {
        if !Path::new(LOCKDOWN).exists() {
            return Ok(Outcome::Skipped("this kernel was built without lockdown".to_owned()));
        }
        fs::write(LOCKDOWN, "confidentiality").context("cannot lock the kernel down")?;
        CONFIDENTIAL.check()
    };
    vec![Case::new("degraded_confidentiality", lock)]
}

impl Host {
    /// `lazyfree` on this host.
    fn lazyfree(&self, arguments: &[&str]) -> Command {
        let mut words = Vec::new();
        // Before 5.11 BPF maps are charged to RLIMIT_MEMLOCK, which this one raises.
        let kept = self.capabilities.map(|kept| match kept {
            "bpf,perfmon" if is_5_10() => "bpf,perfmon,sys_resource",
            kept => kept,
        });
        if let Some(kept) = kept {
            words.extend(["lazyfree-e2e", "--nobody-with", kept]);
        }
        words.push("lazyfree");
        words.extend(arguments);
        if self.mounts.is_empty() {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            return command;
        }
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{}; exec \"$@\"", self.mounts), "sh"]);
        command.args(words);
        command
    }

    fn check(self) -> Result<Outcome> {
        let _setting =
            self.setting.map(|(path, value)| Setting::change(path, value)).transpose()?;
        self.doctor()?;
        // Where nothing is lost, the other tests count.
        if self.degraded {
            self.counts()?;
            if self.observed.contains(&"compaction_pinned") {
                self.counts_pins()?;
            }
        }
        Ok(Outcome::Passed)
    }

    /// What `doctor` says of the host.
    fn doctor(&self) -> Result<()> {
        let arguments = [&["doctor", "--json"], self.arguments].concat();
        let Finished { status, stdout, stderr } = run(&mut self.lazyfree(&arguments))?;
        let expected = i32::from(self.degraded);
        ensure!(status.code() == Some(expected), "doctor: {status}: {stdout}{stderr}");
        let report: Value =
            serde_json::from_str(&stdout).with_context(|| format!("doctor: {stdout}{stderr}"))?;
        let mode = report.get("mode").and_then(Value::as_str);
        ensure!(mode == Some(self.mode), "doctor says mode {mode:?}: {report}");
        for word in self.words {
            ensure!(stdout.contains(word), "doctor doesn't say `{word}`: {stdout}");
        }
        Ok(())
    }

    /// A workload's report, and what `lazyfree stat` counted meanwhile.
    fn stat(&self, workload: &[&str]) -> Result<(Value, Value)> {
        let report = format!("/tmp/e2e-degraded-{}.json", self.name);
        let options = ["stat", "--json", "-o", &report];
        let arguments =
            [&options, self.arguments, &["--", "lazyfree", "workload"], workload].concat();
        let Finished { status, stdout, stderr } = run(&mut self.lazyfree(&arguments))?;
        ensure!(status.success(), "stat: {status}: {stdout}{stderr}");
        // The mode, in a line that people see.
        let line = stderr.lines().find(|line| line.contains(&format!("mode {}", self.mode)));
        ensure!(line.is_some(), "stderr: {stderr}");
        Ok((serde_json::from_str(&stdout)?, serde_json::from_str(&read(&report)?)?))
    }

    /// Pins that compaction passes over are counted, wherever struct pages are looked up.
    fn counts_pins(&self) -> Result<()> {
        let (did, stat) = self.stat(&["compact", "--pages", "8192"])?;
        let known = expected(&did, "expected")?;
        let pinned = known.get("compaction_pinned").context("no number of pins")?;
        let row = stat.pointer("/signals/compaction_pinned").context("no row")?;
        let pages = row.get("pages").and_then(Value::as_i64);
        ensure!(*pinned > 0 && pages == Some(*pinned), "{pinned} pins: {row}");
        Ok(())
    }

    /// What is observed is right, and the rest isn't there.
    fn counts(&self) -> Result<()> {
        let (did, stat) = self.stat(&["redirty", "--pages", "2048"])?;
        let signals = stat.get("signals").and_then(Value::as_object).context("no signals")?;
        let known = expected(&did, "expected")?;
        for (name, row) in signals {
            let pages = row.get("pages").and_then(Value::as_i64);
            let accuracy = row.get("accuracy").and_then(Value::as_str).unwrap_or_default();
            let has = |names: &[&str]| names.contains(&name.as_str());
            ensure!(
                has(self.either) || has(self.observed) == pages.is_some(),
                "{name} {pages:?}: {stat}"
            );
            ensure!(pages.is_some() == (accuracy != "none"), "{name}: {row}");
            let reason = row.get("reason").and_then(Value::as_str).unwrap_or_default();
            ensure!(accuracy == "exact" || !reason.is_empty(), "{name} has no reason: {row}");
            if accuracy == "exact"
                && let Some(known) = known.get(name)
            {
                ensure!(pages == Some(*known), "{name}, {known} expected: {row}");
            }
        }
        for (name, exact) in [("marked", "pglazyfree"), ("hit", "pglazyfreed")] {
            let delta = stat.pointer(&format!("/vmstat/{exact}")).and_then(Value::as_i64);
            ensure!(delta == known.get(name).copied(), "{exact} {delta:?}: {stat}");
        }
        let processes = stat.get("processes").and_then(Value::as_array).context("no processes")?;
        if self.observed.contains(&"advised") {
            let row = processes.iter().find(|row| row.get("tgid") == did.get("pid"));
            let advised = row.and_then(|row| row.get("advised")?.as_i64());
            ensure!(advised == Some(2048), "{did} is not among {processes:?}");
        }
        let stalls = stat.get("stalls").and_then(Value::as_object).context("no stalls")?;
        let told = stalls.values().any(|stall| stall.get("count").is_some());
        ensure!(told == self.stalls, "stalls: {stalls:?}");
        Ok(())
    }
}
