//! The terminal xtask runs in, lent to the guest.

use std::{
    env,
    io::{self, IsTerminal as _, Stdin},
};

use anyhow::{Context as _, Result};
use lazyfree_vm::job::Terminal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal, if a person sits at both ends: input and output.
pub fn of_this_process() -> Option<Terminal> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return None;
    }
    let size = tcgetwinsize(io::stdout()).ok()?;
    // A terminal that does not know its size says 0.
    let or = |size: u16, usual: u16| if size == 0 { usual } else { size };
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    Some(Terminal {
        rows: or(size.ws_row, 24),
        columns: or(size.ws_col, 80),
        name: env::var("TERM").unwrap_or_else(|_| "xterm".to_owned()),
        locale: set("LC_ALL").or(set("LC_CTYPE")).or(set("LANG")).unwrap_or_default(),
    })
}

/// Passes every key to the guest while it exists; then the terminal is as it was.
pub struct RawMode {
    stdin: Stdin,
    before: Termios,
}

impl RawMode {
    /// Takes the terminal on standard input.
    pub fn enter() -> Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).context("cannot read the terminal's modes")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).context("cannot set the terminal's modes")?;
        Ok(Self { stdin, before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(&self.stdin, OptionalActions::Now, &self.before) {
            eprintln!("xtask: cannot restore the terminal ({error}); `stty sane` does");
        }
    }
}
