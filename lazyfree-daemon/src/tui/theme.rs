//! Colours and glyphs.
//!
//! Only the terminal's own foreground, background and 16 colours are used, and none of the pale
//! ones for text, so that light and dark terminals both work. Nothing is told by colour alone: a
//! segment has its own glyph, a warning its own words.

use ratatui::style::{Color, Modifier, Style};

/// How things look.
#[derive(Clone, Debug)]
pub struct Theme {
    /// Title of a section.
    pub title: Style,
    /// Column titles, explanations, and what is not observed.
    pub faint: Style,
    /// The view that is shown.
    pub selected: Style,
    /// Something has to be known in order to read the numbers right.
    pub caution: Style,
    /// Something was lost.
    pub alarm: Style,
    /// Marked memory.
    pub marked: Style,
    /// Memory freed without I/O.
    pub hit: Style,
    /// Memory written to again.
    pub redirtied: Style,
    /// Memory that couldn't be taken.
    pub pinned: Style,
    /// Shapes.
    pub glyphs: Glyphs,
}

impl Theme {
    /// With or without colours, with or without characters beyond ASCII.
    pub fn new(colour: bool, ascii: bool) -> Self {
        let plain = Style::new();
        let fg = |colour_| if colour { plain.fg(colour_) } else { plain };
        Self {
            title: plain.add_modifier(Modifier::BOLD),
            faint: plain.add_modifier(Modifier::DIM),
            selected: plain.add_modifier(Modifier::REVERSED),
            caution: fg(Color::Magenta).add_modifier(Modifier::BOLD),
            alarm: if colour {
                fg(Color::Red).add_modifier(Modifier::BOLD)
            } else {
                plain.add_modifier(Modifier::REVERSED)
            },
            marked: fg(Color::Cyan),
            hit: fg(Color::Green),
            redirtied: fg(Color::Yellow),
            pinned: fg(Color::Magenta),
            glyphs: if ascii { Glyphs::ASCII } else { Glyphs::BLOCKS },
        }
    }
}

/// Shapes; all but `at_most` are one cell wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyphs {
    /// Whether all of this is ASCII.
    pub ascii: bool,
    /// Nothing to full, in eighths.
    pub levels: [&'static str; 9],
    /// A moment that has no number.
    pub absent: &'static str,
    /// Segment of what was freed.
    pub hit: &'static str,
    /// Segment of what was written to again.
    pub redirtied: &'static str,
    /// Segment of the rest.
    pub rest: &'static str,
    /// A mark on the time axis.
    pub tick: &'static str,
    /// Text was cut here.
    pub cut: &'static str,
    /// At most.
    pub at_most: &'static str,
    /// There is more above and below.
    pub more: [&'static str; 2],
}

impl Glyphs {
    const BLOCKS: Self = Self {
        ascii: false,
        levels: [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
        absent: "·",
        hit: "█",
        redirtied: "▒",
        rest: "░",
        tick: "╵",
        cut: "…",
        at_most: "≤",
        more: ["↑", "↓"],
    };

    const ASCII: Self = Self {
        ascii: true,
        levels: [" ", "_", ".", ":", "-", "=", "+", "*", "#"],
        absent: "?",
        hit: "#",
        redirtied: "=",
        rest: ".",
        tick: "'",
        cut: "~",
        at_most: "<=",
        more: ["^", "v"],
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_there_are_none_and_loss_still_stands_out() {
        let theme = Theme::new(false, false);
        for style in [
            theme.title,
            theme.faint,
            theme.selected,
            theme.caution,
            theme.alarm,
            theme.marked,
            theme.hit,
            theme.redirtied,
            theme.pinned,
        ] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert!(!theme.alarm.add_modifier.is_empty() && !theme.caution.add_modifier.is_empty());
    }

    #[test]
    fn ascii_is_ascii() {
        let glyphs = Glyphs::ASCII;
        let all = [
            &glyphs.levels[..],
            &glyphs.more,
            &[glyphs.absent, glyphs.hit, glyphs.redirtied, glyphs.rest],
            &[glyphs.tick, glyphs.cut, glyphs.at_most],
        ]
        .concat();
        assert!(all.iter().all(|glyph| glyph.is_ascii()));
    }
}
