//! What the screen is set to, and what a key does to it. Pure: no terminal, no clock, no colours.

use super::key::Key;

/// A screenful, chosen by its number or with Tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Signals, ledger, time line, reclaim and calls.
    Overview,
    /// How each number is observed, why not better, and what is attached.
    Doctor,
    /// Reclaim batches that failed, sampled.
    Failures,
    /// Who gives memory back: processes and memory cgroups.
    Processes,
    /// Keys and meanings; it lies over one of the others.
    Help,
}

impl View {
    /// The views that have a number, in order.
    pub const NUMBERED: [View; 4] = [View::Overview, View::Doctor, View::Failures, View::Processes];
    const COUNT: usize = 5;

    /// The neighbour, `step` tabs to the right.
    fn next(self, step: usize) -> Self {
        let tabs = Self::NUMBERED;
        tabs.iter().position(|view| *view == self).map_or(self, |at| tabs[(at + step) % tabs.len()])
    }
}

/// How amounts of memory are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// IEC units of bytes.
    Bytes,
    /// Pages of the kernel's page size.
    Pages,
}

/// How the snapshots are coming in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// As they should.
    Live,
    /// None for this many seconds, though one was due.
    Silent(u64),
    /// There will be no more.
    Ended,
}

/// How much of a view there is, and how much of it fits the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Rows of the whole view.
    pub rows: usize,
    /// Rows that are visible at once.
    pub visible: usize,
}

impl Extent {
    /// The furthest that it makes sense to scroll.
    pub fn last(self) -> usize {
        self.rows.saturating_sub(self.visible)
    }
}

/// What the loop has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The key meant nothing: don't draw.
    None,
    /// Draw.
    Draw,
    /// Draw all of it again, over whatever another program has left on the screen.
    Repaint,
    /// Give the terminal back to the shell until continued.
    Suspend,
    /// Leave.
    Quit,
}

/// Seconds that one column of the time line stands for.
const SPANS: [u64; 4] = [1, 2, 5, 10];

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct App {
    view: View,
    help: bool,
    paused: bool,
    scale: Scale,
    span: usize,
    feed: Feed,
    scroll: [usize; View::COUNT],
    extent: Extent,
}

impl Default for App {
    fn default() -> Self {
        Self {
            view: View::Overview,
            help: false,
            paused: false,
            scale: Scale::Bytes,
            span: 1,
            feed: Feed::Live,
            scroll: [0; View::COUNT],
            extent: Extent::default(),
        }
    }
}

impl App {
    /// Takes in a key.
    pub fn on_key(&mut self, key: Key) -> Action {
        let page = self.extent.visible.saturating_sub(1).max(1);
        match key {
            Key::Char('q') | Key::Ctrl('c') => return Action::Quit,
            Key::Ctrl('z') => return Action::Suspend,
            Key::Ctrl('l') => return Action::Repaint,
            Key::Char('?') => self.help = !self.help,
            Key::Esc if self.help => self.help = false,
            Key::Tab => self.show(self.view.next(1)),
            Key::BackTab => self.show(self.view.next(View::NUMBERED.len() - 1)),
            Key::Char('1') => self.show(View::Overview),
            Key::Char('2' | 'd' | 'h') => self.show(View::Doctor),
            Key::Char('3' | 'f') => self.show(View::Failures),
            Key::Char('4' | 'w') => self.show(View::Processes),
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Char('u') => {
                self.scale = match self.scale {
                    Scale::Bytes => Scale::Pages,
                    Scale::Pages => Scale::Bytes,
                }
            }
            Key::Char('t') => self.span = (self.span + 1) % SPANS.len(),
            Key::Up | Key::Char('k') => return self.scroll_to(self.scroll().saturating_sub(1)),
            Key::Down | Key::Char('j') => return self.scroll_to(self.scroll() + 1),
            Key::PageUp => return self.scroll_to(self.scroll().saturating_sub(page)),
            Key::PageDown => return self.scroll_to(self.scroll() + page),
            Key::Home | Key::Char('g') => return self.scroll_to(0),
            Key::End | Key::Char('G') => return self.scroll_to(usize::MAX),
            _ => return Action::None,
        }
        Action::Draw
    }

    /// Takes in how large the current view turned out when it was drawn.
    pub fn on_drawn(&mut self, extent: Extent) {
        self.extent = extent;
        self.scroll_to(self.scroll());
    }

    /// Takes in how snapshots are coming in.
    pub fn on_feed(&mut self, feed: Feed) {
        self.feed = feed;
    }

    /// The view to draw.
    pub fn view(&self) -> View {
        if self.help { View::Help } else { self.view }
    }

