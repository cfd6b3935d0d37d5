//! The report of `lazyfree doctor`: what is observed on this host and how, what is lost, why, and
//! what to do about it. A pure function of a [`Session`]; nothing needs to have happened yet.
//!
//! A cause that hits eight signals is told once, with their names: see [`notes`] and [`refusals`],
//! which the live screen uses as well.

use std::fmt::{Display, Formatter, Result};

use lazyfree_common::Family;
use serde::Serialize;

use super::as_map;
use crate::{
    model::{SignalState, StallState},
    sample::{Cause, Fact, HookOutcome, LimitedBy, Session, SignalPlan, StallPlan},
    signal::Accuracy,
    text::{printable, wrap},
};

/// Letters in a line.
const WIDTH: usize = 80;

/// Last lines of a verifier's log that are shown to people; the JSON has all of it.
const LAST_WORDS: usize = 3;

/// How one signal, or one kind of stall, is observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Title for people.
    #[serde(skip)]
    pub title: &'static str,
    /// `kind:symbol`, or the counter; empty if there is none.
    pub hook: String,
    /// How far its number can be trusted.
    pub accuracy: Accuracy,
    /// Why it isn't exact, or what it leaves out; absent if it is exact and whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What to do about it; absent where nothing can be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// What stands in the way of a better number.
    pub limited_by: LimitedBy,
}

macro_rules! row {
    ($title:expr, $from:expr) => {
        Row {
            title: $title,
            hook: $from.hook.clone(),
            accuracy: $from.accuracy,
            reason: $from.reason.clone(),
            fix: $from.fix.clone(),
            limited_by: $from.limited_by,
        }
    };
}

impl From<&SignalPlan> for Row {
    fn from(plan: &SignalPlan) -> Self {
        row!(plan.signal.info().title, plan)
    }
}

impl From<&StallPlan> for Row {
    fn from(plan: &StallPlan) -> Self {
        row!(Family::from(plan.stall).name(), plan)
    }
}

impl From<&SignalState> for Row {
    fn from(state: &SignalState) -> Self {
        row!(state.signal.info().title, state)
    }
}

impl From<&StallState> for Row {
    fn from(state: &StallState) -> Self {
        row!(state.waits.family.name(), state)
    }
}

/// One reason, and all that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Titles of the signals and stalls.
    pub concerns: Vec<&'static str>,
    /// Why.
    pub reason: String,
    /// What to do about it; empty where nothing can be done.
    pub fix: String,
    /// What stands in the way.
    pub limited_by: LimitedBy,
}

/// What there is to say of some rows, each reason once.
pub fn notes(rows: impl IntoIterator<Item = Row>) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for row in rows {
        if row.reason.is_empty() && row.fix.is_empty() {
            continue;
        }
        let same = notes.iter_mut().find(|note| {
            (&note.reason, &note.fix, note.limited_by) == (&row.reason, &row.fix, row.limited_by)
        });
        match same {
            Some(note) => note.concerns.push(row.title),
            None => notes.push(Note {
                concerns: vec![row.title],
                reason: row.reason,
                fix: row.fix,
                limited_by: row.limited_by,
            }),
        }
    }
    notes
}

/// One reason for not attaching, and the candidates that it hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// As `kind:symbol`.
    pub candidates: Vec<String>,
    /// Why, in a word.
    pub cause: Cause,
    /// Why, in a sentence.
    pub reason: String,
    /// What to do about it; empty where nothing can be done.
    pub fix: String,
    /// What the verifier said last; empty if it did not see the program.
    pub verifier: Vec<String>,
}

/// The candidates that aren't attached, each reason once.
pub fn refusals(hooks: &[HookOutcome]) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> = Vec::new();
    for refused in hooks.iter().flat_map(|hook| &hook.refused) {
        let candidate = format!("{}:{}", refused.kind.name(), refused.symbol);
        let verifier = last_words(&refused.verifier_log);
        let same = refusals.iter_mut().find(|known| {
            known.cause == refused.cause
                && known.reason == refused.reason
                && known.fix == refused.fix
                && known.verifier == verifier
        });
        match same {
            Some(known) if known.candidates.contains(&candidate) => {}
            Some(known) => known.candidates.push(candidate),
            None => refusals.push(Refusal {
                candidates: vec![candidate],
                cause: refused.cause,
                reason: refused.reason.clone(),
                fix: refused.fix.clone(),
                verifier,
            }),
        }
    }
    refusals
}

/// The end of a verifier's log without the statistics that follow the complaint.
fn last_words(log: &str) -> Vec<String> {
    let statistics = ["processed ", "verification time", "stack depth"];
    let lines: Vec<_> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !statistics.iter().any(|word| line.starts_with(word)))
        .collect();
    let from = lines.len().saturating_sub(LAST_WORDS);
    lines[from..].iter().map(|line| (*line).to_owned()).collect()
}

/// The state of observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All is observed that this kernel shows anybody.
    Full,
    /// This host keeps some numbers from being better.
    Degraded,
    /// There is no number at all.
    Nothing,
}

