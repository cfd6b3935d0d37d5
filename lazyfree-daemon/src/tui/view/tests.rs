//! Every view as it appears, at the sizes that matter.

use insta::assert_snapshot;
use lazyfree_common::{
    Counter, Family, Reclaimer,
    counter::{PerFamily, SLOTS},
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    style::{Color, Modifier},
};

use super::*;
use crate::{
    model::fixture::{Batch, Host},
    signal::Signal,
    tui::key::Key,
};

struct Shot {
    app: App,
    ascii: bool,
    colour: bool,
}

impl Shot {
    /// A screen after some keys.
    fn after(keys: &str) -> Self {
        let mut app = App::default();
        for key in keys.chars() {
            app.on_key(Key::Char(key));
        }
        Self { app, ascii: false, colour: true }
    }

    fn take(&mut self, size: (u16, u16), snapshot: Option<&Snapshot>) -> TestBackend {
        let theme = Theme::new(self.colour, self.ascii);
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal
            .draw(|frame| {
                let extent = draw(frame, frame.area(), &self.app, snapshot, &theme);
                self.app.on_drawn(extent);
            })
            .unwrap();
        terminal.backend().clone()
    }
}

fn shot(keys: &str, size: (u16, u16), snapshot: &Snapshot) -> TestBackend {
    Shot::after(keys).take(size, Some(snapshot))
}

/// Style of the cell where `text` begins.
fn style_of(backend: &TestBackend, text: &str) -> (Color, Modifier) {
    let buffer = backend.buffer();
    for y in 0..buffer.area.height {
        let row: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        if let Some(at) = row.find(text) {
            let cell = &buffer[(row[..at].chars().count() as u16, y)];
            return (cell.fg, cell.modifier);
        }
    }
    panic!("{text:?} isn't on the screen:\n{backend}");
}

fn busy() -> Snapshot {
    Host::new().busy(125).1
}

#[test]
fn overview() {
    let snapshot = busy();
    assert_snapshot!("overview_80x24", shot("", (80, 24), &snapshot));
    assert_snapshot!("overview_80x48", shot("", (80, 48), &snapshot));
    assert_snapshot!("overview_120x40", shot("", (120, 40), &snapshot));
    assert_snapshot!("overview_200x60", shot("", (200, 60), &snapshot));
    assert_snapshot!("overview_40x10", shot("", (40, 10), &snapshot));
    assert_snapshot!("overview_12x5", shot("", (12, 5), &snapshot));
}

#[test]
fn other_views() {
    let snapshot = busy();
    assert_snapshot!("doctor_80x24", shot("2", (80, 24), &snapshot));
    assert_snapshot!("doctor_40x10", shot("2", (40, 10), &snapshot));
    assert_snapshot!("failures_80x24", shot("3", (80, 24), &snapshot));
    assert_snapshot!("failures_40x10", shot("3", (40, 10), &snapshot));
    assert_snapshot!("processes_80x24", shot("4", (80, 24), &snapshot));
    assert_snapshot!("processes_40x10", shot("4", (40, 10), &snapshot));
    assert_snapshot!("help_80x24", shot("?", (80, 24), &snapshot));
    assert_snapshot!("help_40x10", shot("?", (40, 10), &snapshot));
}

#[test]
fn without_data() {
    let mut shot = Shot::after("");
    assert_snapshot!("waiting_80x24", shot.take((80, 24), None));
    assert_snapshot!("waiting_40x10", shot.take((40, 10), None));
    shot.app.on_feed(Feed::Ended);
    assert_snapshot!("ended_before_the_first_80x24", shot.take((80, 24), None));
    // Attached a moment ago: everything is observed, and nothing has happened.
    let idle = Host::new().advance(1);
    for (name, keys) in [("overview", ""), ("doctor", "2"), ("failures", "3"), ("processes", "4")] {
        assert_snapshot!(format!("idle_{name}_80x24"), self::shot(keys, (80, 24), &idle));
    }
}

#[test]
fn without_probes() {
    let mut host = Host::in_procfs_mode();
    host.cgroup("/system.slice/postgresql.service", 4_000, 0);
    host.advance(1);
    host.vmstat("pglazyfree", 12_800);
    host.vmstat("pglazyfreed", 2_560);
    host.process_of_procfs(2211, "postgres", 40_960, 1_310_720);
    host.process_of_procfs(40_172, "node", 2_048, 262_144);
    host.sample.cgroups[0].pglazyfree += 12_000;
    let snapshot = host.advance(1);
    assert_snapshot!("procfs_overview_80x24", shot("", (80, 24), &snapshot));
    assert_snapshot!("procfs_overview_80x48", shot("", (80, 48), &snapshot));
    assert_snapshot!("procfs_overview_200x60", shot("", (200, 60), &snapshot));
    assert_snapshot!("procfs_doctor_80x48", shot("2", (80, 48), &snapshot));
    assert_snapshot!("procfs_failures_80x24", shot("3", (80, 24), &snapshot));
    assert_snapshot!("procfs_processes_80x24", shot("4", (80, 24), &snapshot));

    host.sample.processes.clear();
    host.sample.cgroups.clear();
    host.sample.pressure = None;
    assert_snapshot!("nothing_processes_80x24", shot("4", (80, 24), &host.advance(1)));
}

