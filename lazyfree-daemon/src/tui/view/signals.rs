//! The table of all signals.

use ratatui::{style::Style, text::Line};

use super::scene::{Scene, mark_estimate};
use crate::{
    model::SignalState,
    signal::{Accuracy, Unit},
    tui::{
        units::{BYTES_WIDTH, COUNT_WIDTH, RATE_WIDTH, count},
        widget::{
            grid::{Column, Grid},
            text::{self, GAP},
        },
    },
};

/// Columns from the most to the least needed; a narrow screen leaves the last ones out.
const COLUMNS: [Column; 6] = [
    Column::words("Signals", 21),
    Column::numbers("total", BYTES_WIDTH + 1),
    Column::numbers("rate", RATE_WIDTH),
    Column::words("accuracy", 8),
    Column::numbers("pages", COUNT_WIDTH),
    Column::words("hook", 34),
];

/// Where each of [`COLUMNS`] stands on the screen.
const PLACES: [usize; 6] = [0, 1, 3, 4, 2, 5];

/// Width of all columns.
pub const WIDEST: usize = {
    let (mut sum, mut index) = (0, 0);
    while index < COLUMNS.len() {
        sum += COLUMNS[index].width + if index > 0 { GAP } else { 0 };
        index += 1;
    }
    sum
};

/// A head and a row for each signal.
pub fn lines(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let shown = shown(width);
    let columns = shown.iter().map(|index| COLUMNS[*index]).collect();
    let grid = Grid::new(columns, scene.glyphs().cut);
    let mut lines = vec![grid.head(scene.theme.title, scene.theme.faint)];
    lines.extend(scene.snapshot.signals.iter().map(|state| {
        let title = state.signal.info().title.to_owned();
        let Some(pages) = state.pages else {
            let room = width.saturating_sub(COLUMNS[0].width + GAP);
            return grid.remark(title, unobserved(scene, state, room), scene.theme.faint);
        };
        let cells = cells(scene, state, title, pages);
        grid.row(shown.iter().map(|index| cells[*index].clone()))
    }));
    lines
}

/// Which columns fit, in the order of the screen.
fn shown(width: usize) -> Vec<usize> {
    let mut room = width + GAP;
    let mut shown: Vec<_> = (0..COLUMNS.len())
        .take_while(|index| {
            let fits = room >= COLUMNS[*index].width + GAP;
            room = room.saturating_sub(COLUMNS[*index].width + GAP);
            fits
        })
        .collect();
    shown.sort_by_key(|index| PLACES[*index]);
    shown
}

/// A signal's cells, in the order of [`COLUMNS`].
fn cells(
    scene: &Scene<'_>,
    state: &SignalState,
    title: String,
    pages: u64,
) -> [(String, Style); 6] {
    let plain = Style::new();
    let total = match state.signal.info().unit {
        Unit::Pages => (mark_estimate(state.accuracy, scene.bytes(pages)), plain),
        Unit::Entries => ("entries".to_owned(), scene.theme.faint),
    };
    let accuracy = match state.accuracy {
        Accuracy::Estimate => (state.accuracy.name(), scene.theme.caution),
        Accuracy::Exact | Accuracy::None => (state.accuracy.name(), plain),
    };
    [
        (title, plain),
        total,
        (scene.signal_rate(state).unwrap_or_else(|| "n/a".to_owned()), plain),
        (accuracy.0.to_owned(), accuracy.1),
        (count(pages), plain),
        (state.hook.clone(), scene.theme.faint),
    ]
}

fn unobserved(scene: &Scene<'_>, state: &SignalState, room: usize) -> String {
    let text = if state.reason.is_empty() {
        "not observed".to_owned()
    } else {
        format!("not observed: {}", state.reason)
    };
    text::cut(&text, room, scene.glyphs().cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_screen_keeps_the_total_and_a_wide_one_has_it_all() {
        for (width, columns) in [
            (36, vec![0, 1]),
            (60, vec![0, 1, 2, 3]),
            (80, vec![0, 1, 4, 2, 3]),
            (WIDEST, vec![0, 1, 4, 2, 3, 5]),
        ] {
            assert_eq!(shown(width), columns, "{width}");
        }
    }
}