impl Verdict {
    /// Exit status of `lazyfree doctor`.
    pub const fn exit_status(self) -> u8 {
        match self {
            Verdict::Full => 0,
            Verdict::Degraded => 1,
            Verdict::Nothing => 2,
        }
    }
}

/// What is observed, what isn't, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the host.
    pub host: String,
    /// `fentry`, `kprobe`, `tracepoint` or `procfs`.
    pub mode: String,
    /// The state of observation.
    pub verdict: Verdict,
    /// The same in one line; see [`Session::coverage`].
    pub coverage: String,
    /// Every signal, by name, in table order.
    #[serde(serialize_with = "as_map")]
    pub signals: Vec<(&'static str, Row)>,
    /// Every kind of stall, by name.
    #[serde(serialize_with = "as_map")]
    pub stalls: Vec<(&'static str, Row)>,
    /// What came of each hook that was tried.
    pub plan: Vec<HookOutcome>,
    /// What was found out about the system.
    pub facts: Vec<Fact>,
}

impl Diagnosis {
    /// Judges a session.
    pub fn new(session: &Session) -> Self {
        let signals = session.signals.iter().map(|plan| (plan.signal.name(), plan.into()));
        let stalls =
            session.stalls.iter().map(|plan| (Family::from(plan.stall).name(), plan.into()));
        Self {
            kernel: session.kernel.clone(),
            host: session.host.clone(),
            mode: session.mode.clone(),
            verdict: match (session.blind(), session.degraded()) {
                (true, _) => Verdict::Nothing,
                (false, true) => Verdict::Degraded,
                (false, false) => Verdict::Full,
            },
            coverage: session.coverage(),
            signals: signals.collect(),
            stalls: stalls.collect(),
            plan: session.hooks.clone(),
            facts: session.facts.clone(),
        }
    }
}

impl Display for Diagnosis {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let host = printable(&self.host);
        writeln!(f, "lazyfree on {host}, Linux {}, mode {}", self.kernel, self.mode)?;
        let verdict = match self.verdict {
            Verdict::Full => format!("Full: {}.", self.coverage),
            Verdict::Degraded => format!("Degraded by this host: {}.", self.coverage),
            Verdict::Nothing => format!("Nothing works: {}.", self.coverage),
        };
        paragraph(f, 0, &verdict)?;
        table(f, "Signals", &self.signals)?;
        table(f, "Stalls", &self.stalls)?;

        let mut told = Told::default();
        let rows = self.signals.iter().chain(&self.stalls).map(|(_, row)| row.clone());
        let notes = notes(rows);
        if !notes.is_empty() {
            writeln!(f, "\nWhat is lost, and why")?;
        }
        for Note { concerns, reason, fix, limited_by } in &notes {
            paragraph(f, 2, &concerns.join(", "))?;
            paragraph(f, 6, reason)?;
            if fix.is_empty() && *limited_by == LimitedBy::Kernel {
                paragraph(f, 6, "Fix: none; this kernel shows nobody more.")?;
            }
            told.fix(f, fix, concerns[0])?;
        }

        let refusals = refusals(&self.plan);
        if !refusals.is_empty() {
            writeln!(f, "\nHooks that were not attached")?;
        }
        for Refusal { candidates, cause, reason, fix, verifier } in &refusals {
            paragraph(f, 2, &candidates.join(", "))?;
            paragraph(f, 6, &format!("{}: {reason}", cause.name().replace('_', " ")))?;
            for (index, line) in verifier.iter().enumerate() {
                let who = if index == 0 { "The verifier:" } else { "" };
                writeln!(f, "      {who:<13} {}", printable(line))?;
            }
            told.fix(f, fix, &candidates[0])?;
        }

        if !self.facts.is_empty() {
            writeln!(f, "\nSystem")?;
        }
        let name = self.facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
        for fact in &self.facts {
            let value = if fact.remark.is_empty() {
                fact.value.clone()
            } else {
                format!("{} ({})", fact.value, fact.remark)
            };
            let lines = wrap(&value, WIDTH.saturating_sub(4 + name).max(20));
            for (index, line) in lines.iter().enumerate() {
                let title = if index == 0 { &*fact.name } else { "" };
                writeln!(f, "  {title:<name$}  {line}")?;
            }
        }
        Ok(())
    }
}

/// Remembers what was told, so that it isn't told again.
#[derive(Default)]
struct Told(Vec<(String, String)>);

impl Told {
    fn fix(&mut self, f: &mut Formatter<'_>, fix: &str, whose: &str) -> Result {
        if fix.is_empty() {
            return Ok(());
        }
        match self.0.iter().find(|(known, _)| known == fix) {
            Some((_, first)) => paragraph(f, 6, &format!("Fix: as for {first}.")),
            None => {
                self.0.push((fix.to_owned(), whose.to_owned()));
                paragraph(f, 6, &format!("Fix: {}.", fix.trim_end_matches('.')))
            }
        }
    }
}

