//! `docs/kernels.md`, made of what the guests came to. Pure.

use std::fmt::{self, Display, Write as _};

use lazyfree_vm::matrix::{
    SIGNALS,
    line::{Accuracy, CROWD, Guest},
};

use super::{
    stated::{self, KNOWN_TO_STAY_0, Place},
    tally::{Cell, Outcome, Run, Tally},
    variant::{MEMORY_MIB, Variant},
};
use crate::kernel::Series;

/// What the page says beside what the guests came to.
pub struct Page<'a> {
    /// The day, as `2026-12-01`.
    pub date: &'a str,
    /// The command.
    pub command: &'a str,
    /// What the guests came to.
    pub tally: &'a Tally,
    /// Series that could not be run, and why.
    pub absent: &'a [(Series, String)],
    /// Series whose kernel may not be the newest, and why.
    pub old: &'a [(Series, String)],
}

const INTRODUCTION: &str = "\
Each cell is one signal on one kernel: what `lazyfree` says its number is worth, and how many pages were \
counted in workloads of which it is known what must be counted. What is known comes from the workloads, \
from `/proc/vmstat`, from the kernel's page flags and from a tracepoint of compaction, never from \
`lazyfree` itself. A number that is said to be exact and isn't right, by a single page, is a deviation, \
whatever is stated.";

const LEGEND: [&str; 7] = [
    "`exact 4,096`: that many pages were known, and that many were counted, workload for workload.",
    "`estimate 2,048 of 4,096`: counted, of what there was to count.",
    "`exact 4,096, 1 missed`: once the kernel skipped a run of a program, and `lazyfree` said estimate.",
    "`exact 4,096, 1 ahead`: once more was shown than is marked in the end, and `lazyfree` said estimate.",
    "`none`: not observed, and not shown as 0.",
    "`exact, untried`: no guest could make it move.",
    "**bold**: not as this repository states it; see [Deviations](#deviations).",
];

impl Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, command, tally, absent, old } = self;
        writeln!(f, "# Kernels\n")?;
        writeln!(f, "<!-- Generated: cargo xtask matrix --write docs/kernels.md -->\n")?;
        let seen = format!(
            "What `lazyfree` counts on each kernel series, seen on {date} with `{command}`, in \
             Debian's cloud kernels for x86-64, in guests of {MEMORY_MIB} MiB under qemu's software \
             emulation."
        );
        writeln!(f, "{}\n\n{}\n", paragraph(&seen), paragraph(INTRODUCTION))?;
        for item in LEGEND {
            writeln!(f, "{}", item_of_list(item))?;
        }
        writeln!(f)?;
        signals(f, tally)?;
        reasons(f, tally)?;
        guests(f, tally)?;
        list(f, "Left out", &left_out(tally, absent, old), "Nothing.")?;
        list(f, "Deviations", &tally.deviations, "None: everything is as stated.")
    }
}

/// The table kernel by signal.
fn signals(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    writeln!(f, "## Signals\n")?;
    let titles: Vec<_> = SIGNALS.iter().map(|signal| signal.replace('_', " ")).collect();
    writeln!(f, "| kernel | LRU | probes | {} |", titles.join(" | "))?;
    writeln!(f, "| --- | --- | --- |{}", " --- |".repeat(SIGNALS.len()))?;
    for place in places(tally) {
        let Place { series, mglru, family } = place;
        write!(f, "| {series} | {} | {} |", lru(mglru), family.name())?;
        for signal in SIGNALS {
            let cell = tally.cells.iter().find(|cell| cell.place == place && cell.signal == signal);
            write!(f, " {} |", cell.map_or("not run".to_owned(), text))?;
        }
        writeln!(f)?;
    }
    writeln!(f)
}

/// Every place that has cells, in order.
fn places(tally: &Tally) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for cell in &tally.cells {
        if !places.contains(&cell.place) {
            places.push(cell.place);
        }
    }
    places.sort_by_key(|place| (place.series, place.mglru, place.family));
    places
}

