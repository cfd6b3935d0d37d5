//! What the guest's half of the matrix prints, one JSON object a line, and `xtask` reads. Pure.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::family::Family;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What the guest is like once it was switched as asked. First, unless it's `Refused`.
    Guest(Guest),
    /// The kernel has no such switch; this is all there is to say.
    Refused(String),
    /// How `lazyfree` observes a signal.
    Plan(Plan),
    /// What was counted of a signal while a workload ran.
    Count(Count),
    /// A workload that this guest can't do, and why.
    Skipped(Note),
    /// Something that should have worked, and didn't.
    Failed(Note),
    /// Everything was done. Without this line the rest is not to be trusted.
    End,
}

/// What a guest is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Release of the kernel.
    pub kernel: String,
    /// Version of the package it was built as, where the release doesn't tell.
    pub version: String,
    /// CPUs that are online.
    pub cpus: u64,
    /// Memory in MiB, less what the kernel took for itself.
    pub memory_mib: u64,
    /// Whether the multi-generational LRU is on; `None` where there is none.
    pub mglru: Option<bool>,
}

/// How far a number can be trusted, in the words of `lazyfree`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    /// Every page is counted once.
    Exact,
    /// Counted with a known gap.
    Estimate,
    /// Not observed.
    None,
}

impl Accuracy {
    /// The word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Accuracy::Exact => "exact",
            Accuracy::Estimate => "estimate",
            Accuracy::None => "none",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Accuracy::Exact, Accuracy::Estimate, Accuracy::None]
            .into_iter()
            .find(|accuracy| accuracy.name() == name)
    }
}

/// How a signal is observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Kind of probe that was asked for.
    pub family: Family,
    /// The signal.
    pub signal: String,
    /// What `lazyfree` promises.
    pub accuracy: Accuracy,
    /// The hook, as `kind:function`; empty if there is none.
    pub hook: String,
    /// Why the accuracy isn't `exact`; empty if it is.
    pub reason: String,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Kind of probe.
    pub family: Family,
    /// The workload.
    pub workload: String,
    /// The signal.
    pub signal: String,
    /// What is known of the number from elsewhere.
    pub known: Known,
    /// The number; `None` if the signal isn't observed.
    pub pages: Option<i64>,
    /// What `lazyfree` says it is worth, losses considered.
    pub accuracy: Accuracy,
    /// What was lost; empty if nothing was.
    pub losses: String,
    /// What the kernel's own counter moved by, where it has one for the same.
    pub kernel: Option<i64>,
}

/// The only workload with several processes that are inside of the same function at once, and that
/// aren't bound to a CPU.
pub const CROWD: &str = "bomb";

/// The most that fits into the batches of eight CPUs.
const BATCHES: i64 = 8 * 31;

impl Count {
    /// Whether more was marked than the kernel's own count came to, by no more than batches hold, and
    /// `lazyfree` says so. A task that is moved to another CPU marks pages again that wait in the
    /// batch of the CPU it left; they are in two batches then, and `lru_lazyfree()` marks them once.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        let ahead = self.pages.zip(self.kernel).map_or(0, |(pages, kernel)| pages - kernel);
        self.workload == CROWD
            && self.signal == "marked"
            && self.accuracy == Accuracy::Estimate
            && (1..=BATCHES).contains(&ahead)
    }
}

/// What is known of a number: at least this, at most that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Lower bound.
    pub least: Option<i64>,
    /// Upper bound.
    pub most: Option<i64>,
}

impl Known {
    /// Known exactly.
    #[must_use]
    pub const fn exactly(pages: i64) -> Self {
        Self { least: Some(pages), most: Some(pages) }
    }

    /// The number, if it is known exactly.
    #[must_use]
    pub fn exact(self) -> Option<i64> {
        self.least.filter(|_| self.least == self.most)
    }

    /// Whether a number may be the right one.
    #[must_use]
    pub fn allows(self, pages: i64) -> bool {
        self.least.is_none_or(|least| least <= pages) && self.most.is_none_or(|most| pages <= most)
    }
}

/// Something to say of a workload, or of a kind of probe as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Kind of probe.
    pub family: Family,
    /// The workload, if it is about one.
    pub workload: Option<String>,
    /// What there is to say.
    pub text: String,
}

impl Line {
    /// One line of text, without its end.
    pub fn encode(&self) -> Result<String> {
        serde_json::to_string(self).context("cannot write a line as JSON")
    }

    /// Reads it back.
    pub fn decode(text: &str) -> Result<Self> {
        serde_json::from_str(text).with_context(|| format!("no line of the matrix: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_as_written() -> Result<()> {
        let lines = [
            Line::Guest(Guest {
                kernel: "6.1".into(),
                version: String::new(),
                cpus: 2,
                memory_mib: 468,
                mglru: None,
            }),
            Line::Refused("no\nsuch switch".into()),
            Line::Count(Count {
                family: Family::Kprobe,
                workload: "pin".into(),
                signal: "hit".into(),
                known: Known::exactly(7),
                pages: Some(6),
                accuracy: Accuracy::Estimate,
                losses: "1 run".into(),
                kernel: Some(7),
            }),
            Line::Skipped(Note { family: Family::Fentry, workload: None, text: "no swap".into() }),
            Line::End,
        ];
        for line in lines {
            let text = line.encode()?;
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(Line::decode(&text)?, line);
        }
        Ok(())
    }

    #[test]
    fn torn_and_foreign_lines_are_refused() {
        for text in ["", "\"en", "{\"count\":{\"family\":\"fentry\"}}", "hello"] {
            assert!(Line::decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_is_known_exactly_only_if_both_bounds_say_so() {
        assert_eq!(Known::exactly(3).exact(), Some(3));
        let least = Known { least: Some(3), most: None };
        let range = Known { least: Some(1), most: Some(3) };
        assert_eq!((Known::default().exact(), least.exact(), range.exact()), (None, None, None));
        assert!(least.allows(9) && !least.allows(2));
        assert!(range.allows(1) && range.allows(3) && !range.allows(0) && !range.allows(4));
        assert!(Known::default().allows(-1));
    }
}
