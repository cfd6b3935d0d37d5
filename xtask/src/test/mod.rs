//! `cargo xtask test`: everything that can fail, in the order of what it costs to find out.
//!
//! Nothing stops at the first failure. The last line of standard output is the sum.

mod tally;

use std::{fmt, time::Duration};

use anyhow::Result;

use self::tally::Tally;
use crate::{
    build::{self, Binaries},
    cache::Cache,
    guest::{self, Ended, Interrupted, Job, Machine},
    kernel::{self, Kernel, Series},
    setup, step,
};

/// How long the end-to-end tests may take in one guest; on an idle machine they are done in a
/// fraction of it.
const GUEST_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The guests that each kernel is tested in: everything without swap, and with swap what takes other
/// paths then.
const GUESTS: [Guest; 2] = [
    Guest { swap_mib: None, tests: &[] },
    Guest { swap_mib: Some(256), tests: &["swap[", "redirty[", "pin[", "thp[", "global_pressure"] },
];

#[derive(Clone, Copy)]
struct Guest {
    swap_mib: Option<u32>,
    /// Parts of the names of the tests to run; none for all.
    tests: &'static [&'static str],
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.swap_mib.is_some() { "with swap" } else { "no swap" })
    }
}

/// Run all tests: format, lints, unit tests, and the end-to-end tests in guests
///
/// The last line is the sum: N passed, N failed, N skipped.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// Kernel series to run the end-to-end tests on
    #[arg(long, value_name = "SERIES", value_delimiter = ',', default_values_t = kernel::TESTED)]
    kernels: Vec<Series>,
    /// Leave out the end-to-end tests
    #[arg(long, conflicts_with = "kernels")]
    no_vm: bool,
}

/// Runs the verb; returns the status to exit with.
pub fn run(cache: &Cache, args: &TestArgs) -> Result<u8> {
    let TestArgs { kernels, no_vm } = args;
    let mut tally = Tally::default();
    check(&mut tally, "format", format);
    check(&mut tally, "lints", lints);
    check(&mut tally, "eBPF lints", || ebpf_lints(cache));
    unit_tests(&mut tally);
    if !no_vm {
        end_to_end_tests(cache, kernels, &mut tally)?;
    }
    for failure in &tally.failures {
        println!("\nfailure: {failure}");
    }
    println!("\n{tally}");
    Ok(u8::from(tally.failed > 0))
}

/// Counts a step as one test.
fn check(tally: &mut Tally, name: &str, step: impl FnOnce() -> Result<()>) {
    match step() {
        Ok(()) => {
            tally.passed += 1;
            println!("test {name} ... ok");
        }
        Err(error) => {
            tally.fail(format!("{error:#}"));
            println!("test {name} ... FAILED");
        }
    }
}

fn format() -> Result<()> {
    let mut format = build::cargo();
    format.args(["fmt", "--all", "--check", "--", "--color=never"]);
    step::run("checking the format", format)
}

fn lints() -> Result<()> {
    let mut clippy = build::cargo();
    clippy.args(["clippy", "--all-targets", "--", "--deny", "warnings"]);
    step::run("linting", clippy)
}

fn ebpf_lints(cache: &Cache) -> Result<()> {
    let ebpf = setup::for_build(cache)?;
    let clippy = setup::ebpf_clippy(&ebpf)?;
    step::run("linting the eBPF side", clippy)
}

fn unit_tests(tally: &mut Tally) {
    let mut test = build::cargo();
    test.args(["test", "--no-fail-fast"]);
    let mut results = Tally::default();
    let outcome = step::run_line_by_line("running unit tests", test, |line| {
        println!("{line}");
        results.count_cargo_test(line);
    });
    // A failed test makes cargo fail, too, and is counted already. What is not counted is a
    // failure to build.
    if let Err(error) = outcome
        && results.failed == 0
    {
        results.fail(format!("{error:#}"));
    }
    tally.add("unit tests", results);
}

fn end_to_end_tests(cache: &Cache, wanted: &[Series], tally: &mut Tally) -> Result<()> {
    let ready = setup::for_guests(cache).and_then(|()| build::release(cache));
    let binaries = match ready {
        Ok(binaries) => binaries,
        Err(error) => {
            tally.fail(format!("{error:#}"));
            return Ok(());
        }
    };
    for &series in wanted {
        let kernel = match kernel::ensure(cache, &[series]) {
            Ok(kernels) => kernels,
            Err(error) => {
                tally.fail(format!("{error:#}"));
                continue;
            }
        };
        for (kernel, guest) in kernel.iter().flat_map(|kernel| GUESTS.map(|guest| (kernel, guest)))
        {
            let place = format!("Linux {series}, {guest}");
            println!("\n{place}");
            if guest.swap_mib.is_some() && !kernel.has_zram() {
                println!("test end to end ... skipped: its modules are no longer in the archive");
                tally.skipped += 1;
                continue;
            }
            let results = in_guest(cache, kernel, guest, &binaries)?;
            tally.add(&place, results);
        }
    }
    Ok(())
}

/// Boots a guest and runs the end-to-end tests in it. An error only if the user wants no more.
fn in_guest(cache: &Cache, kernel: &Kernel, guest: Guest, binaries: &Binaries) -> Result<Tally> {
    let job = Job {
        command: [&["lazyfree-e2e"], guest.tests].concat().iter().map(Into::into).collect(),
        files: Vec::new(),
        swap_mib: guest.swap_mib,
        terminal: None,
        limit: Some(GUEST_LIMIT),
    };
    let machine = Machine::default();
    let Ended { status, output } =
        guest::run_and_keep(cache, kernel, &machine, &job, binaries, true);
    let mut results = Tally::of_end_to_end(&output);
    match status {
        Ok(0) if results.failed == 0 => {}
        Ok(0) => results.fail("lazyfree-e2e exits with 0 in spite of a failure".to_owned()),
        Ok(status) if results.failed == 0 => {
            results.fail(format!("lazyfree-e2e ended with status {status}"));
        }
        Ok(_) => {}
        Err(error) if error.is::<Interrupted>() => return Err(error),
        Err(error) => results.fail(format!("{error:#}")),
    }
    Ok(results)
}
