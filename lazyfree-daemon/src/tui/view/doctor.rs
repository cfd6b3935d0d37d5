//! How each number is observed, why not better and what to do about it, what is attached and what
//! was refused, and what the numbers are checked against.

use std::ops::Range;

use ratatui::{style::Style, text::Line};

use super::scene::Scene;
use crate::{
    export::doctor::{Refusal, Row, refusals},
    model::Snapshot,
    sample::Fact,
    signal::{Accuracy, HookKind, Signal},
    text::wrap,
    tui::{
        units::{COUNT_WIDTH, count, signed},
        widget::{
            grid::{Column, Grid},
            text::{self, GAP, spaced, styled},
        },
    },
};

/// The page.
pub fn lines(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let session = &scene.snapshot.session;
    let signals = scene.snapshot.signals.iter().map(Row::from);
    let rows: Vec<_> = signals.chain(scene.snapshot.stalls.iter().map(Row::from)).collect();
    let stalls_from = scene.snapshot.signals.len();
    let mut sections = vec![observed(scene, "Signals", &rows, 0..stalls_from, width)];
    if stalls_from < rows.len() {
        sections.push(observed(scene, "Stalls", &rows, stalls_from..rows.len(), width));
    }
    sections.push(refused(scene, &rows, width));
    sections.push(programs(scene));
    if !scene.snapshot.hooks.is_empty() {
        sections.push(calls(scene));
    }
    sections.push(residual(scene, width));
    sections.extend(audit(scene));
    sections.push(facts(scene, &session.facts, width));
    sections.retain(|section| !section.is_empty());
    sections.join(&Line::default())
}

