//! Where samples come from. Live or from a daemon's socket, they take one path from here on.

mod live;
pub mod socket;

use std::sync::Arc;

pub use live::{Live, LiveOptions};

use crate::sample::{Sample, Session};

/// A stream of samples of one session.
pub trait Source {
    /// What is observed, and how.
    fn session(&self) -> Arc<Session>;

    /// Waits for the next sample. `None` means that there will be no more.
    fn next(&mut self) -> impl Future<Output = anyhow::Result<Option<Sample>>>;
}
