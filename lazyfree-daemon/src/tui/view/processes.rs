//! Who gives memory back: processes, those that gave most first, and memory cgroups below them.

use ratatui::{style::Style, text::Line};

use super::scene::{Scene, mark_estimate};
use crate::{
    model::ProcessState,
    signal::{Accuracy, Signal},
    text::wrap,
    tui::{
        units::{self, count},
        widget::{
            grid::{Column, Grid},
            text::{GAP, first_fit, spaced, styled},
        },
    },
};

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Tgid,
    Comm,
    Advised,
    Lazyfree,
    Rss,
    Calls,
    Effective,
}

/// From the most to the least needed; a narrow screen leaves the last ones out.
const FIELDS: [Field; 7] = [
    Field::Tgid,
    Field::Comm,
    Field::Advised,
    Field::Lazyfree,
    Field::Rss,
    Field::Calls,
    Field::Effective,
];

impl Field {
    /// Where it stands on the screen.
    const fn place(self) -> usize {
        match self {
            Field::Tgid => 0,
            Field::Comm => 1,
            Field::Calls => 2,
            Field::Advised => 3,
            Field::Lazyfree => 4,
            Field::Rss => 5,
            Field::Effective => 6,
        }
    }

    const fn column(self) -> Column {
        match self {
            Field::Tgid => Column::numbers("tgid", 7),
            Field::Comm => Column::words("process", 15),
            Field::Calls => Column::numbers("calls", 10),
            Field::Advised => Column::numbers("advised", 9),
            Field::Lazyfree => Column::numbers("LazyFree", 8),
            Field::Rss => Column::numbers("RSS", 8),
            Field::Effective => Column::numbers("RSS less LF", 11),
        }
    }
}

/// The page.
pub fn lines(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let mut lines = processes(scene, width);
    lines.push(Line::default());
    lines.extend(cgroups(scene, width));
    lines
}

fn processes(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let rows = &scene.snapshot.processes;
    let others = scene.snapshot.other_processes;
    let seen = scene.snapshot.sees_processes();
    let title = || styled("Processes", theme.title);
    let explanation = "calls and advised since the start, LazyFree and RSS now";
    let mut lines =
        vec![first_fit([spaced([title(), styled(explanation, theme.faint)]), title()], width)];
    let remark = |lines: &mut Vec<Line<'static>>, text: &str| {
        lines.extend(wrap(text, width).into_iter().map(|line| styled(line, theme.faint)));
    };
    if !seen {
        let state = scene.snapshot.signal(Signal::Advised);
        let reason = state.map_or("", |state| &*state.reason);
        remark(&mut lines, &format!("Calls are not observed: {reason}."));
    }
    if rows.is_empty() && others.calls == 0 {
        let none = if seen {
            "None has called MADV_FREE so far."
        } else {
            "None that this user may look at has lazyfree memory."
        };
        lines.push(Line::raw(none));
        return lines;
    }
    let fields = shown(width, seen);
    let grid = Grid::new(fields.iter().map(|field| field.column()).collect(), scene.glyphs().cut);
    lines.push(grid.head(theme.faint, theme.faint));
    for row in rows {
        lines.push(grid.row(fields.iter().map(|field| cell(scene, *field, row))));
    }
    if others.calls > 0 {
        let others = ProcessState {
            comm: "others".to_owned(),
            calls: Some(others.calls),
            advised_pages: Some(others.advised_pages),
            ..ProcessState::default()
        };
        lines.push(grid.row(fields.iter().map(|field| match field {
            Field::Tgid => (String::new(), Style::new()),
            field => cell(scene, *field, &others),
        })));
        remark(
            &mut lines,
            "others: processes for which the kernel side had no room; their pages are in all totals.",
        );
    }
    if rows.iter().any(|row| row.lazyfree_bytes.is_none()) {
        remark(
            &mut lines,
            "n/a: it has ended, or was not looked at; only those that gave most are.",
        );
    }
    lines
}

/// Which columns fit, in the order of the screen; what isn't observed of any process is left out.
fn shown(width: usize, calls_are_seen: bool) -> Vec<Field> {
    let mut room = width + GAP;
    let observed =
        |field: &Field| calls_are_seen || !matches!(field, Field::Calls | Field::Advised);
    let mut shown: Vec<_> = FIELDS
        .into_iter()
        .filter(observed)
        .take_while(|field| {
            let needs = field.column().width + GAP;
            let fits = room >= needs;
            room = room.saturating_sub(needs);
            fits
        })
        .collect();
    shown.sort_by_key(|field| field.place());
    shown
}

fn cell(scene: &Scene<'_>, field: Field, row: &ProcessState) -> (String, Style) {
    let known = |text: Option<String>| match text {
        Some(text) => (text, Style::new()),
        None => ("n/a".to_owned(), scene.theme.faint),
    };
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| units::bytes(bytes as f64));
    let accuracy = scene.snapshot.signal(Signal::Advised).map_or(Accuracy::None, |s| s.accuracy);
    match field {
        Field::Tgid => (row.tgid.to_string(), Style::new()),
        Field::Comm => (row.comm.clone(), Style::new()),
        Field::Calls => known(row.calls.map(count)),
        Field::Advised => {
            known(row.advised_pages.map(|pages| mark_estimate(accuracy, scene.bytes(pages))))
        }
        Field::Lazyfree => known(bytes(row.lazyfree_bytes)),
        Field::Rss => known(bytes(row.rss_bytes)),
        Field::Effective => {
            let effective = row.rss_bytes.zip(row.lazyfree_bytes);
            known(bytes(effective.map(|(rss, lazyfree)| rss.saturating_sub(lazyfree))))
        }
    }
}

fn cgroups(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let columns = vec![
        Column::words("Memory cgroups", width.saturating_sub(2 * (10 + GAP)).clamp(14, 60)),
        Column::numbers("marked", 10),
        Column::numbers("hit", 10),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    let rows = &scene.snapshot.cgroups;
    if rows.is_empty() {
        let text = "None had lazyfree pages marked or freed since the start, or there is no \
                    cgroup v2 to tell.";
        lines.extend(wrap(text, width).into_iter().map(|line| styled(line, theme.faint)));
    }
    lines.extend(rows.iter().map(|row| {
        let plain = Style::new();
        let (marked, hit) = (scene.amount(row.marked), scene.amount(row.hit));
        grid.row([(row.path.clone(), plain), (marked, plain), (hit, plain)])
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_screen_keeps_who_and_how_much() {
        use Field::{Advised, Calls, Comm, Effective, Lazyfree, Rss, Tgid};
        for (width, seen, fields) in [
            (80, true, vec![Tgid, Comm, Calls, Advised, Lazyfree, Rss, Effective]),
            (70, true, vec![Tgid, Comm, Calls, Advised, Lazyfree, Rss]),
            (40, true, vec![Tgid, Comm, Advised]),
            (40, false, vec![Tgid, Comm, Lazyfree]),
            (80, false, vec![Tgid, Comm, Lazyfree, Rss, Effective]),
        ] {
            assert_eq!(shown(width, seen), fields, "{width}");
        }
    }
}
