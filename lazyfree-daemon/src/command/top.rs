//! `lazyfree top`: the live screen.

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use tokio::sync::watch;

use super::{ProbeArgs, asked_to_end, pump, runtime};
use crate::{
    host,
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
    /// Socket of the daemon to connect to; without a daemon the probes are loaded here [default:
    /// $XDG_RUNTIME_DIR/lazyfree/lazyfree.sock, then /run/lazyfree/lazyfree.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
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
    let remote = match &args.socket {
        _ if args.local => None,
        Some(path) => Remote::connect(path).await?,
        None => find_daemon().await?,
    };
    match remote {
        Some(remote) => watch_source(remote, args).await,
        None => {
            let options = LiveOptions { probes: args.probes.into(), interval: args.interval };
            watch_source(Live::open(options)?, args).await
        }
    }
}

/// Connects to this user's daemon, or else to root's if it lets this user in.
async fn find_daemon() -> anyhow::Result<Option<Remote>> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR");
    for path in socket::paths_to_try(host::is_root(), runtime_dir.as_deref()) {
        match Remote::connect(&path).await {
            Ok(None) => {}
            Err(error) if is_refusal(&error) => {
                eprintln!("{error:#}: observing from here, without the daemon");
            }
            result => return result,
        }
    }
    Ok(None)
}

/// Whether a daemon listens there, but not to this user.
fn is_refusal(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
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

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn only_a_refused_connection_is_a_refusal() {
        let failed = |kind| anyhow::Error::new(io::Error::from(kind)).context("cannot connect");
        assert!(is_refusal(&failed(io::ErrorKind::PermissionDenied)));
        assert!(!is_refusal(&failed(io::ErrorKind::TimedOut)));
        assert!(!is_refusal(&anyhow!("the daemon closed the connection")));
    }
}