fn programs(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let columns = vec![
        Column::words("Programs", 20),
        Column::words("kind", 14),
        Column::words("function or tracepoint", 34),
        Column::numbers("misses", 6),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    let hooks = &scene.snapshot.hooks;
    if hooks.is_empty() {
        lines.push(styled("none attached: all numbers are the kernel's own counters", theme.faint));
    }
    lines.extend(hooks.iter().map(|hook| {
        let (misses, style) = match hook.misses {
            None => ("n/a".to_owned(), theme.faint),
            Some(0) => ("0".to_owned(), Style::new()),
            Some(misses) => (count(misses), theme.alarm),
        };
        let plain = Style::new();
        grid.row([
            (hook.program.clone(), plain),
            (hook.kind.name().to_owned(), plain),
            (hook.symbol.clone(), plain),
            (misses, style),
        ])
    }));
    lines
}

/// Some of the rows, one for each number. The reason stands in place of the hook where there is none, and below
/// it where there is one.
fn observed(
    scene: &Scene<'_>,
    title: &'static str,
    rows: &[Row],
    shown: Range<usize>,
    width: usize,
) -> Vec<Line<'static>> {
    const TITLE: usize = 21;
    const ACCURACY: Column = Column::words("accuracy", 8);
    const INDENT: usize = TITLE + GAP + ACCURACY.width + GAP;
    let theme = scene.theme;
    let room = width.saturating_sub(INDENT).max(26);
    let columns = vec![
        Column::words(title, TITLE),
        ACCURACY,
        Column::words("hook, or why there is none", room),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    for (index, row) in rows.iter().enumerate().skip(shown.start).take(shown.len()) {
        let style = match row.accuracy {
            Accuracy::Exact => Style::new(),
            Accuracy::Estimate => theme.caution,
            Accuracy::None => theme.faint,
        };
        let hook = match row.hook.split_once(':') {
            None => Vec::new(),
            Some((kind, symbol)) if text::width(&row.hook) > room => {
                vec![format!("{kind}:"), symbol.to_owned()]
            }
            Some(_) => vec![row.hook.clone()],
        };
        let hook = hook.into_iter().map(|line| (line, Style::new()));
        // What is of one hook tends to share a reason, and all of a host a fix; each is told once.
        let before = &rows[..index];
        let reason = match before.iter().find(|other| other.reason == row.reason) {
            Some(other) if !row.reason.is_empty() => format!("as for {}", other.title),
            _ => row.reason.clone(),
        };
        let told = before.iter().any(|other| other.fix == row.fix);
        let fix =
            if told || row.fix.is_empty() { String::new() } else { format!("Fix: {}", row.fix) };
        let mut what = hook
            .chain(wrap(&reason, room).into_iter().map(|line| (line, theme.faint)))
            .chain(wrap(&fix, room).into_iter().map(|line| (line, Style::new())));
        lines.push(grid.row([
            (row.title.to_owned(), Style::new()),
            (row.accuracy.name().to_owned(), style),
            what.next().unwrap_or_default(),
        ]));
        let indent = " ".repeat(INDENT);
        lines.extend(what.map(|(line, style)| styled(format!("{indent}{line}"), style)));
    }
    lines
}

/// The candidates that aren't attached, each reason once.
fn refused(scene: &Scene<'_>, rows: &[Row], width: usize) -> Vec<Line<'static>> {
    const INDENT: usize = 4;
    let theme = scene.theme;
    let refusals = refusals(&scene.snapshot.session.hooks);
    if refusals.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![styled("Not attached", theme.title)];
    for (index, refusal) in refusals.iter().enumerate() {
        let Refusal { candidates, cause, reason, fix, verifier } = refusal;
        lines.extend(wrap(&candidates.join(", "), width).into_iter().map(Line::raw));
        let mut indented = |text: &str, style| {
            let text = wrap(text, width.saturating_sub(INDENT)).into_iter();
            lines.extend(text.map(|line| styled(format!("{:INDENT$}{line}", ""), style)));
        };
        indented(&format!("{}: {reason}", cause.name().replace('_', " ")), theme.faint);
        for line in verifier {
            indented(line, theme.faint);
        }
        let told = refusals[..index].iter().any(|other| other.fix == *fix)
            || rows.iter().any(|row| row.fix == *fix);
        if !fix.is_empty() && !told {
            indented(&format!("Fix: {fix}"), Style::new());
        }
    }
    lines
}

/// What was found out about the system.
fn facts(scene: &Scene<'_>, facts: &[Fact], width: usize) -> Vec<Line<'static>> {
    if facts.is_empty() {
        return Vec::new();
    }
    let theme = scene.theme;
    let name = facts.iter().map(|fact| text::width(&fact.name)).max().unwrap_or(0);
    let mut lines = vec![styled("System", theme.title)];
    for fact in facts {
        let mut name_once = format!("{:<name$}", fact.name);
        let room = width.saturating_sub(name + GAP).max(20);
        let value = wrap(&fact.value, room).into_iter().map(|line| (line, Style::new()));
        let remark = wrap(&fact.remark, room).into_iter().map(|line| (line, theme.faint));
        for (line, style) in value.chain(remark) {
            let left = std::mem::replace(&mut name_once, " ".repeat(name));
            lines.push(spaced([Line::raw(left), styled(line, style)]));
        }
    }
    lines
}

/// What became of the calls of each hooked function, and of the events.
fn calls(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let columns = vec![
        Column::words("Calls and waits", 21),
        Column::numbers("finished", COUNT_WIDTH),
        Column::numbers("in flight", 9),
        Column::numbers("no return", 9),
        Column::numbers("no entry", 8),
        Column::numbers("map full", 8),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    let alarm = |lost| (count(lost), if lost > 0 { theme.alarm } else { Style::new() });
    let snapshot = scene.snapshot;
    let waits = snapshot.stalls.iter().map(|state| &state.waits);
    lines.extend(snapshot.families.iter().chain(waits).map(|family| {
        let name = family.family.name().to_owned();
        if !family.followed {
            return grid.remark(name, "not observed".to_owned(), theme.faint);
        }
        grid.row([
            (name, Style::new()),
            (count(family.finished), Style::new()),
            (count(family.in_flight), Style::new()),
            alarm(family.returns_lost),
            alarm(family.entries_lost),
            alarm(family.map_full),
        ])
    }));
    if snapshot.sees_failures() {
        let events = snapshot.events;
        lines.push(grid.remark(
            "events".to_owned(),
            format!("{} submitted, {} dropped", count(events.submitted), count(events.dropped)),
            if events.dropped > 0 { theme.alarm } else { Style::new() },
        ));
    }
    lines
}

fn residual(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let snapshot = scene.snapshot;
    let columns = vec![
        Column::words("Residual", 21),
        Column::numbers("ours", COUNT_WIDTH),
        Column::numbers("kernel's", COUNT_WIDTH),
        Column::numbers("difference", COUNT_WIDTH),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    let residual = snapshot.residual;
    let rows = [
        (Signal::Marked, "pglazyfree", residual.marked),
        (Signal::Hit, "pglazyfreed", residual.hit),
    ];
    for (signal, counter, difference) in rows {
        let Some(difference) = difference else {
            let own = snapshot.signal(signal).is_some_and(|s| s.kind == Some(HookKind::Procfs));
            let why = if own {
                "not audited: the number is the kernel's own"
            } else {
                "not audited: one of the two numbers is missing"
            };
            lines.push(grid.remark(signal.name().to_owned(), why.to_owned(), theme.faint));
            continue;
        };
        let style = if difference == 0 { Style::new() } else { theme.caution };
        let ours = snapshot.signal(signal).and_then(|state| state.pages).unwrap_or(0);
        lines.push(grid.row([
            (format!("{} - {counter}", signal.name()), Style::new()),
            (count(ours), Style::new()),
            (count(snapshot.vmstat.get(counter).unwrap_or(0)), Style::new()),
            (signed(difference), style),
        ]));
    }
    let mut remarks = Vec::new();
    if let Some(pending @ 1..) = snapshot.context.lru_batch_pending {
        remarks.push(format!(
            "{} folios wait in the CPUs' LRU batches; the kernel counts them when the batches are \
             drained, and the difference allows for that.",
            count(pending)
        ));
    }
    if rows.iter().any(|(.., difference)| difference.is_some_and(|pages| pages != 0)) {
        remarks
            .push("Calls in flight may explain a difference; one that stays does not.".to_owned());
    }
    let remarks = remarks.iter().flat_map(|remark| wrap(remark, width));
    lines.extend(remarks.map(|line| styled(line, theme.faint)));
    lines
}

/// What the audit hooks counted folio by folio, beside the signals.
fn audit(scene: &Scene<'_>) -> Option<Vec<Line<'static>>> {
    let Snapshot { audit, .. } = scene.snapshot;
    let audit = audit.as_ref()?;
    let theme = scene.theme;
    let columns = vec![
        Column::words("Audit", 21),
        Column::numbers("by batch", COUNT_WIDTH),
        Column::numbers("by folio", COUNT_WIDTH),
        Column::numbers("difference", COUNT_WIDTH),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    for (signal, by_folio) in [
        (Signal::Attempts, audit.attempts),
        (Signal::Hit, audit.hit),
        (Signal::Redirtied, audit.redirtied),
        (Signal::ReclaimPinned, audit.reclaim_pinned),
        (Signal::Kept, audit.kept),
    ] {
        let title = signal.info().title.to_owned();
        let Some(pages) = scene.snapshot.signal(signal).and_then(|state| state.pages) else {
            lines.push(grid.remark(title, "not observed by batch".to_owned(), theme.faint));
            continue;
        };
        let difference = pages.wrapping_sub(by_folio) as i64;
        let style = if difference == 0 { Style::new() } else { theme.caution };
        lines.push(grid.row([
            (title, Style::new()),
            (count(pages), Style::new()),
            (count(by_folio), Style::new()),
            (signed(difference), style),
        ]));
    }
    Some(lines)
}
