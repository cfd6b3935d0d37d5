//! Serial ports as plain byte pipes.

use std::fs::{File, OpenOptions};

use anyhow::{Context as _, Result};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// Opens a port so that bytes pass unchanged: no newline translation, no echo, no signals.
pub fn open_raw(path: &str) -> Result<File> {
    let port = open(path)?;
    let mut settings = tcgetattr(&port).with_context(|| format!("cannot read {path}'s modes"))?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings)
        .with_context(|| format!("cannot set {path}'s modes"))?;
    Ok(port)
}

/// Opens a port as the kernel set it up: a terminal with line editing.
pub fn open(path: &str) -> Result<File> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new()
        .read(true)
        .write(true)
        // A session leader must not get a controlling terminal by merely opening a port.
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(path)
        .with_context(|| format!("cannot open {path}; qemu must be given four serial ports"))
}
