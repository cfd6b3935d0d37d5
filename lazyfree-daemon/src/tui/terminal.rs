//! Takes the terminal over, and gives it back however the screen ends.
//!
//! The guard's drop covers a return and an error, even one half way through setting up; the panic
//! hook covers every thread, and runs before the message is printed, so that it can be read.
//! What has been changed is kept in one atomic: whoever comes first restores, the others find
//! nothing to do.

use std::{
    io, panic,
    sync::{
        Once,
        atomic::{AtomicU8, Ordering},
    },
};

use crossterm::{
    cursor::{Hide, Show},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use tokio::sync::Notify;

static TAKEN: Taken = Taken(AtomicU8::new(0));
static PANICKED: Notify = Notify::const_new();

/// The terminal is ours while this lives.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Raw mode, the alternate screen, no cursor.
    pub fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let next = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if TAKEN.give_back(&mut Crossterm) {
                    PANICKED.notify_one();
                }
                next(info);
            }));
        });
        // From here on a failure drops the guard, which undoes what had succeeded.
        let guard = Self(());
        TAKEN.take(&mut Crossterm)?;
        Ok(guard)
    }

    /// Whether the terminal still is ours: a panic may have given it back.
    pub fn holds(&self) -> bool {
        TAKEN.0.load(Ordering::SeqCst) != 0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TAKEN.give_back(&mut Crossterm);
    }
}

/// Returns when a thread has panicked and the terminal was given back because of it.
pub async fn panicked() {
    PANICKED.notified().await;
}

/// What can be changed about a terminal.
trait Modes {
    fn raw(&mut self, on: bool) -> io::Result<()>;
    fn screen(&mut self, on: bool) -> io::Result<()>;
}

struct Crossterm;

impl Modes for Crossterm {
    fn raw(&mut self, on: bool) -> io::Result<()> {
        if on { enable_raw_mode() } else { disable_raw_mode() }
    }

    fn screen(&mut self, on: bool) -> io::Result<()> {
        // Standard output without its lock: a thread that panics may be holding it.
        let mut out = Unlocked;
        if on {
            execute!(out, EnterAlternateScreen, Hide)
        } else {
            execute!(out, LeaveAlternateScreen, Show)
        }
    }
}

/// Standard output, neither locked nor buffered.
struct Unlocked;

impl io::Write for Unlocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Which of the modes are on and have to be turned off again.
struct Taken(AtomicU8);

impl Taken {
    const RAW: u8 = 1;
    const SCREEN: u8 = 2;

    /// Turns everything on, or fails with the rest of it marked for [`Self::give_back`].
    fn take(&self, modes: &mut impl Modes) -> io::Result<()> {
        // Marked first: a mode that failed half way has to be turned off as well.
        self.0.fetch_or(Self::RAW, Ordering::SeqCst);
        modes.raw(true)?;
        self.0.fetch_or(Self::SCREEN, Ordering::SeqCst);
        modes.screen(true)
    }

    /// Turns off what is on, and says whether anything was. Errors can't be helped any more.
    fn give_back(&self, modes: &mut impl Modes) -> bool {
        let taken = self.0.swap(0, Ordering::SeqCst);
        if taken & Self::SCREEN != 0 {
            let _ = modes.screen(false);
        }
        if taken & Self::RAW != 0 {
            let _ = modes.raw(false);
        }
        taken != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers what it was told, and can be made to fail.
    #[derive(Default)]
    struct Told {
        log: Vec<&'static str>,
        no_screen: bool,
    }

    impl Modes for Told {
        fn raw(&mut self, on: bool) -> io::Result<()> {
            self.log.push(if on { "raw" } else { "cooked" });
            Ok(())
        }

        fn screen(&mut self, on: bool) -> io::Result<()> {
            self.log.push(if on { "enter" } else { "leave" });
            if on && self.no_screen { Err(io::Error::other("gone")) } else { Ok(()) }
        }
    }

    #[test]
    fn what_was_taken_is_given_back_once_in_reverse() {
        let (taken, mut modes) = (Taken(AtomicU8::new(0)), Told::default());
        taken.take(&mut modes).unwrap();
        assert!(taken.give_back(&mut modes));
        assert!(!taken.give_back(&mut modes));
        assert_eq!(modes.log, ["raw", "enter", "leave", "cooked"]);
    }

    #[test]
    fn a_failure_half_way_leaves_nothing_behind() {
        let (taken, mut modes) =
            (Taken(AtomicU8::new(0)), Told { no_screen: true, ..Told::default() });
        taken.take(&mut modes).unwrap_err();
        assert!(taken.give_back(&mut modes));
        assert_eq!(modes.log, ["raw", "enter", "leave", "cooked"]);
    }

    #[test]
    fn a_terminal_that_was_never_taken_is_left_alone() {
        let (taken, mut modes) = (Taken(AtomicU8::new(0)), Told::default());
        assert!(!taken.give_back(&mut modes));
        assert!(modes.log.is_empty());
    }
}
