//! Where marked memory went.

use ratatui::text::{Line, Span};

use super::scene::{Scene, mark_estimate};
use crate::{
    signal::{Accuracy, Signal},
    tui::{
        units,
        widget::{
            stacked_bar::{Segment, stacked_bar},
            text::{first_fit, spaced, styled},
        },
    },
};

/// Two lines: the bar, and what its parts are.
pub fn lines(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let ledger = scene.snapshot.ledger;
    let title = Span::styled("Ledger", theme.title);
    let (Some(marked), Some(hit), Some(redirtied)) = (ledger.marked, ledger.hit, ledger.redirtied)
    else {
        let missing = [Signal::Marked, Signal::Hit, Signal::Redirtied]
            .map(|signal| scene.snapshot.signal(signal).map(|state| (signal, state.pages)))
            .into_iter()
            .flatten()
            .find_map(|(signal, pages)| pages.is_none().then(|| signal.info().title))
            .unwrap_or("a signal");
        let why = format!("needs marked, hit and redirtied; {missing} is not observed");
        return vec![spaced([title.into(), styled(why, theme.faint)])];
    };
    let of = format!("{} marked", scene.named_amount(marked));
    let mut head = spaced([title.into(), Line::raw(of)]);

    let pinned = match ledger.reclaim_pinned {
        Some(pages) => {
            let accuracy = scene.snapshot.signal(Signal::ReclaimPinned).map(|state| state.accuracy);
            let pages = scene.named_amount(pages);
            let pages = mark_estimate(accuracy.unwrap_or(Accuracy::None), pages);
            Line::from_iter([
                Span::styled("pinned ", theme.pinned),
                Span::raw(pages),
                Span::styled(" (attempts)", theme.faint),
            ])
        }
        None => styled("pinned not observed", theme.faint),
    };
    let Some(rest) = ledger.rest() else {
        let why = "more than was marked since the start";
        return vec![
            spaced([head, pinned]),
            spaced([parts(scene, hit, redirtied), styled(why, theme.faint)]),
        ];
    };
    if marked == 0 {
        return vec![spaced([head, pinned])];
    }

    let glyphs = scene.glyphs();
    let segments = [
        Segment { size: hit, glyph: glyphs.hit, style: theme.hit },
        Segment { size: redirtied, glyph: glyphs.redirtied, style: theme.redirtied },
        Segment { size: rest, glyph: glyphs.rest, style: theme.faint },
    ];
    let label = |glyph: &'static str, style, name: &str, size: Option<u64>, pages: u64| {
        let size = size.map(|pages| format!(" {}", scene.named_amount(pages))).unwrap_or_default();
        let percent = units::percent(pages, marked);
        Line::from_iter([
            Span::styled(glyph, style),
            Span::raw(format!(" {name}{size}")),
            Span::styled(format!(" {percent}"), theme.faint),
        ])
    };
    let legend = |sizes: bool, name: &str| {
        spaced([
            label(glyphs.hit, theme.hit, "hit", sizes.then_some(hit), hit),
            label(
                glyphs.redirtied,
                theme.redirtied,
                "redirtied",
                sizes.then_some(redirtied),
                redirtied,
            ),
            label(glyphs.rest, theme.faint, name, sizes.then_some(rest), rest),
        ])
    };
    const REST: &str = "pending, unmapped or reused unseen";
    let legend = first_fit(
        [
            legend(true, REST),
            legend(false, REST),
            legend(false, "pending or gone"),
            legend(false, "rest"),
        ],
        width,
    );
    let room = width.saturating_sub(head.width() + pinned.width() + 4);
    if room >= 10 {
        head = spaced([head, stacked_bar(&segments, room), pinned]);
        return vec![head, legend];
    }
    vec![spaced([head, pinned]), stacked_bar(&segments, width), legend]
}

/// Hit and redirtied without their share.
fn parts(scene: &Scene<'_>, hit: u64, redirtied: u64) -> Line<'static> {
    let part = |name: &str, pages| Line::raw(format!("{name} {}", scene.named_amount(pages)));
    spaced([part("hit", hit), part("redirtied", redirtied)])
}
