//! Shows a snapshot to programs and to people without a screen.
//!
//! [`metrics`] is the Prometheus text, [`json`] the report of `lazyfree stat`, `table` the same
//! report for people, and [`doctor`] tells of a session what is observed, and why not more: all of
//! them are pure. [`http`] is the only file with a socket in it. What isn't
//! observed is absent from every surface; a zero always means that nothing happened.

pub mod doctor;
mod duration;
pub mod http;
pub mod json;
pub mod metrics;
mod series;
mod table;
mod units;
mod vmstat;

#[cfg(test)]
mod docs;
#[cfg(test)]
mod fixture;

use serde::{Serialize, Serializer};

/// Pairs as one object, in their order.
fn as_map<S: Serializer, T: Serialize>(
    pairs: &[(&'static str, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}
