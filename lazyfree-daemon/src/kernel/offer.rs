//! What a kernel offers, as far as it was asked. Pure: the plan reads nothing else.

use std::collections::BTreeMap;

use super::{
    config::Config, format::Format, privileges::Privileges, release::Release, symbols::Symbols,
    types::Types,
};

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
    /// Whether programs may read kernel memory, or why not.
    pub memory: Result<(), String>,
    /// Whether the multi-generational LRU is on.
    pub mglru: bool,
}
