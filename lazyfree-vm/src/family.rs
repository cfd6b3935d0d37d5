//! The two kinds of probe.

use serde::{Deserialize, Serialize};

/// How the probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// BPF trampolines.
    Fentry,
    /// kprobe and kretprobe.
    Kprobe,
}

impl Family {
    /// Both.
    pub const ALL: [Family; 2] = [Family::Fentry, Family::Kprobe];

    /// As `lazyfree --probes` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Family::Fentry => "fentry",
            Family::Kprobe => "kprobe",
        }
    }

    /// What its programs are called in `lazyfree`'s own words, at entry and at return.
    #[must_use]
    pub const fn kinds(self) -> [&'static str; 2] {
        match self {
            Family::Fentry => ["fentry", "fexit"],
            Family::Kprobe => ["kprobe", "kretprobe"],
        }
    }
}
