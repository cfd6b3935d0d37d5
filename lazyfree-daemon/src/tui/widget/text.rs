//! Fitting text into a width.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

/// Cells between things that stand side by side.
pub const GAP: usize = 2;

/// Cells that a text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text, cut to `width` with `mark` at its end.
pub fn cut(text: &str, to: usize, mark: &str) -> String {
    if width(text) <= to {
        return text.to_owned();
    }
    let room = to.saturating_sub(width(mark));
    let mut short = String::new();
    for letter in text.chars() {
        short.push(letter);
        if width(&short) > room {
            short.pop();
            break;
        }
    }
    if to > 0 {
        short.push_str(mark);
    }
    short
}

/// The first line that fits into `width`; if none does, the last one.
pub fn first_fit<'a>(lines: impl IntoIterator<Item = Line<'a>>, width: usize) -> Line<'a> {
    let mut last = Line::default();
    for line in lines {
        last = line;
        if last.width() <= width {
            break;
        }
    }
    last
}

/// `left` at the left edge and `right` at the right one. It is wider than `width` if they don't
/// fit.
pub fn spread<'a>(left: Line<'a>, right: Line<'a>, width: usize) -> Line<'a> {
    let gap = width.saturating_sub(left.width() + right.width()).max(GAP);
    join([left, Line::raw(" ".repeat(gap)), right])
}

/// Lines one after the other, as one.
pub fn join<'a>(lines: impl IntoIterator<Item = Line<'a>>) -> Line<'a> {
    Line::from_iter(lines.into_iter().flat_map(|line| line.spans))
}

/// Parts with a gap between each two.
pub fn spaced<'a>(parts: impl IntoIterator<Item = Line<'a>>) -> Line<'a> {
    let mut line = Line::default();
    for part in parts {
        if !line.spans.is_empty() {
            line.push_span(" ".repeat(GAP));
        }
        line.spans.extend(part.spans);
    }
    line
}

/// Two blocks of lines side by side, the right one from column `at` on.
pub fn beside<'a>(left: Vec<Line<'a>>, right: Vec<Line<'a>>, at: usize) -> Vec<Line<'a>> {
    let rows = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    (0..rows)
        .map(|_| {
            let (left, right) = (left.next().unwrap_or_default(), right.next().unwrap_or_default());
            let gap = Line::raw(" ".repeat(at.saturating_sub(left.width())));
            join([left, gap, right])
        })
        .collect()
}

/// A line of one style.
pub fn styled(text: impl Into<String>, style: Style) -> Line<'static> {
    Line::from(Span::styled(text.into(), style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_keeps_within_the_width() {
        for (to, text) in [(9, "build-07"), (8, "build-07"), (6, "build…"), (1, "…"), (0, "")] {
            assert_eq!(cut("build-07", to, "…"), text);
        }
        // A wide letter takes two cells, and isn't halved.
        assert_eq!(cut("漢字漢字", 6, "…"), "漢字…");
    }

    #[test]
    fn the_first_that_fits_is_taken() {
        let lines = ["a long one", "shorter", "no"].map(Line::raw);
        for (width, text) in [(10, "a long one"), (9, "shorter"), (6, "no"), (1, "no")] {
            assert_eq!(first_fit(lines.clone(), width).to_string(), text);
        }
    }

    #[test]
    fn blocks_stand_side_by_side() {
        let lines = |texts: &[&'static str]| texts.iter().copied().map(Line::raw).collect();
        let both = beside(lines(&["a"]), lines(&["b", "c"]), 3);
        assert_eq!(both.iter().map(Line::to_string).collect::<Vec<_>>(), ["a  b", "   c"]);
        assert_eq!(spread(Line::raw("a"), Line::raw("b"), 5).to_string(), "a   b");
    }
}
