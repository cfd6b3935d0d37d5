//! Shows a snapshot to programs and to people without a screen.
//!
//! [`metrics`] is the Prometheus text, [`json`] the report of `lazyfree stat` and `table` the same
//! report for people: all three are pure. [`http`] is the only file with a socket in it. What isn't
//! observed is absent from every surface; a zero always means that nothing happened.

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
