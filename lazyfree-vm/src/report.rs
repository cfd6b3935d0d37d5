//! The lines `init` writes to [`port::REPORT`](crate::port::REPORT).

use std::fmt;

/// One line of the report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Report {
    /// The guest is up and the command is about to start.
    Ready,
    /// The command ended, and everything it wrote has left the guest.
    Exit(Exit),
    /// The guest could not do what it was asked to; the text says why.
    Failed(String),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exit {
    /// The status a shell would show: 128 and the signal's number for a killed command.
    pub status: u8,
    /// Bytes the command wrote to its standard output, or to its terminal. The host has all of the
    /// output when it has as many.
    pub output_bytes: u64,
    /// Bytes the command wrote to its standard error, as for `output_bytes`.
    pub error_bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Exit(Exit { status, output_bytes, error_bytes }) => {
                write!(f, "exit {status} {output_bytes} {error_bytes}")
            }
            // One report is one line.
            Self::Failed(reason) => write!(f, "failed {}", reason.replace('\n', "; ")),
        }
    }
}

impl Report {
    /// Reads one line, without its newline.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ready" if rest.is_empty() => Some(Self::Ready),
            "exit" => {
                let mut fields = rest.split(' ');
                let exit = Exit {
                    status: fields.next()?.parse().ok()?,
                    output_bytes: fields.next()?.parse().ok()?,
                    error_bytes: fields.next()?.parse().ok()?,
                };
                fields.next().is_none().then_some(Self::Exit(exit))
            }
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_is_one_line_and_parses_back() {
        let exit = Exit { status: 137, output_bytes: 5_000_000_000, error_bytes: 0 };
        for report in [Report::Ready, Report::Exit(exit), Report::Failed("no /proc".into())] {
            let line = report.to_string();
            assert!(!line.contains('\n'));
            assert_eq!(Report::parse(&line), Some(report));
        }
        assert_eq!(Report::Failed("a\nb".into()).to_string(), "failed a; b");
    }

    #[test]
    fn a_torn_line_is_no_report() {
        for line in ["", "read", "exit", "exit 256 0 0", "exit 0 0", "exit 0 0 0 0"] {
            assert_eq!(Report::parse(line), None, "{line:?}");
        }
    }
}
