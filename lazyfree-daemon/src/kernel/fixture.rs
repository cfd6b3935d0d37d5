//! Recorded facts of real kernels, for tests. `tests/fixtures/kernels/README.md` says how they were
//! recorded.

use std::collections::BTreeMap;

use super::{
    config::Config,
    format::Format,
    hook::Hook,
    layout::{Resolved, resolve},
    offer::{Memory, Offer},
    plan::{Outcome, ProbeKind, plan},
    privileges::{Privileges, Tracefs},
    release::Release,
    symbols::{Symbols, wanted},
    types::Types,
};
use crate::{
    sample::{Cause, Refused},
    signal::HookKind,
};

/// Bytes in a page of every recorded kernel.
const PAGE_BYTES: u64 = 4096;

/// A recorded kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// What `uname -r` prints.
    pub uname: &'static str,
    btf: &'static [u8],
    /// Lines of `/proc/kallsyms`.
    pub kallsyms: &'static str,
    /// What tracefs says of the fields of some tracepoints, one text after the other.
    tracepoints: &'static str,
}

macro_rules! recorded {
    ($series:literal, $uname:literal) => {
        Kernel {
            uname: $uname,
            btf: include_bytes!(concat!("../../tests/fixtures/kernels/", $series, ".btf")),
            kallsyms: include_str!(concat!("../../tests/fixtures/kernels/", $series, ".kallsyms")),
            tracepoints: include_str!(concat!(
                "../../tests/fixtures/kernels/",
                $series,
                ".tracepoints"
            )),
        }
    };
}

/// Every recorded kernel, oldest first.
pub const KERNELS: [Kernel; 11] = [
    recorded!("5.10", "5.10.0-46-cloud-amd64"),
    recorded!("6.1", "6.1.0-57-cloud-amd64"),
    recorded!("6.12", "6.12.118+deb13-cloud-amd64"),
    recorded!("6.16", "6.16.12+deb13-cloud-amd64"),
    recorded!("6.17", "6.17.13+deb13-cloud-amd64"),
    recorded!("6.18", "6.18.15+deb13-cloud-amd64"),
    recorded!("6.19", "6.19.14+deb13-cloud-amd64"),
    recorded!("7.0", "7.0.13+deb13-cloud-amd64"),
    recorded!("7.1", "7.1.13+deb13-cloud-amd64"),
    recorded!("7.2", "7.2.12+deb13-cloud-amd64"),
    recorded!("7.3", "7.3.4+deb13-cloud-amd64"),
];

impl Kernel {
    /// The recorded kernel of a series.
    pub fn of(major: u32, minor: u32) -> Self {
        let release = Release::new(major, minor);
        KERNELS.into_iter().find(|kernel| kernel.release() == release).unwrap()
    }

    pub fn release(self) -> Release {
        Release::parse(self.uname).unwrap()
    }

    /// The `format` file of a tracepoint.
    pub fn tracepoint(self, name: &str) -> Option<&'static str> {
        let start = format!("name: {name}\n");
        let from = self.tracepoints.find(&start)?;
        let length = self.tracepoints[from + 1..].find("name: ").map(|next| next + 1);
        Some(&self.tracepoints[from..][..length.unwrap_or(self.tracepoints.len() - from)])
    }

    /// The formats of the tracepoints whose record is read.
    pub fn formats(self) -> BTreeMap<&'static str, Format> {
        let names = ["sys_enter_madvise", "sys_exit_madvise"];
        let format = |name| Some((name, Format::parse(self.tracepoint(name)?).unwrap()));
        names.into_iter().filter_map(format).collect()
    }

    pub fn types(self) -> Types {
        Types::parse(self.btf).unwrap()
    }

    /// The types of a kernel in which some names differ. A pair is a name and its replacement, of
    /// the same length; all are replaced at once, so that a pair and its reverse swap two names.
    pub fn types_with(self, renamed: &[(&str, &str)]) -> Types {
        let mut btf = self.btf.to_vec();
        for (name, replacement) in renamed {
            assert_eq!(name.len(), replacement.len(), "the string table keeps its shape");
            let entry = format!("\0{name}\0");
            let windows = self.btf.windows(entry.len());
            let start = windows.enumerate().find(|(_, window)| *window == entry.as_bytes());
            let start = start.map(|(start, _)| start + 1).expect(name);
            btf[start..start + name.len()].copy_from_slice(replacement.as_bytes());
        }
        Types::parse(&btf).unwrap()
    }

    /// Everything as it was recorded, for a process that may do everything.
    pub fn offer(self) -> Offer {
        Offer {
            release: self.release(),
            types: Ok(self.types()),
            symbols: self.symbols(),
            formats: self.formats(),
            privileges: Privileges {
                tracefs: Tracefs::At("/sys/kernel/tracing".into()),
                ..Privileges::default()
            },
            config: Config::default(),
            memory: Memory::Readable,
            mglru: false,
        }
    }

    /// The symbols that the layout needs.
    pub fn symbols(self) -> Symbols {
        Symbols::pick(self.kallsyms.lines(), &wanted())
    }

    /// The same on a host that hides addresses.
    pub fn hidden_symbols(self) -> Symbols {
        let hidden: Vec<_> = hide(self.kallsyms).collect();
        Symbols::pick(hidden.iter().map(String::as_str), &wanted())
    }

    /// What the probes need, as it was recorded.
    pub fn resolved(self) -> Resolved {
        resolve(&self.offer(), PAGE_BYTES)
    }

    /// The same with other types or symbols.
    pub fn resolved_with(self, types: Types, symbols: Symbols) -> Resolved {
        resolve(&Offer { types: Ok(types), symbols, ..self.offer() }, PAGE_BYTES)
    }
}

/// What comes of a hook where the kernel refuses these kinds.
pub fn refusing(
    kinds: &[HookKind],
    hook: Hook,
    offer: &Offer,
    wanted: Option<ProbeKind>,
) -> Outcome {
    plan(hook, offer, wanted).carry_out(|candidate| {
        if !kinds.contains(&candidate.entry) {
            return Ok(());
        }
        Err(Box::new(Refused {
            kind: candidate.entry,
            symbol: candidate.symbol.to_owned(),
            cause: Cause::Refused,
            reason: "this host refuses".to_owned(),
            fix: "another host".to_owned(),
            verifier_log: String::new(),
        }))
    })
}

/// Lines of kallsyms as a host shows them that hides addresses.
pub fn hide(kallsyms: &str) -> impl Iterator<Item = String> {
    kallsyms.lines().map(|line| format!("{:016x}{}", 0, &line[16..]))
}

/// A value that changed over time: what it was in 5.10, and what it became with which release. As
/// in a table of changes, each row holds until the next.
pub fn since<T: Copy>(release: Release, first: T, changes: &[((u32, u32), T)]) -> T {
    let made = |((major, minor), _): &&((u32, u32), T)| Release::new(*major, *minor) <= release;
    changes.iter().rfind(made).map_or(first, |(_, value)| *value)
}
