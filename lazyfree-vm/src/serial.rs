//! Serial ports as plain byte pipes.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
};

use anyhow::{Context as _, Result};
use rustix::{
    fs::OFlags,
    termios::{OptionalActions, tcgetattr, tcsetattr},
};

/// Opens a port so that bytes pass unchanged: no newline translation, no echo, no signals.
pub fn open_raw(path: &str) -> Result<File> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        // The first process must not get a controlling terminal by merely opening a port.
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(path)
        .with_context(|| format!("cannot open {path}; qemu must be given four serial ports"))?;
    let mut settings = tcgetattr(&port).with_context(|| format!("cannot read {path}'s modes"))?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings)
        .with_context(|| format!("cannot set {path}'s modes"))?;
    Ok(port)
}
