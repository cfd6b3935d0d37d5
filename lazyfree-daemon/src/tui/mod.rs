//! The live screen.
//!
//! [`app`] is what the screen is set to and what a key does to it; values in, values out.

pub mod app;
pub mod key;
pub mod units;
