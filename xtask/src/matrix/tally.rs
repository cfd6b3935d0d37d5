//! What the guests' lines come to: cells of the table, what was left out, and what isn't as stated.
//! Pure.

use std::{collections::BTreeSet, fmt};

use lazyfree_vm::{
    family::Family,
    matrix::line::{Accuracy, Count, Guest, Line, Note, Plan},
};

use super::{
    stated::{self, Place},
    variant::Variant,
};
use crate::kernel::Series;

/// One cell of the table: a signal at a place, over all guests and workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Where.
    pub place: Place,
    /// The signal.
    pub signal: String,
    /// What lazyfree says it is worth, at its worst.
    pub accuracy: Accuracy,
    /// Numbers that something was known of.
    pub checks: u32,
    /// What was counted where the number, or the most it may be, is known.
    pub counted: i64,
    /// What is known of the same.
    pub known: i64,
    /// Times that it became an estimate since the kernel skipped runs of a program, as is stated
    /// that it may; these numbers are in none of the others.
    pub missed: u32,
    /// Times that it became an estimate since it was ahead of the kernel's count, as is stated that it
    /// may; these numbers are in none of the others either.
    pub ahead: u32,
    /// Whether anything about it isn't as stated.
    pub deviates: bool,
}

/// What became of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran: so many numbers were compared with what is known of them.
    Ran {
        /// How many.
        checks: u32,
        /// How many things weren't as stated.
        deviations: usize,
    },
    /// It was left out, for this reason.
    LeftOut(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran { checks, deviations } => {
                write!(f, "{checks} numbers compared, {deviations} deviations")
            }
            Self::LeftOut(why) => write!(f, "left out: {why}"),
        }
    }
}

/// A guest that was to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The kernel.
    pub series: Series,
    /// What kind of guest.
    pub variant: Variant,
    /// What became of it.
    pub outcome: Outcome,
}

/// What all guests came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// In the order in which they were met.
    pub cells: Vec<Cell>,
    /// Every guest.
    pub runs: Vec<Run>,
    /// Workloads that were left out, with the reason.
    pub left_out: BTreeSet<String>,
    /// What lazyfree itself says of signals that aren't exact.
    pub words: BTreeSet<(String, String)>,
    /// The kernels that ran, by series: what they are called, and the LRU that they boot with.
    pub kernels: Vec<(Series, Guest)>,
    /// What isn't as stated.
    pub deviations: Vec<String>,
}

impl Tally {
    /// Notes a guest that wasn't run.
    pub fn leave_out(&mut self, series: Series, variant: Variant, why: &str) {
        let outcome = Outcome::LeftOut(why.to_owned());
        self.runs.push(Run { series, variant, outcome });
    }

    /// Notes something that isn't as stated.
    pub fn deviate(&mut self, what: String) {
        self.deviations.push(what);
    }

    /// Takes what a guest has printed into account. `ended` says what became of the guest if that
    /// isn't what it should be.
    pub fn add(
        &mut self,
        series: Series,
        variant: Variant,
        has_swap: bool,
        output: &str,
        ended: Result<(), String>,
    ) {
        let before = self.deviations.len();
        let place = format!("Linux {series} {variant}");
        let mut guest = Reading { tally: self, series, variant, has_swap, mglru: None, checks: 0 };
        let mut refused = None;
        let mut last = None;
        for text in output.lines() {
            match Line::decode(text) {
                Ok(line) => {
                    if let Line::Refused(why) = &line {
                        refused = Some(why.clone());
                    }
                    guest.take(&line);
                    last = Some(line);
                }
                Err(error) => guest.deviate(None, &format!("{error:#}")),
            }
        }
        let checks = guest.checks;
        match ended {
            Err(error) => self.deviate(format!("{place}: {error}")),
            Ok(()) if last != Some(Line::End) => {
                self.deviate(format!("{place}: lazyfree-matrix did not come to its end"));
            }
            Ok(()) => {}
        }
        let deviations = self.deviations.len() - before;
        let outcome = match refused {
            Some(why) => Outcome::LeftOut(why),
            None => Outcome::Ran { checks, deviations },
        };
        self.runs.push(Run { series, variant, outcome });
    }

