//! The live screen.
//!
//! [`app`] is what the screen is set to and what a key does to it, [`view`] what is drawn,
//! `widget` the parts it is drawn from; all of them are values in, values out. The terminal, the
//! thread that reads keys, and the clock are in `terminal`, `input` and the loop here.

pub mod app;
pub mod key;
pub mod theme;
pub mod units;
pub mod view;

mod input;
mod terminal;
mod widget;

use std::{
    io::{self, IsTerminal as _, Stdout},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use ratatui::{Terminal, backend::CrosstermBackend};
use rustix::process::{Signal, kill_current_process_group};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use self::{
    app::{Action, App, Feed},
    input::Input,
    terminal::Guard,
    theme::Theme,
};
use crate::model::Snapshot;

/// How the screen looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Draw with ASCII only.
    pub ascii: bool,
    /// Use colours.
    pub colour: bool,
}

impl Options {
    /// What the environment asks for: `NO_COLOR`, and ASCII where the locale isn't UTF-8 or the
    /// terminal is the Linux console, whose font lacks the bars.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| get(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let utf8 = locale.ends_with("utf-8") || locale.ends_with("utf8");
        let term = set("TERM").unwrap_or_default();
        Self {
            ascii: !utf8 || matches!(term.as_str(), "" | "linux" | "dumb"),
            colour: set("NO_COLOR").is_none(),
        }
    }
}

const PANICKED: &str = "a thread of lazyfree panicked, see above";

/// How late a snapshot has to be before the screen says so, in intervals of the last one.
const LATE: f64 = 3.0;

/// How long the shell may take to continue us where it cannot stop us.
const UNSTOPPED: Duration = Duration::from_millis(100);

/// Shows `snapshots` until somebody quits or `end` is over, and returns what `end` did.
///
/// `end` is where signals and the failure of the source come in: its error is returned once the
/// terminal is restored. When the sender of `snapshots` is dropped, the last one stays. Needs a
/// runtime with I/O and time enabled. While this runs nothing else may write to the terminal.
pub async fn run(
    mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    options: Options,
    end: impl Future<Output = Result<()>>,
) -> Result<()> {
    if !io::stdout().is_terminal() {
        bail!("standard output is not a terminal; `lazyfree stat` prints the same numbers");
    }
    // Dropped last: an error anywhere below is returned to a restored terminal.
    let mut screen = Screen::take(options)?;
    let mut input = Input::start()?;
    let result = show(&mut screen, &mut input, &mut snapshots, end).await;
    input.stop().await;
    result
}

async fn show(
    screen: &mut Screen,
    input: &mut Input,
    snapshots: &mut watch::Receiver<Option<Arc<Snapshot>>>,
    end: impl Future<Output = Result<()>>,
) -> Result<()> {
    let mut resized =
        signal(SignalKind::window_change()).context("cannot watch for changes of the window")?;
    let mut app = App::default();
    let mut shown = None;
    let mut arrived = Instant::now();
    let mut open = true;
    let mut changed = true;
    tokio::pin!(end);
    loop {
        if changed {
            if !app.paused() {
                shown.clone_from(&snapshots.borrow_and_update());
            }
            screen.draw(&mut app, shown.as_deref())?;
        }
        let late = arrived + patience(shown.as_deref(), app.feed());
        changed = tokio::select! {
            // What ends the screen comes before what draws on it.
            biased;
            () = terminal::panicked() => bail!(PANICKED),
            result = &mut end => return result,
            key = input.next() => match app.on_key(key?) {
                Action::Quit => return Ok(()),
                Action::Suspend => {
                    screen.suspend().await?;
                    true
                }
                Action::Repaint => {
                    screen.clear()?;
                    true
                }
                Action::Draw => true,
                Action::None => false,
            },
            next = snapshots.changed(), if open => {
                open = next.is_ok();
                arrived = Instant::now();
                app.on_feed(if open { Feed::Live } else { Feed::Ended });
                !app.paused() || !open
            }
            _ = resized.recv() => true,
            () = sleep_until(late), if open => {
                app.on_feed(Feed::Silent(arrived.elapsed().as_secs()));
                !app.paused()
            }
        };
    }
}

