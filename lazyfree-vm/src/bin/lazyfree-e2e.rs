//! Runs the end-to-end tests in a guest, as root, with `lazyfree` on PATH.
//!
//! One line for each test, `test NAME ... ok|FAILED|skipped: why`, and a sum at the end. Arguments
//! select the tests whose name contains one of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let filters: Vec<_> = std::env::args().skip(1).collect();
    lazyfree_vm::e2e::run(&filters)
}
