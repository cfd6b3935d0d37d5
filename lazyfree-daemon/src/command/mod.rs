//! The subcommands: arguments in, exit status out.

pub mod doctor;
pub mod run;
pub mod stat;
pub mod top;

use std::sync::Arc;

use clap::Args;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    kernel::{Options, ProbeKind},
    model::{Model, Snapshot},
    sample::Sample,
    source::Source,
};

/// What to attach.
#[derive(Clone, Copy, Debug, Args)]
pub struct ProbeArgs {
    /// Attach only this kind of probe; by default for each hook the first that works
    #[arg(long, value_name = "KIND")]
    pub probes: Option<ProbeKind>,
    /// Also count folio by folio at try_to_unmap, to check the batch numbers; costs more
    #[arg(long)]
    pub audit: bool,
    /// Log the probes' own diagnostics
    #[arg(long)]
    pub kernel_log: bool,
}

impl From<ProbeArgs> for Options {
    fn from(args: ProbeArgs) -> Self {
        Self { kind: args.probes, audit: args.audit, kernel_log: args.kernel_log }
    }
}

/// The newest snapshot; `None` before the first sample.
pub type Latest = watch::Sender<Option<Arc<Snapshot>>>;

/// Turns samples into snapshots until there are no more, and passes each sample on.
async fn pump(
    mut source: impl Source,
    first: Sample,
    latest: &Latest,
    mut pass_on: impl FnMut(&Sample) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut model = Model::new(source.session(), first.clone());
    let mut sample = first;
    loop {
        pass_on(&sample)?;
        latest.send_replace(Some(Arc::new(model.advance(sample))));
        let Some(next) = source.next().await? else { return Ok(()) };
        sample = next;
    }
}

/// Completes when the process is asked to end.
async fn asked_to_end() -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// Everything runs on one thread: a daemon that watches memory shortage needs few of its own.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// An exit status whose cause was told already.
#[derive(Debug, thiserror::Error)]
#[error("exit status {0}")]
pub struct Exit(pub u8);