fn paragraph(f: &mut Formatter<'_>, indent: usize, text: &str) -> Result {
    for line in wrap(text, WIDTH - indent) {
        writeln!(f, "{:indent$}{line}", "")?;
    }
    Ok(())
}

fn table(f: &mut Formatter<'_>, title: &str, rows: &[(&'static str, Row)]) -> Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title:<21} {:<8} hook", "accuracy")?;
    for (_, row) in rows {
        let hook = if row.hook.is_empty() { "not observed" } else { &row.hook };
        writeln!(f, "{:<21} {:<8} {hook}", row.title, row.accuracy.name())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{model::fixture::Host, signal::Signal};

    fn diagnosis(host: &Host) -> Diagnosis {
        Diagnosis::new(&host.session)
    }

    #[test]
    fn a_host_of_each_mode() {
        insta::assert_snapshot!("fentry", diagnosis(&Host::new()));
        insta::assert_snapshot!("tracepoint", diagnosis(&Host::in_tracepoint_mode()));
        insta::assert_snapshot!("procfs", diagnosis(&Host::in_procfs_mode()));
    }

    #[test]
    fn the_exit_status_tells_the_hosts_limits_from_the_kernels() {
        let status = |host: &Host| diagnosis(host).verdict.exit_status();
        assert_eq!(status(&Host::new()), 0);
        let mut host = Host::new();
        host.unobserve(Signal::Kept, "nobody sees it");
        assert_eq!(status(&host), 1);
        host.plan(Signal::Kept).limited_by = LimitedBy::Kernel;
        assert_eq!(status(&host), 0);
        host.session.stalls[1].limited_by = LimitedBy::Host;
        assert_eq!(status(&host), 1);
        for signal in Signal::ALL {
            host.unobserve(signal, "nothing can be read");
        }
        assert_eq!(status(&host), 2);
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let mut host = Host::in_tracepoint_mode();
        host.plan(Signal::Kept).reason = "word ".repeat(100);
        for host in [host, Host::in_procfs_mode(), Host::new()] {
            let text = diagnosis(&host).to_string();
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }

    #[test]
    fn one_cause_is_told_once_with_all_that_it_hits() {
        let text = diagnosis(&Host::in_procfs_mode()).to_string();
        let told = |part: &str| text.matches(part).count();
        // Of the signals, and of the hooks.
        assert_eq!(told("this process may not load BPF programs (EPERM)"), 2, "{text}");
        assert_eq!(told("run lazyfree as root"), 1, "{text}");
        assert_eq!(told("Fix: as for advised."), 2, "{text}");
    }

    #[test]
    fn the_kernels_limits_are_told_as_such() {
        let mut host = Host::new();
        host.unobserve(Signal::Deactivated, "there is no active list");
        host.plan(Signal::Deactivated).limited_by = LimitedBy::Kernel;
        let text = diagnosis(&host).to_string();
        assert!(text.contains("Full: 12 of 13 signals exact, 1 not observed.\n"), "{text}");
        assert!(text.contains("Fix: none; this kernel shows nobody more.\n"), "{text}");
    }

    #[test]
    fn the_verifiers_complaint_is_quoted_without_its_statistics() {
        let refusals = refusals(&Host::in_tracepoint_mode().session.hooks);
        let refused = refusals.iter().find(|refusal| refusal.cause == Cause::Verifier).unwrap();
        assert_eq!(refused.candidates, ["fentry:shrink_folio_list"]);
        assert_eq!(refused.verifier.last().unwrap(), "invalid bpf_context access off=24 size=8");
        assert_eq!(refused.verifier.len(), LAST_WORDS);
        // Two candidates that fell for the same reason are one refusal.
        let kprobes = refusals.iter().find(|refusal| refusal.cause == Cause::NotBuiltIn).unwrap();
        assert_eq!(kprobes.candidates.len(), 3);
    }

    #[test]
    fn the_object_has_the_keys_that_scripts_rely_on() {
        let json = serde_json::to_value(diagnosis(&Host::in_tracepoint_mode())).unwrap();
        assert_eq!(json["mode"], "tracepoint");
        assert_eq!(json["verdict"], "degraded");
        assert_eq!(json["signals"].as_object().unwrap().len(), Signal::ALL.len());
        assert_eq!(
            json["signals"]["hit"],
            json!({"hook": "procfs:pglazyfreed", "accuracy": "exact", "limited_by": "nothing"})
        );
        assert_eq!(json["signals"]["kept"]["accuracy"], "none");
        assert_eq!(json["signals"]["kept"]["limited_by"], "host");
        assert_eq!(json["stalls"]["throttle"]["hook"], "raw_tracepoint:mm_vmscan_throttled");
        assert_eq!(json["plan"][1]["name"], "reclaim");
        assert_eq!(json["plan"][1]["refused"][0]["cause"], "verifier");
        assert_eq!(json["facts"][0]["name"], "type information");
    }
}
