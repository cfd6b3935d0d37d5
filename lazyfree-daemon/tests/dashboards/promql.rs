//! Checks a query against what is exported, and says which labels its result has.
//!
//! Not an evaluator: it knows names, labels and the few operators that our files use, and refuses
//! the rest.

use std::collections::{BTreeMap, BTreeSet};

use lazyfree::{
    export::metrics::{self, Kind, LABELS},
    signal::Signal,
};
use promql_parser::{
    label::{MatchOp, Matcher},
    parser::{
        self, AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality,
        VectorSelector,
    },
};

pub type Labels = BTreeSet<String>;

/// Labels that Prometheus adds to whatever it scrapes.
const TARGET: [&str; 2] = ["instance", "job"];

/// Labels whose description lists all of their values in backquotes.
const ENUMERATED: [&str; 9] =
    ["accuracy", "function", "kind", "mode", "outcome", "reason", "reclaimer", "scanner", "zone"];

struct Series {
    labels: Labels,
    counter: bool,
}

/// What a query may name.
pub struct Known {
    series: BTreeMap<String, Series>,
    /// Whether each selector must have a matcher on all labels of [`TARGET`].
    pub must_select_target: bool,
}

impl Known {
    /// The exported families, and `up`.
    pub fn exported() -> Self {
        let mut known = Self { series: BTreeMap::new(), must_select_target: false };
        known.insert("up", [], false);
        for metric in metrics::table() {
            let (name, labels) = (metric.name, metric.labels.iter().copied());
            match metric.kind {
                Kind::Counter => known.insert(name, labels, true),
                Kind::Gauge => known.insert(name, labels, false),
                Kind::Histogram => {
                    known.insert(&format!("{name}_bucket"), labels.clone().chain(["le"]), true);
                    known.insert(&format!("{name}_sum"), labels.clone(), true);
                    known.insert(&format!("{name}_count"), labels, true);
                }
            }
        }
        known
    }

    /// A series that a recording rule makes.
    pub fn record(&mut self, name: &str, labels: Labels) {
        let before = self.series.insert(name.to_owned(), Series { labels, counter: false });
        assert!(before.is_none(), "{name} is recorded twice, or hides a metric");
    }

    fn insert<'a>(&mut self, name: &str, labels: impl IntoIterator<Item = &'a str>, counter: bool) {
        let labels = TARGET.into_iter().chain(labels).map(str::to_owned).collect();
        self.series.insert(name.to_owned(), Series { labels, counter });
    }

    /// The labels of a query's result, or what is wrong with the query.
    pub fn labels(&self, query: &str) -> Result<Labels, String> {
        self.of(&parser::parse(query)?)?.ok_or_else(|| "a scalar shows nothing".to_owned())
    }

    /// `None` stands for a scalar or a string.
    fn of(&self, expr: &Expr) -> Result<Option<Labels>, String> {
        match expr {
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(None),
            Expr::Paren(paren) => self.of(&paren.expr),
            Expr::VectorSelector(selector) => self.selected(selector, false).map(Some),
            Expr::MatrixSelector(selector) => self.selected(&selector.vs, true).map(Some),
            Expr::Call(call) => self.called(call),
            Expr::Aggregate(aggregate) => self.aggregated(aggregate).map(Some),
            Expr::Binary(binary) => self.joined(binary),
            other => Err(format!("{other} isn't known to this check")),
        }
    }

    fn selected(&self, selector: &VectorSelector, range: bool) -> Result<Labels, String> {
        let name = selector.name.as_deref().ok_or("a selector without a name")?;
        let series = self.series.get(name).ok_or(format!("{name} isn't exported"))?;
        if series.counter != range {
            return Err(match series.counter {
                true => format!("{name} is a counter: take its rate"),
                false => format!("{name} is a gauge: it has no rate"),
            });
        }
        if !selector.matchers.or_matchers.is_empty() {
            return Err(format!("{name}: `or` between matchers isn't PromQL"));
        }
        for matcher in &selector.matchers.matchers {
            known_label(name, &series.labels, &matcher.name)?;
            known_value(matcher)?;
        }
        let selects = |label: &str| selector.matchers.matchers.iter().any(|m| m.name == label);
        if self.must_select_target && !TARGET.into_iter().all(selects) {
            return Err(format!("{name} isn't limited to the chosen jobs and instances"));
        }
        Ok(series.labels.clone())
    }

    fn called(&self, call: &Call) -> Result<Option<Labels>, String> {
        let mut labels = None;
        for argument in &call.args.args {
            if let Some(of_argument) = self.of(argument)? {
                labels = Some(of_argument);
            }
        }
        match call.func.name {
            "time" => Ok(None),
            "rate" | "increase" | "clamp_min" => Ok(labels),
            "histogram_quantile" => {
                let mut labels = labels.unwrap_or_default();
                let found = labels.remove("le");
                found.then_some(Some(labels)).ok_or("histogram_quantile needs the label le".into())
            }
            other => Err(format!("{other}() isn't known to this check")),
        }
    }

    fn aggregated(&self, aggregate: &AggregateExpr) -> Result<Labels, String> {
        let inner = self.of(&aggregate.expr)?.ok_or("a scalar can't be aggregated")?;
        let Some(modifier) = &aggregate.modifier else { return Ok(Labels::new()) };
        for label in &modifier.labels().labels {
            known_label("the aggregated expression", &inner, label)?;
        }
        let named: Labels = modifier.labels().labels.iter().cloned().collect();
        Ok(match modifier {
            LabelModifier::Include(_) => named,
            LabelModifier::Exclude(_) => inner.difference(&named).cloned().collect(),
        })
    }

    fn joined(&self, binary: &BinaryExpr) -> Result<Option<Labels>, String> {
        let (left, right) = match (self.of(&binary.lhs)?, self.of(&binary.rhs)?) {
            (Some(left), Some(right)) => (left, right),
            (left, right) => return Ok(left.or(right)),
        };
        let modifier = binary.modifier.as_ref();
        let on = match modifier.and_then(|modifier| modifier.matching.as_ref()) {
            None if left == right => left.clone(),
            None => return Err(format!("{left:?} never match {right:?}: {binary}")),
            Some(LabelModifier::Include(on)) => on.labels.iter().cloned().collect(),
            Some(LabelModifier::Exclude(_)) => return Err("use on, not ignoring".to_owned()),
        };
        for label in &on {
            known_label("the left side", &left, label)?;
            known_label("the right side", &right, label)?;
        }
        match modifier.map(|modifier| &modifier.card) {
            None | Some(VectorMatchCardinality::OneToOne) => Ok(Some(on)),
            Some(VectorMatchCardinality::ManyToMany) => Ok(Some(left)),
            Some(other) => Err(format!("{other:?} isn't known to this check")),
        }
    }
}

