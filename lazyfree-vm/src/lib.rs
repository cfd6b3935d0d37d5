//! What the host and the guest agree on: which file of the initramfs says what to run, and what
//! each serial port carries.
//!
//! `xtask` writes these files and reads these ports, `init` does the reverse. Nothing else is
//! shared between the two but what [`matrix`] and [`bench`] print. [`e2e`] are the end-to-end tests.

pub mod bench;
pub mod daemon;
pub mod e2e;
pub mod family;
pub mod host;
pub mod job;
pub mod matrix;
pub mod privileges;
pub mod process;
pub mod report;
pub mod workloads;

/// The guest's serial ports, in the order in which qemu creates them.
pub mod port {
    /// The kernel's console, and whatever `init` has to say about itself.
    pub const CONSOLE: &str = "/dev/ttyS0";
    /// The command's standard output, or its terminal when it has one.
    pub const OUTPUT: &str = "/dev/ttyS1";
    /// The command's standard error; silent when the command has a terminal.
    pub const ERROR: &str = "/dev/ttyS2";
    /// [`report`](crate::report) lines.
    pub const REPORT: &str = "/dev/ttyS3";
}
