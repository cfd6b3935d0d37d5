//! Runs other programs: what they were asked to do is in every error, and what they say is shown
//! where a person watches, or when they fail.
//!
//! Standard output is left to the verbs; all progress goes to standard error, and only if that is
//! a terminal or the step takes long.

use std::{
    io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Write as _},
    process::{ChildStdout, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

/// How long a step may take in silence when nobody watches.
const PATIENCE: Duration = Duration::from_secs(15);

/// Says what is being done: at once on a terminal, else only when it takes long. Ends when
/// dropped.
#[must_use]
pub struct Announcement(Option<Sender<()>>);

/// Announces a step.
pub fn announce(label: &str) -> Announcement {
    if io::stderr().is_terminal() {
        eprintln!("xtask: {label}");
        return Announcement(None);
    }
    let (done, wait) = channel();
    let label = label.to_owned();
    thread::spawn(move || {
        if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("xtask: {label}");
        }
    });
    Announcement(Some(done))
}

impl Announcement {
    /// Ends the announcement: the step is over.
    pub fn done(self) {
        drop(self.0);
    }
}

/// Runs a command whose output is all progress.
pub fn run(label: &str, mut command: Command) -> Result<()> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    let copy = writer.try_clone().context("cannot copy a pipe")?;
    command.stdout(copy).stderr(writer);
    execute(label, command, reader, |_| Ok(()))
}

/// Runs a command and hands out each line of its standard output as it comes; what it writes to
/// standard error is progress.
pub fn run_line_by_line(
    label: &str,
    mut command: Command,
    mut use_line: impl FnMut(&str),
) -> Result<()> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    command.stdout(Stdio::piped()).stderr(writer);
    execute(label, command, reader, |stdout| {
        for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
            use_line(&line.context("cannot read its output")?);
        }
        Ok(())
    })
}

/// Runs a command for its standard output; what it writes to standard error is progress.
pub fn run_for_output(label: &str, mut command: Command) -> Result<Vec<u8>> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    command.stdout(Stdio::piped()).stderr(writer);
    execute(label, command, reader, |stdout| {
        let mut bytes = Vec::new();
        if let Some(mut stdout) = stdout {
            stdout.read_to_end(&mut bytes).context("cannot read its output")?;
        }
        Ok(bytes)
    })
}

fn execute<Output>(
    label: &str,
    mut command: Command,
    progress: io::PipeReader,
    take_output: impl FnOnce(Option<ChildStdout>) -> Result<Output>,
) -> Result<Output> {
    let announcement = announce(label);
    let shown = show(&command);
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("{label}: cannot start `{shown}`"))?;
    // The command holds the writing ends of our pipes, which must close when the child ends.
    drop(command);
    let said = thread::spawn(move || pass_on(progress));
    let output = take_output(child.stdout.take()).with_context(|| format!("{label}: `{shown}`"))?;
    let status = child.wait().with_context(|| format!("{label}: cannot wait for `{shown}`"))?;
    let said = said.join().unwrap_or_default();
    announcement.done();
    if status.success() {
        return Ok(output);
    }
    bail!("{label}: `{shown}` failed ({status})\n{}", String::from_utf8_lossy(&said).trim_end());
}

/// Shows progress where a person watches; returns what was not shown.
fn pass_on(progress: io::PipeReader) -> Vec<u8> {
    let watched = io::stderr().is_terminal();
    let mut kept = Vec::new();
    let mut lines = BufReader::new(progress);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        match inner_build(&line) {
            Some(Inner::Progress) => {}
            None if watched => {
                // Progress that cannot be shown is not worth failing for.
                let _ = io::stderr().write_all(&line);
            }
            None | Some(Inner::Message) => kept.extend_from_slice(&line),
        }
        line.clear();
    }
    kept
}

/// What the build of the eBPF object says.
#[derive(Debug, Eq, PartialEq)]
enum Inner {
    /// How far it is.
    Progress,
    /// What may explain a failure.
    Message,
}

/// aya-build passes on all that its inner cargo says as warnings of our package, which cargo then
/// repeats at every build. A person wants to see none of it unless the build fails.
fn inner_build(line: &[u8]) -> Option<Inner> {
    const PROGRESS: [&str; 6] =
        ["Blocking ", "Compiling ", "Downloaded ", "Downloading ", "Finished ", "Locking "];
    let line = String::from_utf8_lossy(line);
    let (_version, text) = line.strip_prefix("warning: lazyfree-daemon@")?.split_once(": ")?;
    let text = text.trim_start();
    let is_progress = PROGRESS.iter().any(|word| text.starts_with(word));
    Some(if is_progress { Inner::Progress } else { Inner::Message })
}

/// Runs a quick command, and returns its standard output as text.
pub fn ask(mut command: Command) -> Result<String> {
    let shown = show(&command);
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed ({})\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{shown}`"))
}

/// The command line, to be read by people.
pub fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_builds_progress_is_told_from_its_messages_and_from_ours() {
        let progress = b"warning: lazyfree-daemon@0.1.0:    Compiling core v0.0.0 (/src)\n";
        assert_eq!(inner_build(progress), Some(Inner::Progress));
        let message = b"warning: lazyfree-daemon@0.1.0: error[E0308]: mismatched types\n";
        assert_eq!(inner_build(message), Some(Inner::Message));
        assert_eq!(inner_build(b"   Compiling lazyfree-daemon v0.1.0 (/src)\n"), None);
        assert_eq!(inner_build(b"warning: unused import\n"), None);
    }
}
