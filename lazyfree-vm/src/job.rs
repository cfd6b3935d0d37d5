//! The files of the initramfs that say what the guest is to do.
//!
//! A command line may hold any byte but NUL, and may be longer than a kernel command line, so it
//! travels as a file.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

/// The folder of the initramfs that holds the job.
pub const FOLDER: &str = "job";
/// The command and its arguments, each ended by a NUL.
pub const COMMAND: &str = "job/command";
/// The terminal to give to the command, see [`Terminal`]; absent when it gets pipes.
pub const TERMINAL: &str = "job/terminal";
/// Size of the swap to set up, in MiB, as a decimal number; absent when there is to be none.
pub const SWAP_MIB: &str = "job/swap";
/// Kernel modules (`.ko`, not compressed); their names sort in the order to load them in.
pub const MODULES: &str = "job/modules";

/// Encodes a command line for [`COMMAND`].
///
/// No argument of a process holds a NUL, so none is looked for.
#[must_use]
pub fn encode_command(arguments: &[OsString]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for argument in arguments {
        bytes.extend_from_slice(argument.as_encoded_bytes());
        bytes.push(0);
    }
    bytes
}

/// Decodes what [`encode_command`] wrote.
#[must_use]
pub fn decode_command(bytes: &[u8]) -> Vec<OsString> {
    let Some(bytes) = bytes.strip_suffix(&[0]) else { return Vec::new() };
    bytes.split(|&byte| byte == 0).map(|part| OsString::from_vec(part.to_vec())).collect()
}

/// The host's terminal, as far as a program in the guest needs to know it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Terminal {
    /// Height in characters.
    pub rows: u16,
    /// Width in characters.
    pub columns: u16,
    /// The value of `TERM`.
    pub name: String,
    /// The locale for characters, which says whether the terminal knows UTF-8; may be empty.
    pub locale: String,
}

impl Terminal {
    /// Encodes the terminal for [`TERMINAL`].
    #[must_use]
    pub fn encode(&self) -> String {
        let Self { rows, columns, name, locale } = self;
        format!("{rows} {columns} {name} {locale}")
    }

    /// Decodes what [`Terminal::encode`] wrote.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let mut fields = text.splitn(4, ' ');
        let rows = fields.next()?.parse().ok()?;
        let columns = fields.next()?.parse().ok()?;
        let name = fields.next()?.to_owned();
        let locale = fields.next()?.to_owned();
        Some(Self { rows, columns, name, locale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_keeps_empty_arguments_and_odd_bytes() {
        let command = ["sh", "", "-c", "echo 'a\nb'"].map(OsString::from).to_vec();
        assert_eq!(decode_command(&encode_command(&command)), command);
        let binary = vec![OsString::from_vec(vec![0xff, b' ']), OsString::new()];
        assert_eq!(decode_command(&encode_command(&binary)), binary);
    }

    #[test]
    fn no_command_is_not_one_empty_argument() {
        assert_eq!(encode_command(&[]), b"");
        assert_eq!(decode_command(b""), Vec::<OsString>::new());
        assert_eq!(decode_command(b"\0"), [OsString::new()]);
    }

    #[test]
    fn a_terminal_is_decoded_as_encoded() {
        let terminal = Terminal {
            rows: 24,
            columns: 80,
            name: "xterm-256color".into(),
            locale: "C.UTF-8".into(),
        };
        assert_eq!(terminal.encode(), "24 80 xterm-256color C.UTF-8");
        assert_eq!(Terminal::decode(&terminal.encode()), Some(terminal));
        assert_eq!(Terminal::decode("24 eighty xterm"), None);
        assert_eq!(Terminal::decode("24 80"), None);
    }
}
