//! The report of `lazyfree stat` for people, in the manner of `perf stat`: numbers first, then
//! what limits them.

use std::fmt::{Display, Formatter, Result};

use lazyfree_common::Reclaimer;

use super::{
    json::{CommandOutcome, Report, SignalRow},
    units,
};
use crate::signal::{Accuracy, Signal, Unit};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.title(f)?;
        let notes = self.signals(f)?;
        self.reclaimers(f)?;
        self.limits(f)?;
        for (number, note) in notes.iter().enumerate() {
            writeln!(f, " [{}] {note}", number + 1)?;
        }
        if !notes.is_empty() {
            writeln!(f)?;
        }
        writeln!(f, "{:>13.3} seconds", self.seconds)
    }
}

impl Report {
    fn title(&self, f: &mut Formatter<'_>) -> Result {
        let page = units::bytes(self.page_size);
        write!(f, "\n lazyfree on {} ({}, pages of {page})", self.kernel, self.mode)?;
        if let Some(CommandOutcome { argv, exit_status }) = &self.command {
            write!(f, " for '")?;
            for (index, word) in argv.iter().enumerate() {
                // A command line must not be able to move the cursor.
                write!(f, "{}{}", if index > 0 { " " } else { "" }, word.escape_debug())?;
            }
            write!(f, "', exit status {exit_status}")?;
        }
        write!(f, "\n\n")
    }

    /// Writes the signals; returns the notes that they refer to.
    fn signals(&self, f: &mut Formatter<'_>) -> std::result::Result<Vec<&str>, std::fmt::Error> {
        let mut notes: Vec<&str> = Vec::new();
        writeln!(f, "{:>13} {:>11}  {:<22} {:<13} hook", "pages", "bytes", "signal", "accuracy")?;
        for (_, row) in &self.signals {
            let SignalRow { signal, pages, accuracy, hook, reason, .. } = row;
            let (pages, bytes) = match (pages, signal.info().unit) {
                (Some(pages), Unit::Pages) => {
                    (units::grouped(*pages), units::bytes(pages.saturating_mul(self.page_size)))
                }
                (Some(entries), Unit::Entries) => (units::grouped(*entries), "entries".into()),
                (None, _) => ("not observed".into(), String::new()),
            };
            let mut trust = accuracy.name().to_owned();
            if *accuracy != Accuracy::Exact && !reason.is_empty() {
                let known = notes.iter().position(|note| note == reason);
                let number = known.unwrap_or_else(|| {
                    notes.push(reason);
                    notes.len() - 1
                });
                trust.push_str(&format!(" [{}]", number + 1));
            }
            let title = signal.info().title;
            let line = format!("{pages:>13} {bytes:>11}  {title:<22} {trust:<13} {hook}");
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f)?;
        Ok(notes)
    }

