//! Pending lazyfree memory, as the kernel has it for memory that this test gives back.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail by it too")]

use std::{ffi::c_void, fs, process, ptr, thread, time::Duration};

use lazyfree::{
    host::{processes::Pending, survey::Survey},
    sample::ProcessSample,
};
use rustix::{
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap},
    thread::{CpuSet, sched_getcpu, sched_setaffinity},
};

const PAGES: usize = 64;

/// More than a reading costs, so that each one is made.
const SHARE: Duration = Duration::from_secs(1);

/// Whether this kernel tells; says so if it doesn't.
fn kernel_tells() -> bool {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let tells = rollup.contains("LazyFree:");
    if !tells {
        println!("skipped: /proc/self/smaps_rollup has no LazyFree on this kernel");
    }
    tells
}

/// Keeps this thread on its CPU: pages on their way to the LRU wait in a batch of that CPU, which
/// MADV_FREE empties only where it runs.
fn stay_on_this_cpu() {
    let mut cpus = CpuSet::new();
    cpus.set(sched_getcpu());
    sched_setaffinity(None, &cpus).unwrap();
}

/// Memory that was touched and given back.
struct GivenBack {
    start: *mut c_void,
    bytes: usize,
}

impl GivenBack {
    fn new() -> Self {
        let page_size = rustix::param::page_size();
        let bytes = PAGES * page_size;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so the kernel picks one where nothing is mapped.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let this = Self { start: start.unwrap(), bytes };
        match this.advise(Advice::LinuxNoHugepage) {
            // A kernel without transparent huge pages doesn't know the advice, nor need it.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => panic!("{error}"),
        }
        for offset in (0..bytes).step_by(page_size) {
            // SAFETY: within the mapping, which is writable and nothing refers to.
            unsafe { this.start.cast::<u8>().add(offset).write_volatile(1) };
        }
        this.advise(Advice::LinuxFree).unwrap();
        // Once more, for the last ones to leave the batch of what becomes lazyfree.
        this.advise(Advice::LinuxFree).unwrap();
        this
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the range is that of the mapping, whose content is never read.
        unsafe { madvise(self.start, self.bytes, advice) }
    }
}

impl Drop for GivenBack {
    fn drop(&mut self) {
        // SAFETY: this is what `new` mapped, and nothing refers to it.
        unsafe { munmap(self.start, self.bytes) }.unwrap();
    }
}

fn own(rows: Vec<ProcessSample>) -> Option<ProcessSample> {
    rows.into_iter().find(|row| row.tgid == process::id())
}

/// What surveys say of this process, in a mode where probes saw `observed`.
fn survey(searches: bool, observed: &[ProcessSample]) -> ProcessSample {
    let mut survey = Survey::start(searches, Duration::from_secs(1));
    // The first goes through all of `/proc`, and nobody waits for it.
    let rows = (0..1000).filter_map(|_| {
        thread::sleep(Duration::from_millis(10));
        own(survey.look(observed.to_vec()).0)
    });
    let mut seen = rows.filter(|row| row.lazyfree_kb.is_some());
    seen.next().expect("a survey sees this process")
}

/// One test, as lazyfree memory of another would be counted too.
#[test]
fn memory_given_back_is_pending_until_it_is_unmapped() {
    if !kernel_tells() {
        return;
    }
    stay_on_this_cpu();
    let mut pending = Pending::new(SHARE);
    let mut read = || {
        pending.read([process::id()]);
        let row = own(pending.rows()).unwrap();
        (row.lazyfree_kb.unwrap(), row.rss_kb.unwrap())
    };
    let given_back_kb = (PAGES * rustix::param::page_size() / 1024) as u64;
    let (before, _) = read();
    // A host that is short of memory may take some of it at once.
    let region = (0..10).map(|_| GivenBack::new()).find(|_| read().0 == before + given_back_kb);
    let region = region.expect("LazyFree grows by what was given back");
    assert!(read().1 >= given_back_kb, "it is resident until it is needed");

    let mut found = Pending::new(SHARE);
    let rows = (0..10).find_map(|tick| {
        found.search(Duration::from_secs(tick));
        own(found.rows())
    });
    let row = rows.expect("a search finds a process with lazyfree memory");
    let comm = fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(row.comm, comm.trim_end());
    assert_ne!(row.lazyfree_kb, Some(0));

    let observed = ProcessSample { tgid: process::id(), calls: Some(2), ..Default::default() };
    let (searched, completed) = (survey(true, &[]), survey(false, &[observed]));
    assert_ne!(searched.lazyfree_kb, Some(0));
    assert_eq!((completed.calls, completed.lazyfree_kb), (Some(2), searched.lazyfree_kb));

    drop(region);
    assert_eq!(read().0, before);
    found.search(Duration::from_secs(10));
    assert_eq!(own(found.rows()).and_then(|row| row.lazyfree_kb), Some(before));

    // No process has this one: pids end at 2^22.
    pending.read([process::id(), u32::MAX]);
    assert_eq!(pending.rows().len(), 1);
    pending.read([]);
    assert_eq!(pending.rows(), [], "those that are not wanted any more are forgotten");
}
