//! The report of `lazyfree stat` for people, in the manner of `perf stat`: numbers first, then
//! what limits them.

use std::fmt::{Display, Formatter, Result};

use lazyfree_common::Reclaimer;

use super::{
    duration::Summary,
    json::{
        Cgroup, CommandOutcome, OtherProcesses, Pressure, Process, Report, SignalRow, StallRow,
    },
    units,
};
use crate::{
    signal::{Accuracy, Signal, Unit},
    text::{printable, wrap},
};

/// Most processes and cgroups that are listed.
const MOST: usize = 5;

/// Letters in a line of a note.
const WIDTH: usize = 80;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.title(f)?;
        let mut notes = Notes::default();
        self.signals(f, &mut notes)?;
        self.stalls(f, &mut notes)?;
        self.reclaimers(f)?;
        self.processes(f)?;
        self.limits(f)?;
        notes.write(f)?;
        writeln!(f, "{:>13.3} seconds", self.seconds)
    }
}

impl Report {
    fn title(&self, f: &mut Formatter<'_>) -> Result {
        let page = units::bytes(self.page_size);
        write!(f, "\n lazyfree on {}, pages of {page}", self.kernel)?;
        if let Some(CommandOutcome { argv, exit_status }) = &self.command {
            write!(f, " for '")?;
            for (index, word) in argv.iter().enumerate() {
                // A command line must not be able to move the cursor.
                write!(f, "{}{}", if index > 0 { " " } else { "" }, word.escape_debug())?;
            }
            write!(f, "', exit status {exit_status}")?;
        }
        write!(f, "\n {}\n\n", self.summary)
    }