    /// Whether the picture is frozen.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// How amounts of memory are written.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Seconds that one column of the time line stands for.
    pub fn seconds_per_column(&self) -> u64 {
        SPANS[self.span]
    }

    /// How snapshots are coming in.
    pub fn feed(&self) -> Feed {
        self.feed
    }

    /// Rows of the current view that lie above the screen.
    pub fn scroll(&self) -> usize {
        self.scroll[self.view() as usize]
    }

    fn show(&mut self, view: View) {
        self.help = false;
        self.view = view;
    }

    fn scroll_to(&mut self, row: usize) -> Action {
        let row = row.min(self.extent.last());
        let scroll = &mut self.scroll[self.view() as usize];
        if std::mem::replace(scroll, row) == row { Action::None } else { Action::Draw }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_for_the_loop() {
        for (key, action) in [
            (Key::Char('q'), Action::Quit),
            (Key::Ctrl('c'), Action::Quit),
            (Key::Ctrl('z'), Action::Suspend),
            (Key::Ctrl('l'), Action::Repaint),
            (Key::Char('c'), Action::None),
            (Key::Esc, Action::None),
        ] {
            assert_eq!(App::default().on_key(key), action, "{key:?}");
        }
    }

    #[test]
    fn keys_that_choose_a_view() {
        let keys = |keys: &str| {
            let mut app = App::default();
            for key in keys.chars() {
                let key = match key {
                    '>' => Key::Tab,
                    '<' => Key::BackTab,
                    'E' => Key::Esc,
                    other => Key::Char(other),
                };
                assert_eq!(app.on_key(key), Action::Draw, "{key:?}");
            }
            app.view()
        };
        for (pressed, view) in [
            ("", View::Overview),
            ("2", View::Doctor),
            ("h", View::Doctor),
            ("d", View::Doctor),
            ("3", View::Failures),
            ("4", View::Processes),
            ("w", View::Processes),
            ("31", View::Overview),
            (">", View::Doctor),
            (">>>>", View::Overview),
            ("<", View::Processes),
            ("<>", View::Overview),
            ("?", View::Help),
            ("2??", View::Doctor),
            ("2?E", View::Doctor),
            ("2?>", View::Failures),
            ("?3", View::Failures),
        ] {
            assert_eq!(keys(pressed), view, "{pressed:?}");
        }
    }

    #[test]
    fn keys_that_change_what_is_shown() {
        let mut app = App::default();
        assert_eq!((app.paused(), app.scale(), app.seconds_per_column()), (false, Scale::Bytes, 2));
        for key in ['p', 'u', 't'] {
            assert_eq!(app.on_key(Key::Char(key)), Action::Draw);
        }
        assert_eq!((app.paused(), app.scale(), app.seconds_per_column()), (true, Scale::Pages, 5));
        for key in [' ', 'u', 't', 't', 't'] {
            assert_eq!(app.on_key(Key::Char(key)), Action::Draw);
        }
        assert_eq!((app.paused(), app.scale(), app.seconds_per_column()), (false, Scale::Bytes, 2));
    }

    #[test]
    fn scrolling_stops_at_both_ends() {
        let mut app = App::default();
        app.on_drawn(Extent { rows: 30, visible: 20 });
        for (key, action, row) in [
            (Key::Up, Action::None, 0),
            (Key::Down, Action::Draw, 1),
            (Key::Char('j'), Action::Draw, 2),
            (Key::PageDown, Action::Draw, 10),
            (Key::Down, Action::None, 10),
            (Key::Char('k'), Action::Draw, 9),
            (Key::PageUp, Action::Draw, 0),
            (Key::End, Action::Draw, 10),
            (Key::Home, Action::Draw, 0),
        ] {
            assert_eq!((app.on_key(key), app.scroll()), (action, row), "{key:?}");
        }
    }

    #[test]
    fn each_view_keeps_its_place_and_a_larger_screen_pulls_it_back() {
        let mut app = App::default();
        app.on_drawn(Extent { rows: 30, visible: 20 });
        app.on_key(Key::End);
        app.on_key(Key::Char('2'));
        assert_eq!(app.scroll(), 0);
        app.on_drawn(Extent { rows: 5, visible: 20 });
        app.on_key(Key::Char('1'));
        assert_eq!(app.scroll(), 10);
        app.on_drawn(Extent { rows: 30, visible: 28 });
        assert_eq!(app.scroll(), 2);
    }

    #[test]
    fn a_screen_that_was_never_drawn_does_not_scroll() {
        let mut app = App::default();
        assert_eq!(app.on_key(Key::PageDown), Action::None);
        assert_eq!(app.scroll(), 0);
    }
}
