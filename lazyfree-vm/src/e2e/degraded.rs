//! Hosts that give less: each starts in the best mode left, counts right what it can there, says
//! the mode in a line, and `lazyfree doctor` names the cause and the fix.

use std::{collections::BTreeSet, fs, process::Command};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Case, Outcome, process::run};
use crate::workloads::expected;

/// A host that gives less, and what is left there.
struct Host {
    name: &'static str,
    /// Shell commands that make it so, in a mount namespace of their own.
    setup: &'static str,
    /// Words of busybox that run a program with less.
    with_less: &'static str,
    mode: &'static str,
    /// Signals that must be observed there.
    observed: &'static [&'static str],
    /// What `doctor` must name as the cause, and as the fix.
    cause: &'static str,
    fix: &'static str,
    /// Why this kernel can't be made so.
    missing: fn() -> Option<String>,
}

const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

/// Everything but what is inherent to the kernel.
const ALL: &[&str] = &[
    "advised",
    "marked",
    "swap_entries_freed",
    "attempts",
    "hit",
    "redirtied",
    "reclaim_pinned",
    "kept",
    "compaction_scanned",
    "compaction_isolated",
    "compaction_pinned",
];

fn always() -> Option<String> {
    None
}
