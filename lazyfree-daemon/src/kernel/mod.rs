//! The kernel side's counterpart: what to hook, loading and attaching, reading what was counted.
//!
//! `types`, `symbols`, `format`, `layout`, `hook`, `release`, `offer`, `plan` and `observation` are
//! pure: from what a kernel offers to what is tried, and from what came of it to what each number
//! is worth. `host` reads what a kernel offers; `probes`, `vmemmap` and `counts` load, attach and
//! read, and with `refusal`, which puts errors into words, are the only files that name aya.

mod config;
mod counts;
mod facts;
#[cfg(test)]
mod fixture;
mod format;
mod hook;
mod host;
mod layout;
mod observation;
mod offer;
mod plan;
mod privileges;
mod probes;
mod refusal;
mod release;
mod symbols;
mod types;
mod vmemmap;

pub use counts::{Reading, monotonic_ns};
pub use host::mglru;
pub use plan::ProbeKind;
pub use probes::{OpenError, Options, Probes, open};
