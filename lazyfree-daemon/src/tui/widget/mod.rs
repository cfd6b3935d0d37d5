//! Parts that know nothing of what they show: text in, lines out.

pub mod grid;
pub mod sparkline;
pub mod stacked_bar;
pub mod text;