    /// Numbers that were compared, over all guests.
    pub fn checks(&self) -> u32 {
        let checks = self.runs.iter().map(|run| match run.outcome {
            Outcome::Ran { checks, .. } => checks,
            Outcome::LeftOut(_) => 0,
        });
        checks.sum()
    }

    fn cell(&mut self, place: Place, signal: &str) -> &mut Cell {
        let found = self.cells.iter().position(|cell| cell.place == place && cell.signal == signal);
        let index = found.unwrap_or_else(|| {
            self.cells.push(Cell {
                place,
                signal: signal.to_owned(),
                accuracy: Accuracy::Exact,
                checks: 0,
                counted: 0,
                known: 0,
                missed: 0,
                ahead: 0,
                deviates: false,
            });
            self.cells.len() - 1
        });
        &mut self.cells[index]
    }
}

/// The lines of one guest on their way into the tally.
struct Reading<'a> {
    tally: &'a mut Tally,
    series: Series,
    variant: Variant,
    has_swap: bool,
    mglru: Option<bool>,
    checks: u32,
}

impl Reading<'_> {
    fn take(&mut self, line: &Line) {
        match line {
            Line::Guest(guest) => self.guest(guest),
            Line::Refused(why) => {
                if stated::missing(self.series, self.variant).is_none() {
                    self.deviate(None, &format!("isn't to be had: {why}"));
                }
            }
            Line::Plan(plan) => self.plan(plan),
            Line::Count(count) => self.count(count),
            Line::Skipped(Note { family, workload, text }) => {
                let name = workload.as_deref().unwrap_or_default();
                match stated::unavailable(self.series, name, self.has_swap) {
                    Some(why) => {
                        // That a guest has no swap is said of the guest.
                        if name != "swap" {
                            self.tally
                                .left_out
                                .insert(format!("`{name}` on {}: {why}", self.series));
                        }
                    }
                    None => self.deviate(Some(*family), &format!("{name} was left out: {text}")),
                }
            }
            Line::Failed(Note { family, workload, text }) => {
                let name = workload.as_deref().unwrap_or("lazyfree");
                self.deviate(Some(*family), &format!("{name} failed: {text}"));
            }
            Line::End => {}
        }
    }

    fn guest(&mut self, guest: &Guest) {
        self.mglru = guest.mglru;
        if let Some(why) = stated::missing(self.series, self.variant) {
            self.deviate(None, &format!("runs, and yet it is stated that {why}"));
        }
        let is_known = self.tally.kernels.iter().any(|(series, _)| *series == self.series);
        if !is_known && self.variant != Variant::OtherLru {
            self.tally.kernels.push((self.series, guest.clone()));
        }
    }

    fn plan(&mut self, plan: &Plan) {
        let Plan { family, signal, accuracy, hook, reason } = plan;
        let stated = stated::of(self.place(*family), signal).accuracy;
        if *accuracy != Accuracy::Exact {
            // The verifier's statistics differ each time.
            let reason = reason.split(" | ").next().unwrap_or(reason);
            let words = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            self.tally.words.insert((signal.clone(), words));
        }
        let kind = hook.split(':').next().unwrap_or_default();
        if *accuracy != Accuracy::None && !family.kinds().contains(&kind) {
            self.deviate(Some(*family), &format!("{signal} is observed through {hook:?}"));
        }
        let seen = self.see(*family, signal, *accuracy);
        if !seen {
            let (found, stated) = (accuracy.name(), stated.name());
            let why = if reason.is_empty() { "no reason given" } else { reason };
            self.deviate(Some(*family), &format!("{signal} is {found}, not {stated} ({why})"));
        }
    }

    fn count(&mut self, count: &Count) {
        let Count { family, workload, signal, known, pages, accuracy, losses, kernel } = count;
        let place = self.place(*family);
        let may_miss =
            stated::may_miss(place.series, *family, workload).is_some() && !losses.is_empty();
        if may_miss
            && *accuracy == Accuracy::Estimate
            && stated::of(place, signal).accuracy == Accuracy::Exact
        {
            self.tally.cell(place, signal).missed += 1;
            return;
        }
        if count.is_ahead() && stated::of(place, signal).accuracy == Accuracy::Exact {
            self.tally.cell(place, signal).ahead += 1;
            return;
        }
        if !self.see(*family, signal, *accuracy) {
            let (found, stated) = (accuracy.name(), stated::of(place, signal).accuracy.name());
            self.deviate(
                Some(*family),
                &format!("{signal} became {found} in {workload}, not {stated} ({losses})"),
            );
        }
        let Some(pages) = *pages else { return };
        let bound = known.exact().or(known.most.filter(|_| *accuracy == Accuracy::Estimate));
        let is_checked = known.least.is_some() || known.most.is_some();
        let cell = self.tally.cell(place, signal);
        if let Some(bound) = bound {
            cell.counted += pages;
            cell.known += bound;
        }
        if is_checked {
            cell.checks += 1;
            self.checks += 1;
        }
        if *accuracy != Accuracy::Exact {
            return;
        }
        let wrong = if !known.allows(pages) {
            let bound = |bound: Option<i64>| bound.map_or("any".to_owned(), |n| n.to_string());
            Some(match known.exact() {
                Some(right) => format!("should be {right}"),
                None => format!("should be {} to {}", bound(known.least), bound(known.most)),
            })
        } else {
            kernel.filter(|kernel| *kernel != pages).map(|kernel| format!("the kernel's {kernel}"))
        };
        if let Some(wrong) = wrong {
            self.tally.cell(place, signal).deviates = true;
            self.deviate(
                Some(*family),
                &format!("{signal} counted {pages} in {workload}, and said exact; {wrong}"),
            );
        }
    }

    fn place(&self, family: Family) -> Place {
        Place { series: self.series, mglru: self.mglru == Some(true), family }
    }

    /// Takes an accuracy into account; whether it is what is stated, or was found not to be before.
    fn see(&mut self, family: Family, signal: &str, accuracy: Accuracy) -> bool {
        let place = self.place(family);
        let as_stated = stated::of(place, signal).accuracy == accuracy;
        let cell = self.tally.cell(place, signal);
        let is_old = cell.deviates && cell.accuracy == accuracy;
        if cell.accuracy == Accuracy::Exact || accuracy == Accuracy::None {
            cell.accuracy = accuracy;
        }
        cell.deviates |= !as_stated;
        as_stated || is_old
    }

    fn deviate(&mut self, family: Option<Family>, what: &str) {
        let Self { series, variant, .. } = self;
        let probes = family.map_or(String::new(), |family| format!(", {}", family.name()));
        self.tally.deviate(format!("Linux {series} {variant}{probes}: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use lazyfree_vm::matrix::line::Known;

    use super::*;

    fn series(name: &str) -> Series {
        name.parse().expect("a series")
    }

    fn guest(mglru: Option<bool>) -> Line {
        Line::Guest(Guest {
            kernel: "6.1.0-57-cloud-amd64".into(),
            version: String::new(),
            cpus: 2,
            memory_mib: 468,
            mglru,
        })
    }

    fn plan(signal: &str, accuracy: Accuracy) -> Line {
        Line::Plan(Plan {
            family: Family::Kprobe,
            signal: signal.into(),
            accuracy,
            hook: "kretprobe:shrink_folio_list".into(),
            reason: "reason".into(),
        })
    }

    fn count(signal: &str, known: Known, pages: i64, accuracy: Accuracy) -> Count {
        Count {
            family: Family::Kprobe,
            workload: "redirty".into(),
            signal: signal.into(),
            known,
            pages: Some(pages),
            accuracy,
            losses: "2 lost".into(),
            kernel: None,
        }
    }

    fn tally(name: &str, variant: Variant, lines: &[Line]) -> Tally {
        let mut tally = Tally::default();
        let output: String = lines
            .iter()
            .chain([&Line::End])
            .map(|line| line.encode().expect("JSON") + "\n")
            .collect();
        tally.add(series(name), variant, false, &output, Ok(()));
        tally
    }

    fn deviations(name: &str, mglru: Option<bool>, line: Line) -> Vec<String> {
        tally(name, Variant::Plain, &[guest(mglru), line]).deviations
    }

    #[test]
    fn numbers_of_several_workloads_add_up_in_a_cell() {
        let right =
            |pages| Line::Count(count("hit", Known::exactly(pages), pages, Accuracy::Exact));
        let tally = tally("6.1", Variant::Plain, &[guest(Some(false)), right(2), right(5)]);
        assert_eq!(tally.deviations, Vec::<String>::new());
        let [cell] = &tally.cells[..] else { panic!("{:?}", tally.cells) };
        assert_eq!((cell.counted, cell.known, cell.checks), (7, 7, 2));
        assert_eq!(tally.runs[0].outcome, Outcome::Ran { checks: 2, deviations: 0 });
    }

    #[test]
    fn a_wrong_number_that_is_said_to_be_exact_is_told_whatever_is_stated() {
        // Stated as an estimate, said to be exact, and wrong.
        let wrong = count("redirtied", Known::exactly(8), 7, Accuracy::Exact);
        let found = deviations("6.1", Some(true), Line::Count(wrong.clone()));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].contains("counted 7 in redirty") && found[1].contains("should be 8"));
        // Stated as exact, and wrong.
        assert_eq!(deviations("6.12", Some(true), Line::Count(wrong)).len(), 1);
        let bounded = Known { least: Some(1), most: Some(6) };
        let high = count("redirtied", bounded, 7, Accuracy::Exact);
        let found = deviations("6.12", Some(true), Line::Count(high));
        assert!(found[0].contains("should be 1 to 6"), "{found:?}");
    }

    #[test]
    fn a_number_that_differs_from_the_kernels_is_told() {
        let mut odd = count("hit", Known::default(), 7, Accuracy::Exact);
        odd.kernel = Some(7);
        assert_eq!(deviations("7.3", Some(true), Line::Count(odd.clone())), Vec::<String>::new());
        odd.kernel = Some(9);
        assert!(deviations("7.3", Some(true), Line::Count(odd))[0].contains("the kernel's 9"));
    }

    #[test]
    fn less_and_more_than_what_is_stated_are_both_told_and_once() {
        let lost = count("kept", Known::exactly(0), 0, Accuracy::Estimate);
        let lines = [guest(None), Line::Count(lost.clone()), Line::Count(lost)];
        let found = tally("6.12", Variant::Plain, &lines).deviations;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("kept became estimate") && found[0].contains("2 lost"));
        let found = deviations("6.12", Some(true), plan("deactivated", Accuracy::Exact));
        assert!(found[0].contains("deactivated is exact, not none"), "{found:?}");
        let found = deviations("6.12", Some(true), plan("deactivated", Accuracy::None));
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_probe_of_the_other_kind_is_told() {
        let Line::Plan(plan) = plan("hit", Accuracy::Exact) else { panic!("no plan") };
        let other = Plan { hook: "fexit:shrink_folio_list".into(), ..plan };
        let found = deviations("7.3", Some(true), Line::Plan(other));
        assert!(found[0].contains("through \"fexit:shrink_folio_list\""), "{found:?}");
    }

    #[test]
    fn runs_that_the_kernel_skipped_may_cost_the_word_where_that_is_stated() {
        let missed = Count {
            family: Family::Fentry,
            workload: "bomb".into(),
            ..count("advised", Known::exactly(8), 7, Accuracy::Estimate)
        };
        let lines = |count: &Count| [guest(None), Line::Count(count.clone())];
        let stated = tally("6.12", Variant::Plain, &lines(&missed));
        assert_eq!(stated.deviations, Vec::<String>::new());
        let Cell { missed: times, known, accuracy, .. } = stated.cells[0];
        assert_eq!((times, known, accuracy), (1, 0, Accuracy::Exact));
        // Not without a reason, and not where it says exact.
        let silent = Count { losses: String::new(), ..missed.clone() };
        assert_eq!(tally("6.12", Variant::Plain, &lines(&silent)).deviations.len(), 1);
        let wrong = Count { accuracy: Accuracy::Exact, ..missed };
        assert_eq!(tally("6.12", Variant::Plain, &lines(&wrong)).deviations.len(), 1);
    }

    #[test]
    fn marks_may_be_ahead_of_the_kernels_where_that_is_stated_and_said() {
        let ahead = Count {
            workload: "bomb".into(),
            losses: String::new(),
            kernel: Some(4096),
            ..count("marked", Known { least: Some(4034), most: None }, 4112, Accuracy::Estimate)
        };
        let tally = |count: &Count| {
            tally("6.18", Variant::Plain, &[guest(None), Line::Count(count.clone())])
        };
        let stated = tally(&ahead);
        assert_eq!(stated.deviations, Vec::<String>::new());
        assert_eq!((stated.cells[0].ahead, stated.cells[0].accuracy), (1, Accuracy::Exact));
        for wrong in [
            // Not without a word, not by more than the batches hold, and not behind.
            Count { accuracy: Accuracy::Exact, ..ahead.clone() },
            Count { pages: Some(4096 + 8 * 31 + 1), ..ahead.clone() },
            Count { pages: Some(4090), ..ahead.clone() },
            Count { workload: "mark".into(), ..ahead },
        ] {
            assert_eq!(tally(&wrong).deviations.len(), 1, "{wrong:?}");
        }
    }

    #[test]
    fn an_estimate_need_not_be_right_and_shows_what_it_missed() {
        let bounded = Known { least: Some(1), most: Some(8) };
        let missed = Line::Count(count("redirtied", bounded, 0, Accuracy::Estimate));
        let tally = tally("6.1", Variant::OtherLru, &[guest(Some(true)), missed]);
        assert_eq!(tally.deviations, Vec::<String>::new());
        assert_eq!((tally.cells[0].counted, tally.cells[0].known), (0, 8));
    }

    #[test]
    fn a_guest_is_left_out_only_where_that_is_stated() {
        let refused = [Line::Refused("no such thing".into())];
        let left_out = tally("6.12", Variant::CgroupV1, &refused);
        assert_eq!(left_out.deviations, Vec::<String>::new());
        assert_eq!(left_out.runs[0].outcome, Outcome::LeftOut("no such thing".into()));
        assert_eq!(tally("6.1", Variant::CgroupV1, &refused).deviations.len(), 1);
        let unexpected = tally("6.12", Variant::CgroupV1, &[guest(Some(true))]);
        assert!(unexpected.deviations[0].contains("CONFIG_MEMCG_V1"));
    }

    #[test]
    fn a_workload_is_left_out_only_where_that_is_stated() {
        let skipped = |workload: &str| {
            let workload = Some(workload.to_owned());
            Line::Skipped(Note { family: Family::Fentry, workload, text: "can't".into() })
        };
        let lines = [guest(None), skipped("mark_proactive"), skipped("swap")];
        let stated = tally("5.10", Variant::Plain, &lines);
        assert_eq!(stated.deviations, Vec::<String>::new());
        assert!(stated.left_out.iter().all(|text| text.contains("5.19")), "{stated:?}");
        assert_eq!(deviations("6.1", Some(false), skipped("mark_proactive")).len(), 1);
        assert_eq!(deviations("6.1", Some(false), skipped("thp")).len(), 1);
    }

    #[test]
    fn a_guest_that_does_not_come_to_its_end_has_failed() {
        for (output, ended) in
            [("", Ok(())), ("garbage\n\"end\"\n", Ok(())), ("\"end\"\n", Err("died".to_owned()))]
        {
            let mut tally = Tally::default();
            tally.add(series("6.1"), Variant::Plain, false, output, ended);
            assert_eq!(tally.deviations.len(), 1, "{output:?}");
        }
    }
}
