//! The kernel side's counterpart: what to hook, loading and attaching, reading what was counted.
//!
//! `types`, `symbols`, `format`, `layout`, `hook`, `release` and `plan` are pure; `privileges`
//! and `config` read small files and judge them; `probes`, `counts` and `host` touch the kernel, and
//! the first two are the only files that name aya.

#[cfg_attr(not(test), expect(dead_code, reason = "for the plan"))]
mod config;
mod counts;
#[cfg(test)]
mod fixture;
#[cfg_attr(not(test), expect(dead_code, reason = "for the plan of tracepoints"))]
mod format;
mod hook;
mod host;
mod layout;
mod plan;
#[cfg_attr(not(test), expect(dead_code, reason = "for the plan"))]
mod privileges;
mod probes;
mod release;
mod symbols;
mod types;

pub use counts::{Reading, monotonic_ns};
pub use probes::{Family, OpenError, Options, Probes};