fn known_label(of: &str, labels: &Labels, label: &str) -> Result<(), String> {
    if labels.contains(label) { Ok(()) } else { Err(format!("{of} has no label {label}")) }
}

fn known_value(matcher: &Matcher) -> Result<(), String> {
    let Matcher { op, name, value } = matcher;
    if !matches!(op, MatchOp::Equal | MatchOp::NotEqual) {
        return Ok(());
    }
    let known = match name.as_str() {
        "signal" => Signal::ALL.iter().any(|signal| signal.name() == value),
        name if ENUMERATED.contains(&name) => LABELS
            .iter()
            .any(|(label, values)| *label == name && values.contains(&format!("`{value}`"))),
        _ => true,
    };
    if known { Ok(()) } else { Err(format!("{name} is never {value:?}")) }
}

#[test]
fn a_good_query_has_the_labels_of_its_result() {
    let known = Known::exported();
    for (query, labels) in [
        ("lazyfree_residual_pages", "instance job signal"),
        ("sum(rate(lazyfree_hit_bytes_total[5m]))", ""),
        ("sum by (reclaimer) (rate(lazyfree_hit_bytes_total[5m]))", "reclaimer"),
        ("sum without (reclaimer) (rate(lazyfree_hit_bytes_total[5m]))", "instance job"),
        ("time() - lazyfree_sample_timestamp_seconds > 60", "instance job"),
        (
            "histogram_quantile(0.5, sum by (le, job) (rate(lazyfree_isolate_seconds_bucket[5m])))",
            "job",
        ),
        (
            "lazyfree_residual_pages and on (signal) lazyfree_hook_info{accuracy=\"none\"}",
            "instance job signal",
        ),
    ] {
        let found = known.labels(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(found, labels.split_whitespace().map(str::to_owned).collect(), "{query}");
    }
}

#[test]
fn each_kind_of_mistake_is_found() {
    let mut known = Known::exported();
    for (query, complaint) in [
        ("rate(lazyfree_hits_bytes_total[5m])", "isn't exported"),
        ("rate(lazyfree_isolate_seconds[5m])", "isn't exported"),
        ("lazyfree_hit_bytes_total", "is a counter"),
        ("rate(lazyfree_residual_pages[5m])", "is a gauge"),
        ("lazyfree_residual_pages{reclaimer=\"direct\"}", "has no label reclaimer"),
        ("lazyfree_residual_pages{signal=\"hits\"}", "never \"hits\""),
        ("rate(lazyfree_events_total{outcome=\"lost\"}[5m])", "never \"lost\""),
        ("sum by (cgroup) (rate(lazyfree_hit_bytes_total[5m]))", "has no label cgroup"),
        ("histogram_quantile(0.5, rate(lazyfree_isolate_seconds_sum[5m]))", "needs the label le"),
        (
            "rate(lazyfree_hit_bytes_total[5m]) / rate(lazyfree_marked_bytes_total[5m])",
            "never match",
        ),
        (
            "lazyfree_residual_pages and on (reclaimer) lazyfree_hook_info",
            "the left side has no label reclaimer",
        ),
        ("1 + 1", "a scalar"),
    ] {
        let error = known.labels(query).expect_err(query);
        assert!(error.contains(complaint), "{query}: {error}");
    }
    known.must_select_target = true;
    let error = known.labels("lazyfree_page_size_bytes{job=\"x\"}").unwrap_err();
    assert!(error.contains("isn't limited"), "{error}");
}