#[test]
fn with_tracepoints_only() {
    let (_, snapshot) = Host::in_tracepoint_mode().busy(125);
    assert_snapshot!("tracepoint_overview_80x24", shot("", (80, 24), &snapshot));
    assert_snapshot!("tracepoint_overview_80x48", shot("", (80, 48), &snapshot));
    assert_snapshot!("tracepoint_doctor_80x78", shot("2", (80, 78), &snapshot));
    assert_snapshot!("tracepoint_40x10", shot("", (40, 10), &snapshot));
    assert_snapshot!("tracepoint_processes_80x24", shot("4", (80, 24), &snapshot));
}

#[test]
fn the_mode_is_on_every_screen_and_says_when_it_is_degraded() {
    for (host, mode, degraded) in [
        (Host::new(), "fentry", false),
        (Host::in_tracepoint_mode(), "tracepoint", true),
        (Host::in_procfs_mode(), "procfs", true),
    ] {
        let mut host = host;
        let snapshot = host.advance(1);
        for keys in ["", "2", "3", "4", "?"] {
            for size in [(36, 6), (40, 10), (80, 24), (200, 60)] {
                let screen = shot(keys, size, &snapshot);
                let first = screen.to_string().lines().next().unwrap().to_owned();
                assert!(first.contains(mode), "{first}");
                assert_eq!(first.contains("degraded"), degraded, "{first}");
            }
        }
    }
}

#[test]
fn more_processes_than_the_kernel_side_has_room_for() {
    let mut host = Host::new();
    host.advance(1);
    for tgid in 1..=40 {
        host.process(tgid, "worker", 1, 512);
    }
    host.count(Counter::OtherCalls, 7);
    host.count(Counter::OtherAdvisedPages, 3_584);
    let snapshot = host.advance(1);
    let mut shot = Shot::after("4");
    shot.take((80, 24), Some(&snapshot));
    shot.app.on_key(Key::End);
    let screen = shot.take((80, 24), Some(&snapshot)).to_string();
    let others = screen.lines().find(|line| line.contains(" others ")).unwrap();
    assert!(others.contains(" 7   14.0 MiB"), "{others}");
}

#[test]
fn with_some_signals_unobserved() {
    let mut host = Host::new();
    for signal in [Signal::CompactionScanned, Signal::CompactionIsolated, Signal::CompactionPinned]
    {
        host.unobserve(signal, "isolate_migratepages_block was inlined into its caller");
    }
    host.sample.hooks.retain(|hook| hook.symbol != "isolate_migratepages_block");
    host.unobserve(Signal::ReclaimPinned, "the layout of struct folio is unknown");
    let (_, snapshot) = host.busy(30);
    assert_snapshot!("some_unobserved_80x48", shot("", (80, 48), &snapshot));
}

#[test]
fn with_losses_and_residuals() {
    let (mut host, _) = Host::new().busy(30);
    host.sample.in_flight = vec![2, 1, 0];
    host.vmstat("pglazyfree", 3);
    host.sample.counters.bump(PerFamily::ReturnsLost, Family::Reclaim, 2);
    host.count(Counter::EventsDropped, 1_234);
    host.sample.hooks[3].misses = Some(5);
    host.sample.mem_free_kb = host.sample.min_free_kb;
    let snapshot = host.advance(1);
    assert_snapshot!("losses_overview_80x24", shot("", (80, 24), &snapshot));
    assert_snapshot!("losses_overview_40x10", shot("", (40, 10), &snapshot));
    assert_snapshot!("losses_overview_120x40", shot("", (120, 40), &snapshot));
    assert_snapshot!("losses_doctor_80x48", shot("2", (80, 48), &snapshot));

    let alarm = (Color::Red, Modifier::BOLD);
    let screen = shot("", (120, 40), &snapshot);
    for text in ["lost 2", "missed 5", "dropped 1,234", "free 44.0 MiB"] {
        assert_eq!(style_of(&screen, text), alarm, "{text}");
    }
    // Calls in flight may explain it.
    assert_eq!(style_of(&screen, "marked -3").0, Color::Magenta);
    host.sample.in_flight = vec![0; 3];
    assert_eq!(style_of(&shot("", (120, 40), &host.advance(1)), "marked -3"), alarm);
}