const fn lru(mglru: bool) -> &'static str {
    if mglru { "MGLRU" } else { "classic" }
}

fn text(cell: &Cell) -> String {
    let Cell { signal, accuracy, counted, known, missed, ahead, deviates, .. } = cell;
    let may_be_0 = KNOWN_TO_STAY_0.contains(&signal.as_str());
    let text = match accuracy {
        Accuracy::None => "none".to_owned(),
        Accuracy::Exact if *known == 0 && *counted == 0 && !may_be_0 => "exact, untried".to_owned(),
        Accuracy::Exact if counted == known => format!("exact {}", grouped(*known)),
        Accuracy::Exact | Accuracy::Estimate => {
            format!("{} {} of {}", accuracy.name(), grouped(*counted), grouped(*known))
        }
    };
    let text = if *missed > 0 { format!("{text}, {missed} missed") } else { text };
    let text = if *ahead > 0 { format!("{text}, {ahead} ahead") } else { text };
    if *deviates { format!("**{text}**") } else { text }
}

/// Thousands apart.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Why what isn't exact isn't.
fn reasons(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    writeln!(f, "## Where a number isn't exact\n")?;
    let mut reasons: Vec<(&str, &str, Vec<Place>, Vec<&str>)> = Vec::new();
    for place in places(tally) {
        for signal in SIGNALS {
            let stated = stated::of(place, signal);
            if stated.accuracy == Accuracy::Exact {
                continue;
            }
            match reasons.iter_mut().find(|(_, reason, ..)| *reason == stated.reason) {
                Some((_, _, places, signals)) => {
                    places.push(place);
                    if !signals.contains(&signal) {
                        signals.push(signal);
                    }
                }
                None => {
                    let accuracy = stated.accuracy.name();
                    reasons.push((accuracy, stated.reason, vec![place], vec![signal]));
                }
            }
        }
    }
    for (accuracy, reason, places, signals) in reasons {
        let signals: Vec<_> = signals.iter().map(|signal| format!("`{signal}`")).collect();
        let mut series: Vec<String> = places.iter().map(|place| place.series.to_string()).collect();
        series.dedup();
        let item =
            format!("{}, {accuracy} on {}: {reason}.", signals.join(", "), series.join(", "));
        writeln!(f, "{}", item_of_list(&item))?;
    }
    let missed = tally.cells.iter().filter(|cell| cell.missed > 0);
    let mut reasons: Vec<_> = missed
        .filter_map(|cell| stated::may_miss(cell.place.series, cell.place.family, CROWD))
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        writeln!(f, "{}", item_of_list(&format!("Missed {reason}.")))?;
    }
    if tally.cells.iter().any(|cell| cell.ahead > 0) {
        writeln!(f, "{}", item_of_list(&format!("{}.", stated::AHEAD)))?;
    }
    if !tally.words.is_empty() {
        writeln!(f, "\nWhat `lazyfree` itself says of them:\n")?;
    }
    for (signal, words) in &tally.words {
        let words = words.trim_end_matches('.');
        writeln!(f, "{}", item_of_list(&format!("`{signal}`: {words}.")))?;
    }
    writeln!(f, "\n{}\n", paragraph(NOTES))
}

const NOTES: &str = "\
Of `kept` it is known only where it stays 0, as with MADV_PAGEOUT: a contended lock can't be made to \
happen a known number of times. In reclaim by size a page can be tried more than once, so there \
`attempts` and `reclaim_pinned` are known as lower bounds: from 6.16 on, `try_to_unmap_one()` leaves a \
clean page with an extra reference lazyfree, and reclaim comes back to it; and with MGLRU, \
`lru_gen_look_around()` puts young neighbours of a page into a batch of the CPU (`folio_activate()`), \
which holds a reference to each (seen on 7.3: a page in some runs). `redirtied` is known as an \
upper bound there: from 6.16 to 7.1, `lru_gen_look_around()` promotes some pages that it finds dirty \
before they are tried. Numbers that are known as bounds are compared, and not in the sums above.";