    fn reclaimers(&self, f: &mut Formatter<'_>) -> Result {
        let split = self.signals.iter().filter_map(|(_, row)| {
            row.by_reclaimer.map(|by_reclaimer| (row.signal.info().title, by_reclaimer))
        });
        let batches = self.batches.map(|batches| ("batches (calls)", batches));
        let rows: Vec<_> = split.chain(batches).collect();
        if rows.is_empty() {
            return Ok(());
        }
        write!(f, " {:<22}", "pages by reclaimer")?;
        for reclaimer in Reclaimer::ALL {
            write!(f, " {:>13}", reclaimer.name())?;
        }
        writeln!(f)?;
        for (title, by_reclaimer) in rows {
            write!(f, " {title:<22}")?;
            for number in by_reclaimer.0 {
                write!(f, " {:>13}", units::grouped(number))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }

    /// How well the numbers agree with the kernel's, and what was lost.
    fn limits(&self, f: &mut Formatter<'_>) -> Result {
        self.residual(f, Signal::Marked, self.residual.marked, "pglazyfree")?;
        self.residual(f, Signal::Hit, self.residual.hit, "pglazyfreed")?;
        for (name, calls) in &self.calls {
            write!(f, " {name:<12} {} calls", units::grouped(calls.started))?;
            if calls.in_flight > 0 {
                write!(f, ", {} in flight", units::grouped(calls.in_flight))?;
            }
            write!(f, ", {} lost", units::grouped(calls.lost()))?;
            if let Some((_, summary)) = self.durations.iter().find(|(known, _)| known == name) {
                write!(f, "; mean {}", units::duration(summary.mean_ns()))?;
                let quantiles = [
                    ("p50", summary.p50_below_ns),
                    ("p99", summary.p99_below_ns),
                    ("max", summary.max_below_ns),
                ];
                for (quantile, below_ns) in quantiles {
                    if let Some(below_ns) = below_ns {
                        write!(f, ", {quantile} < {}", units::duration(below_ns))?;
                    }
                }
            }
            writeln!(f)?;
        }
        if !self.calls.is_empty() {
            let (submitted, dropped) = (self.events.submitted, self.events.dropped);
            writeln!(f, " events       {submitted} submitted, {dropped} dropped")?;
        }
        if let Some(misses) = self.misses() {
            writeln!(f, " programs     {misses} runs skipped by the kernel")?;
        }
        if let Some(audit) = self.audit {
            writeln!(
                f,
                " audit        {} attempts = {} hit + {} redirtied + {} pinned + {} kept, folio by folio",
                units::grouped(audit.attempts),
                units::grouped(audit.hit),
                units::grouped(audit.redirtied),
                units::grouped(audit.reclaim_pinned),
                units::grouped(audit.kept),
            )?;
        }
        writeln!(f)
    }

    fn residual(
        &self,
        f: &mut Formatter<'_>,
        signal: Signal,
        residual: Option<i64>,
        counter: &str,
    ) -> Result {
        let row = self.signals.iter().find(|(_, row)| row.signal == signal);
        let ours = row.and_then(|(_, row)| row.pages);
        let name = signal.name();
        let (Some(residual), Some(ours), Some(kernel)) = (residual, ours, self.vmstat.get(counter))
        else {
            return writeln!(f, " residual     none for {name}: it takes a probe and {counter}");
        };
        write!(
            f,
            " residual     {residual} pages: {name} less {counter} {}",
            units::grouped(kernel)
        )?;
        let pending = ours as i64 - kernel as i64 - residual;
        if pending != 0 {
            write!(f, " less {pending} waiting in LRU batches")?;
        }
        writeln!(f)
    }

    /// Runs that the kernel skipped, over the programs it tells of.
    fn misses(&self) -> Option<u64> {
        self.hooks.iter().filter_map(|hook| hook.misses).reduce(|sum, misses| sum + misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture;

    fn lines(report: &Report) -> Vec<String> {
        report.to_string().lines().map(str::to_owned).collect()
    }

    fn line<'a>(lines: &'a [String], needle: &str) -> &'a str {
        lines.iter().find(|line| line.contains(needle)).unwrap_or_else(|| panic!("no {needle}"))
    }

    #[test]
    fn everything_observed() {
        insta::assert_snapshot!(Report::new(&fixture::full(), None));
    }

    #[test]
    fn counters_of_the_kernel_only() {
        insta::assert_snapshot!(Report::new(&fixture::vmstat_only(), None));
    }

    #[test]
    fn a_loss_takes_the_word_exact_away_and_is_told() {
        let report = Report::new(&fixture::lossy(), None);
        let lines = lines(&report);
        assert!(line(&lines, " redirtied  ").contains("estimate [1]"));
        assert!(line(&lines, " advised  ").contains("exact"));
        let note = " [1] 1 calls of reclaim were not followed from entry to return";
        assert!(lines.iter().any(|line| line == note));
        assert!(line(&lines, " reclaim      100 calls").contains("1 in flight, 1 lost"));
        assert!(line(&lines, " events  ").ends_with("2 submitted, 2 dropped"));
        let notes = lines.iter().filter(|line| line.starts_with(" [")).count();
        assert_eq!(notes, 1, "one note for all signals of the family");
    }

    #[test]
    fn each_signal_has_a_line() {
        let lines = lines(&Report::new(&fixture::vmstat_only(), None));
        for signal in Signal::ALL {
            let title = format!("  {:<22} ", signal.info().title);
            let found = lines.iter().filter(|line| line.contains(&title)).count();
            assert_eq!(found, 1, "{signal:?}");
        }
    }

    #[test]
    fn the_command_is_named_and_cannot_move_the_cursor() {
        let argv = vec!["sh".to_owned(), "\x1b[2Jx".to_owned()];
        let outcome = CommandOutcome { argv, exit_status: 3 };
        let text = Report::new(&fixture::full(), Some(outcome)).to_string();
        assert!(text.contains(r"for 'sh \u{1b}[2Jx', exit status 3"), "{text}");
    }
}
