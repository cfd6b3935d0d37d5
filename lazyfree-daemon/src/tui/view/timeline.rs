//! Rates over the last minutes, each series on a scale of its own.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::scene::Scene;
use crate::{
    model::Point,
    signal::Signal,
    tui::{
        app::Feed,
        units::{RATE_WIDTH, elapsed},
        widget::{
            sparkline::{Moment, sparkline},
            text::{self, GAP, styled},
        },
    },
};

/// Rows of one series at most.
const HIGHEST: usize = 12;
/// Series that are at least this high are set apart by an empty row each.
const APART_FROM: usize = 3;

const NAME_WIDTH: usize = 9;
/// Cells left of the columns: name, rate now.
const LEFT: usize = NAME_WIDTH + 1 + RATE_WIDTH + GAP;
/// Cells right of them: the top of the scale.
const RIGHT: usize = 1 + RATE_WIDTH;

/// One series.
#[derive(Clone, Copy)]
struct Series {
    name: &'static str,
    signal: Signal,
    rate: fn(&Point) -> Option<f64>,
    style: Style,
}

/// The series and their time axis, in about `height` rows if that is enough.
pub fn lines(scene: &Scene<'_>, width: usize, height: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let columns = width.saturating_sub(LEFT + RIGHT);
    let series = [
        Series {
            name: "marked",
            signal: Signal::Marked,
            rate: |point| point.marked,
            style: theme.marked,
        },
        Series { name: "hit", signal: Signal::Hit, rate: |point| point.hit, style: theme.hit },
        Series {
            name: "redirtied",
            signal: Signal::Redirtied,
            rate: |point| point.redirtied,
            style: theme.redirtied,
        },
        Series {
            name: "pinned",
            signal: Signal::ReclaimPinned,
            rate: |point| point.reclaim_pinned,
            style: theme.pinned,
        },
    ];
    let (seen, unseen): (Vec<_>, Vec<_>) = series.into_iter().partition(|series| {
        scene.snapshot.signal(series.signal).is_some_and(|state| state.pages.is_some())
    });
    // The axis takes a row, and what isn't observed one each.
    let each = height.saturating_sub(1 + unseen.len()) / seen.len().max(1);
    let apart = each > APART_FROM;
    let rows = (each - usize::from(apart)).clamp(1, HIGHEST);

    let mut lines = Vec::new();
    for series in seen {
        if apart && !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(one(scene, series, columns, rows));
    }
    lines.push(axis(scene, columns));
    for series in unseen {
        let name = Line::raw(format!("{:<NAME_WIDTH$} ", series.name));
        lines.push(text::join([name, styled("not observed", theme.faint)]));
    }
    lines
}

