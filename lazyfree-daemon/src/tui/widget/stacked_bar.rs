//! A whole, drawn as a bar of its parts.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

/// One part.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its size, in the unit of the others.
    pub size: u64,
    /// What it is drawn with.
    pub glyph: &'static str,
    /// How.
    pub style: Style,
}

/// The bar, `width` cells wide; nothing if all parts are empty.
pub fn stacked_bar(segments: &[Segment], width: usize) -> Line<'static> {
    let sizes: Vec<_> = segments.iter().map(|segment| segment.size).collect();
    segments
        .iter()
        .zip(apportion(&sizes, width))
        .filter(|(_, cells)| *cells > 0)
        .map(|(segment, cells)| Span::styled(segment.glyph.repeat(cells), segment.style))
        .collect()
}

/// Cells for each part: they add up to `width`, and no part that exists vanishes while there is
/// room for it.
fn apportion(sizes: &[u64], width: usize) -> Vec<usize> {
    let whole: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    if whole == 0 {
        return vec![0; sizes.len()];
    }
    let share = |size: &u64| u128::from(*size) * width as u128;
    let mut cells: Vec<_> = sizes
        .iter()
        .map(|size| ((share(size) / whole) as usize).max(usize::from(*size > 0)))
        .collect();
    // What rounding down has left over goes to the largest remainders.
    let mut by_remainder: Vec<_> = (0..sizes.len()).collect();
    by_remainder.sort_by_key(|index| std::cmp::Reverse(share(&sizes[*index]) % whole));
    for index in by_remainder.into_iter().cycle().filter(|index| sizes[*index] > 0) {
        if cells.iter().sum::<usize>() >= width {
            break;
        }
        cells[index] += 1;
    }
    // What the smallest were given too much comes off the largest.
    while cells.iter().sum::<usize>() > width {
        let Some(largest) = cells.iter_mut().max() else { break };
        *largest -= 1;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_none_vanishes() {
        for (sizes, width, cells) in [
            ([1, 1, 1], 9, [3, 3, 3]),
            ([45, 10, 45], 20, [9, 2, 9]),
            ([1, 1, 1], 10, [4, 3, 3]),
            ([1, 0, 1_000_000], 10, [1, 0, 9]),
            ([1, 1, u64::MAX], 10, [1, 1, 8]),
            ([0, 0, 0], 10, [0, 0, 0]),
            ([0, 7, 0], 10, [0, 10, 0]),
            ([1, 1, 1], 0, [0, 0, 0]),
        ] {
            assert_eq!(apportion(&sizes, width), cells, "{sizes:?} in {width}");
        }
    }
}
