//! The library behind the `lazyfree` binary.
//!
//! Data flows one way: [`kernel`] reads the probes' maps and [`sample`] holds what was read at one
//! moment; a [`source`] yields samples, live or from a daemon's socket; [`model`] turns them into
//! snapshots; [`tui`] and [`export`] show a snapshot. aya, sockets, clocks and files stay in the
//! files named for them. [`command`] holds the subcommands, [`workload`] the known workloads.

pub mod command;
pub mod export;
pub mod host;
pub mod kernel;
pub mod model;
pub mod sample;
pub mod signal;
pub mod source;
mod text;
pub mod tui;
pub mod vmstat;
pub mod workload;
