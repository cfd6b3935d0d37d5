//! The emulator: its command line, and its life.

use std::{
    ffi::OsString,
    fs::File,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Child, Stdio},
};

use anyhow::{Context as _, Result};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Signal, set_parent_process_death_signal},
};

use super::Machine;
use crate::setup::Emulator;

/// A running emulator, ended when dropped.
pub struct Qemu {
    child: Child,
}

/// Our ends of the guest's serial ports, but for the console, which goes to a file.
pub struct Ports {
    /// The command's standard output, or its terminal.
    pub output: UnixStream,
    /// Its standard error.
    pub error: UnixStream,
    /// What the guest's init reports.
    pub report: UnixStream,
}

impl Qemu {
    /// Starts a guest. The kernel's console goes to `console`, qemu's own words to `log`.
    pub fn start(
        emulator: &Emulator,
        machine: &Machine,
        image: &Path,
        initramfs: &Path,
        console: &Path,
        log: File,
    ) -> Result<(Self, Ports)> {
        let (output, output_end) = port()?;
        let (error, error_end) = port()?;
        let (report, report_end) = port()?;
        let mut command = emulator.command();
        command
            .args(arguments(machine))
            .arg("-kernel")
            .arg(image)
            .arg("-initrd")
            .arg(initramfs)
            .arg("-append")
            .arg(kernel_command_line(&machine.append));
        // The order is that of the guest's ports, lazyfree_vm::port.
        let mut backend = OsString::from("file,id=console,path=");
        backend.push(console);
        command.arg("-chardev").arg(backend).args(["-serial", "chardev:console"]);
        for (name, end) in [("output", &output_end), ("error", &error_end), ("report", &report_end)]
        {
            let backend = format!("socket,id={name},fd={}", end.as_raw_fd());
            command.args(["-chardev", &backend, "-serial", &format!("chardev:{name}")]);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot copy a descriptor")?)
            .stderr(log)
            // Keys typed at the terminal are for xtask, which ends the guest in its own way.
            .process_group(0);
        let die_with_parent = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(die_with_parent) };
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        // The other ends close here, so that reading ours ends when qemu does.
        Ok((Self { child }, Ports { output, error, report }))
    }

    /// Ends the guest now.
    pub fn kill(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A pair of sockets: our end, and that which qemu inherits.
fn port() -> Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)
            .context("cannot make a pair of sockets for a serial port")?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)
        .context("cannot keep a socket from qemu")?;
    Ok((ours.into(), theirs))
}

fn arguments(machine: &Machine) -> Vec<String> {
    let Machine { memory_mib, cpus, accelerator, count_instructions, append: _ } = machine;
    let mut arguments: Vec<String> =
        ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-cpu", "max"]
            .map(str::to_owned)
            .into();
    let threads = if *count_instructions { "single" } else { "multi" };
    let accelerator = match accelerator {
        super::Accelerator::Tcg => format!("tcg,thread={threads}"),
        super::Accelerator::Kvm => "kvm".to_owned(),
    };
    arguments.extend(["-accel".to_owned(), accelerator]);
    arguments.extend(["-m".to_owned(), format!("{memory_mib}M")]);
    arguments.extend(["-smp".to_owned(), cpus.to_string()]);
    if *count_instructions {
        arguments.extend(["-icount", "shift=0,sleep=off"].map(str::to_owned));
    }
    arguments
}

/// `panic=-1` restarts at once, which -no-reboot makes the end of qemu. An emulated processor may
/// be stopped for long on a busy host, which is no lockup.
fn kernel_command_line(append: &str) -> String {
    format!("console=ttyS0 panic=-1 nowatchdog {append}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_instructions_takes_one_emulating_thread() {
        let mut machine = Machine { memory_mib: 512, cpus: 1, ..Machine::default() };
        let joined = arguments(&machine).join(" ");
        assert!(joined.contains("-accel tcg,thread=multi -m 512M -smp 1"), "{joined}");
        assert!(!joined.contains("icount"), "{joined}");
        machine.count_instructions = true;
        let joined = arguments(&machine).join(" ");
        assert!(joined.contains("-accel tcg,thread=single"), "{joined}");
        assert!(joined.contains("-icount shift=0,sleep=off"), "{joined}");
    }
}
