//! Runs the guest's half of `cargo xtask bench --kernel-side`, as root, with `lazyfree` on PATH.
//!
//! Arguments are the probes to attach (`none`, `fentry`, …), and the cases to run, all of them if none
//! is named. What it prints is described in `lazyfree_vm::bench::line`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let names: Vec<_> = std::env::args().skip(1).collect();
    lazyfree_vm::bench::run(&names)
}
