//! The keys, and what the words on the screen mean.

use ratatui::text::{Line, Span};

use crate::{
    text::wrap,
    tui::{theme::Theme, widget::text::styled},
};

const KEYS: [(&str, &str); 8] = [
    ("1 2 3, Tab", "overview, hooks (also h), failures (also f)"),
    ("p, Space", "pause: the picture stays, counting goes on"),
    ("u", "bytes or pages"),
    ("t", "time line: columns of 1, 2, 5 or 10 seconds"),
    ("j k, arrows", "scroll by a line; PgUp, PgDn by a page; g, G to the ends"),
    ("?", "this help; ? or Esc closes it"),
    ("Ctrl-Z", "back to the shell for a while"),
    ("q, Ctrl-C", "quit"),
];

const WORDS: [(&str, &str); 11] = [
    ("marked", "memory that MADV_FREE turned into lazyfree pages"),
    ("hit", "lazyfree pages that reclaim freed, without I/O"),
    (
        "redirtied",
        "lazyfree pages that reclaim found written to again: they cost a try and won nothing",
    ),
    (
        "pinned",
        "reclaim could not take the page since something holds a reference (direct I/O, RDMA, \
                a ring buffer); attempts, as one page is tried again and again",
    ),
    ("kept", "put back for another reason (locked, young); attempts as well"),
    (
        "exact, estimate",
        "how far a number can be trusted; a ~ stands before each estimate, and the view Hooks \
                         tells why",
    ),
    (
        "residual",
        "our count less the kernel's own in /proc/vmstat, in pages: 0, or what calls in flight \
                  have done so far",
    ),
    (
        "lost, missed",
        "calls not seen from entry to return; program runs that the kernel skipped: either \
                      takes the word exact away",
    ),
    (
        "failures",
        "examples of reclaim batches that met lazyfree pages they could not free: at most one \
                  in 0.1 s a CPU; the task is the one that reclaimed, not the owner of the pages",
    ),
    ("dropped", "events lost since the ring was full; counts never travel through it"),
    ("throttle", "free memory below which marking buys nothing: 1.5 times vm.min_free_kbytes"),
];

/// The page.
pub fn lines(width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = vec![styled("Keys", theme.title)];
    for (keys, does) in KEYS {
        lines.extend(entry(keys, does, width));
    }
    lines.push(Line::default());
    lines.push(styled("Words", theme.title));
    for (word, meaning) in WORDS {
        lines.extend(entry(word, meaning, width));
    }
    lines
}

/// A term, with its explanation in a column beside it.
fn entry(term: &'static str, explanation: &str, width: usize) -> Vec<Line<'static>> {
    const TERM: usize = 19;
    let explanation = wrap(explanation, width.saturating_sub(TERM));
    let mut term = format!("  {term:<indent$}", indent = TERM - 2);
    explanation
        .into_iter()
        .map(|line| {
            let term = std::mem::replace(&mut term, " ".repeat(TERM));
            Line::from_iter([Span::raw(term), Span::raw(line)])
        })
        .collect()
}