/// How long after the last snapshot to look at the clock: first when one is overdue, then every
/// second, as the screen counts them.
fn patience(shown: Option<&Snapshot>, feed: Feed) -> Duration {
    // Within bounds, as a recording may hold any interval.
    let interval = shown.map_or(1.0, |snapshot| snapshot.interval_seconds.clamp(1.0, 3600.0));
    let due = Duration::from_secs_f64(interval * LATE);
    match feed {
        Feed::Silent(seconds) => due.max(Duration::from_secs(seconds + 1)),
        Feed::Live | Feed::Ended => due,
    }
}

/// The terminal, and how to draw on it.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    theme: Theme,
    // After the others: it is dropped last.
    guard: Option<Guard>,
}

impl Screen {
    fn take(options: Options) -> Result<Self> {
        let guard = Guard::take().context("cannot set up the terminal")?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))
            .context("cannot learn the size of the terminal")?;
        let theme = Theme::new(options.colour, options.ascii);
        let mut screen = Self { terminal, theme, guard: Some(guard) };
        // The Linux console has no other screen: what is there would stay between the cells.
        screen.clear()?;
        Ok(screen)
    }

    fn draw(&mut self, app: &mut App, snapshot: Option<&Snapshot>) -> Result<()> {
        if !self.guard.as_ref().is_some_and(Guard::holds) {
            bail!(PANICKED);
        }
        let mut extent = app::Extent::default();
        self.terminal
            .draw(|frame| extent = view::draw(frame, frame.area(), app, snapshot, &self.theme))
            .context("cannot draw on the terminal")?;
        app.on_drawn(extent);
        Ok(())
    }

    /// Forgets what is on the terminal, so that all of it is drawn again.
    fn clear(&mut self) -> Result<()> {
        // `Terminal::clear` would ask the terminal for the cursor, and the answer would come in
        // among the keys.
        let size = self.terminal.size().context("cannot learn the size of the terminal")?;
        self.terminal.resize(size.into()).context("cannot clear the terminal")
    }

    /// Gives the terminal to the shell, as it expects of Ctrl-Z, and takes it back when continued.
    async fn suspend(&mut self) -> Result<()> {
        let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))
            .context("cannot watch for being continued")?;
        self.guard = None;
        kill_current_process_group(Signal::TSTP).context("cannot stop")?;
        // Another thread may take the signal, some moments later; and a group without a shell
        // above it is not stopped at all.
        let _ = timeout(UNSTOPPED, continued.recv()).await;
        self.guard = Some(Guard::take().context("cannot set up the terminal")?);
        self.clear()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(env: &[(&str, &str)]) -> (bool, bool) {
        let get = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let options = Options::from_env(get);
        (options.ascii, options.colour)
    }

    #[test]
    fn the_environment_decides_on_shapes_and_colours() {
        let xterm = ("TERM", "xterm-256color");
        for (env, ascii, colour) in [
            (&[xterm, ("LANG", "C.UTF-8")][..], false, true),
            (&[xterm, ("LANG", "de_DE.utf8")], false, true),
            (&[xterm, ("LANG", "C")], true, true),
            (&[xterm], true, true),
            // The more specific one counts, unless it is empty.
            (&[xterm, ("LC_ALL", "C"), ("LANG", "C.UTF-8")], true, true),
            (&[xterm, ("LC_ALL", ""), ("LANG", "C.UTF-8")], false, true),
            (&[("TERM", "linux"), ("LANG", "C.UTF-8")], true, true),
            (&[xterm, ("LANG", "C.UTF-8"), ("NO_COLOR", "1")], false, false),
            (&[xterm, ("LANG", "C.UTF-8"), ("NO_COLOR", "")], false, true),
        ] {
            assert_eq!(options(env), (ascii, colour), "{env:?}");
        }
    }
}
