//! What `lazyfree` and the kernel say at one moment.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::net::UnixStream,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{
    line::{Accuracy, Plan},
    trace::Isolation,
};
use crate::{
    daemon::{Daemon, Scrape, label},
    family::Family,
    host::{Vmstat, drain_batches},
};

/// Every signal that the matrix knows, in the order of lazyfree's own tables.
pub const SIGNALS: [&str; 13] = [
    "advised",
    "marked",
    "marked_under_pressure",
    "deactivated",
    "swap_entries_freed",
    "attempts",
    "hit",
    "redirtied",
    "reclaim_pinned",
    "kept",
    "compaction_scanned",
    "compaction_isolated",
    "compaction_pinned",
];

/// How long the daemon may take for a line.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many samples are taken until one falls into a moment in which nothing moves.
const ATTEMPTS: u32 = 50;

/// What the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth {
    /// Its counters.
    pub vmstat: Vmstat,
    /// Pages that compaction isolated.
    pub isolated: i64,
}

impl Truth {
    fn read(isolation: &mut Isolation) -> Result<Self> {
        Ok(Self { vmstat: Vmstat::read()?, isolated: isolation.pages()? })
    }

    /// What it moved by since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            vmstat: self.vmstat.since(earlier.vmstat),
            isolated: self.isolated - earlier.isolated,
        }
    }
}

/// Both at one moment.
pub struct Reading {
    scrape: Scrape,
    /// What the kernel says.
    pub truth: Truth,
}

impl Reading {
    /// Reads both when nothing moves, so that they are of the same moment.
    pub fn take(daemon: &Daemon, isolation: &mut Isolation) -> Result<Self> {
        drain_batches()?;
        for _ in 0..ATTEMPTS {
            let truth = Truth::read(isolation)?;
            await_sample(daemon)?;
            let scrape = daemon.scrape()?;
            if Truth::read(isolation)? == truth {
                return Ok(Self { scrape, truth });
            }
        }
        bail!("the kernel's counters don't come to rest in {ATTEMPTS} samples")
    }

    /// What a signal moved by since `earlier`, in pages; `None` if it isn't observed.
    pub fn pages_since(&self, earlier: &Self, signal: &str) -> Result<Option<i64>> {
        let (family, unit) = match signal {
            "swap_entries_freed" => ("lazyfree_swap_entries_freed_total".to_owned(), 1.0),
            signal => (
                format!("lazyfree_{signal}_bytes_total"),
                self.scrape.sum("lazyfree_page_size_bytes")?,
            ),
        };
        let (Ok(now), Ok(before)) = (self.scrape.sum(&family), earlier.scrape.sum(&family)) else {
            return Ok(None);
        };
        let pages = (now - before) / unit;
        ensure!(pages.fract() == 0.0, "{family} moved by {pages} pages");
        Ok(Some(pages as i64))
    }

    /// What `lazyfree` says a signal is worth by now.
    pub fn accuracy(&self, signal: &str) -> Result<Accuracy> {
        let rows = "lazyfree_hook_info";
        let mut rows = self.scrape.family(rows).map(|(labels, _)| labels);
        let row = rows.find(|labels| label(labels, "signal") == Some(signal));
        let accuracy = row.and_then(|labels| Accuracy::parse(label(labels, "accuracy")?));
        accuracy.with_context(|| format!("/metrics doesn't say what {signal} is worth"))
    }

    /// What the probes lost until now; empty if nothing.
    pub fn losses(&self) -> String {
        let families = ["lazyfree_hook_misses_total", "lazyfree_calls_lost_total"];
        let rows = families.into_iter().flat_map(|family| {
            let rows = self.scrape.family(family).filter(|(_, number)| *number > 0.0);
            rows.map(move |(labels, number)| format!("{family}{labels} {number}"))
        });
        rows.collect::<Vec<_>>().join("; ")
    }
}

/// Waits for a sample that begins after this, and has come to /metrics when this returns.
fn await_sample(daemon: &Daemon) -> Result<()> {
    // A new reader is sent the session, the daemon's first sample, and then each sample that is
    // begun after the daemon has accepted it.
    lines(daemon, 3).map(drop)
}

