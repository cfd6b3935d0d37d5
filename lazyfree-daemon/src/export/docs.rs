//! Keeps `docs/metrics.md` in step with the table.

use std::{env, fmt::Write as _, fs};

use super::metrics::{LABELS, table};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated: LAZYFREE_BLESS=1 cargo test -p lazyfree-daemon --lib export::docs -->

`lazyfree run` serves these at `http://127.0.0.1:9749/metrics`, in the Prometheus text format
(version 0.0.4).

- Counters start at 0 with the process and only go up. Rates are for the query to take.
- Pages are exported in bytes; `lazyfree_page_size_bytes` turns them back.
- **A signal that isn't observed has no series: absent, never 0.** `lazyfree_hook_info` has a row
  for each signal and each kind of stall, whether observed or not, with its accuracy, and
  `lazyfree_hook_attached` for each hook that was tried, with the reason if it isn't attached.
- Families of `lazyfree_vmstat_` are the kernel's own counters, put there to be compared with.
- No label has unbounded values: no process, address or path.
- Histograms have the same buckets everywhere, at powers of two from 1.024 us to 17.2 s. A
  duration of exactly `le` is counted one bucket higher.
";

fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for metric in table() {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels) = (metric.name, metric.kind.name(), labels.join(", "));
        writeln!(text, "| `{name}` | {kind} | {labels} | {} |", metric.help).unwrap();
    }
    text.push_str("\n## Labels\n\n| label | values |\n| --- | --- |\n");
    for (label, values) in LABELS {
        writeln!(text, "| `{label}` | {values} |").unwrap();
    }
    text
}

#[test]
fn the_reference_is_current() {
    let current = reference();
    if env::var_os("LAZYFREE_BLESS").is_some() {
        fs::write(FILE, &current).unwrap();
    }
    let written = fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        written == current,
        "docs/metrics.md is out of date; LAZYFREE_BLESS=1 cargo test -p lazyfree-daemon --lib \
         export::docs writes it anew"
    );
}
