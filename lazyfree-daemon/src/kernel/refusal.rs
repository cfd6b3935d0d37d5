//! Why the kernel refused a program, in words that lead on. Pure.

use std::{error::Error, io::ErrorKind, iter::successors};

use aya::{
    EbpfError,
    programs::{KProbeError, ProgramError, TracePointError},
    sys::SyscallError,
};

use super::{
    offer::Offer,
    plan::{MOUNT_TRACEFS, UNLOCK},
    privileges::Lockdown,
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

/// Whether this process may not use BPF at all.
pub fn is_not_permitted(error: &EbpfError) -> bool {
    chain(error)
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == ErrorKind::PermissionDenied)
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
