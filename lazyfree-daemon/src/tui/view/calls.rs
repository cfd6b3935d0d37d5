//! How long the hooked functions took.

use lazyfree_common::duration;
use ratatui::{style::Style, text::Line};

use super::scene::Scene;
use crate::{
    model::FamilyState,
    sample::Durations,
    tui::{
        units::{self, COUNT_WIDTH, count},
        widget::{
            grid::{Column, Grid},
            text::GAP,
        },
    },
};

const COLUMNS: [Column; 7] = [
    Column::words("Calls", 12),
    Column::numbers("finished", COUNT_WIDTH),
    Column::numbers("mean", 8),
    Column::numbers("p50", 9),
    Column::numbers("p99", 9),
    Column::numbers("max", 9),
    Column::numbers("lost", 8),
];

/// Width of the table.
pub const WIDTH: usize = 12 + COUNT_WIDTH + 8 + 3 * 9 + 8 + 6 * GAP;

/// A head and a row for each family.
pub fn lines(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let grid = Grid::new(COLUMNS.to_vec(), scene.glyphs().cut);
    let mut lines = vec![grid.head(scene.theme.title, scene.theme.faint)];
    lines.extend(scene.snapshot.families.iter().map(|family| {
        let name = family.family.name().to_owned();
        if !family.followed {
            return grid.remark(name, "not observed".to_owned(), scene.theme.faint);
        }
        let lost = family.lost();
        let lost_style = if lost > 0 { scene.theme.alarm } else { Style::new() };
        let cells = [name, count(family.finished), mean(scene, family)]
            .into_iter()
            .chain([0.5, 0.99, 1.0].map(|q| at_most(scene, &family.durations, q)))
            .map(|text| (text, Style::new()))
            .chain([(count(lost), lost_style)]);
        grid.row(cells)
    }));
    lines
}

fn mean(scene: &Scene<'_>, family: &FamilyState) -> String {
    let durations = &family.durations;
    match durations.sum_ns.checked_div(durations.buckets.iter().sum()) {
        Some(mean) => units::duration_ns(mean, scene.glyphs().ascii),
        None => "-".to_owned(),
    }
}

/// The upper bound of the bucket that holds a quantile.
pub fn at_most(scene: &Scene<'_>, durations: &Durations, quantile: f64) -> String {
    let ascii = scene.glyphs().ascii;
    match bucket_of(durations, quantile) {
        None => "-".to_owned(),
        Some(index) => match duration::upper_bound_ns(index) {
            Some(bound) => {
                format!("{}{}", scene.glyphs().at_most, units::duration_ns(bound, ascii))
            }
            None => format!(">{}", units::duration_ns(1 << index, ascii)),
        },
    }
}

/// The bucket that holds a quantile; `None` if there is no duration.
fn bucket_of(durations: &Durations, quantile: f64) -> Option<usize> {
    let number: u64 = durations.buckets.iter().sum();
    let rank = ((quantile * number as f64).ceil() as u64).clamp(1, number.max(1));
    let mut below = 0;
    durations.buckets.iter().position(|n| {
        below += n;
        below >= rank
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_found_by_rank() {
        let of = |buckets: &[u64], quantile| {
            bucket_of(&Durations { sum_ns: 0, buckets: buckets.to_vec() }, quantile)
        };
        assert_eq!(of(&[0, 0], 0.5), None);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!([0.5, 0.99, 1.0].map(|q| of(&[0, 1], q)), [Some(1); 3]);
        // One of a hundred lies above the 99th percentile, two don't.
        assert_eq!([0.5, 0.99, 1.0].map(|q| of(&[99, 1], q)), [Some(0), Some(0), Some(1)]);
        assert_eq!([0.5, 0.99, 1.0].map(|q| of(&[98, 2], q)), [Some(0), Some(1), Some(1)]);
    }
}