    fn signals<'a>(&'a self, f: &mut Formatter<'_>, notes: &mut Notes<'a>) -> Result {
        writeln!(f, "{:>13} {:>11}  {:<22} {:<13} hook", "pages", "bytes", "signal", "accuracy")?;
        for (_, row) in &self.signals {
            let SignalRow { signal, pages, accuracy, hook, reason, fix, .. } = row;
            let (pages, bytes) = match (pages, signal.info().unit) {
                (Some(pages), Unit::Pages) => {
                    (units::grouped(*pages), units::bytes(pages.saturating_mul(self.page_size)))
                }
                (Some(entries), Unit::Entries) => (units::grouped(*entries), "entries".into()),
                (None, _) => ("not observed".into(), String::new()),
            };
            let trust = notes.trust(*accuracy, reason, fix);
            let title = signal.info().title;
            let line = format!("{pages:>13} {bytes:>11}  {title:<22} {trust:<13} {hook}");
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f)
    }

    fn stalls<'a>(&'a self, f: &mut Formatter<'_>, notes: &mut Notes<'a>) -> Result {
        if self.stalls.is_empty() {
            return Ok(());
        }
        writeln!(f, "{:>13} {:>11}  {:<22} {:<13} hook", "waits", "time", "stall", "accuracy")?;
        for (name, row) in &self.stalls {
            let StallRow { waits, accuracy, hook, reason, fix, limited_by: _ } = row;
            let (count, time) = match waits {
                Some(waits) => {
                    let time_ns = (waits.seconds * 1e9).round() as u64;
                    (units::grouped(waits.count), units::duration(time_ns))
                }
                None => ("not observed".into(), String::new()),
            };
            let trust = notes.trust(*accuracy, reason, fix);
            let line = format!("{count:>13} {time:>11}  {name:<22} {trust:<13} {hook}");
            writeln!(f, "{}", line.trim_end())?;
        }
        if let Some(Pressure { some_seconds, full_seconds }) = self.pressure {
            let time = |seconds: f64| units::duration((seconds * 1e9).round() as u64);
            writeln!(
                f,
                "{:>13} {:>11}  some tasks waited for memory (PSI)",
                "",
                time(some_seconds)
            )?;
            writeln!(f, "{:>13} {:>11}  all tasks did", "", time(full_seconds))?;
        }
        writeln!(f)
    }

    /// The processes and cgroups that come first; the JSON has all of them.
    fn processes(&self, f: &mut Formatter<'_>) -> Result {
        let known = |number: Option<String>| number.unwrap_or_else(|| "n/a".to_owned());
        let rows = self.processes.as_deref().unwrap_or_default();
        if !rows.is_empty() {
            writeln!(
                f,
                " {:<22} {:>9} {:>13} {:>13} {:>13} {:>13}",
                "process", "pid", "calls", "advised", "lazyfree now", "resident now"
            )?;
        }
        for Process { tgid, comm, calls, advised, lazyfree_bytes, rss_bytes } in
            rows.iter().take(MOST)
        {
            writeln!(
                f,
                " {:<22} {tgid:>9} {:>13} {:>13} {:>13} {:>13}",
                printable(comm),
                known(calls.map(units::grouped)),
                known(advised.map(|pages| units::bytes(pages.saturating_mul(self.page_size)))),
                known(lazyfree_bytes.map(units::bytes)),
                known(rss_bytes.map(units::bytes)),
            )?;
        }
        if let Some(OtherProcesses { calls: calls @ 1.., advised }) = self.other_processes {
            let (calls, advised) =
                (units::grouped(calls), units::bytes(advised.saturating_mul(self.page_size)));
            writeln!(f, " {:<22} {:>9} {calls:>13} {advised:>13}", "others, not told apart", "")?;
        }
        more(f, rows.len())?;
        if !self.cgroups.is_empty() {
            writeln!(f, " {:>13} {:>13}  cgroup, as the kernel counts", "marked", "hit")?;
        }
        for Cgroup { path, marked, hit } in self.cgroups.iter().take(MOST) {
            let bytes = |pages: u64| units::bytes(pages.saturating_mul(self.page_size));
            writeln!(f, " {:>13} {:>13}  {}", bytes(*marked), bytes(*hit), printable(path))?;
        }
        more(f, self.cgroups.len())
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
            write!(f, " {name:<14} {} calls", units::grouped(calls.started))?;
            if calls.in_flight > 0 {
                write!(f, ", {} in flight", units::grouped(calls.in_flight))?;
            }
            write!(f, ", {} lost", units::grouped(calls.lost()))?;
            if let Some((_, summary)) = self.durations.iter().find(|(known, _)| known == name) {
                write!(f, "; mean {}", units::duration(summary.mean_ns()))?;
                let Summary { p50_below_ns, p99_below_ns, max_below_ns, .. } = summary;
                quantiles(f, [*p50_below_ns, *p99_below_ns, *max_below_ns])?;
            }
            writeln!(f)?;
        }
        for (name, row) in &self.stalls {
            let Some(waits) = &row.waits else { continue };
            write!(f, " {name:<14} {} waits", units::grouped(waits.count))?;
            if waits.in_flight > 0 {
                write!(f, ", {} go on", units::grouped(waits.in_flight))?;
            }
            write!(f, ", {} lost", units::grouped(waits.lost))?;
            if let Some(mean_ns) = ((waits.seconds * 1e9) as u64).checked_div(waits.count) {
                write!(f, "; mean {}", units::duration(mean_ns))?;
            }
            quantiles(f, [waits.p50_below_ns, waits.p99_below_ns, waits.max_below_ns])?;
            writeln!(f)?;
        }
        if !self.calls.is_empty() {
            let (submitted, dropped) = (self.events.submitted, self.events.dropped);
            writeln!(f, " events         {submitted} submitted, {dropped} dropped")?;
        }
        if let Some(misses) = self.misses() {
            writeln!(f, " programs       {misses} runs skipped by the kernel")?;
        }
        if let Some(audit) = self.audit {
            writeln!(
                f,
                " audit          {} attempts = {} hit + {} redirtied + {} pinned + {} kept, folio by folio",
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
            return writeln!(f, " residual       none for {name}: it takes a probe and {counter}");
        };
        write!(
            f,
            " residual       {residual} pages: {name} less {counter} {}",
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

/// What the numbers refer to: why one isn't exact, and what to do about it.
#[derive(Default)]
struct Notes<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Notes<'a> {
    /// The accuracy, with the number of its note.
    fn trust(&mut self, accuracy: Accuracy, reason: &'a str, fix: &'a str) -> String {
        let mut trust = accuracy.name().to_owned();
        if accuracy != Accuracy::Exact && !reason.is_empty() {
            let known = self.0.iter().position(|note| *note == (reason, fix));
            let number = known.unwrap_or_else(|| {
                self.0.push((reason, fix));
                self.0.len() - 1
            });
            trust.push_str(&format!(" [{}]", number + 1));
        }
        trust
    }

    fn write(&self, f: &mut Formatter<'_>) -> Result {
        for (index, (reason, fix)) in self.0.iter().enumerate() {
            let told = self.0[..index].iter().position(|(_, known)| known == fix);
            let text = match (fix.is_empty(), told) {
                (true, _) => (*reason).to_owned(),
                (false, None) => format!("{reason}; fix: {fix}"),
                (false, Some(first)) => format!("{reason}; fix: as for [{}]", first + 1),
            };
            let number = format!(" [{}] ", index + 1);
            let indent = number.len();
            for (line, text) in wrap(&text, WIDTH - indent).iter().enumerate() {
                writeln!(f, "{:<indent$}{text}", if line == 0 { &*number } else { "" })?;
            }
        }
        if !self.0.is_empty() {
            writeln!(f)?;
        }
        Ok(())
    }
}

fn quantiles(f: &mut Formatter<'_>, [p50, p99, max]: [Option<u64>; 3]) -> Result {
    for (quantile, below_ns) in [("p50", p50), ("p99", p99), ("max", max)] {
        if let Some(below_ns) = below_ns {
            write!(f, ", {quantile} < {}", units::duration(below_ns))?;
        }
    }
    Ok(())
}

/// Ends a list of which at most [`MOST`] rows were written.
fn more(f: &mut Formatter<'_>, rows: usize) -> Result {
    match rows {
        0 => Ok(()),
        1..=MOST => writeln!(f),
        _ => writeln!(f, " and {} more, which --json lists\n", rows - MOST),
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
        insta::assert_snapshot!(Report::new(&fixture::procfs(), None));
    }

    #[test]
    fn tracepoints_only() {
        insta::assert_snapshot!(Report::new(&fixture::tracepoint(), None));
    }

    #[test]
    fn long_lists_are_cut_and_names_cannot_move_the_cursor() {
        let mut snapshot = fixture::full();
        snapshot.processes[0].comm = "\x1b[2J".to_owned();
        snapshot.processes = vec![snapshot.processes.clone(); 4].concat();
        let lines = lines(&Report::new(&snapshot, None));
        assert_eq!(lines.iter().filter(|line| line.starts_with(" cc1")).count(), 2);
        line(&lines, " ?[2J");
        line(&lines, " and 3 more, which --json lists");
    }

    #[test]
    fn a_loss_takes_the_word_exact_away_and_is_told() {
        let report = Report::new(&fixture::lossy(), None);
        let lines = lines(&report);
        assert!(line(&lines, " redirtied  ").contains("estimate [1]"));
        assert!(line(&lines, " advised  ").contains("exact"));
        let note = " [1] 1 calls of reclaim were not followed from entry to return";
        assert!(lines.iter().any(|line| line == note));
        assert!(line(&lines, " reclaim        100 calls").contains("1 in flight, 1 lost"));
        assert!(line(&lines, " events  ").ends_with("2 submitted, 2 dropped"));
        let notes = lines.iter().filter(|line| line.starts_with(" [")).count();
        assert_eq!(notes, 1, "one note for all signals of the family");
    }

    #[test]
    fn each_signal_has_a_line() {
        let lines = lines(&Report::new(&fixture::procfs(), None));
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