#[test]
fn with_an_audit() {
    let mut host = Host::new();
    host.sample.hooks[0].symbol = "try_to_unmap".to_owned();
    host.advance(1);
    host.reclaim(Reclaimer::Direct, Batch { hit: 20, redirtied: 3, pinned: 2, kept: 1 });
    host.count(Counter::AuditAttemptPages, 26);
    host.count(Counter::AuditHitPages, 20);
    host.count(Counter::AuditRedirtiedPages, 4);
    host.count(Counter::AuditPinnedPages, 1);
    host.count(Counter::AuditKeptPages, 1);
    assert_snapshot!("audit_doctor_80x48", shot("2", (80, 48), &host.advance(1)));
}

#[test]
fn with_large_numbers() {
    let mut host = Host::new();
    "a-very-long-name-of-a-node.region-7.example.org".clone_into(&mut host.session.host);
    host.advance(1);
    for slot in 0..SLOTS {
        host.sample.counters.bump_slot(slot, 3_000_000_000_000);
    }
    host.vmstat("pglazyfree", 3_000_000_000_000);
    host.sample.durations[1].buckets[39] = 7;
    host.sample.mem_total_kb = 6 << 30;
    host.sample.swap_used_kb = 1 << 30;
    let snapshot = host.advance(1_000_000);
    assert_snapshot!("large_80x48", shot("", (80, 48), &snapshot));
    assert_snapshot!("large_pages_80x48", shot("u", (80, 48), &snapshot));
}

#[test]
fn freed_more_than_marked() {
    let mut host = Host::new();
    host.advance(1);
    host.mark(10);
    host.reclaim(Reclaimer::Kswapd, Batch { hit: 64, ..Batch::default() });
    let screen = shot("", (80, 24), &host.advance(1));
    assert!(screen.to_string().contains("more than was marked since the start"), "{screen}");
}

#[test]
fn ascii_and_states() {
    let snapshot = busy();
    let mut ascii = Shot { ascii: true, colour: false, ..Shot::after("pu") };
    let screen = ascii.take((80, 48), Some(&snapshot));
    assert!(screen.to_string().is_ascii());
    assert_snapshot!("ascii_paused_pages_80x48", screen);

    let mut shot = Shot::after("");
    shot.app.on_feed(Feed::Silent(12));
    let late = shot.take((80, 24), Some(&snapshot));
    assert_eq!(style_of(&late, "no sample for 12 s"), (Color::Red, Modifier::BOLD));
    shot.app.on_feed(Feed::Ended);
    style_of(&shot.take((80, 24), Some(&snapshot)), "ENDED");
}

#[test]
fn without_colours_no_cell_has_one() {
    let (mut host, _) = Host::new().busy(30);
    host.count(Counter::EventsDropped, 1);
    let mut shot = Shot { colour: false, ..Shot::after("") };
    let screen = shot.take((200, 60), Some(&host.advance(1)));
    for cell in screen.buffer().content() {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
    }
    assert_eq!(style_of(&screen, "dropped 1").1, Modifier::REVERSED);
}

#[test]
fn no_size_and_no_place_of_the_page_panics() {
    let (busy, idle) = (busy(), Host::in_procfs_mode().advance(1));
    let (_, traced) = Host::in_tracepoint_mode().busy(20);
    for snapshot in [&busy, &idle, &traced] {
        for keys in ["", "2", "3", "4", "?"] {
            for width in [0, 1, 12, 35, 36, 40, 57, 79, 80, 100, 175, 230] {
                for height in [0, 1, 5, 6, 7, 10, 19, 24, 36, 80] {
                    let mut shot = Shot::after(keys);
                    shot.take((width, height), Some(snapshot));
                    shot.app.on_key(Key::End);
                    shot.take((width, height), Some(snapshot));
                }
            }
        }
    }
}

#[test]
fn the_end_of_a_page_can_be_reached() {
    let snapshot = busy();
    let mut shot = Shot::after("");
    shot.take((80, 24), Some(&snapshot));
    shot.app.on_key(Key::End);
    assert_snapshot!("overview_end_80x24", shot.take((80, 24), Some(&snapshot)));
}

#[test]
fn names_from_elsewhere_cannot_command_the_terminal() {
    let mut host = Host::new();
    "evil\x1b[2J".clone_into(&mut host.session.host);
    host.advance(1);
    let batch = Batch { pinned: 1, ..Batch::default() };
    host.reclaim(Reclaimer::Direct, batch);
    host.fail(Reclaimer::Direct, 1, "a\x1b[31m\tb\n", batch);
    host.process(1, "a\x1b[31m\tb\n", 1, 1);
    host.cgroup("/a\x1b[31m\tb\n", 1, 1);
    let snapshot = host.advance(1);
    for keys in ["3", "4"] {
        let screen = shot(keys, (80, 24), &snapshot);
        for cell in screen.buffer().content() {
            assert!(!cell.symbol().contains(char::is_control), "{:?}", cell.symbol());
        }
        style_of(&screen, "a[31mb");
    }
}
