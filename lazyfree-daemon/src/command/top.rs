//! `lazyfree top`: the live screen.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use tokio::sync::watch;

use super::{ProbeArgs, asked_to_end, pump, runtime};
use crate::{
    source::{
        Live, LiveOptions, Source,
        socket::{self, Remote},
    },
    tui,
};

/// Arguments of `lazyfree top`.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// Time from one sample to the next, if the probes are loaded here
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    pub interval: Duration,
    /// Socket of the daemon to connect to; without a daemon the probes are loaded here
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    pub socket: PathBuf,
    /// Load the probes here even if a daemon runs
    #[arg(long)]
    pub local: bool,
    /// Draw with ASCII characters only; the default on terminals without UTF-8
    #[arg(long)]
    pub ascii: bool,
    /// What to attach, if the probes are loaded here
    #[command(flatten)]
    pub probes: ProbeArgs,
}

/// Shows the screen until it is left.
pub fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    runtime()?.block_on(show(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn show(args: &TopArgs) -> anyhow::Result<()> {
    let remote = if args.local { None } else { Remote::connect(&args.socket).await? };
    match remote {
        Some(remote) => watch_source(remote, args).await,
        None => {
            let options = LiveOptions { probes: args.probes.into(), interval: args.interval };
            watch_source(Live::open(options)?, args).await
        }
    }
}

async fn watch_source(mut source: impl Source, args: &TopArgs) -> anyhow::Result<()> {
    let (latest, snapshots) = watch::channel(None);
    let from_env = tui::Options::from_env(|name| std::env::var(name).ok());
    let options = tui::Options { ascii: args.ascii || from_env.ascii, ..from_env };
    let pumping = async {
        if let Some(first) = source.next().await? {
            pump(source, first, &latest, |_sample| Ok(())).await?;
        }
        // The daemon has gone: without a sender the screen says that this is the end.
        drop(latest);
        std::future::pending().await
    };
    let end = async {
        tokio::select! {
            ended = pumping => ended,
            asked = asked_to_end() => asked,
        }
    };
    tui::run(snapshots, options, end).await
}
