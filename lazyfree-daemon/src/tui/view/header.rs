//! The lines at the top: what is observed, whether the numbers can be trusted, how much memory
//! there is. Loss is shown here whatever the view.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::scene::Scene;
use crate::{
    model::{FamilyState, Snapshot},
    tui::{
        app::{Feed, View},
        units,
        widget::text::{self, first_fit, spaced, spread, styled},
    },
};

/// As many lines as a screen of `height` rows can spare.
pub fn lines(scene: &Scene<'_>, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![identity(scene, width), health(scene, width)];
    if height >= 20 {
        lines.push(memory(scene, width));
        lines.extend(coverage(scene, width));
    }
    if height >= 36 {
        lines.push(Line::default());
    }
    lines
}

fn identity(scene: &Scene<'_>, width: usize) -> Line<'static> {
    let session = &scene.snapshot.session;
    let theme = scene.theme;
    let mode = match session.degraded() {
        false => styled(session.mode.clone(), theme.title),
        true => Line::from_iter([
            Span::styled(session.mode.clone(), theme.title),
            Span::styled(" degraded", theme.caution),
        ]),
    };
    let left = |host: &str, kernel: bool| {
        let kernel = kernel.then(|| Line::raw(session.kernel.clone()));
        let host = text::cut(host, 24, scene.glyphs().cut);
        spaced(
            [styled("lazyfree", theme.title), Line::raw(host)]
                .into_iter()
                .chain(kernel)
                .chain([mode.clone()]),
        )
    };
    let state = match scene.app.feed() {
        _ if scene.app.paused() => Some(styled(" PAUSED ", theme.selected)),
        Feed::Live => None,
        Feed::Silent(seconds) => Some(styled(format!("no sample for {seconds} s"), theme.alarm)),
        Feed::Ended => Some(styled(" ENDED ", theme.selected)),
    };
    let right = |interval: bool| {
        let every = format!("every {:.1} s", scene.snapshot.interval_seconds);
        spaced(
            state
                .clone()
                .into_iter()
                .chain([Line::raw(units::elapsed(scene.snapshot.seconds))])
                .chain(interval.then(|| styled(every, theme.faint))),
        )
    };
    let short = session.host.split('.').next().unwrap_or_default();
    first_fit(
        [
            spread(left(&session.host, true), right(true), width),
            spread(left(short, true), right(true), width),
            spread(left(short, true), right(false), width),
            spread(left(short, false), right(false), width),
            spread(spaced([styled("lazyfree", theme.title), mode.clone()]), right(false), width),
            spread(mode, right(false), width),
            right(false),
        ],
        width,
    )
}

/// What was lost since the start; a line of its own, as it decides what the others are worth.
fn health(scene: &Scene<'_>, width: usize) -> Line<'static> {
    let Snapshot { hooks, families, stalls, events, context, .. } = scene.snapshot;
    let faint = scene.theme.faint;
    let probed = |number| (!hooks.is_empty()).then_some(number);
    let sampled = |number| scene.snapshot.sees_failures().then_some(number);
    let waits = stalls.iter().map(|state| &state.waits);
    let losses = [
        ("lost", probed(families.iter().chain(waits).map(FamilyState::lost).sum())),
        ("missed", scene.snapshot.misses()),
        ("dropped", sampled(events.dropped)),
    ];
    let residual = residual(scene);
    let all = losses.map(|(name, number)| loss(scene, name, number));
    let all = spaced([residual.clone()].into_iter().chain(all));
    let of = sampled(events.submitted + events.dropped).map(|n| format!(" of {}", units::count(n)));
    let all_and_events = text::join([all.clone(), styled(of.unwrap_or_default(), faint)]);
    // Where there is no room for all of it, what isn't lost goes first.
    let lost: Vec<_> = losses
        .into_iter()
        .filter(|(_, number)| number.is_some_and(|number| number > 0))
        .map(|(name, number)| loss(scene, name, number))
        .collect();
    let short = match (lost.is_empty(), hooks.is_empty()) {
        (false, _) => spaced(lost),
        (true, false) => styled("no loss", faint),
        (true, true) => styled("no probes", faint),
    };
    let cpu = context.self_cpu_ratio * 100.0;
    let own = format!("own {cpu:.1}% CPU {}", units::bytes(context.self_rss_bytes as f64));
    let own = styled(own, faint);
    first_fit(
        [
            spread(all_and_events, own.clone(), width),
            spread(all.clone(), own.clone(), width),
            all,
            spread(spaced([residual.clone(), short.clone()]), own, width),
            spaced([residual, short.clone()]),
            short,
        ],
        width,
    )
}

/// One kind of loss.
fn loss(scene: &Scene<'_>, name: &'static str, number: Option<u64>) -> Line<'static> {
    let theme = scene.theme;
    match number {
        None => styled(format!("{name} n/a"), theme.faint),
        Some(0) => labelled(scene, name, "0".to_owned()),
        Some(number) => styled(format!("{name} {}", units::count(number)), theme.alarm),
    }
}

/// Our counts less the kernel's.
fn residual(scene: &Scene<'_>) -> Line<'static> {
    let theme = scene.theme;
    let residual = scene.snapshot.residual;
    if residual.marked.is_none() && residual.hit.is_none() {
        return styled("residual n/a", theme.faint);
    }
    let in_flight: u64 = scene.snapshot.families.iter().map(|family| family.in_flight).sum();
    let mut line = styled("residual", theme.faint);
    let mut off = false;
    for (name, pages) in [("marked", residual.marked), ("hit", residual.hit)] {
        let (text, style) = match pages {
            None => (format!(" {name} n/a"), theme.faint),
            Some(0) => (format!(" {name} 0"), Style::new()),
            Some(pages) => {
                off = true;
                // With calls in flight it is what they have done so far, most likely.
                let style = if in_flight > 0 { theme.caution } else { theme.alarm };
                (format!(" {name} {}", units::signed(pages)), style)
            }
        };
        line.push_span(Span::styled(text, style));
    }
    if off && in_flight > 0 {
        line.push_span(Span::styled(format!(" ({in_flight} in flight)"), theme.faint));
    }
    line
}

fn memory(scene: &Scene<'_>, width: usize) -> Line<'static> {
    let theme = scene.theme;
    let context = scene.snapshot.context;
    let kib = |kb: u64| units::bytes(kb as f64 * 1024.0);
    let item = |name: &'static str, kb: u64| labelled(scene, name, kib(kb));
    let tight = context.mem_free_kb < context.throttle_threshold_kb;
    let free = if tight {
        styled(format!("free {}", kib(context.mem_free_kb)), theme.alarm)
    } else {
        item("free", context.mem_free_kb)
    };
    let threshold = |name| item(name, context.throttle_threshold_kb);
    let swap = |name| item(name, context.swap_used_kb);
    let available = item("available", context.mem_available_kb);
    let of_total =
        text::join([available.clone(), Line::raw(" "), item("of", context.mem_total_kb)]);
    let pressure = |full| pressure(scene, full);
    first_fit(
        [
            spaced([
                free.clone(),
                threshold("throttle below"),
                of_total,
                swap("swap used"),
                pressure(true),
            ]),
            spaced([
                free.clone(),
                threshold("throttle"),
                available.clone(),
                swap("swap"),
                pressure(false),
            ]),
            spaced([free.clone(), threshold("throttle"), available, pressure(false)]),
            spaced([free.clone(), threshold("throttle")]),
            free,
        ],
        width,
    )
}

/// Share of the last interval in which tasks waited for memory: some of them, or all.
fn pressure(scene: &Scene<'_>, full: bool) -> Line<'static> {
    let theme = scene.theme;
    let context = scene.snapshot.context;
    let share = |ratio: f64| units::percent((ratio * 1e6).round() as u64, 1_000_000);
    let Some(some) = context.pressure_some_ratio else { return styled("PSI n/a", theme.faint) };
    let part = |name: &'static str, ratio: f64, style| {
        if ratio > 0.0 {
            styled(format!("{name} {}", share(ratio)), style)
        } else {
            labelled(scene, name, share(ratio))
        }
    };
    match context.pressure_full_ratio {
        Some(all) if full => text::join([
            part("PSI some", some, theme.caution),
            Line::raw(" "),
            part("full", all, theme.alarm),
        ]),
        _ => part("PSI", some, theme.caution),
    }
}

/// How much is observed, if it could be more.
fn coverage(scene: &Scene<'_>, width: usize) -> Option<Line<'static>> {
    let theme = scene.theme;
    let session = &scene.snapshot.session;
    if !session.degraded() {
        return None;
    }
    let coverage = text::cut(&session.coverage(), width, scene.glyphs().cut);
    let coverage = styled(coverage, theme.caution);
    let hint = (scene.app.view() != View::Doctor).then(|| styled("2 tells why", theme.faint));
    let both = spaced([coverage.clone()].into_iter().chain(hint));
    Some(first_fit([both, coverage], width))
}

/// A name, and a number that nobody needs to worry about.
fn labelled(scene: &Scene<'_>, name: &'static str, number: String) -> Line<'static> {
    Line::from_iter([Span::styled(name, scene.theme.faint), Span::raw(format!(" {number}"))])
}
