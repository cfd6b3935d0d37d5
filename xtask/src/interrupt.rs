//! What happens when the run is interrupted: a running guest is told, so that it is ended, its
//! files are removed and the terminal is given back; without one the process just ends.

use std::{
    process,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

type Handler = Box<dyn Fn(i32) + Send>;

static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);

/// Takes over the signals that end a program.
pub fn install() -> Result<()> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot take over signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            match &*HANDLER.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(handler) => handler(signal),
                None => process::exit(128 + signal),
            }
        }
    });
    Ok(())
}

/// Calls `handler` with the signal's number instead of ending the process, until dropped.
pub fn on_signal(handler: impl Fn(i32) + Send + 'static) -> Interception {
    set(Some(Box::new(handler)));
    Interception(())
}

/// See [`on_signal`].
#[must_use]
pub struct Interception(());

impl Drop for Interception {
    fn drop(&mut self) {
        set(None);
    }
}

fn set(handler: Option<Handler>) {
    *HANDLER.lock().unwrap_or_else(PoisonError::into_inner) = handler;
}
