//! What every part of the screen reads, and how all of them write amounts.

use crate::{
    model::{SignalState, Snapshot},
    signal::{Accuracy, Unit},
    tui::{
        app::{App, Scale},
        theme::{Glyphs, Theme},
        units,
    },
};

/// All there is to see.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The state of the screen.
    pub app: &'a App,
    /// The numbers.
    pub snapshot: &'a Snapshot,
    /// The looks.
    pub theme: &'a Theme,
}

impl<'a> Scene<'a> {
    /// The shapes.
    pub fn glyphs(&self) -> &'a Glyphs {
        &self.theme.glyphs
    }

    /// Pages as bytes.
    pub fn bytes(&self, pages: u64) -> String {
        units::bytes(pages as f64 * self.snapshot.session.page_size as f64)
    }

    /// Pages, in the unit that was chosen.
    pub fn amount(&self, pages: u64) -> String {
        match self.app.scale() {
            Scale::Bytes => self.bytes(pages),
            Scale::Pages => units::count(pages),
        }
    }

    /// Pages with the name of their unit, for use in a sentence.
    pub fn named_amount(&self, pages: u64) -> String {
        match self.app.scale() {
            Scale::Bytes => self.bytes(pages),
            Scale::Pages => format!("{} pages", units::count(pages)),
        }
    }

    /// Pages a second, in the unit that was chosen.
    pub fn rate(&self, pages_per_second: f64) -> String {
        match self.app.scale() {
            Scale::Bytes => {
                units::bytes_per_second(pages_per_second * self.snapshot.session.page_size as f64)
            }
            Scale::Pages => units::count_per_second(pages_per_second),
        }
    }

    /// The round rate at or above one, in the unit that was chosen.
    pub fn round_up(&self, pages_per_second: f64) -> f64 {
        let page_size = self.snapshot.session.page_size as f64;
        match self.app.scale() {
            Scale::Bytes => units::round_up(pages_per_second * page_size, 1024.0) / page_size,
            Scale::Pages => units::round_up(pages_per_second, 1000.0),
        }
    }

    /// A signal's rate; swap entries have no size.
    pub fn signal_rate(&self, state: &SignalState) -> Option<String> {
        let rate = state.pages_per_second?;
        Some(match state.signal.info().unit {
            Unit::Pages => self.rate(rate),
            Unit::Entries => units::count_per_second(rate),
        })
    }
}

/// Puts the mark of an estimate before its number.
pub fn mark_estimate(accuracy: Accuracy, number: String) -> String {
    if accuracy == Accuracy::Estimate { format!("~{number}") } else { number }
}
