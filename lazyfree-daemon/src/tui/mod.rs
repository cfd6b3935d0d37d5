//! The live screen.
//!
//! [`app`] is what the screen is set to and what a key does to it, [`view`] what is drawn,
//! `widget` the parts it is drawn from; all of them are values in, values out.

pub mod app;
pub mod key;
pub mod theme;
pub mod units;
pub mod view;

mod widget;
