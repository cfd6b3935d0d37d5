//! Runs the end-to-end tests in a guest, as root, with `lazyfree` on PATH.
//!
//! One line for each test, `test NAME ... ok|FAILED|skipped: why`, and a sum at the end. Arguments
//! select the tests whose name contains one of them. `--nobody-with CAPABILITIES COMMAND…` is for
//! the tests themselves: it becomes the command, as a user with only these capabilities.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [first, kept, command @ ..] = arguments.as_slice()
        && first == "--nobody-with"
    {
        let failed = lazyfree_vm::privileges::become_nobody_with(&kept.to_string_lossy(), command);
        if let Err(error) = failed {
            eprintln!("error: {error:#}");
        }
        return ExitCode::FAILURE;
    }
    let filters: Vec<_> =
        arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    lazyfree_vm::e2e::run(&filters)
}
