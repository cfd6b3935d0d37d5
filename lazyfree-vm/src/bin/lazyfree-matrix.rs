//! Runs the guest's half of `cargo xtask matrix`, as root, with `lazyfree` on PATH.
//!
//! Arguments are the switches to turn (`lru=other`, `cgroup=v1`) and the workloads to run, all of
//! them if none is named. What it prints is described in `lazyfree_vm::matrix::line`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    lazyfree_vm::matrix::run(&words)
}
