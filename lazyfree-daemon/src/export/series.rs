//! The series of one metric family at one scrape.
//!
//! Nothing here knows what is measured; [`super::metrics`] has the table.

use prometheus::proto;

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only ever goes up, from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets, a sum and a count.
    Histogram,
}

impl Kind {
    /// As in a `# TYPE` line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

impl From<Kind> for proto::MetricType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Counter => proto::MetricType::COUNTER,
            Kind::Gauge => proto::MetricType::GAUGE,
            Kind::Histogram => proto::MetricType::HISTOGRAM,
        }
    }
}

/// The series of one family, in the order they were added.
pub struct Series {
    kind: Kind,
    labels: &'static [&'static str],
    metrics: Vec<proto::Metric>,
}

impl Series {
    /// No series yet.
    pub fn new(kind: Kind, labels: &'static [&'static str]) -> Self {
        Self { kind, labels, metrics: Vec::new() }
    }

    /// Adds a counter or a gauge; `values` are those of the family's labels, in their order.
    pub fn add(&mut self, values: &[&str], value: f64) {
        let mut metric = self.labelled(values);
        match self.kind {
            Kind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            Kind::Histogram => unreachable!("a histogram has buckets"),
        }
        self.metrics.push(metric);
    }

    /// Adds a histogram: cumulative counts by upper bound, then all of them.
    pub fn add_histogram(
        &mut self,
        values: &[&str],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        let buckets = buckets.into_iter().map(|(upper_bound, cumulative_count)| {
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(upper_bound);
            bucket.set_cumulative_count(cumulative_count);
            bucket
        });
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(count);
        histogram.set_sample_sum(sum);
        let mut metric = self.labelled(values);
        metric.set_histogram(histogram);
        self.metrics.push(metric);
    }

    /// The family, or `None` if it has no series: a family that isn't observed is absent.
    pub fn into_family(self, name: &str, help: &str) -> Option<proto::MetricFamily> {
        if self.metrics.is_empty() {
            return None;
        }
        let mut family = proto::MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(self.kind.into());
        family.set_metric(self.metrics);
        Some(family)
    }

    fn labelled(&self, values: &[&str]) -> proto::Metric {
        assert_eq!(values.len(), self.labels.len(), "one value for each of {:?}", self.labels);
        let pairs = self.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        proto::Metric::from_label(pairs.collect())
    }
}
