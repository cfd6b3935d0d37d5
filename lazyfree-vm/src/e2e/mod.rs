//! The end-to-end tests: the real `lazyfree` on a real kernel, as a user runs it.
//!
//! They run in a guest, as root. What is expected comes from the workloads, which know what they
//! did, from `/proc/vmstat` or from the kernel's page flags, never from lazyfree itself.

mod bpf;
mod daemon;
mod degraded;
mod errors;
mod pressure;
mod screen;
mod stalls;
mod stat;
mod storm;
mod workloads;

use std::{process::ExitCode, time::Instant};

use anyhow::Result;

use crate::{family::Family, process};

/// What came of a test that did not fail.
pub enum Outcome {
    /// Everything held.
    Passed,
    /// This kernel can't show it; the text says which fact of the kernel is in the way.
    Skipped(String),
}

/// One test.
struct Case {
    name: String,
    run: Box<dyn Fn() -> Result<Outcome>>,
}

impl Case {
    fn new(name: impl Into<String>, run: impl Fn() -> Result<Outcome> + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// The same test through each kind of probe.
    fn for_each_family(name: &str, run: fn(Family) -> Result<Outcome>) -> Vec<Self> {
        Family::ALL
            .iter()
            .map(|&family| Self::new(format!("{name}[{}]", family.name()), move || run(family)))
            .collect()
    }
}

/// Runs every test whose name contains one of `filters`, or all of them.
pub fn run(filters: &[String]) -> ExitCode {
    let cases = [
        workloads::cases(),
        pressure::cases(),
        daemon::cases(),
        storm::cases(),
        errors::cases(),
        screen::cases(),
        stalls::cases(),
        degraded::cases(),
        degraded::last_cases(),
    ];
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for Case { name, run } in cases.into_iter().flatten() {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter)) {
            continue;
        }
        let start = Instant::now();
        match run() {
            Ok(Outcome::Passed) => {
                passed += 1;
                println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
            }
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                println!("test {name} ... skipped: {why}");
            }
            Err(error) => {
                failed += 1;
                println!("test {name} ... FAILED: {error:#}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
