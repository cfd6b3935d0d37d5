//! How long tasks waited for memory.

use ratatui::{style::Style, text::Line};

use super::{
    calls::at_most,
    scene::{Scene, mark_estimate},
};
use crate::{
    signal::Accuracy,
    tui::{
        units::{self, count},
        widget::{
            grid::{Column, Grid},
            text::{self, GAP},
        },
    },
};

const COLUMNS: [Column; 7] = [
    Column::words("Stalls", 14),
    Column::numbers("waits", 9),
    Column::numbers("in flight", 9),
    Column::numbers("total", 9),
    Column::numbers("p50", 9),
    Column::numbers("p99", 9),
    Column::numbers("max", 9),
];

/// Width of the table.
pub const WIDTH: usize = 14 + 6 * 9 + 6 * GAP;

/// A head and a row for each kind, as wide as `width` allows.
pub fn lines(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let grid = Grid::new(COLUMNS.to_vec(), scene.glyphs().cut);
    let mut lines = vec![grid.head(theme.title, theme.faint)];
    let stalls = &scene.snapshot.stalls;
    if stalls.is_empty() {
        // As of a daemon that doesn't know them.
        lines[0] = grid.remark("Stalls".to_owned(), "not observed".to_owned(), theme.faint);
        lines[0].spans[0].style = theme.title;
    }
    lines.extend(stalls.iter().map(|state| {
        let waits = &state.waits;
        let name = waits.family.name().to_owned();
        if state.accuracy == Accuracy::None {
            let room = width.saturating_sub(COLUMNS[0].width + GAP);
            let why = text::cut(&unobserved(&state.reason), room, scene.glyphs().cut);
            return grid.remark(name, why, theme.faint);
        }
        let plain = Style::new();
        let total = units::duration_ns(waits.durations.sum_ns, scene.glyphs().ascii);
        let waiting = if waits.in_flight > 0 { theme.caution } else { plain };
        let quantiles = [0.5, 0.99, 1.0].map(|q| (at_most(scene, &waits.durations, q), plain));
        let first = [
            (name, plain),
            (count(waits.finished), plain),
            (count(waits.in_flight), waiting),
            (mark_estimate(state.accuracy, total), plain),
        ];
        grid.row(first.into_iter().chain(quantiles))
    }));
    lines
}

fn unobserved(reason: &str) -> String {
    if reason.is_empty() { "not observed".to_owned() } else { format!("not observed: {reason}") }
}
