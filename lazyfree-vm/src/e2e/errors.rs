//! What goes wrong is said, on stderr, with what to do, and the exit status tells.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{
    Case, Outcome,
    process::{Finished, lazyfree, run},
};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("unknown_command", unknown_command),
        Case::new("exit_status_is_passed_on", exit_status),
        Case::new("stat_prints_one_document", one_document),
        Case::new("stat_leaves_stdout_alone", stdout_alone),
        Case::new("bad_arguments", bad_arguments),
        Case::new("top_without_a_terminal", top_without_a_terminal),
    ]
}

/// A failure with each of `words` on stderr and nothing on stdout.
fn fails(finished: &Finished, words: &[&str]) -> Result<()> {
    let Finished { status, stdout, stderr } = finished;
    ensure!(!status.success(), "it succeeded: {stdout}{stderr}");
    ensure!(stdout.is_empty(), "stdout has {stdout}");
    for word in words {
        ensure!(stderr.contains(word), "`{word}` isn't in: {stderr}");
    }
    Ok(())
}

fn unknown_command() -> Result<Outcome> {
    let finished = run(&mut lazyfree(["stat", "--probes", "procfs", "--", "no-such-command"]))?;
    fails(&finished, &["no-such-command"])?;
    ensure!(finished.status.code() == Some(127), "{}", finished.status);
    Ok(Outcome::Passed)
}

fn exit_status() -> Result<Outcome> {
    for (script, status) in [("exit 3", 3), ("kill -9 $$", 128 + 9), ("true", 0)] {
        let finished =
            run(&mut lazyfree(["stat", "--probes", "procfs", "--", "sh", "-c", script]))?;
        let found = finished.status.code();
        ensure!(found == Some(status), "{script}: {found:?}: {}", finished.stderr);
        // The report comes all the same.
        ensure!(finished.stderr.contains("marked"), "no report: {}", finished.stderr);
    }
    Ok(Outcome::Passed)
}

fn one_document() -> Result<Outcome> {
    let finished = run(&mut lazyfree(["stat", "--probes", "procfs", "--for", "100ms", "--json"]))?;
    ensure!(finished.status.success(), "{}: {}", finished.status, finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout)?;
    for key in ["kernel", "mode", "page_size", "seconds", "signals", "vmstat", "residual", "events"]
    {
        ensure!(report.get(key).is_some(), "no {key} in {report}");
    }
    Ok(Outcome::Passed)
}

fn stdout_alone() -> Result<Outcome> {
    let finished =
        run(&mut lazyfree(["stat", "--probes", "procfs", "--json", "--", "echo", "mine"]))?;
    ensure!(finished.stdout == "mine\n", "stdout: {}", finished.stdout);
    let report = finished.stderr.lines().find(|line| line.starts_with('{'));
    let report: Value = serde_json::from_str(report.unwrap_or_default())?;
    ensure!(report.get("signals").is_some(), "{report}");
    Ok(Outcome::Passed)
}

fn bad_arguments() -> Result<Outcome> {
    for (arguments, word) in [
        (["stat", "--for", "soon"], "soon"),
        (["stat", "--probes", "uprobe"], "uprobe"),
        (["run", "--listen", "nowhere"], "nowhere"),
        (["stat", "-o", "/no/such/folder/file"], "/no/such/folder/file"),
        (["workload", "mark", "--pages=lots"], "lots"),
    ] {
        fails(&run(&mut lazyfree(arguments))?, &[word])?;
    }
    Ok(Outcome::Passed)
}

fn top_without_a_terminal() -> Result<Outcome> {
    fails(
        &run(&mut lazyfree(["top", "--local", "--probes", "procfs"]))?,
        &["terminal", "lazyfree stat"],
    )?;
    Ok(Outcome::Passed)
}
