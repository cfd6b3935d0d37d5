//! A series as bars, one column for each value, over one row or several.
//!
//! Unlike ratatui's `Sparkline` it makes lines, and tells a moment without a number from a zero.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use crate::tui::theme::Glyphs;

/// `rows` lines, as wide as there are `values`; `top` is the value of a full column.
pub fn sparkline(
    values: &[Moment],
    top: f64,
    rows: usize,
    glyphs: &Glyphs,
    style: Style,
) -> Vec<Line<'static>> {
    let full = rows * (glyphs.levels.len() - 1);
    let heights: Vec<_> = values.iter().map(|value| value.height(top, full)).collect();
    (0..rows)
        .map(|row| {
            let below = (rows - 1 - row) * (glyphs.levels.len() - 1);
            let cells = values.iter().zip(&heights).map(|(value, height)| match value {
                Moment::Unknown if below == 0 => glyphs.absent,
                _ => glyphs.levels[height.saturating_sub(below).min(glyphs.levels.len() - 1)],
            });
            Line::from(Span::styled(cells.collect::<String>(), style))
        })
        .collect()
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// Before the first value.
    Before,
    /// There is no number.
    Unknown,
    /// A number.
    Value(f64),
}

impl Moment {
    /// In eighths of a row. What isn't nothing can be seen.
    fn height(self, top: f64, full: usize) -> usize {
        match self {
            Moment::Value(value) if value > 0.0 && top > 0.0 => {
                ((value / top * full as f64).round() as usize).clamp(1, full)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Theme;

    #[test]
    fn bars_grow_over_rows_and_the_unknown_is_not_zero() {
        let values = [
            Moment::Before,
            Moment::Unknown,
            Moment::Value(0.0),
            Moment::Value(0.001),
            Moment::Value(4.0),
            Moment::Value(6.0),
            Moment::Value(8.0),
        ];
        let draw = |rows| -> Vec<String> {
            let glyphs = Theme::new(false, false).glyphs;
            let lines = sparkline(&values, 8.0, rows, &glyphs, Style::new());
            lines.iter().map(Line::to_string).collect()
        };
        assert_eq!(draw(1), [" · ▁▄▆█"]);
        assert_eq!(draw(2), ["     ▄█", " · ▁███"]);
    }

    #[test]
    fn nothing_but_zeroes_has_no_scale() {
        let glyphs = Theme::new(false, false).glyphs;
        let lines = sparkline(&[Moment::Value(0.0)], 0.0, 1, &glyphs, Style::new());
        assert_eq!(lines[0].to_string(), " ");
    }
}
