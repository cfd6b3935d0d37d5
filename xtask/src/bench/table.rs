//! What the probes add to each case, against its budget. Pure.

use std::{collections::BTreeMap, fmt};

use anyhow::{Result, bail};
use lazyfree_vm::bench::line::{Cost, Line, Probes};
use serde_json::{Value, json};

/// Share of instructions that all signals together may add, in per cent, by case.
const BUDGETS: [(&str, f64); 7] = [
    ("mark", 1.0),
    ("reclaim", 3.0),
    ("reclaim_pageout", 3.0),
    ("redirty", 3.0),
    ("pin", 3.0),
    ("no_lazyfree", 1.0),
    ("compact_pinned", 2.0),
];

/// The costs on one kernel.
#[derive(Debug, Default)]
pub struct Table {
    kernel: String,
    /// In the order in which they were measured.
    cases: Vec<Case>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Case {
    name: String,
    pages: u64,
    costs: BTreeMap<Probes, Runs>,
}

/// Instructions of the runs of a case.
#[derive(Clone, Debug)]
struct Runs(Vec<u64>);

impl Runs {
    /// The middle one: some runs meet work that the kernel had put off.
    fn median(&self) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }

    /// How far apart the runs are, in per cent of the middle one.
    fn spread(&self) -> f64 {
        let (least, most) = (self.0.iter().min(), self.0.iter().max());
        let apart = most.unwrap_or(&0) - least.unwrap_or(&0);
        100.0 * apart as f64 / self.median() as f64
    }
}

/// What probes add to a case.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Added {
    /// In per cent of what the case takes without.
    percent: f64,
    /// Instructions for each page.
    per_page: f64,
}

impl Case {
    fn without(&self) -> Option<&Runs> {
        self.costs.get(&Probes::None)
    }

    fn added(&self, probes: Probes) -> Option<Added> {
        let without = self.without()?.median() as f64;
        let more = self.costs.get(&probes)?.median() as f64 - without;
        Some(Added { percent: 100.0 * more / without, per_page: more / self.pages as f64 })
    }

    fn budget(&self) -> Option<f64> {
        BUDGETS.iter().find(|(name, _)| *name == self.name).map(|(_, percent)| *percent)
    }

    /// Tracepoints are for hosts that allow no better, and have no budget.
    fn is_within_budget(&self) -> bool {
        let budget = self.budget().unwrap_or(f64::INFINITY);
        let added = [Probes::Fentry, Probes::Kprobe].map(|probes| self.added(probes));
        added.into_iter().flatten().all(|added| added.percent < budget)
    }
}

impl Table {
    /// Adds what a guest printed.
    pub fn read(&mut self, output: &str) -> Result<()> {
        let mut has_ended = false;
        for text in output.lines() {
            match Line::decode(text)? {
                Line::Kernel(kernel) => self.kernel = kernel,
                Line::Cost(cost) => self.add(cost),
                Line::Skipped { case, reason } => {
                    self.note(format!("{case} left out: {reason}"));
                }
                Line::Refused { probes, reason } => {
                    self.note(format!("{} left out: {reason}", probes.name()));
                }
                Line::End => has_ended = true,
            }
        }
        if !has_ended {
            bail!("the guest's half of the bench did not come to its end:\n{output}");
        }
        Ok(())
    }

