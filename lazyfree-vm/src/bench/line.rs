//! What the guest's half of the bench prints, one JSON object a line, and `xtask` reads. Pure.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Release of the kernel. First.
    Kernel(String),
    /// What a case took.
    Cost(Cost),
    /// A case that this guest can't do, and why.
    Skipped {
        /// The case.
        case: String,
        /// Why.
        reason: String,
    },
    /// Probes that this kernel doesn't take.
    Refused {
        /// Which.
        probes: Probes,
        /// What `lazyfree` said.
        reason: String,
    },
    /// Everything was done. Without this line the rest is not to be trusted.
    End,
}

/// What is attached while a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probes {
    /// Nothing: what the others are compared with.
    None,
    /// `--probes fentry`
    Fentry,
    /// `--probes kprobe`
    Kprobe,
    /// `--probes tracepoint`
    Tracepoint,
}

impl Probes {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Fentry, Self::Kprobe, Self::Tracepoint];

    /// As `lazyfree --probes` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fentry => "fentry",
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
        }
    }

    /// Reads the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|probes| probes.name() == name)
    }
}

/// Times of a case. With counted instructions a nanosecond of the guest is an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The case.
    pub case: String,
    /// What was attached.
    pub probes: Probes,
    /// Pages that the case works on.
    pub pages: u64,
    /// Time of each run.
    pub runs_ns: Vec<u64>,
}

impl Line {
    /// One line of text, without its end.
    pub fn encode(&self) -> Result<String> {
        serde_json::to_string(self).context("cannot write a line as JSON")
    }

    /// Reads it back.
    pub fn decode(text: &str) -> Result<Self> {
        serde_json::from_str(text).with_context(|| format!("no line of the bench: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_as_written() -> Result<()> {
        let cost =
            Cost { case: "mark".into(), probes: Probes::Kprobe, pages: 4, runs_ns: vec![1, 2] };
        let skipped = Line::Skipped { case: "anon".into(), reason: "no\nswap".into() };
        for line in [Line::Kernel("6.1".into()), Line::Cost(cost), skipped, Line::End] {
            let text = line.encode()?;
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(Line::decode(&text)?, line);
        }
        assert!(Line::decode("{\"cost\":{}}").is_err());
        Ok(())
    }
}
