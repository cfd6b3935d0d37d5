//! Reads one tracepoint through a tracing instance of our own.
//!
//! An instance has its own buffer and switches, so nobody else's tracing is disturbed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

/// Page frames that the migration scanner went over.
pub type Range = std::ops::Range<u64>;

/// A tracing instance, removed when dropped.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
    enable: PathBuf,
}

/// Buffer of the CPU that we are bound to, where a compaction that we ask for is traced; some
/// 200,000 events.
const BUFFER_KIB: &str = "16384";

impl Instance {
    /// Makes an instance for `event`, written `subsystem/name`. It doesn't record yet.
    pub fn create(event: &str) -> Result<Self> {
        let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let tracefs = places
            .map(Path::new)
            .into_iter()
            .find(|place| place.join("instances").is_dir())
            .context(
                "tracefs isn't mounted; as root, run: mount -t tracefs nodev /sys/kernel/tracing",
            )?;
        let dir = tracefs.join(format!("instances/lazyfree-{}", std::process::id()));
        fs::create_dir(&dir)
            .with_context(|| format!("cannot make {} (run as root)", dir.display()))?;
        let enable = dir.join("events").join(event).join("enable");
        let instance = Self { dir, enable };
        ensure!(instance.enable.exists(), "this kernel has no tracepoint {event}");
        let cpu = rustix::thread::sched_getcpu();
        write(&instance.dir.join(format!("per_cpu/cpu{cpu}/buffer_size_kb")), BUFFER_KIB)?;
        Ok(instance)
    }

    /// Records while `during` runs; the ranges of the events, in no certain order.
    pub fn record(&self, during: impl FnOnce() -> Result<()>) -> Result<Vec<Range>> {
        let trace = self.dir.join("trace");
        // Opening it for writing, with truncation, empties the buffer.
        write(&trace, "")?;
        write(&self.enable, "1")?;
        let done = during();
        write(&self.enable, "0")?;
        done?;
        let text = fs::read_to_string(&trace).context("cannot read the trace")?;
        let lost = self.overruns()?;
        ensure!(lost == 0, "the trace buffer overflowed: {lost} events are lost");
        Ok(text.lines().filter_map(range).collect())
    }

    fn overruns(&self) -> Result<u64> {
        let mut lost = 0;
        for cpu in fs::read_dir(self.dir.join("per_cpu")).context("cannot list per_cpu")? {
            let stats = cpu?.path().join("stats");
            lost += overrun(&fs::read_to_string(stats).context("cannot read trace statistics")?);
        }
        Ok(lost)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An error has no place to go from here; what stays is an idle instance with our pid.
        let _ = fs::remove_dir(&self.dir);
    }
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("cannot write {value:?} to {}", path.display()))
}

/// The range in a line of the trace that is an event with one.
fn range(line: &str) -> Option<Range> {
    let (_, range) = line.split_once(": range=(")?;
    let (start, rest) = range.split_once(" ~ ")?;
    let (end, _) = rest.split_once(')')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some(number(start)?..number(end)?)
}

/// Events that were overwritten, from a CPU's statistics.
fn overrun(stats: &str) -> u64 {
    let value = stats.lines().find_map(|line| line.strip_prefix("overrun:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_range_of_an_event() {
        let line = "  sh-71 [001] ..... 9.141: mm_compaction_isolate_migratepages: \
                    range=(0x1000 ~ 0x1200) nr_scanned=512 nr_taken=32";
        assert_eq!(range(line), Some(0x1000..0x1200));
        assert_eq!(range("# tracer: nop"), None);
        assert_eq!(range("x: mm_x: range=(0x10 ~ oops) nr_scanned=1"), None);
    }

    #[test]
    fn finds_what_was_overwritten() {
        assert_eq!(overrun("entries: 5\noverrun: 12\ncommit overrun: 3\n"), 12);
        assert_eq!(overrun("entries: 5\n"), 0);
    }
}
