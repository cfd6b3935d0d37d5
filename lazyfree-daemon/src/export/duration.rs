//! What is shown of a histogram of durations.

use lazyfree_common::duration::upper_bound_ns;
use serde::Serialize;

use crate::sample::Durations;

/// Exponents of the exported buckets: upper bounds of 2^10 ns (1 us) to 2^34 ns (17 s). Kernel
/// functions that work on one batch lie in between; a constant set keeps series comparable over
/// hosts and restarts.
const EXPORTED: std::ops::RangeInclusive<usize> = 10..=34;

/// Number of durations.
pub fn count(durations: &Durations) -> u64 {
    durations.buckets.iter().sum()
}

/// Cumulative numbers by upper bound in seconds, for the classic buckets of Prometheus.
///
/// A bucket of the source holds `2^i <= d < 2^(i+1)` nanoseconds, one of Prometheus `d <= le`. So
/// a duration of exactly `le` is counted one bucket higher than it might be: durations are whole
/// nanoseconds, the bounds are off by one of them.
pub fn cumulative(durations: &Durations) -> impl Iterator<Item = (f64, u64)> + '_ {
    EXPORTED.map(|exponent| {
        let below = durations.buckets.iter().take(exponent).sum();
        ((1u64 << exponent) as f64 / 1e9, below)
    })
}

/// Durations in a few numbers. The histogram has one bucket for each power of two, so a quantile
/// is only known to lie below the end of its bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Calls that were timed.
    pub count: u64,
    /// Sum of their durations.
    pub sum_ns: u64,
    /// Half of the calls were shorter; `None` if the bucket has no end.
    pub p50_below_ns: Option<u64>,
    /// 99 % of the calls were shorter.
    pub p99_below_ns: Option<u64>,
    /// All of the calls were shorter.
    pub max_below_ns: Option<u64>,
}

impl Summary {
    /// Sums up a histogram; `None` if it is empty.
    pub fn of(durations: &Durations) -> Option<Self> {
        let count = count(durations);
        let below = |percent: u64| {
            let rank = (u128::from(count) * u128::from(percent)).div_ceil(100);
            let mut seen = 0;
            let bucket = durations.buckets.iter().position(|number| {
                seen += u128::from(*number);
                seen >= rank
            });
            bucket.and_then(upper_bound_ns)
        };
        (count > 0).then(|| Self {
            count,
            sum_ns: durations.sum_ns,
            p50_below_ns: below(50),
            p99_below_ns: below(99),
            max_below_ns: below(100),
        })
    }

    /// Mean duration in nanoseconds.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns / self.count
    }
}

#[cfg(test)]
mod tests {
    use lazyfree_common::duration::{BUCKETS, bucket};

    use super::*;

    fn of(durations_ns: &[u64]) -> Durations {
        let mut buckets = vec![0; BUCKETS];
        for duration in durations_ns {
            buckets[bucket(*duration)] += 1;
        }
        Durations { sum_ns: durations_ns.iter().sum(), buckets }
    }

    #[test]
    fn cumulative_buckets_hold_what_lies_below_their_bound() {
        let durations = [0, 900, 1023, 1024, 5000, 1 << 33, 1 << 34, 1 << 36];
        let of = of(&durations);
        let buckets: Vec<_> = cumulative(&of).collect();
        assert_eq!(buckets.len(), 25);
        for (seconds, below) in buckets {
            let bound_ns = (seconds * 1e9).round() as u64;
            let expected = durations.iter().filter(|duration| **duration < bound_ns).count();
            assert_eq!(below, expected as u64, "le {seconds}");
        }
    }

    #[test]
    fn a_short_histogram_of_an_older_recording_still_counts() {
        let durations = Durations { sum_ns: 6, buckets: vec![0, 2] };
        assert!(cumulative(&durations).all(|(_, below)| below == 2));
    }

    #[test]
    fn quantiles_are_the_ends_of_their_buckets() {
        assert_eq!(Summary::of(&of(&[])), None);
        let mut calls = vec![100; 98];
        calls.extend([3000, 70_000]);
        let summary = Summary::of(&of(&calls)).unwrap();
        assert_eq!(summary.p50_below_ns, Some(128));
        assert_eq!(summary.p99_below_ns, Some(4096));
        assert_eq!(summary.max_below_ns, Some(131_072));
        assert_eq!(summary.mean_ns(), (98 * 100 + 3000 + 70_000) / 100);
    }

    #[test]
    fn the_last_bucket_has_no_end() {
        assert_eq!(Summary::of(&of(&[u64::MAX])).unwrap().max_below_ns, None);
    }
}
