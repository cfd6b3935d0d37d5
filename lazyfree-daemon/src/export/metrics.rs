//! The Prometheus text of a snapshot, and the table of everything that is in it.
//!
//! [`table`] is the one list of metric families: `/metrics`, `docs/metrics.md` and the check of
//! the dashboards are made from it. Counters start at 0 with the process. What isn't observed has
//! no series, except `lazyfree_hook_info`, which says why a signal is missing from the others.

use std::collections::BTreeSet;

use lazyfree_common::{Family, Reclaimer};
use prometheus::TextEncoder;

pub use super::series::Kind;
use super::{duration, series::Series, vmstat};
use crate::{
    model::{FamilyState, Snapshot},
    sample::{Durations, HookOutcome},
    signal::{Accuracy, HookKind, Signal, Unit},
};

/// A metric family: what is said about it, and where its series come from.
pub struct Metric {
    /// Name, as in a query.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Type.
    pub kind: Kind,
    /// Names of its labels; all series have all of them.
    pub labels: &'static [&'static str],
    source: Source,
}

enum Source {
    Signal(Signal),
    Vmstat(&'static vmstat::Row),
    Read(fn(&Snapshot, &mut Series)),
}

/// Every label, with what its values are.
pub const LABELS: [(&str, &str); 17] = [
    ("accuracy", "`exact`, `estimate`, or `none` where the signal isn't observed"),
    (
        "function",
        "`madvise_free` (`madvise_free_pte_range`), `reclaim` (`shrink_folio_list`, up to 5.15 `shrink_page_list`), `isolate` (`isolate_migratepages_block`)",
    ),
    (
        "hook",
        "of a signal, as `kind:symbol`, empty if there is none; of a candidate, what it is for, such as `reclaim`",
    ),
    ("kernel", "release of the running kernel"),
    (
        "kind",
        "of a hook `fentry`, `fexit`, `kprobe`, `kretprobe`, `raw_tracepoint`, `tracepoint`, `procfs`, or `none`; of a stall `direct_reclaim`, `memcg_reclaim`, `compaction`, `throttle`; of pressure `some`, `full`",
    ),
    (
        "limited_by",
        "what keeps a signal from being observed better: `nothing`, the `kernel` as it is written, or the `host`, by how its kernel is built or set up, or by what the daemon may do",
    ),
    (
        "mode",
        "`fentry`, `kprobe`, `tracepoint` where functions can't be hooked, or `procfs` where nothing can be attached",
    ),
    (
        "outcome",
        "of events `submitted` or `dropped`; of compaction and migration `success` or `fail`",
    ),
    ("program", "name of a program in the eBPF object"),
    (
        "reason",
        "of a loss `return_missing` (the task entered again), `entry_missing` (a return without an entry), `map_full` (too many in flight); of a candidate that isn't attached, the cause: `absent`, `unknown_shape`, `no_types`, `not_built_in`, `lockdown`, `not_permitted`, `no_tracefs`, `verifier`, `refused`, `not_asked_for`",
    ),
    (
        "reclaimer",
        "ours: `kswapd`, `direct`, `memcg`, `proactive`, or `unknown` where the number is the kernel's own; the kernel's: `kswapd`, `direct`, `khugepaged`, `proactive`",
    ),
    ("revision", "commit the binary was built from, or `unknown`"),
    ("scanner", "`migrate` or `free`"),
    ("signal", "name of a signal, as in the JSON report; `stall_` and the kind for a stall"),
    ("symbol", "kernel function or tracepoint of a program or candidate"),
    ("version", "version of the binary"),
    ("zone", "`dma`, `dma32`, `normal`, `movable`, `device`"),
];

/// Every metric family, in the order in which they are exported.
pub fn table() -> Vec<Metric> {
    let signals = Signal::ALL.into_iter().map(|signal| {
        let info = signal.info();
        Metric {
            name: info.family,
            help: info.help,
            kind: Kind::Counter,
            labels: if info.by_reclaimer { &["reclaimer"] } else { &[] },
            source: Source::Signal(signal),
        }
    });
    let kernels = vmstat::ROWS.iter().map(|row| Metric {
        name: row.name,
        help: row.help,
        kind: Kind::Counter,
        labels: row.labels,
        source: Source::Vmstat(row),
    });
    signals.chain(others()).chain(kernels).collect()
}

fn metric(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    read: fn(&Snapshot, &mut Series),
) -> Metric {
    Metric { name, help, kind, labels, source: Source::Read(read) }
}

/// The families that are neither a signal nor a counter of the kernel.
fn others() -> [Metric; 26] {
    use Kind::{Counter, Gauge, Histogram};
    [
        metric(
            "lazyfree_residual_pages",
            "Pages we counted less pages the kernel counted since the start; 0 while the signal is exact and no call is in flight.",
            Gauge,
            &["signal"],
            |snapshot, series| {
                let residual = snapshot.residual;
                let rows = [(Signal::Marked, residual.marked), (Signal::Hit, residual.hit)];
                for (signal, pages) in rows {
                    if let Some(pages) = pages {
                        series.add(&[signal.name()], pages as f64);
                    }
                }
            },
        ),
        metric(
            "lazyfree_hook_info",
            "How each signal is observed, and how far it can be trusted; always 1.",
            Gauge,
            &["signal", "hook", "kind", "accuracy", "limited_by"],
            |snapshot, series| {
                for state in &snapshot.signals {
                    let kind = kind_in_use(state.accuracy, state.kind);
                    let (accuracy, by) = (state.accuracy.name(), state.limited_by.name());
                    series.add(&[state.signal.name(), &state.hook, kind, accuracy, by], 1.0);
                }
                for state in &snapshot.stalls {
                    let signal = format!("stall_{}", state.waits.family.name());
                    let kind = kind_in_use(state.accuracy, state.kind);
                    let (accuracy, by) = (state.accuracy.name(), state.limited_by.name());
                    series.add(&[&signal, &state.hook, kind, accuracy, by], 1.0);
                }
            },
        ),
        metric(
            "lazyfree_hook_attached",
            "Whether a candidate for a hook is attached: 1, or 0 with the reason.",
            Gauge,
            &["hook", "kind", "symbol", "reason"],
            |snapshot, series| candidates(&snapshot.session.hooks, series),
        ),
        metric(
            "lazyfree_hook_misses_total",
            "Runs of a program that the kernel skipped; absent where the kernel doesn't tell.",
            Counter,
            &["program", "symbol", "kind"],
            |snapshot, series| {
                for hook in &snapshot.hooks {
                    if let Some(misses) = hook.misses {
                        let values = [&*hook.program, &hook.symbol, hook.kind.name()];
                        series.add(&values, misses as f64);
                    }
                }
            },
        ),
        metric(
            "lazyfree_calls_total",
            "Calls of a hooked kernel function, seen at entry.",
            Counter,
            &["function"],
            |snapshot, series| {
                for state in followed(snapshot) {
                    series.add(&[state.family.name()], state.started as f64);
                }
            },
        ),
        metric(
            "lazyfree_calls_lost_total",
            "Calls of a hooked kernel function that were not followed from entry to return.",
            Counter,
            &["function", "reason"],
            |snapshot, series| {
                for state in followed(snapshot) {
                    lost(state.family.name(), state, series);
                }
            },
        ),
        metric(
            "lazyfree_calls_in_flight",
            "Calls of a hooked kernel function whose return is awaited.",
            Gauge,
            &["function"],
            |snapshot, series| {
                for state in followed(snapshot) {
                    series.add(&[state.family.name()], state.in_flight as f64);
                }
            },
        ),
        metric(
            "lazyfree_madvise_free_seconds",
            "Time in madvise_free_pte_range for each call, up to 512 page table entries.",
            Histogram,
            &[],
            |snapshot, series| durations(snapshot, Family::Madvise, series),
        ),
        metric(
            "lazyfree_reclaim_batch_seconds",
            "Time in shrink_folio_list for each batch, whether it met lazyfree pages or not.",
            Histogram,
            &[],
            |snapshot, series| durations(snapshot, Family::Reclaim, series),
        ),
        metric(
            "lazyfree_isolate_seconds",
            "Time in isolate_migratepages_block for each range.",
            Histogram,
            &[],
            |snapshot, series| durations(snapshot, Family::Isolate, series),
        ),
        metric(
            "lazyfree_stall_seconds",
            "Time that tasks waited in reclaim, compaction or reclaim's throttling, for each wait that ended.",
            Histogram,
            &["kind"],
            |snapshot, series| {
                for (kind, waits) in stalls(snapshot) {
                    histogram(&[kind], &waits.durations, series);
                }
            },
        ),
        metric(
            "lazyfree_stalls_in_flight",
            "Waits that have begun and not ended.",
            Gauge,
            &["kind"],
            |snapshot, series| {
                for (kind, waits) in stalls(snapshot) {
                    series.add(&[kind], waits.in_flight as f64);
                }
            },
        ),
        metric(
            "lazyfree_stalls_lost_total",
            "Waits that were not followed from beginning to end.",
            Counter,
            &["kind", "reason"],
            |snapshot, series| {
                for (kind, waits) in stalls(snapshot) {
                    lost(kind, waits, series);
                }
            },
        ),
        metric(
            "lazyfree_pressure_stall_seconds_total",
            "Time in which some, or all, tasks waited for memory, as the kernel counts it (PSI); full is part of some.",
            Counter,
            &["kind"],
            |snapshot, series| {
                if let Some(pressure) = snapshot.context.pressure {
                    series.add(&["some"], pressure.some_us as f64 / 1e6);
                    series.add(&["full"], pressure.full_us as f64 / 1e6);
                }
            },
        ),
        metric(
            "lazyfree_reclaim_batches_total",
            "Batches that reclaim worked on, whether they met lazyfree pages or not.",
            Counter,
            &["reclaimer"],
            |snapshot, series| {
                if snapshot.sees_batches() {
                    for (reclaimer, batches) in Reclaimer::ALL.iter().zip(snapshot.batches) {
                        series.add(&[reclaimer.name()], batches as f64);
                    }
                }
            },
        ),
        metric(
            "lazyfree_events_total",
            "Sampled reclaim failures that were handed to the ring buffer, or lost since it was full.",
            Counter,
            &["outcome"],
            |snapshot, series| {
                if snapshot.sees_failures() {
                    series.add(&["submitted"], snapshot.events.submitted as f64);
                    series.add(&["dropped"], snapshot.events.dropped as f64);
                }
            },
        ),
        metric(
            "lazyfree_lru_batch_pending_pages",
            "Pages in the CPUs' lazyfree batches: marked, and not yet in the kernel's pglazyfree.",
            Gauge,
            &[],
            |snapshot, series| {
                if let Some(pages) = snapshot.context.lru_batch_pending {
                    series.add(&[], pages as f64);
                }
            },
        ),
        metric(
            "lazyfree_memory_free_bytes",
            "Free memory (MemFree).",
            Gauge,
            &[],
            |snapshot, series| {
                series.add(&[], bytes(snapshot.context.mem_free_kb));
            },
        ),
        metric(
            "lazyfree_throttle_threshold_bytes",
            "Free memory below which marking buys nothing: 1.5 times min_free_kbytes.",
            Gauge,
            &[],
            |snapshot, series| {
                series.add(&[], bytes(snapshot.context.throttle_threshold_kb));
            },
        ),
        metric("lazyfree_page_size_bytes", "Size of a page.", Gauge, &[], |snapshot, series| {
            series.add(&[], snapshot.session.page_size as f64);
        }),
        metric(
            "lazyfree_sample_timestamp_seconds",
            "When the numbers were read, in seconds since 1970.",
            Gauge,
            &[],
            |snapshot, series| {
                series.add(&[], snapshot.unix_seconds as f64);
            },
        ),
        metric(
            "lazyfree_sample_interval_seconds",
            "Time between the last two readings.",
            Gauge,
            &[],
            |snapshot, series| {
                series.add(&[], snapshot.interval_seconds);
            },
        ),
        metric(
            "lazyfree_session_info",
            "Kernel and mode of observation; always 1.",
            Gauge,
            &["kernel", "mode"],
            |snapshot, series| {
                series.add(&[&snapshot.session.kernel, &snapshot.session.mode], 1.0);
            },
        ),
        metric(
            "lazyfree_build_info",
            "Version of the binary; always 1.",
            Gauge,
            &["version", "revision"],
            |_, series| {
                let revision = option_env!("LAZYFREE_REVISION").unwrap_or("unknown");
                series.add(&[env!("CARGO_PKG_VERSION"), revision], 1.0);
            },
        ),
        metric(
            "process_cpu_seconds_total",
            "CPU time that this process has used; the probes' own time is charged to the tasks they interrupt.",
            Counter,
            &[],
            |snapshot, series| {
                series.add(&[], snapshot.context.self_cpu_seconds);
            },
        ),
        metric(
            "process_resident_memory_bytes",
            "Resident memory of this process.",
            Gauge,
            &[],
            |snapshot, series| {
                series.add(&[], snapshot.context.self_rss_bytes as f64);
            },
        ),
    ]
}

/// The text format, version 0.0.4.
///
/// # Errors
///
/// If the encoder refuses a family, which would be a mistake in [`table`].
pub fn encode(snapshot: &Snapshot) -> prometheus::Result<String> {
    let families: Vec<_> = table()
        .into_iter()
        .filter_map(|metric| {
            let mut series = Series::new(metric.kind, metric.labels);
            match metric.source {
                Source::Signal(signal) => counted(snapshot, signal, &mut series),
                Source::Vmstat(row) => row.read(snapshot, &mut series),
                Source::Read(read) => read(snapshot, &mut series),
            }
            series.into_family(metric.name, metric.help)
        })
        .collect();
    TextEncoder::new().encode_to_string(&families)
}

fn counted(snapshot: &Snapshot, signal: Signal, series: &mut Series) {
    let Some(state) = snapshot.signal(signal) else { return };
    let scale = match signal.info().unit {
        Unit::Pages => snapshot.session.page_size,
        Unit::Entries => 1,
    };
    let value = |pages: u64| pages as f64 * scale as f64;
    match (signal.info().by_reclaimer, state.by_reclaimer, state.pages) {
        (true, Some(by_reclaimer), _) => {
            for (reclaimer, pages) in Reclaimer::ALL.iter().zip(by_reclaimer) {
                series.add(&[reclaimer.name()], value(pages));
            }
        }
        // The kernel's own counter in place of a probe doesn't tell the reclaimers apart.
        (true, None, Some(pages)) => series.add(&["unknown"], value(pages)),
        (false, _, Some(pages)) => series.add(&[], value(pages)),
        (_, _, None) => {}
    }
}

fn followed(snapshot: &Snapshot) -> impl Iterator<Item = &FamilyState> {
    snapshot.families.iter().filter(|state| state.followed)
}

/// The kinds of stalls that are observed.
fn stalls(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, &FamilyState)> {
    let observed = snapshot.stalls.iter().filter(|state| state.accuracy != Accuracy::None);
    observed.map(|state| (state.waits.family.name(), &state.waits))
}

fn lost(what: &str, state: &FamilyState, series: &mut Series) {
    series.add(&[what, "return_missing"], state.returns_lost as f64);
    series.add(&[what, "entry_missing"], state.entries_lost as f64);
    series.add(&[what, "map_full"], state.map_full as f64);
}

fn kind_in_use(accuracy: Accuracy, kind: Option<HookKind>) -> &'static str {
    kind.filter(|_| accuracy != Accuracy::None).map_or("none", |kind| kind.name())
}

