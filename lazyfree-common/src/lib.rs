//! Every definition that the kernel side and the daemon both read.
//!
//! One file for each noun: [`counter`] names the per-CPU counters, [`duration`] is the log2
//! histogram, [`event`] what the ring buffer carries, [`layout`] the numbers of the running kernel
//! that the loader hands over, [`call`] the state of a call in flight and [`percpu`] the one value
//! that probes write to, [`process`] what they count of each process, [`control`] what the daemon
//! sets. Nothing here does I/O, allocates, or knows which side it runs on.

#![no_std]

pub mod call;
pub mod control;
pub mod counter;
pub mod duration;
pub mod event;
pub mod layout;
pub mod percpu;
pub mod process;

pub use counter::{Counter, Family, Reclaimer};
