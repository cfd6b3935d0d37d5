//! The end-to-end tests: they run in a guest, as root, with `lazyfree` on PATH.
//!
//! One line for each test, `test NAME ... ok|FAILED|skipped: why`, and a sum at the end.

use std::process::{Command, ExitCode};

enum Outcome {
    Passed,
    Failed(String),
}

type Case = (&'static str, fn() -> Outcome);

const CASES: &[Case] = &[("version", version)];

fn main() -> ExitCode {
    let mut passed = 0;
    let mut failed = 0;
    for (name, case) in CASES {
        match case() {
            Outcome::Passed => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Outcome::Failed(reason) => {
                failed += 1;
                println!("test {name} ... FAILED: {reason}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The binary starts in a guest that has nothing else: it is static.
fn version() -> Outcome {
    match Command::new("lazyfree").arg("--version").output() {
        Ok(output) if output.status.success() => Outcome::Passed,
        Ok(output) => Outcome::Failed(format!(
            "lazyfree --version: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Outcome::Failed(format!("cannot run lazyfree: {error}")),
    }
}
