//! Reclaim batches that met lazyfree pages they could not free: examples, never a count.

use ratatui::{style::Style, text::Line};

use super::scene::Scene;
use crate::{
    sample::Failure,
    text::wrap,
    tui::{
        units::{count, duration_ns},
        widget::{
            grid::{Column, Grid},
            text::{GAP, first_fit, spaced, styled},
        },
    },
};

/// The page, newest first.
pub fn lines(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    // What is left over goes to the task's name, of at most 15 letters.
    const OTHERS: usize = 11 + 9 + 7 + 7 + 4 + 7 + 6 + 4 + 8 * GAP;
    let columns = vec![
        Column::numbers("uptime s", 11),
        Column::words("reclaimer", 9),
        Column::numbers("tgid", 7),
        Column::words("task", width.saturating_sub(OTHERS).clamp(7, 15)),
        Column::numbers("took", 7),
        Column::numbers("hit", 4),
        Column::numbers("redirty", 7),
        Column::numbers("pinned", 6),
        Column::numbers("kept", 4),
    ];
    let grid = Grid::new(columns, scene.glyphs().cut);
    let explanation = "examples and not a count; in pages, newest first";
    let mut lines = vec![first_fit(
        [
            spaced([
                styled("Failed reclaim batches", theme.title),
                styled(explanation, theme.faint),
            ]),
            styled("Failed reclaim batches", theme.title),
        ],
        width,
    )];
    if !scene.snapshot.sees_failures() {
        let why = "Not observed: it takes a hook on the kernel's function that reclaims a batch; \
                   the view Doctor tells why there is none.";
        lines.extend(wrap(why, width).into_iter().map(Line::raw));
        return lines;
    }
    if scene.snapshot.failures.is_empty() {
        lines.push(Line::raw("None so far."));
        return lines;
    }
    lines.push(grid.head(theme.faint, theme.faint));
    lines.extend(
        scene.snapshot.failures.iter().rev().map(|failure| grid.row(cells(scene, failure))),
    );
    lines
}

fn cells(scene: &Scene<'_>, failure: &Failure) -> [(String, Style); 9] {
    let plain = Style::new();
    let pages = |pages, style| (count(pages), if pages > 0 { style } else { scene.theme.faint });
    // The clock is that of the kernel's log.
    let time_ms = failure.time_ns / 1_000_000;
    [
        (format!("{}.{:03}", time_ms / 1_000, time_ms % 1_000), plain),
        (failure.reclaimer.clone(), plain),
        (failure.tgid.to_string(), plain),
        (failure.comm.clone(), plain),
        (duration_ns(failure.duration_ns, scene.glyphs().ascii), plain),
        pages(failure.hit_pages, plain),
        pages(failure.redirtied_pages, scene.theme.redirtied),
        pages(failure.pinned_pages, scene.theme.pinned),
        pages(failure.kept_pages, plain),
    ]
}
