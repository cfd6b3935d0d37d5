//! What is attached, how each signal is observed, and what the numbers are checked against.

use ratatui::{style::Style, text::Line};

use super::scene::Scene;
use crate::{
    model::Snapshot,
    signal::{Accuracy, HookKind, Signal},
    text::wrap,
    tui::{
        units::{COUNT_WIDTH, count, signed},
        widget::{
            grid::{Column, Grid},
            text::{GAP, styled},
        },
    },
};

/// The page.
pub fn lines(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let mut lines = programs(scene);
    lines.push(Line::default());
    lines.extend(signals(scene, width));
    if !scene.snapshot.hooks.is_empty() {
        lines.push(Line::default());
        lines.extend(calls(scene));
    }
    lines.push(Line::default());
    lines.extend(residual(scene, width));
    if let Some(audit) = audit(scene) {
        lines.push(Line::default());
        lines.extend(audit);
    }
    lines
}

fn programs(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let columns = vec![
        Column::words("Programs", 21),
        Column::words("kind", 9),
        Column::words("kernel function", 29),
        Column::numbers("misses", COUNT_WIDTH),
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

/// A row for each signal. The reason stands in place of the hook where there is none, and below
/// it where there is one.
fn signals(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    const TITLE: Column = Column::words("Signals", 21);
    const ACCURACY: Column = Column::words("accuracy", 8);
    const INDENT: usize = TITLE.width + GAP + ACCURACY.width + GAP;
    let theme = scene.theme;
    let room = width.saturating_sub(INDENT);
    let columns = vec![TITLE, ACCURACY, Column::words("hook, or why there is none", room.max(26))];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    for state in &scene.snapshot.signals {
        let style = match state.accuracy {
            Accuracy::Exact => Style::new(),
            Accuracy::Estimate => theme.caution,
            Accuracy::None => theme.faint,
        };
        let hook = (!state.hook.is_empty()).then(|| (state.hook.clone(), Style::new()));
        // Signals of one hook tend to share a reason; it is told once.
        let told = (scene.snapshot.signals.iter())
            .find(|other| other.reason == state.reason)
            .filter(|other| other.signal != state.signal && !state.reason.is_empty());
        let reason = match told {
            Some(other) => format!("as for {}", other.signal.info().title),
            None => state.reason.clone(),
        };
        let reason = wrap(&reason, room).into_iter().map(|line| (line, theme.faint));
        let mut what = hook.into_iter().chain(reason);
        lines.push(grid.row([
            (state.signal.info().title.to_owned(), Style::new()),
            (state.accuracy.name().to_owned(), style),
            what.next().unwrap_or_default(),
        ]));
        let indent = " ".repeat(INDENT);
        lines.extend(what.map(|(line, style)| styled(format!("{indent}{line}"), style)));
    }
    lines
}

/// What became of the calls of each hooked function, and of the events.
fn calls(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let columns = vec![
        Column::words("Calls", 21),
        Column::numbers("finished", COUNT_WIDTH),
        Column::numbers("in flight", 9),
        Column::numbers("no return", 9),
        Column::numbers("no entry", 8),
        Column::numbers("map full", 8),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    let alarm = |lost| (count(lost), if lost > 0 { theme.alarm } else { Style::new() });
    lines.extend(scene.snapshot.families.iter().map(|family| {
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
    let events = scene.snapshot.events;
    lines.push(grid.remark(
        "events".to_owned(),
        format!("{} submitted, {} dropped", count(events.submitted), count(events.dropped)),
        if events.dropped > 0 { theme.alarm } else { Style::new() },
    ));
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
