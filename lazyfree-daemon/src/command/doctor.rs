//! `lazyfree doctor`: what is observed on this host, and why not more.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;

use super::{Exit, ProbeArgs, runtime};
use crate::{
    export::doctor::{Diagnosis, Verdict},
    source::{Live, LiveOptions, Source as _},
};

/// Arguments of `lazyfree doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Exit status: 0 if all is observed that this kernel shows, 1 if this host keeps some numbers from
being better, 2 if nothing can be observed.")]
pub struct DoctorArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// What to attach
    #[command(flatten)]
    pub probes: ProbeArgs,
}

/// Attaches as the other commands would, reports what came of it, and lets go again.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let runtime = runtime()?;
    let _inside = runtime.enter();
    // The interval is not used: no sample is read.
    let options = LiveOptions { probes: args.probes.into(), interval: Duration::from_secs(1) };
    let live = match Live::open(options) {
        Ok(live) => live,
        Err(error) => {
            eprintln!("error: {error}");
            return Err(Exit(Verdict::Nothing.exit_status()).into());
        }
    };
    let diagnosis = Diagnosis::new(&live.session());
    let mut text =
        if args.json { serde_json::to_string(&diagnosis)? } else { diagnosis.to_string() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    io::stdout().lock().write_all(text.as_bytes()).context("stdout")?;
    Ok(ExitCode::from(diagnosis.verdict.exit_status()))
}
