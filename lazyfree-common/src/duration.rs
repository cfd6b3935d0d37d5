//! The log2 histogram of durations, filled in the kernel.

use bytemuck::{Pod, Zeroable};

/// Number of buckets. Bucket `i` holds durations `d` with `2^i <= d < 2^(i+1)` nanoseconds;
/// bucket 0 also holds 0, the last one everything from `2^39` ns (nine minutes) up.
pub const BUCKETS: usize = 40;

/// Number and sum of durations, by power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Histogram {
    /// Sum of all durations, in nanoseconds.
    pub sum_ns: u64,
    /// Durations in each bucket.
    pub buckets: [u64; BUCKETS],
}

const _: () = assert!(size_of::<Histogram>() == 8 * (1 + BUCKETS));

/// The bucket of a duration.
pub const fn bucket(duration_ns: u64) -> usize {
    let log2 = 63 - (duration_ns | 1).leading_zeros() as usize;
    if log2 < BUCKETS { log2 } else { BUCKETS - 1 }
}

/// The smallest duration, in nanoseconds, that is too long for bucket `index`; `None` for the
/// last one, which has no upper bound.
pub const fn upper_bound_ns(index: usize) -> Option<u64> {
    if index + 1 < BUCKETS { Some(1 << (index + 1)) } else { None }
}

impl Histogram {
    /// Adds one duration.
    pub fn record(&mut self, duration_ns: u64) {
        self.sum_ns = self.sum_ns.wrapping_add(duration_ns);
        self.buckets[bucket(duration_ns)] += 1;
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }

    /// Adds the durations of `other`, as for another CPU.
    pub fn merge(&mut self, other: &Histogram) {
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *into = into.wrapping_add(*from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_lies_below_the_bound_of_its_bucket_and_above_the_one_before() {
        for exponent in 0..39 {
            for duration in
                [1u64 << exponent, (1 << exponent) + (1 << exponent) / 2, (2 << exponent) - 1]
            {
                let index = bucket(duration);
                assert_eq!(index, exponent, "{duration} ns");
                assert!(upper_bound_ns(index).is_none_or(|bound| duration < bound));
                assert!(index == 0 || duration >= upper_bound_ns(index - 1).expect("not the last"));
            }
        }
    }

    #[test]
    fn the_ends_have_a_bucket() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(upper_bound_ns(BUCKETS - 1), None);
    }
}
