//! The line at the bottom: the views, the keys, and how much of the page is out of sight.

use ratatui::text::{Line, Span};

use crate::tui::{
    app::{App, Extent, Scale, View},
    theme::Theme,
    widget::text::{self, first_fit, spaced, spread, styled},
};

/// The line.
pub fn line(app: &App, width: usize, extent: Extent, theme: &Theme) -> Line<'static> {
    let views = |long: bool| {
        text::join(View::NUMBERED.iter().enumerate().map(|(index, view)| {
            let style = if *view == app.view() { theme.selected } else { theme.faint };
            let name = if long || *view == app.view() { name(*view) } else { "" };
            styled(format!(" {} {name}", index + 1).trim_end().to_owned() + " ", style)
        }))
    };
    let other_scale = match app.scale() {
        Scale::Bytes => "pages",
        Scale::Pages => "bytes",
    };
    let keys = [
        ("q", "quit"),
        ("?", if app.view() == View::Help { "close help" } else { "help" }),
        ("p", if app.paused() { "resume" } else { "pause" }),
        ("u", other_scale),
        ("t", "span"),
    ];
    let keys = |number: usize| {
        spaced(keys[..number].iter().map(|(key, does)| {
            Line::from_iter([
                Span::styled(*key, theme.title),
                Span::styled(format!(" {does}"), theme.faint),
            ])
        }))
    };
    let more = more(app, extent, theme);
    let whole = |long, number| spread(spaced([views(long), keys(number)]), more.clone(), width);
    first_fit(
        [
            whole(true, 5),
            whole(true, 4),
            whole(true, 3),
            whole(false, 5),
            whole(false, 2),
            whole(false, 1),
            more.clone(),
        ],
        width,
    )
}

fn name(view: View) -> &'static str {
    match view {
        View::Overview => "Overview",
        View::Doctor => "Doctor",
        View::Failures => "Failures",
        View::Processes => "Processes",
        View::Help => "Help",
    }
}

/// Rows out of sight, above and below.
fn more(app: &App, extent: Extent, theme: &Theme) -> Line<'static> {
    let above = app.scroll().min(extent.last());
    let below = extent.last() - above;
    let [up, down] = theme.glyphs.more;
    let part = |glyph, rows: usize| {
        if rows > 0 { Line::raw(format!("{glyph}{rows}")) } else { Line::default() }
    };
    text::join([part(up, above), part(down, below)])
}