/// The table kernel by guest.
fn guests(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    writeln!(f, "## Guests\n")?;
    writeln!(f, "Numbers that were compared with what is known of them, in each guest.\n")?;
    let titles: Vec<_> = Variant::ALL.iter().map(ToString::to_string).collect();
    writeln!(f, "| series | kernel | boots with | {} |", titles.join(" | "))?;
    writeln!(f, "| --- | --- | --- |{}", " --- |".repeat(Variant::ALL.len()))?;
    for (series, guest) in &tally.kernels {
        let Guest { kernel, version, mglru, .. } = guest;
        write!(f, "| {series} | {kernel} ({version}) | {} |", lru(*mglru == Some(true)))?;
        for variant in Variant::ALL {
            let is_it = |run: &&Run| run.series == *series && run.variant == variant;
            let text = match tally.runs.iter().find(is_it).map(|run| &run.outcome) {
                Some(Outcome::Ran { checks, deviations: 0 }) => checks.to_string(),
                Some(Outcome::Ran { checks, deviations }) => {
                    format!("**{checks}, {deviations} deviations**")
                }
                Some(Outcome::LeftOut(_)) => "left out".to_owned(),
                None => "not run".to_owned(),
            };
            write!(f, " {text} |")?;
        }
        writeln!(f)?;
    }
    writeln!(f)
}

fn left_out(tally: &Tally, absent: &[(Series, String)], old: &[(Series, String)]) -> Vec<String> {
    let mut list: Vec<String> =
        absent.iter().map(|(series, why)| format!("{series} as a whole: {why}")).collect();
    let mut reasons: Vec<(Variant, &str, Vec<String>)> = Vec::new();
    for Run { series, variant, outcome } in &tally.runs {
        let Outcome::LeftOut(why) = outcome else { continue };
        let series = series.to_string();
        match reasons.iter_mut().find(|(v, w, _)| v == variant && w == why) {
            Some((.., all)) => all.push(series),
            None => reasons.push((*variant, why, vec![series])),
        }
    }
    list.extend(reasons.into_iter().map(|(variant, why, series)| {
        format!("the guest {variant} on {}: {why}", series.join(", "))
    }));
    list.extend(tally.left_out.iter().cloned());
    list.extend(old.iter().map(|(series, why)| {
        format!("{series} may not be the newest of its series, it was in the cache: {why}")
    }));
    list
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, items: &[String], otherwise: &str) -> fmt::Result {
    writeln!(f, "## {title}\n")?;
    if items.is_empty() {
        writeln!(f, "{otherwise}")?;
    }
    for item in items {
        writeln!(f, "{}", item_of_list(item))?;
    }
    if title == "Deviations" { Ok(()) } else { writeln!(f) }
}

fn paragraph(text: &str) -> String {
    wrapped(text, "", "")
}

fn item_of_list(text: &str) -> String {
    wrapped(text, "- ", "  ")
}

