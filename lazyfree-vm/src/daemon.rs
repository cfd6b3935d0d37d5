//! `lazyfree run` beside the caller, and what it serves.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use crate::{
    family::Family,
    process::{Running, lazyfree, wait_until},
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon on a port and a socket of its own.
pub struct Daemon {
    process: Running,
    port: u16,
    socket: PathBuf,
}

impl Daemon {
    /// Starts one, and waits until it serves.
    pub fn start(family: Family, port: u16) -> Result<Self> {
        Self::start_every("200ms", family.name(), port)
    }

    /// The same, with the time from sample to sample and the kind of probes as `lazyfree` takes them.
    pub fn start_every(interval: &str, probes: &str, port: u16) -> Result<Self> {
        let socket = format!("/run/lazyfree-{port}.sock");
        let listen = format!("127.0.0.1:{port}");
        let mut command = lazyfree(["run", "--interval", interval, "--probes", probes]);
        command.args(["--listen", &listen, "--socket", &socket]);
        let process = Running::start(&mut command)?;
        let mut daemon = Self { process, port, socket: socket.into() };
        let mut is_ready = false;
        wait_until("the daemon is ready", || {
            let answer = daemon.get("/-/ready");
            is_ready = answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
            is_ready || !daemon.process.is_running()
        })?;
        if is_ready {
            return Ok(daemon);
        }
        let finished = daemon.process.finish()?;
        bail!("the daemon ended at once: {}: {}", finished.status, finished.stderr.trim_end())
    }

    /// Where it serves samples.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its answer to a request, with the head.
    pub fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Every series of /metrics.
    pub fn scrape(&self) -> Result<Scrape> {
        let answer = self.get("/metrics")?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no end of the HTTP head")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        ensure!(head.contains("text/plain; version=0.0.4"), "{head}");
        Scrape::parse(body)
    }

    /// Ends it with a signal; SIGTERM it obeys in order.
    pub fn end(self, signal: Signal) -> Result<()> {
        let Self { process, socket, port: _ } = self;
        process.signal(signal)?;
        let finished = process.finish()?;
        if signal == Signal::TERM {
            ensure!(finished.status.success(), "{}: {}", finished.status, finished.stderr);
            ensure!(!socket.exists(), "{} is left behind", socket.display());
        }
        Ok(())
    }
}

/// One reading of /metrics.
#[derive(Debug)]
pub struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// Reads the text format. Each series has to belong to a family with HELP and TYPE.
    pub fn parse(body: &str) -> Result<Self> {
        let mut series = BTreeMap::new();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            let family = name.split('{').next().unwrap_or(name);
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| family.strip_suffix(s));
            let described = |family: &str| {
                body.contains(&format!("# HELP {family} "))
                    && body.contains(&format!("# TYPE {family} "))
            };
            ensure!(described(family) || base.is_some_and(described), "no HELP or TYPE: {line}");
            series.insert(name.to_owned(), value.parse().with_context(|| line.to_owned())?);
        }
        Ok(Self(series))
    }

    /// The series of a family: the labels as they are written, with braces, and the value.
    pub fn family<'a>(&'a self, family: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(name, value)| {
            let labels = name.strip_prefix(family)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }

    /// The sum over all series of a family.
    pub fn sum(&self, family: &str) -> Result<f64> {
        let mut series = self.family(family).peekable();
        ensure!(series.peek().is_some(), "no series of {family}");
        Ok(series.map(|(_, value)| value).sum())
    }
}

/// The value of a label among labels as they are written.
#[must_use]
pub fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("{name}=\"");
    let labels = labels.strip_prefix('{')?.strip_suffix('}')?;
    labels.split(',').find_map(|label| label.strip_prefix(&start)?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "\
# HELP hook_info Hooks.
# TYPE hook_info gauge
hook_info{signal=\"hit\",accuracy=\"exact\"} 1
hook_info{signal=\"kept\",accuracy=\"none\"} 1
# HELP hook Other.
# TYPE hook gauge
hook 7
";

    #[test]
    fn a_family_is_not_taken_for_another_that_begins_alike() -> Result<()> {
        let scrape = Scrape::parse(BODY)?;
        assert_eq!(scrape.sum("hook")?, 7.0);
        assert_eq!(scrape.sum("hook_info")?, 2.0);
        assert!(scrape.sum("hook_inf").is_err());
        let kept = scrape.family("hook_info").find(|(l, _)| label(l, "signal") == Some("kept"));
        assert_eq!(label(kept.context("a row")?.0, "accuracy"), Some("none"));
        Ok(())
    }

    #[test]
    fn a_series_without_help_is_refused() {
        assert!(Scrape::parse("hook 7\n").is_err());
        assert!(Scrape::parse("# HELP hook Other.\n# TYPE hook gauge\nhook seven\n").is_err());
    }
}
