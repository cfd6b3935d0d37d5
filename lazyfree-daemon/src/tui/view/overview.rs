//! The page that answers most questions, in one column or two.

use ratatui::text::Line;

use super::{calls, ledger, reclaim, scene::Scene, signals, stalls, timeline};
use crate::tui::widget::text::beside;

/// Cells between two columns.
const GUTTER: usize = 4;

/// Rows that all of one column takes with its sections set apart. With less the first screenful is
/// kept dense.
const AIRY: usize = 40;

/// The page; where the screen is higher than needed the time line grows.
pub fn lines(scene: &Scene<'_>, width: usize, height: usize) -> Vec<Line<'static>> {
    let right = signals::WIDEST + GUTTER;
    let two_columns = width >= right + reclaim::WIDTH.max(calls::WIDTH).max(stalls::WIDTH);
    let airy = two_columns || height >= AIRY;
    let (above, below) = if two_columns {
        let ledger = ledger::lines(scene, width - right);
        let stalls = stalls::lines(scene, width - right);
        let side = stack([ledger, stalls, reclaim::lines(scene), calls::lines(scene)], true);
        (beside(signals::lines(scene, signals::WIDEST), side, right), Vec::new())
    } else {
        (
            stack([signals::lines(scene, width), ledger::lines(scene, width)], airy),
            stack([stalls::lines(scene, width), reclaim::lines(scene), calls::lines(scene)], true),
        )
    };
    let gaps = usize::from(airy) + usize::from(!below.is_empty());
    let spare = height.saturating_sub(above.len() + below.len() + gaps);
    let upper = stack([above, timeline::lines(scene, width, spare)], airy);
    stack([upper, below], true)
}

/// Sections one below the other, with an empty row between each two of them if they are to stand
/// apart; an empty section takes no room.
fn stack<const N: usize>(sections: [Vec<Line<'static>>; N], apart: bool) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for section in sections {
        if apart && !lines.is_empty() && !section.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(section);
    }
    lines
}