    /// Every guest of a kernel leaves out the same.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn add(&mut self, cost: Cost) {
        let Cost { case: name, probes, pages, runs_ns } = cost;
        let index = self.cases.iter().position(|case| case.name == name).unwrap_or_else(|| {
            self.cases.push(Case { name, pages, costs: BTreeMap::new() });
            self.cases.len() - 1
        });
        self.cases[index].costs.insert(probes, Runs(runs_ns));
    }

    /// Whether each case is within its budget, through fentry and through kprobes. Without a case
    /// there is nothing to say so of.
    pub fn is_within_budgets(&self) -> bool {
        !self.cases.is_empty() && self.cases.iter().all(Case::is_within_budget)
    }

    /// The same as an object.
    pub fn json(&self) -> Value {
        let case = |case: &Case| {
            let added = |probes: Probes| {
                let Added { percent, per_page } = case.added(probes)?;
                Some((probes.name(), json!({"percent": percent, "per_page": per_page})))
            };
            let added: BTreeMap<_, _> =
                Probes::ALL[1..].iter().copied().filter_map(added).collect();
            json!({
                "case": case.name,
                "pages": case.pages,
                "instructions": case.without().map(Runs::median),
                "spread_percent": case.without().map(Runs::spread),
                "added": added,
                "budget_percent": case.budget(),
                "within_budget": case.is_within_budget(),
            })
        };
        let cases: Vec<_> = self.cases.iter().map(case).collect();
        json!({"kernel": self.kernel, "cases": cases, "notes": self.notes})
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {}: instructions that probes add, all signals", self.kernel)?;
        writeln!(
            f,
            "{:<16} {:>7} {:>12} {:>7}  {:>17}  {:>17}  {:>17}  budget",
            "case", "pages", "without", "spread", "fentry", "kprobe", "tracepoint"
        )?;
        for case in &self.cases {
            let Some(without) = case.without() else { continue };
            write!(f, "{:<16} {:>7} {:>12}", case.name, case.pages, without.median())?;
            write!(f, " {:>6.2}%", without.spread())?;
            for probes in &Probes::ALL[1..] {
                match case.added(*probes) {
                    Some(Added { percent, per_page }) => {
                        write!(f, "  {percent:>+6.2}% {per_page:>6.1}/pg")?;
                    }
                    None => write!(f, "  {:>17}", "-")?,
                }
            }
            let verdict = if case.is_within_budget() { "met" } else { "not met" };
            match case.budget() {
                Some(budget) => writeln!(f, "  {budget}% {verdict}")?,
                None => writeln!(f)?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(output: &str) -> Result<Table> {
        let mut table = Table::default();
        table.read(output)?;
        Ok(table)
    }

    fn output(fentry: [u64; 3]) -> String {
        let cost = |probes, runs: [u64; 3]| {
            let (case, pages) = ("mark".to_owned(), 10);
            Line::Cost(Cost { case, probes, pages, runs_ns: runs.into() })
        };
        let lines = [
            Line::Kernel("6.1.0".into()),
            Line::Skipped { case: "no_lazyfree".into(), reason: "no swap".into() },
            // The first is an outlier.
            cost(Probes::None, [90_000, 10_000, 10_010]),
            cost(Probes::Fentry, fentry),
            Line::End,
        ];
        let lines: Vec<_> = lines.iter().map(|line| line.encode().expect("JSON")).collect();
        lines.join("\n")
    }

    #[test]
    fn what_probes_add_is_told_from_the_middle_runs() -> Result<()> {
        let table = table(&output([10_110, 10_060, 11_000]))?;
        let added = table.cases[0].added(Probes::Fentry).expect("both were measured");
        assert!((added.per_page - 10.0).abs() < 1e-9, "{added:?}");
        assert!((added.percent - 100.0 * 100.0 / 10_010.0).abs() < 1e-9, "{added:?}");
        assert_eq!(table.cases[0].added(Probes::Kprobe), None);
        assert!(table.is_within_budgets());
        assert_eq!(table.notes, ["no_lazyfree left out: no swap"]);
        let text = table.to_string();
        assert!(text.contains("+1.00%") && text.contains("1% met"), "{text}");
        assert_eq!(table.json()["cases"][0]["within_budget"], true);
        Ok(())
    }

    #[test]
    fn a_budget_that_is_exceeded_is_told() -> Result<()> {
        let table = table(&output([10_120, 10_120, 10_120]))?;
        assert!(!table.is_within_budgets());
        assert!(table.to_string().contains("1% not met"), "{table}");
        Ok(())
    }

    #[test]
    fn output_that_ends_early_is_no_result() {
        let all = output([1, 1, 1]);
        let (torn, _end) = all.rsplit_once('\n').expect("lines");
        assert!(table(torn).is_err());
        let empty = format!("{}\n", Line::End.encode().expect("JSON"));
        assert!(!table(&empty).expect("an end").is_within_budgets());
    }
}