/// Text in lines of up to 104 characters, as the rest of the documentation.
fn wrapped(text: &str, first: &str, rest: &str) -> String {
    const WIDTH: usize = 104;
    let mut lines = String::from(first);
    let mut length = first.len();
    let mut is_first = true;
    for word in text.split_whitespace() {
        if !is_first && length + 1 + word.len() > WIDTH {
            let _infallible = write!(lines, "\n{rest}{word}");
            length = rest.len() + word.len();
        } else {
            let space = if is_first { "" } else { " " };
            let _infallible = write!(lines, "{space}{word}");
            length += space.len() + word.len();
        }
        is_first = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use lazyfree_vm::family::Family;

    use super::*;

    fn place(series: &str, mglru: bool) -> Place {
        Place { series: series.parse().expect("a series"), mglru, family: Family::Fentry }
    }

    fn cell(place: Place, signal: &str, accuracy: Accuracy, counted: i64, known: i64) -> Cell {
        let signal = signal.to_owned();
        Cell {
            place,
            signal,
            accuracy,
            checks: 1,
            counted,
            known,
            missed: 0,
            ahead: 0,
            deviates: false,
        }
    }

    fn page(tally: &Tally) -> String {
        let series = |name: &str| name.parse().expect("a series");
        let absent = [(series("6.17"), "gone from Debian's archive".to_owned())];
        let old = [(series("6.1"), "the archive can't be read".to_owned())];
        let page = Page {
            date: "2026-12-01",
            command: "cargo xtask matrix",
            tally,
            absent: &absent,
            old: &old,
        };
        page.to_string()
    }

    #[test]
    fn a_cell_says_what_it_is_worth_and_how_much_was_counted() {
        use Accuracy::{Estimate, Exact, None};
        let text = |signal, accuracy, counted, known| {
            text(&cell(place("6.1", false), signal, accuracy, counted, known))
        };
        assert_eq!(text("hit", Exact, 36_864, 36_864), "exact 36,864");
        assert_eq!(text("hit", Exact, 7, 8), "exact 7 of 8");
        assert_eq!(text("hit", Exact, 0, 0), "exact, untried");
        assert_eq!(text("kept", Exact, 0, 0), "exact 0");
        assert_eq!(text("redirtied", Estimate, 2048, 4096), "estimate 2,048 of 4,096");
        assert_eq!(text("deactivated", None, 0, 0), "none");
        let deviates = Cell { deviates: true, ..cell(place("6.1", false), "hit", Exact, 7, 8) };
        assert_eq!(super::text(&deviates), "**exact 7 of 8**");
        let missed = Cell { missed: 2, ..cell(place("7.3", true), "hit", Exact, 8, 8) };
        assert_eq!(super::text(&missed), "exact 8, 2 missed");
        assert_eq!(grouped(-1_234_567), "-1,234,567");
    }

    #[test]
    fn rows_are_in_the_order_of_kernels_and_each_has_every_signal() {
        let mut tally = Tally::default();
        for place in [place("6.12", true), place("5.10", false), place("6.12", false)] {
            tally.cells.push(cell(place, "hit", Accuracy::Exact, 5, 5));
        }
        let page = page(&tally);
        let rows: Vec<&str> = page.lines().filter(|line| line.contains("| fentry |")).collect();
        let starts = ["| 5.10 | classic", "| 6.12 | classic", "| 6.12 | MGLRU"];
        assert_eq!(rows.len(), starts.len());
        for (row, start) in rows.iter().zip(starts) {
            assert!(row.starts_with(start), "{row}");
            assert_eq!(row.matches('|').count(), 4 + SIGNALS.len(), "{row}");
            assert_eq!(row.matches("not run").count(), SIGNALS.len() - 1, "{row}");
            assert!(row.contains("| exact 5 |"), "{row}");
        }
    }

    #[test]
    fn what_is_not_exact_is_explained_and_what_is_missing_is_named() {
        let mut tally = Tally::default();
        for series in ["6.12", "6.16"] {
            let place = place(series, true);
            tally.cells.push(cell(place, "deactivated", Accuracy::None, 0, 0));
            tally.leave_out(place.series, Variant::CgroupV1, "no such controller");
        }
        tally.deviate("Linux 6.12: something".to_owned());
        let page = page(&tally);
        let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [
            "seen on 2026-12-01 with `cargo xtask matrix`",
            "- `deactivated`, none on 6.12, 6.16: the multi-generational LRU has no active list",
            "- 6.17 as a whole: gone from Debian's archive",
            "- the guest with cgroup v1 on 6.12, 6.16: no such controller",
            "- 6.1 may not be the newest of its series",
            "## Deviations - Linux 6.12: something",
        ] {
            assert!(flat.contains(text), "{text}\n{page}");
        }
        assert!(page.lines().all(|line| line.starts_with('|') || line.len() <= 104), "{page}");
        assert!(page.ends_with("something\n"), "{page}");
    }
}
