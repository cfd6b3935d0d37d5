//! What is drawn. Every function here only reads: the state of the screen, and a snapshot.
//!
//! A screen is a header, a page and a footer. A page is a list of lines, longer than the screen
//! if need be, of which [`App::scroll`] says where the visible part begins:
//!
//! ```text
//! lazyfree  host  kernel  mode                    how long, how often     header
//! audit and losses                                   what we cost
//! memory
//! Signals ...                                                             page
//! Ledger ...
//! Rates ...
//! Stalls ...
//! Reclaim ...
//! Calls ...
//! 1 Overview  2 Doctor  3 Failures  4 Processes    keys      more below   footer
//! ```

mod calls;
mod doctor;
mod failures;
mod footer;
mod header;
mod help;
mod ledger;
mod overview;
mod processes;
mod reclaim;
mod scene;
mod signals;
mod stalls;
mod timeline;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Text},
};

use self::scene::Scene;
use super::{
    app::{App, Extent, Feed, View},
    theme::Theme,
    widget::text::styled,
};
use crate::model::Snapshot;

/// Below this nothing could be read.
const SMALLEST: (u16, u16) = (36, 6);

/// Draws the whole screen, and says how much of the page there is.
pub fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    app: &App,
    snapshot: Option<&Snapshot>,
    theme: &Theme,
) -> Extent {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!("too small\nneeds {}x{}", SMALLEST.0, SMALLEST.1);
        frame.render_widget(Text::raw(text), area);
        return Extent::default();
    }
    let width = usize::from(area.width);
    let header = match snapshot {
        Some(snapshot) => header::lines(&Scene { app, snapshot, theme }, width, area.height.into()),
        None => Vec::new(),
    };
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(header.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let page = match snapshot {
        _ if app.view() == View::Help => help::lines(width, theme),
        Some(snapshot) => page(&Scene { app, snapshot, theme }, width, middle.height.into()),
        None => waiting(app, width, middle.height.into(), theme),
    };
    let extent = Extent { rows: page.len(), visible: middle.height.into() };
    let footer = footer::line(app, width, extent, theme);
    let above = app.scroll().min(extent.last());

    frame.render_widget(Text::from(header), top);
    frame.render_widget(page.into_iter().skip(above).collect::<Text<'_>>(), middle);
    frame.render_widget(footer, bottom);
    extent
}

fn page(scene: &Scene<'_>, width: usize, height: usize) -> Vec<Line<'static>> {
    match scene.app.view() {
        View::Overview => overview::lines(scene, width, height),
        View::Doctor => doctor::lines(scene, width),
        View::Failures => failures::lines(scene, width),
        View::Processes => processes::lines(scene, width),
        View::Help => help::lines(width, scene.theme),
    }
}

fn waiting(app: &App, width: usize, height: usize, theme: &Theme) -> Vec<Line<'static>> {
    let text = match app.feed() {
        Feed::Live => "waiting for the first sample".to_owned(),
        Feed::Silent(seconds) => format!("waiting for the first sample, {seconds} s so far"),
        Feed::Ended => "the source ended before its first sample".to_owned(),
    };
    let indent = " ".repeat(width.saturating_sub(text.len()) / 2);
    let mut lines = vec![Line::default(); height.saturating_sub(1) / 2];
    lines.push(styled(format!("{indent}{text}"), theme.faint));
    lines
}

#[cfg(test)]
mod tests;
