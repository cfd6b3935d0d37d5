//! A table whose columns keep their place whatever the numbers do.
//!
//! Unlike ratatui's `Table` it makes lines, which can be scrolled as part of a longer page, and
//! lets a row end in a remark that runs over the columns it has no numbers for.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::text::{self, GAP};

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its title.
    pub title: &'static str,
    /// Cells it takes.
    pub width: usize,
    /// Whether it is aligned to the right, as numbers are.
    pub right: bool,
}

impl Column {
    /// A column of words; what doesn't fit is cut.
    pub const fn words(title: &'static str, width: usize) -> Self {
        Self { title, width, right: false }
    }

    /// A column of numbers; they are never cut.
    pub const fn numbers(title: &'static str, width: usize) -> Self {
        Self { title, width, right: true }
    }
}

/// Columns side by side.
#[derive(Clone, Debug)]
pub struct Grid {
    columns: Vec<Column>,
    cut: &'static str,
}

impl Grid {
    /// `cut` marks words that were cut.
    pub fn new(columns: Vec<Column>, cut: &'static str) -> Self {
        Self { columns, cut }
    }

    /// The column titles; the first one is the section's.
    pub fn head(&self, title: Style, faint: Style) -> Line<'static> {
        let titles = self.columns.iter().enumerate().map(|(index, column)| {
            (column.title.to_owned(), if index == 0 { title } else { faint })
        });
        self.row(titles)
    }

    /// A row; cells beyond the last column are left out.
    pub fn row(&self, cells: impl IntoIterator<Item = (String, Style)>) -> Line<'static> {
        let mut line = Line::default();
        for (column, (text, style)) in self.columns.iter().zip(cells) {
            if !line.spans.is_empty() {
                line.push_span(" ".repeat(GAP));
            }
            let text = if column.right { text } else { text::cut(&text, column.width, self.cut) };
            let pad = Span::raw(" ".repeat(column.width.saturating_sub(text::width(&text))));
            let text = Span::styled(text, style);
            if column.right { line.extend([pad, text]) } else { line.extend([text, pad]) }
        }
        line
    }

    /// A row that has only its first cell, and a remark in place of the others.
    pub fn remark(&self, first: String, remark: String, style: Style) -> Line<'static> {
        let mut line = self.row([(first, Style::new())]);
        line.push_span(" ".repeat(GAP));
        line.push_span(Span::styled(remark, style));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_and_whole_and_words_left_and_cut() {
        let grid = Grid::new(vec![Column::words("who", 4), Column::numbers("n", 3)], "~");
        let row = |a: &str, b: &str| {
            grid.row([(a.to_owned(), Style::new()), (b.to_owned(), Style::new())]).to_string()
        };
        assert_eq!(grid.head(Style::new(), Style::new()).to_string(), "who     n");
        assert_eq!(row("me", "1"), "me      1");
        assert_eq!(row("somebody", "1234"), "som~  1234");
        let remark = grid.remark("me".to_owned(), "not there".to_owned(), Style::new());
        assert_eq!(remark.to_string(), "me    not there");
    }
}
