//! `lazyfree run`: the daemon.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use tokio::sync::{broadcast, watch};

use super::{ProbeArgs, asked_to_end, pump, runtime};
use crate::{
    export::http,
    host,
    source::{
        Live, LiveOptions, Source as _,
        socket::{self, Server},
    },
};

/// Arguments of `lazyfree run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Time from one sample to the next
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    pub interval: Duration,
    /// Address that serves /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9749")]
    pub listen: SocketAddr,
    /// Socket that `lazyfree top` connects to
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    pub socket: PathBuf,
    /// What to attach
    #[command(flatten)]
    pub probes: ProbeArgs,
}

/// Runs until it is asked to end.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    runtime()?.block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: &RunArgs) -> anyhow::Result<()> {
    let ending = asked_to_end();
    tokio::pin!(ending);
    // What may fail for want of a port or a path fails before anything is attached.
    let metrics = http::bind(args.listen).await?;
    let server = Server::bind(&args.socket).await?;

    let mut live = Live::open(LiveOptions { probes: args.probes.into(), interval: args.interval })?;
    // Not before: what start-up needed could not be given back once it is locked.
    host::protect();
    let session = live.session();
    let Some(first) = live.next().await? else { return Ok(()) };
    tracing::info!(
        mode = session.mode,
        metrics = %args.listen,
        socket = %args.socket.display(),
        "observing {}",
        session.kernel
    );
    if session.degraded() {
        tracing::warn!("{}", session.summary());
    } else {
        tracing::info!("{}", session.summary());
    }

    let (latest, snapshots) = watch::channel(None);
    let (lines, _) = broadcast::channel(socket::BACKLOG);
    // A reader starts from the daemon's first sample, so that its totals are the daemon's.
    let greeting = format!("{}{}", socket::line(&*session)?, socket::line(&first)?);
    let sampling = pump(live, first, &latest, |sample| {
        if lines.receiver_count() > 0 {
            // Fails only if the last reader has gone meanwhile.
            let _unread = lines.send(socket::line(sample)?);
        }
        Ok(())
    });
    tokio::select! {
        result = sampling => result,
        () = metrics.serve(snapshots, std::future::pending()) => Ok(()),
        () = server.serve(greeting.into(), &lines) => Ok(()),
        result = &mut ending => result,
    }
}