/// Each candidate once, whatever it was tried for how often.
fn candidates(hooks: &[HookOutcome], series: &mut Series) {
    let mut told = BTreeSet::new();
    for hook in hooks {
        let attached = hook.attached.as_deref().and_then(|attached| attached.split_once(':'));
        let attached = attached.map(|(kind, symbol)| (kind, symbol, ""));
        let refused = (hook.refused.iter())
            .map(|refused| (refused.kind.name(), &*refused.symbol, refused.cause.name()));
        for (kind, symbol, reason) in attached.into_iter().chain(refused) {
            if told.insert((&hook.name, kind, symbol, reason)) {
                let value = if reason.is_empty() { 1.0 } else { 0.0 };
                series.add(&[&hook.name, kind, symbol, reason], value);
            }
        }
    }
}

fn durations(snapshot: &Snapshot, family: Family, series: &mut Series) {
    for state in followed(snapshot).filter(|state| state.family == family) {
        histogram(&[], &state.durations, series);
    }
}

fn histogram(labels: &[&str], durations: &Durations, series: &mut Series) {
    series.add_histogram(
        labels,
        duration::cumulative(durations),
        duration::count(durations),
        durations.sum_ns as f64 / 1e9,
    );
}

fn bytes(kb: u64) -> f64 {
    kb as f64 * 1024.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::export::fixture;

    /// What a scrape says of one family.
    #[derive(Default)]
    struct Scraped {
        help: Option<String>,
        kind: Option<String>,
        /// Name with suffix, labels, value.
        samples: Vec<(String, BTreeMap<String, String>, f64)>,
    }

    /// Reads the text format; panics on whatever isn't allowed in it.
    fn parse(text: &str) -> BTreeMap<String, Scraped> {
        let mut families: BTreeMap<String, Scraped> = BTreeMap::new();
        let mut current = String::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help text");
                current = name.to_owned();
                let family = families.entry(current.clone()).or_default();
                assert_eq!(family.help.replace(help.to_owned()), None, "two HELP for {name}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(name, current, "TYPE follows HELP");
                let family = families.get_mut(name).expect("HELP comes first");
                assert_eq!(family.kind.replace(kind.to_owned()), None, "two TYPE for {name}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = match series.split_once('{') {
                    Some((name, labels)) => (name, labels.strip_suffix('}').expect("a brace")),
                    None => (series, ""),
                };
                let labels = labels.split_terminator("\",").map(|pair| {
                    let (name, value) = pair.split_once("=\"").expect("a label");
                    (name.to_owned(), value.trim_end_matches('"').to_owned())
                });
                let sample = (name.to_owned(), labels.collect(), value.parse().expect("a number"));
                families.get_mut(&current).expect("HELP comes first").samples.push(sample);
            }
        }
        families
    }

    fn scrape(snapshot: &Snapshot) -> BTreeMap<String, Scraped> {
        parse(&encode(snapshot).unwrap())
    }

    fn value(families: &BTreeMap<String, Scraped>, name: &str, labels: &[(&str, &str)]) -> f64 {
        let family = name.trim_end_matches("_bucket").trim_end_matches("_sum");
        let family = family.trim_end_matches("_count");
        let family = families.get(family).unwrap_or_else(|| panic!("{name} is absent"));
        let wanted: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let found = family.samples.iter().find(|(n, l, _)| n == name && *l == wanted);
        found.unwrap_or_else(|| panic!("{name} {labels:?} is absent")).2
    }

    fn is_name(name: &str) -> bool {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    }

    #[test]
    fn a_full_scrape_has_every_family_of_the_table_with_its_labels() {
        let families = scrape(&fixture::full());
        let table = table();
        assert_eq!(families.len(), table.len(), "a family is missing from the fixture or twice");
        for metric in table {
            let scraped = &families[metric.name];
            assert_eq!(scraped.help.as_deref(), Some(metric.help));
            assert_eq!(scraped.kind.as_deref(), Some(metric.kind.name()));
            let expected: BTreeSet<&str> = metric.labels.iter().copied().collect();
            for (name, labels, _) in &scraped.samples {
                let mut found: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
                assert_eq!(found.remove("le"), name.ends_with("_bucket"), "{name}");
                assert_eq!(found, expected, "{name}");
            }
        }
    }

    #[test]
    fn families_follow_the_conventions() {
        for metric in table() {
            let Metric { name, help, kind, labels, .. } = metric;
            assert!(is_name(name) && labels.iter().all(|label| is_name(label)), "{name}");
            assert!(name.starts_with("lazyfree_") || name.starts_with("process_"), "{name}");
            assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
            for suffix in ["_bucket", "_count", "_sum"] {
                assert!(!name.ends_with(suffix), "{name} ends like a part of a histogram");
            }
            for label in labels {
                assert!(!name.contains(&format!("_by_{label}")), "{name}");
                assert!(LABELS.iter().any(|(known, _)| known == label), "{label} is not described");
                assert_ne!(*label, "le", "{name}");
            }
        }
    }

    #[test]
    fn each_described_label_is_used() {
        let used: BTreeSet<_> = table().iter().flat_map(|metric| metric.labels).copied().collect();
        assert!(LABELS.iter().map(|(label, _)| *label).eq(used), "sorted, no more, no fewer");
    }

    #[test]
    fn no_series_appears_twice() {
        for (name, family) in scrape(&fixture::full()) {
            let series: BTreeSet<_> = family.samples.iter().map(|(n, l, _)| (n, l)).collect();
            assert_eq!(series.len(), family.samples.len(), "{name}");
        }
    }

    #[test]
    fn signals_are_in_bytes_and_keep_their_reclaimers_apart() {
        let families = scrape(&fixture::full());
        assert_eq!(value(&families, "lazyfree_marked_bytes_total", &[]), 8192.0 * 4096.0);
        assert_eq!(value(&families, "lazyfree_swap_entries_freed_total", &[]), 16.0);
        let hit = |reclaimer| {
            value(&families, "lazyfree_hit_bytes_total", &[("reclaimer", reclaimer)]) / 4096.0
        };
        assert_eq!(["kswapd", "direct", "memcg", "proactive"].map(hit), [4000.0, 96.0, 0.0, 0.0]);
        // 4,096 hit, 1,024 redirtied, 512 pinned and 128 kept, of which direct reclaim 96 hit.
        let attempts = |reclaimer| {
            value(&families, "lazyfree_attempts_bytes_total", &[("reclaimer", reclaimer)]) / 4096.0
        };
        assert_eq!(attempts("kswapd"), 5664.0);
        assert_eq!(attempts("direct"), 96.0);
    }

    #[test]
    fn what_is_not_observed_has_no_series_but_its_hook_says_so() {
        let families = scrape(&fixture::procfs());
        for signal in Signal::ALL {
            let observed = matches!(signal, Signal::Marked | Signal::Hit);
            assert_eq!(families.contains_key(signal.info().family), observed, "{signal:?}");
        }
        for absent in [
            "lazyfree_residual_pages",
            "lazyfree_calls_total",
            "lazyfree_calls_lost_total",
            "lazyfree_reclaim_batches_total",
            "lazyfree_reclaim_batch_seconds",
            "lazyfree_events_total",
            "lazyfree_hook_misses_total",
            "lazyfree_lru_batch_pending_pages",
            "lazyfree_stall_seconds",
            "lazyfree_stalls_in_flight",
            "lazyfree_stalls_lost_total",
        ] {
            assert!(!families.contains_key(absent), "{absent}");
        }
        let hit = [("reclaimer", "unknown")];
        assert_eq!(value(&families, "lazyfree_hit_bytes_total", &hit), 4096.0 * 4096.0);
        let hooks = &families["lazyfree_hook_info"].samples;
        assert_eq!(hooks.len(), Signal::ALL.len() + Family::STALLS.len());
        let stall = "stall_direct_reclaim";
        for signal in [stall, "redirtied"] {
            let none = [
                ("signal", signal),
                ("hook", ""),
                ("kind", "none"),
                ("accuracy", "none"),
                ("limited_by", "host"),
            ];
            assert_eq!(value(&families, "lazyfree_hook_info", &none), 1.0);
        }
    }

    #[test]
    fn histograms_are_cumulative_and_add_up() {
        let families = scrape(&fixture::full());
        for name in [
            "lazyfree_madvise_free_seconds",
            "lazyfree_reclaim_batch_seconds",
            "lazyfree_isolate_seconds",
        ] {
            let buckets: Vec<_> = families[name]
                .samples
                .iter()
                .filter(|(sample, _, _)| sample.ends_with("_bucket"))
                .map(|(_, labels, value)| (labels["le"].parse::<f64>().unwrap(), *value))
                .collect();
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
            let (bound, all) = *buckets.last().unwrap();
            assert_eq!(
                (bound, all),
                (f64::INFINITY, value(&families, &format!("{name}_count"), &[]))
            );
        }
        // The fixture: 10 calls of 1,500 ns each.
        let le = |le| value(&families, "lazyfree_madvise_free_seconds_bucket", &[("le", le)]);
        assert_eq!((le("0.000001024"), le("0.000002048"), le("17.179869184")), (0.0, 10.0, 10.0));
        assert_eq!(value(&families, "lazyfree_madvise_free_seconds_sum", &[]), 0.000_015);
    }

    #[test]
    fn each_kind_of_stall_has_a_histogram_of_its_own() {
        let families = scrape(&fixture::full());
        let of = |part: &str, kind| {
            value(&families, &format!("lazyfree_stall_seconds{part}"), &[("kind", kind)])
        };
        // The fixture: 20 waits of 4 ms, one of 200 ms; nobody was throttled.
        assert_eq!((of("_count", "direct_reclaim"), of("_sum", "direct_reclaim")), (21.0, 0.28));
        assert_eq!((of("_count", "throttle"), of("_sum", "throttle")), (0.0, 0.0));
        let below = |le| {
            let labels = [("kind", "direct_reclaim"), ("le", le)];
            value(&families, "lazyfree_stall_seconds_bucket", &labels)
        };
        assert_eq!(
            (below("0.002097152"), below("0.004194304"), below("0.268435456")),
            (0.0, 20.0, 21.0)
        );
        let in_flight = [("kind", "direct_reclaim")];
        assert_eq!(value(&families, "lazyfree_stalls_in_flight", &in_flight), 2.0);

        // A kind that isn't observed has no series, not even an empty histogram.
        let mut snapshot = fixture::full();
        snapshot.stalls[3].accuracy = Accuracy::None;
        let families = scrape(&snapshot);
        for name in ["lazyfree_stall_seconds", "lazyfree_stalls_lost_total"] {
            let kinds: BTreeSet<_> =
                families[name].samples.iter().map(|(_, labels, _)| &*labels["kind"]).collect();
            assert!(
                kinds.into_iter().eq(["compaction", "direct_reclaim", "memcg_reclaim"]),
                "{name}"
            );
        }
    }

    #[test]
    fn candidates_say_whether_they_are_attached_and_if_not_why() {
        let mut snapshot = fixture::tracepoint();
        let mut session = (*snapshot.session).clone();
        // Two hooks of one name may have tried the same.
        session.hooks.push(session.hooks[0].clone());
        snapshot.session = session.into();
        let families = scrape(&snapshot);
        let attached = |kind, symbol, reason| {
            let labels =
                [("hook", "madvise"), ("kind", kind), ("symbol", symbol), ("reason", reason)];
            value(&families, "lazyfree_hook_attached", &labels)
        };
        assert_eq!(attached("tracepoint", "sys_enter_madvise", ""), 1.0);
        assert_eq!(attached("fentry", "madvise_free_pte_range", "refused"), 0.0);
        assert_eq!(attached("kprobe", "madvise_free_pte_range", "not_built_in"), 0.0);
        assert_eq!(families["lazyfree_hook_attached"].samples.len(), 9);
    }

    #[test]
    fn pressure_is_absent_where_the_kernel_does_not_tell() {
        let mut snapshot = fixture::full();
        let name = "lazyfree_pressure_stall_seconds_total";
        assert_eq!(value(&scrape(&snapshot), name, &[("kind", "some")]), 0.25);
        assert_eq!(value(&scrape(&snapshot), name, &[("kind", "full")]), 0.05);
        snapshot.context.pressure = None;
        assert!(!scrape(&snapshot).contains_key(name));
    }

    #[test]
    fn no_process_and_no_path_is_a_label() {
        let text = encode(&fixture::full()).unwrap();
        for word in ["postgres", "2211", "cc1"] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn the_kernels_counters_stand_beside_ours() {
        let families = scrape(&fixture::full());
        let pglazyfree = value(&families, "lazyfree_vmstat_pglazyfree_bytes_total", &[]);
        let residual = value(&families, "lazyfree_residual_pages", &[("signal", "marked")]);
        let pending = value(&families, "lazyfree_lru_batch_pending_pages", &[]);
        let marked = value(&families, "lazyfree_marked_bytes_total", &[]);
        assert_eq!(marked / 4096.0, pglazyfree / 4096.0 + residual + pending);
        let stalls = [("zone", "normal")];
        assert_eq!(value(&families, "lazyfree_vmstat_allocstall_total", &stalls), 3.0);
    }

    #[test]
    fn strange_text_in_a_label_stays_inside_it() {
        let mut snapshot = fixture::full();
        let mut session = (*snapshot.session).clone();
        session.kernel = "6.1\"} 1\nevil 2\\".into();
        snapshot.session = session.into();
        let text = encode(&snapshot).unwrap();
        assert!(text.contains(r#"kernel="6.1\"} 1\nevil 2\\","#), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("evil")));
    }
}
