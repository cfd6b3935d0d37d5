//! From the bytes that a terminal sends to the keys that [`super::app::App`] knows. Pure.
//!
//! crossterm's reader would do this as well, but can't be used here (`input.rs` says why), and
//! its parser can't be had without it. These are the few keys of this screen as xterm, screen,
//! the Linux console and rxvt send them; everything else is recognised in order to be ignored.

/// A key, whatever the terminal sent for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those on the keyboard")]
pub enum Key {
    Char(char),
    Ctrl(char),
    Tab,
    BackTab,
    Esc,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

const ESC: u8 = 0x1b;

/// The keys at the front of `bytes`, and how many bytes they took.
///
/// What is left is a sequence that is incomplete. `complete` says that no more will come soon:
/// then an escape on its own is the key, and the rest of it noise.
pub fn decode(bytes: &[u8], complete: bool) -> (Vec<Key>, usize) {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((key, after)) = next(rest) {
        keys.extend(key);
        rest = after;
    }
    if complete && !rest.is_empty() {
        keys.extend((rest == [ESC]).then_some(Key::Esc));
        rest = &[];
    }
    (keys, bytes.len() - rest.len())
}

/// The first key, if it is one of ours, and what follows it; `None` if it is incomplete.
fn next(bytes: &[u8]) -> Option<(Option<Key>, &[u8])> {
    match bytes {
        [] | [ESC] | [ESC, b'O'] => None,
        [ESC, b'[', rest @ ..] => control_sequence(rest),
        [ESC, b'O', end, rest @ ..] => Some((cursor_key(*end), rest)),
        // The escape key, and something after it.
        [ESC, ESC, ..] => Some((Some(Key::Esc), &bytes[1..])),
        // A letter with Alt held.
        [ESC, _, rest @ ..] => Some((None, rest)),
        [byte, rest @ ..] => Some((plain(*byte), rest)),
    }
}

/// Parameters, and one byte that ends them; `ESC [` is behind us.
fn control_sequence(bytes: &[u8]) -> Option<(Option<Key>, &[u8])> {
    let end = bytes.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
    let (parameters, rest) = (&bytes[..end], &bytes[end + 1..]);
    let first = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    let key = match (bytes[end], first) {
        (b'Z', _) => Some(Key::BackTab),
        (b'~', b"1" | b"7") => Some(Key::Home),
        (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        (end, _) => cursor_key(end),
    };
    Some((key, rest))
}

fn cursor_key(end: u8) -> Option<Key> {
    Some(match end {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'H' => Key::Home,
        b'F' => Key::End,
        _ => return None,
    })
}

fn plain(byte: u8) -> Option<Key> {
    match byte {
        b'\t' => Some(Key::Tab),
        b' '..=b'~' => Some(Key::Char(char::from(byte))),
        1..=26 => Some(Key::Ctrl(char::from(b'a' + byte - 1))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys() {
        for (bytes, keys) in [
            (&b"q?"[..], &[Key::Char('q'), Key::Char('?')][..]),
            (b"\x03\x1a\x0c", &[Key::Ctrl('c'), Key::Ctrl('z'), Key::Ctrl('l')]),
            (b"\t\x1b[Z", &[Key::Tab, Key::BackTab]),
            (b"\x1b[A\x1b[B", &[Key::Up, Key::Down]),
            (b"\x1bOA\x1bOB", &[Key::Up, Key::Down]),
            (b"\x1b[1;5A", &[Key::Up]),
            (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
            (b"\x1b[H\x1b[F\x1bOH\x1bOF", &[Key::Home, Key::End, Key::Home, Key::End]),
            (b"\x1b[1~\x1b[4~\x1b[7~\x1b[8~", &[Key::Home, Key::End, Key::Home, Key::End]),
            // Unknown ones leave nothing behind: F5, Alt-q, a left arrow, an umlaut.
            (b"\x1b[15~\x1bq\x1b[D\xc3\xa4", &[]),
            (b"\x1b[15~j", &[Key::Char('j')]),
        ] {
            assert_eq!(decode(bytes, false), (keys.to_vec(), bytes.len()), "{bytes:?}");
        }
    }

    #[test]
    fn a_sequence_in_two_parts_waits_for_the_second() {
        for (bytes, taken) in [(&b"\x1b"[..], 0), (b"\x1b[", 0), (b"\x1b[1;", 0), (b"\x1bO", 0)] {
            assert_eq!(decode(bytes, false), (vec![], taken), "{bytes:?}");
        }
        assert_eq!(decode(b"j\x1b[", false), (vec![Key::Char('j')], 1));
    }

    #[test]
    fn an_escape_is_a_key_once_nothing_follows() {
        assert_eq!(decode(b"\x1b", true), (vec![Key::Esc], 1));
        assert_eq!(decode(b"\x1b\x1b", true), (vec![Key::Esc, Key::Esc], 2));
        assert_eq!(decode(b"\x1b[", true), (vec![], 2));
    }
}
