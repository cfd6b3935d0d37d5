//! Why the kernel refused a program, in words that lead on. Pure.

use std::{
    error::Error,
    io::{self, ErrorKind},
    iter::successors,
};

use aya::{
    EbpfError,
    programs::{KProbeError, ProgramError, TracePointError},
    sys::SyscallError,
};

use super::{
    offer::Offer,
    plan::{MOUNT_TRACEFS, PRIVILEGES, UNLOCK},
    privileges::Lockdown,
    release::Release,
};
use crate::{
    sample::{Cause, Refused},
    signal::HookKind,
};

/// Lines of the verifier's that are kept; the last of them say what is wrong.
const LOG_LINES: usize = 12;

/// Longest part of a verifier's log that fits into a reason.
const REASON_LINES: usize = 4;

/// What to say of a candidate of which a program couldn't be loaded or attached.
pub fn refusal(kind: HookKind, symbol: &str, error: &ProgramError, offer: &Offer) -> Refused {
    let (cause, reason, fix) = told(error, offer);
    Refused {
        kind,
        symbol: symbol.to_owned(),
        cause,
        reason,
        fix: fix.to_owned(),
        verifier_log: verifier_log(error),
    }
}

fn told(error: &ProgramError, offer: &Offer) -> (Cause, String, &'static str) {
    match error {
        // The kind of perf event that kprobes are attached through isn't registered.
        ProgramError::KProbeError(KProbeError::FileError { io_error, .. })
            if io_error.kind() == ErrorKind::NotFound =>
        {
            (
                Cause::NotBuiltIn,
                "this kernel has no kprobe events (CONFIG_KPROBE_EVENTS)".to_owned(),
                "a kernel built with CONFIG_KPROBES=y and CONFIG_KPROBE_EVENTS=y",
            )
        }
        ProgramError::TracePointError(TracePointError::FileError { .. }) => (
            Cause::NoTracefs,
            format!("the tracepoint's id can't be read ({})", describe(error)),
            MOUNT_TRACEFS,
        ),
        ProgramError::SyscallError(SyscallError { call: "perf_event_open", io_error })
            if io_error.kind() == ErrorKind::PermissionDenied =>
        {
            let paranoid = offer.privileges.perf_event_paranoid;
            let paranoid = paranoid.map_or(String::new(), |level| format!(" is {level}"));
            (
                Cause::NotPermitted,
                format!("perf_event_open is refused; kernel.perf_event_paranoid{paranoid}"),
                "set kernel.perf_event_paranoid to 2 or less, or run as root",
            )
        }
        ProgramError::LoadError { io_error, verifier_log }
            if io_error.kind() == ErrorKind::PermissionDenied
                && verifier_log.to_string().trim().is_empty() =>
        {
            (
                Cause::Refused,
                "BPF_PROG_LOAD is refused before verification (Operation not permitted): a \
                 security module or a restriction of this machine forbids such programs"
                    .to_owned(),
                "",
            )
        }
        ProgramError::LoadError { .. } => {
            let confidential = offer.privileges.lockdown == Some(Lockdown::Confidentiality);
            let fix = if confidential { UNLOCK } else { "" };
            (Cause::Verifier, describe(error), fix)
        }
        _ => (Cause::Refused, describe(error), ""),
    }
}

/// The end of what the verifier said; empty if it did not see the program.
fn verifier_log(error: &ProgramError) -> String {
    let ProgramError::LoadError { verifier_log, .. } = error else { return String::new() };
    let log = verifier_log.to_string();
    let lines: Vec<_> = log.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// What to say of all programs where not even the maps could be made.
pub fn refusal_of_maps(error: &EbpfError, release: Release) -> (Cause, String, String) {
    let kinds = || {
        let errors = chain(error).filter_map(|error| error.downcast_ref::<io::Error>());
        errors.map(io::Error::kind)
    };
    if kinds().any(|kind| kind == ErrorKind::Unsupported) {
        let reason = "this kernel has no bpf system call (CONFIG_BPF_SYSCALL)".to_owned();
        return (Cause::NotBuiltIn, reason, "a kernel built with CONFIG_BPF_SYSCALL=y".to_owned());
    }
    let reason = format!("the kernel refused to create BPF maps ({})", describe(error));
    if kinds().any(|kind| kind == ErrorKind::PermissionDenied) {
        let mut fix = PRIVILEGES.to_owned();
        if release < Release::new(5, 11) {
            // Maps are charged to RLIMIT_MEMLOCK there.
            fix += ", and before 5.11 CAP_SYS_RESOURCE";
        }
        return (Cause::NotPermitted, reason, fix);
    }
    (Cause::Refused, reason, String::new())
}

/// An error and its causes.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| (**error).source())
}

/// An error with its causes, on one line.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut causes: Vec<String> = Vec::new();
    for error in chain(error) {
        let text = error.to_string();
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let tail = lines.len().saturating_sub(REASON_LINES).max(1).min(lines.len());
        let text = [&lines[..lines.len().min(1)], &lines[tail..]].concat().join(" | ");
        if !causes.iter().any(|cause| cause.contains(&text)) {
            causes.push(text);
        }
    }
    causes.join(": ")
}

#[cfg(test)]
mod tests {
    use aya::maps::MapError;

    use super::*;

    fn of_maps(errno: i32, release: Release) -> (Cause, String, String) {
        let io_error = io::Error::from_raw_os_error(errno);
        refusal_of_maps(
            &MapError::CreateError { name: "TOTALS".to_owned(), io_error }.into(),
            release,
        )
    }

    #[test]
    fn maps_that_are_refused_are_told_apart_by_the_error() {
        let new = Release::new(6, 1);
        let (cause, reason, fix) = of_maps(libc::ENOSYS, new);
        assert_eq!((cause, &*fix), (Cause::NotBuiltIn, "a kernel built with CONFIG_BPF_SYSCALL=y"));
        assert!(reason.contains("no bpf system call"), "{reason}");

        let (cause, reason, fix) = of_maps(libc::EPERM, new);
        assert_eq!((cause, &*fix), (Cause::NotPermitted, PRIVILEGES));
        assert!(reason.contains("Operation not permitted"), "{reason}");
        assert!(of_maps(libc::EPERM, Release::new(5, 10)).2.contains("CAP_SYS_RESOURCE"));

        // Neither a matter of privileges nor of the kernel's build: whatever it is, it is told.
        for errno in [libc::E2BIG, libc::EINVAL, libc::ENOMEM] {
            let (cause, reason, _) = of_maps(errno, new);
            assert_eq!(cause, Cause::Refused);
            let told = io::Error::from_raw_os_error(errno).to_string();
            assert!(reason.contains(&told), "{reason}");
        }
    }
}
