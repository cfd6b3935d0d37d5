//! The two kinds of probe.

/// How the probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}