/// How lazyfree observes every signal.
pub fn plans(daemon: &Daemon, family: Family) -> Result<Vec<Plan>> {
    let lines = lines(daemon, 1)?;
    let session: Value = serde_json::from_str(&lines[0]).context("the session")?;
    let rows = session.get("signals").and_then(Value::as_array).context("no signals")?;
    rows.iter().map(|row| plan(row, family)).collect()
}

fn plan(row: &Value, family: Family) -> Result<Plan> {
    let text = |key: &str| {
        let value = row.get(key).and_then(Value::as_str);
        value.map(str::to_owned).with_context(|| format!("no {key} in {row}"))
    };
    let accuracy = text("accuracy")?;
    Ok(Plan {
        family,
        signal: text("signal")?,
        accuracy: Accuracy::parse(&accuracy).with_context(|| format!("accuracy {accuracy}"))?,
        hook: text("hook")?,
        reason: text("reason")?,
    })
}

/// The first lines of the daemon's socket.
fn lines(daemon: &Daemon, count: usize) -> Result<Vec<String>> {
    let stream = UnixStream::connect(daemon.socket()).context("the daemon's socket")?;
    stream.set_read_timeout(Some(PATIENCE)).context("the daemon's socket")?;
    let lines: Vec<_> = BufReader::new(stream)
        .lines()
        .take(count)
        .collect::<std::io::Result<_>>()
        .context("the daemon's socket")?;
    ensure!(lines.len() == count, "the daemon closed its socket after {} lines", lines.len());
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(rows: &str) -> Reading {
        let families = [
            "lazyfree_page_size_bytes",
            "lazyfree_hit_bytes_total",
            "lazyfree_swap_entries_freed_total",
            "lazyfree_hook_info",
            "lazyfree_hook_misses_total",
        ];
        let heads: String = families
            .iter()
            .map(|name| format!("# HELP {name} Help.\n# TYPE {name} gauge\n"))
            .collect();
        let vmstat = Vmstat { marked: 0, freed: 0, scanned: 0 };
        Reading {
            scrape: Scrape::parse(&format!("{heads}{rows}")).expect("a scrape"),
            truth: Truth { vmstat, isolated: 0 },
        }
    }

    #[test]
    fn pages_are_differences_and_what_is_absent_is_not_zero() -> Result<()> {
        let page = "lazyfree_page_size_bytes 4096\n";
        let before = reading(&format!(
            "{page}lazyfree_hit_bytes_total{{reclaimer=\"memcg\"}} 4096\n\
             lazyfree_hit_bytes_total{{reclaimer=\"direct\"}} 0\n\
             lazyfree_swap_entries_freed_total 5\n"
        ));
        let after = reading(&format!(
            "{page}lazyfree_hit_bytes_total{{reclaimer=\"memcg\"}} 12288\n\
             lazyfree_hit_bytes_total{{reclaimer=\"direct\"}} 4096\n\
             lazyfree_swap_entries_freed_total 9\n"
        ));
        assert_eq!(after.pages_since(&before, "hit")?, Some(3));
        assert_eq!(after.pages_since(&before, "swap_entries_freed")?, Some(4));
        assert_eq!(after.pages_since(&before, "marked")?, None);
        Ok(())
    }

    #[test]
    fn accuracy_and_losses_are_as_of_now() -> Result<()> {
        let reading = reading(
            "lazyfree_hook_info{signal=\"hit\",hook=\"\",kind=\"none\",accuracy=\"none\"} 1\n\
             lazyfree_hook_misses_total{program=\"a\",symbol=\"b\",kind=\"fexit\"} 2\n\
             lazyfree_hook_misses_total{program=\"c\",symbol=\"b\",kind=\"fexit\"} 0\n",
        );
        assert_eq!(reading.accuracy("hit")?, Accuracy::None);
        assert!(reading.accuracy("kept").is_err());
        let losses = reading.losses();
        assert!(losses.contains("program=\"a\"") && !losses.contains("program=\"c\""), "{losses}");
        Ok(())
    }

    #[test]
    fn a_row_of_the_session_is_a_plan() -> Result<()> {
        let row = json!({"signal": "kept", "hook": "", "kind": null, "accuracy": "none",
                         "adds_up_calls": null, "reason": "refused", "later": 1});
        let plan = plan(&row, Family::Kprobe)?;
        assert_eq!((plan.accuracy, &*plan.reason), (Accuracy::None, "refused"));
        Ok(())
    }
}
