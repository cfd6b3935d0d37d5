//! What compaction isolated, from the kernel's own tracepoint: no counter of it says so.
//!
//! `compact_isolated` of /proc/vmstat counts sources and targets together.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use rustix::fs::OFlags;

/// Where tracing instances are; each of our own, so that nobody else's tracing is disturbed.
const INSTANCES: &str = "/sys/kernel/tracing/instances";
const EVENT: &str = "events/compaction/mm_compaction_isolate_migratepages/enable";

/// Buffer for each CPU: some 40,000 events, of which compacting a small guest makes a tenth.
const BUFFER_KIB: &str = "2048";

/// The tracepoint, switched on for as long as the guest lives.
pub struct Isolation {
    pipe: File,
    /// The rest of a line that hasn't come as a whole yet.
    rest: String,
    pages: i64,
}

impl Isolation {
    /// Starts to follow it, in an instance of this name.
    pub fn follow(name: &str) -> Result<Self> {
        let folder = Path::new(INSTANCES).join(name);
        // It may be there from a run before, whose events then come before the first reading.
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        for (file, value) in [("buffer_size_kb", BUFFER_KIB), (EVENT, "1")] {
            let path = folder.join(file);
            fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(folder.join("trace_pipe"))
            .context("cannot open trace_pipe")?;
        Ok(Self { pipe, rest: String::new(), pages: 0 })
    }

    /// Pages that were isolated until now.
    pub fn pages(&mut self) -> Result<i64> {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => self.rest.push_str(&String::from_utf8_lossy(&buffer[..length])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot read trace_pipe"),
            }
        }
        if let Some((lines, rest)) = self.rest.rsplit_once('\n') {
            self.pages += taken(lines)?;
            self.rest = rest.to_owned();
        }
        Ok(self.pages)
    }
}

/// The pages that events say were taken.
fn taken(lines: &str) -> Result<i64> {
    let mut sum = 0;
    for line in lines.lines() {
        if line.contains("LOST") {
            bail!("the trace buffer overflowed: {line}");
        }
        if let Some((_, number)) = line.split_once("nr_taken=") {
            let pages: i64 = number.trim().parse().with_context(|| line.to_owned())?;
            sum += pages;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_pages_add_up_and_lost_events_are_an_error() -> Result<()> {
        let event = "exe-93 [000] ..... 6.5: mm_compaction_isolate_migratepages: range=(0x10 ~ 0x40) nr_scanned=48 nr_taken=31";
        assert_eq!(taken(event)?, 31);
        assert_eq!(taken(&format!("{event}\n{event}\n"))?, 62);
        assert!(taken(&format!("CPU:0 [LOST 12 EVENTS]\n{event}")).is_err());
        assert!(taken("nr_taken=many").is_err());
        Ok(())
    }
}