fn one(scene: &Scene<'_>, series: Series, columns: usize, rows: usize) -> Vec<Line<'static>> {
    let Series { name, rate, style, .. } = series;
    let history = &scene.snapshot.history;
    let moments = moments(history, rate, scene.app.seconds_per_column(), columns);
    let peak = moments.iter().fold(0.0_f64, |peak, moment| match moment {
        Moment::Value(value) => peak.max(*value),
        Moment::Before | Moment::Unknown => peak,
    });
    let top = if peak > 0.0 { scene.round_up(peak) } else { 0.0 };
    let bars = sparkline(&moments, top, rows, scene.glyphs(), style);
    let now = history.last().and_then(rate);
    let now = now.map_or_else(|| "n/a".to_owned(), |now| scene.rate(now));
    let faint = scene.theme.faint;
    bars.into_iter()
        .enumerate()
        .map(|(row, bar)| {
            // The name stands at the foot of its bars, the scale's ends beside theirs.
            let left = if row + 1 == rows {
                format!("{name:<NAME_WIDTH$} {now:>RATE_WIDTH$}")
            } else {
                " ".repeat(LEFT - GAP)
            };
            let right = match row {
                0 if top > 0.0 => format!(" {}", scene.rate(top)),
                _ if row + 1 == rows && rows > 1 && top > 0.0 => " 0".to_owned(),
                _ => String::new(),
            };
            text::join([Line::raw(left), Line::raw(" ".repeat(GAP)), bar, styled(right, faint)])
        })
        .collect()
}

/// The last `columns` columns of `seconds` each, oldest first.
///
/// A rate holds for all the time since the point before it, so it fills the columns in between.
/// Where a column has several, it shows the highest: a burst doesn't vanish in a long view.
fn moments(
    history: &[Point],
    rate: fn(&Point) -> Option<f64>,
    seconds: u64,
    columns: usize,
) -> Vec<Moment> {
    let mut moments = vec![Moment::Before; columns];
    let Some(last) = history.last() else { return moments };
    // Columns begin at whole multiples of their length, so that bars move and don't change.
    let column = |point: &Point| {
        let back = (last.unix_seconds / seconds).saturating_sub(point.unix_seconds / seconds);
        columns.checked_sub(1 + usize::try_from(back).unwrap_or(usize::MAX))
    };
    let mut filled = None;
    for point in history {
        let Some(at) = column(point) else { continue };
        let from = filled.map_or(at, |filled: usize| (filled + 1).min(at));
        let value = rate(point).map_or(Moment::Unknown, Moment::Value);
        for moment in &mut moments[from..=at] {
            *moment = match (*moment, value) {
                (Moment::Value(a), Moment::Value(b)) => Moment::Value(a.max(b)),
                (Moment::Value(a), _) => Moment::Value(a),
                (_, value) => value,
            };
        }
        filled = Some(at);
    }
    moments
}

/// The time axis: a mark every so often, and what one column stands for.
fn axis(scene: &Scene<'_>, columns: usize) -> Line<'static> {
    let seconds = scene.app.seconds_per_column();
    let each = match seconds {
        1 => "columns of 1 s".to_owned(),
        seconds => format!("peaks of {seconds} s"),
    };
    let now = if scene.app.paused() || scene.app.feed() == Feed::Ended { "last" } else { "now" };
    // Marks stand at least this many cells apart.
    const APART: u64 = 12;
    let step = [10, 30, 60, 120, 300, 600, 1800]
        .into_iter()
        .find(|step| step / seconds >= APART)
        .unwrap_or(3600);
    let mut text = " ".repeat(columns.saturating_sub(now.len())) + now;
    for back in (1..).map(|mark| mark * step).take_while(|back| back / seconds < columns as u64) {
        let at = columns - 1 - (back / seconds) as usize;
        let label = format!("{}-{}", scene.glyphs().tick, clock(back));
        if at + label.len() + now.len() < columns && text.is_char_boundary(at) {
            // The text is blank here: marks are further apart than they are wide.
            text = text.chars().take(at).collect::<String>()
                + &label
                + &text.chars().skip(at + text::width(&label)).collect::<String>();
        }
    }
    let left = format!("{each:<width$}", width = LEFT);
    text::join([Line::from(Span::styled(left, scene.theme.faint)), styled(text, scene.theme.faint)])
}

/// Seconds as minutes and seconds.
fn clock(seconds: u64) -> String {
    let text = elapsed(seconds as f64);
    text.strip_prefix("00:").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(points: &[(u64, Option<f64>)]) -> Vec<Point> {
        let point = |&(unix_seconds, hit)| Point { unix_seconds, hit, ..Point::default() };
        points.iter().map(point).collect()
    }

    #[test]
    fn a_rate_fills_the_time_since_the_point_before() {
        use Moment::{Before, Unknown, Value};
        let points = history(&[(100, Some(1.0)), (101, Some(2.0)), (104, Some(3.0)), (105, None)]);
        for (seconds, columns, expected) in [
            // 103 and 102 belong to the point at 104.
            (
                1,
                7,
                vec![Before, Value(1.0), Value(2.0), Value(3.0), Value(3.0), Value(3.0), Unknown],
            ),
            // 100..102, 102..104, 104..106: the highest of each.
            (2, 4, vec![Before, Value(2.0), Value(3.0), Value(3.0)]),
            // Too narrow for all: the newest are kept.
            (1, 2, vec![Value(3.0), Unknown]),
            (1, 0, vec![]),
        ] {
            let moments = moments(&points, |point| point.hit, seconds, columns);
            assert_eq!(moments, expected, "{columns} of {seconds} s");
        }
    }
}
