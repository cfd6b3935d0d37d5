//! Who reclaimed, and what became of the lazyfree pages each met.

use lazyfree_common::Reclaimer;
use ratatui::{style::Style, text::Line};

use super::scene::{Scene, mark_estimate};
use crate::{
    signal::{HookKind, Signal},
    tui::{
        units::{COUNT_WIDTH, count},
        widget::{
            grid::{Column, Grid},
            text::GAP,
        },
    },
};

/// The signals that are told apart by reclaimer, in the order of the columns.
const SIGNALS: [Signal; 4] = [Signal::Hit, Signal::Redirtied, Signal::ReclaimPinned, Signal::Kept];

const COLUMNS: [Column; 6] = [
    Column::words("Reclaim", 9),
    Column::numbers("batches", COUNT_WIDTH),
    Column::numbers("hit", 10),
    Column::numbers("redirtied", 10),
    Column::numbers("pinned", 10),
    Column::numbers("kept", 10),
];

/// Width of the table.
pub const WIDTH: usize = 9 + COUNT_WIDTH + 4 * 10 + 5 * GAP;

/// A head and a row for each reclaimer.
pub fn lines(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let grid = Grid::new(COLUMNS.to_vec(), scene.glyphs().cut);
    let mut lines = vec![grid.head(scene.theme.title, scene.theme.faint)];
    let states = SIGNALS.map(|signal| scene.snapshot.signal(signal));
    let split = |kind: Option<HookKind>| kind.is_some_and(|kind| kind != HookKind::Procfs);
    if !states.iter().flatten().any(|state| split(state.kind)) {
        lines[0] = grid.remark(
            "Reclaim".to_owned(),
            "who reclaimed is not observed".to_owned(),
            scene.theme.faint,
        );
        lines[0].spans[0].style = scene.theme.title;
        return lines;
    }
    lines.extend(Reclaimer::ALL.iter().map(|&reclaimer| {
        let index = reclaimer as usize;
        let plain = Style::new();
        let head =
            [(reclaimer.name().to_owned(), plain), (count(scene.snapshot.batches[index]), plain)];
        let pages = states.map(|state| {
            let pages = state.and_then(|state| Some((state.accuracy, state.by_reclaimer?[index])));
            match pages {
                Some((accuracy, pages)) => (mark_estimate(accuracy, scene.amount(pages)), plain),
                None => ("n/a".to_owned(), scene.theme.faint),
            }
        });
        grid.row(head.into_iter().chain(pages))
    }));
    lines
}
