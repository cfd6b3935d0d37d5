//! `lazyfree top` on a terminal of its own.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

use super::{Case, Outcome, process::lazyfree};

pub fn cases() -> Vec<Case> {
    let leave = |name: &str, how: fn(&mut Screen) -> Result<()>| {
        Case::new(format!("screen_{name}"), move || shown_and_left(how))
    };
    vec![
        leave("q", |screen| screen.press(b"q")),
        leave("ctrl_c", |screen| screen.press(b"\x03")),
        leave("sigterm", |screen| screen.signal(Signal::TERM)),
    ]
}

/// What it takes the program to answer in the guest.
const LIMIT: Duration = Duration::from_secs(60);

struct Screen {
    child: Child,
    keyboard: File,
    output: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    terminal: File,
    before: Termios,
}

impl Screen {
    fn start() -> Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        // It is to be the program's terminal, not ours.
        let terminal = File::from(open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?);
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size)?;
        let before = tcgetattr(&terminal)?;
        let stream = || Ok::<_, std::io::Error>(Stdio::from(terminal.try_clone()?));
        let mut command = lazyfree(["top", "--local"]);
        command.env("TERM", "xterm").stdin(stream()?).stdout(stream()?).stderr(stream()?);
        // SAFETY: both calls are system calls and nothing else, as is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                ioctl_tiocsctty(std::io::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().context("cannot start lazyfree top")?;
        let keyboard = File::from(ours);
        let mut reader = keyboard.try_clone()?;
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, keyboard, output, seen: Vec::new(), terminal, before })
    }

    /// Waits until the program has written `text`.
    fn wait_for(&mut self, text: &str) -> Result<()> {
        let until = Instant::now() + LIMIT;
        while !String::from_utf8_lossy(&self.seen).contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(_) => bail!("no `{text}` in {:?}", String::from_utf8_lossy(&self.seen)),
            }
        }
        Ok(())
    }

    fn press(&mut self, keys: &[u8]) -> Result<()> {
        Ok(self.keyboard.write_all(keys)?)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The screen shows the signals, and the terminal is as it was afterwards.
fn shown_and_left(leave: fn(&mut Screen) -> Result<()>) -> Result<Outcome> {
    const ENTER_ALTERNATE_SCREEN: &str = "\x1b[?1049h";
    const LEAVE_ALTERNATE_SCREEN: &str = "\x1b[?1049l";
    let mut screen = Screen::start()?;
    screen.wait_for(ENTER_ALTERNATE_SCREEN)?;
    // The last row of the table of signals.
    screen.wait_for("fexit:isolate_migratepages_block")?;
    leave(&mut screen)?;
    screen.wait_for(LEAVE_ALTERNATE_SCREEN)?;
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = screen.child.try_wait()? {
            break status;
        }
        ensure!(Instant::now() < until, "it does not end");
        thread::sleep(Duration::from_millis(50));
    };
    ensure!(status.success(), "{status}");
    let (before, after) = (&screen.before, tcgetattr(&screen.terminal)?);
    let modes = |t: &Termios| (t.input_modes, t.output_modes, t.local_modes, t.control_modes);
    ensure!(modes(before) == modes(&after), "{before:?} became {after:?}");
    Ok(Outcome::Passed)
}
