//! What a kernel offers, as far as it was asked. Pure: the plan reads nothing else.

use std::collections::BTreeMap;

use super::{
    config::Config, format::Format, privileges::Privileges, release::Release, symbols::Symbols,
    types::Types,
};

/// Whether programs may read kernel memory. A kernel tells only when a program that does is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// No program was loaded to find out; the plan supposes that it may be read.
    Untried,
    /// Such a program was loaded.
    Readable,
    /// It was refused.
    Closed {
        /// Why.
        why: String,
        /// What to do about it; empty where that isn't known.
        fix: &'static str,
    },
}

impl Memory {
    /// Whether the plan may count on it.
    pub fn may_be_read(&self) -> bool {
        !matches!(self, Memory::Closed { .. })
    }
}

/// What a kernel offers to this process.
pub struct Offer {
    /// Its release.
    pub release: Release,
    /// Its type information, or why there is none.
    pub types: Result<Types, String>,
    /// Its symbol table, as far as it shows one.
    pub symbols: Symbols,
    /// Formats of the tracepoints whose record is read, by name.
    pub formats: BTreeMap<&'static str, Format>,
    /// What this process may do.
    pub privileges: Privileges,
    /// How it was built, as far as it tells.
    pub config: Config,
    /// Whether programs may read kernel memory.
    pub memory: Memory,
    /// Whether the multi-generational LRU is on.
    pub mglru: bool,
}
