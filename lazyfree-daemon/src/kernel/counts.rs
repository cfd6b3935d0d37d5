//! Reads the probes' maps.

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf},
    programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _},
};
use lazyfree_common::{
    Counter, Family, Reclaimer,
    call::{CompactionCall, MadviseCall, ReclaimCall, Stall, StallKey},
    control::{AllocatedPage, Control, MAX_PEEKS},
    counter::{PerFamily, PerReclaimer},
    duration::Histogram,
    event::ReclaimFailure,
    percpu::{PerCpu, WORDS},
    process::{MAX_PROCESSES, ProcessCounts},
};
use rustix::time::{ClockId, clock_gettime};

use super::{host, layout::Resolved, probes::AttachedProgram};
use crate::sample::{Counters, Durations, Failure, HookSample, ProcessSample};

/// A call this old without a return is given up. No reclaim batch or isolation takes minutes, and
/// a wait that does is as good as lost.
const STALE_NS: u64 = 600 * 1_000_000_000;

/// Readings between two searches for stale calls.
const SWEEP_EVERY: u32 = 60;

/// A word of a call's state is a `u64`.
type CallMap<const WORDS: usize> = HashMap<MapData, u64, [u64; WORDS]>;

/// A [`StallKey`] and a [`Stall`] in words.
type StallMap = HashMap<MapData, [u64; 2], [u64; 1]>;

/// A [`ProcessCounts`] in words.
type ProcessMap = HashMap<MapData, u32, [u64; 4]>;

const _: () = assert!(size_of::<StallKey>() == 16 && size_of::<Stall>() == 8);

/// The probes' maps.
pub struct Counts {
    per_cpu: PerCpuArray<MapData, [u64; WORDS]>,
    madvise_calls: CallMap<{ size_of::<MadviseCall>() / 8 }>,
    reclaim_calls: CallMap<{ size_of::<ReclaimCall>() / 8 }>,
    compaction_calls: CallMap<{ size_of::<CompactionCall>() / 8 }>,
    stalls: StallMap,
    processes: ProcessMap,
    allocated: Array<MapData, [u64; size_of::<AllocatedPage>() / 8]>,
    events: RingBuf<MapData>,
    control: Array<MapData, [u64; size_of::<Control>() / 8]>,
    peeks: Array<MapData, u64>,
    settings: Control,
    /// Addresses of what the telescoping sums are made of, [`LIVE_WORDS`] for each CPU.
    live: Vec<u64>,
    programs: Vec<AttachedProgram>,
    readings: u32,
    /// Calls given up, by [`Family`].
    given_up: [u64; Family::COUNT],
    /// Calls and pages of processes that were taken out of the table.
    departed: [u64; 2],
}

/// What was counted; without probes, nothing.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the fields are those of Sample")]
pub struct Reading {
    pub counters: Counters,
    pub durations: Vec<Durations>,
    pub in_flight: Vec<u64>,
    pub hooks: Vec<HookSample>,
    pub lru_batch_pending: Option<u64>,
    pub failures: Vec<Failure>,
    pub processes: Vec<ProcessSample>,
}

fn take<T: TryFrom<Map, Error = MapError>>(bpf: &mut Ebpf, name: &str) -> Result<T, MapError> {
    let missing = || MapError::InvalidName { name: name.to_owned() };
    bpf.take_map(name).ok_or_else(missing)?.try_into()
}

impl Counts {
    /// Takes the maps out of a loaded object.
    pub fn take(bpf: &mut Ebpf) -> Result<Self, MapError> {
        Ok(Self {
            per_cpu: take(bpf, "PER_CPU")?,
            madvise_calls: take(bpf, "MADVISE_CALLS")?,
            reclaim_calls: take(bpf, "RECLAIM_CALLS")?,
            compaction_calls: take(bpf, "COMPACTION_CALLS")?,
            stalls: take(bpf, "STALLS")?,
            processes: take(bpf, "PROCESSES")?,
            allocated: take(bpf, "ALLOCATED")?,
            events: take(bpf, "EVENTS")?,
            control: take(bpf, "CONTROL")?,
            peeks: take(bpf, "PEEKS")?,
            settings: Control::default(),
            live: Vec::new(),
            programs: Vec::new(),
            readings: 0,
            given_up: [0; Family::COUNT],
            departed: [0; 2],
        })
    }

    /// Reads the words of kernel memory that addresses depend on.
    pub fn learn_addresses(&mut self, peek: Option<&RawTracePoint>, resolved: &Resolved) {
        if let Some(address) = resolved.vmemmap_base
            && let Some(words) = self.peek(peek, &[address])
        {
            self.settings.vmemmap = words[0];
            self.apply();
        }
        if resolved.marks.is_err() || resolved.hits.is_err() {
            return;
        }
        let layout = &resolved.layout;
        let Ok(cpus) = aya::util::nr_cpus() else { return };
        let offsets: Vec<_> = (0..cpus as u64).map(|cpu| layout.per_cpu_offset + cpu * 8).collect();
        if let Some(offsets) = self.peek(peek, &offsets) {
            let event = |index: u32| layout.vm_event_states.wrapping_add(u64::from(index) * 8);
            let words: [u64; LIVE_WORDS] =
                [event(layout.pglazyfree), event(layout.pglazyfreed), layout.lazyfree_batch];
            let of_cpu = |offset: &u64| words.map(|word| word.wrapping_add(*offset));
            self.live = offsets.iter().flat_map(of_cpu).collect();
        }
    }

    /// Value of `vmemmap_base`; 0 if unknown.
    pub fn vmemmap(&self) -> u64 {
        self.settings.vmemmap
    }

    /// Sets the value of `vmemmap_base`, where it was found out otherwise.
    pub fn set_vmemmap(&mut self, vmemmap: u64) {
        self.settings.vmemmap = vmemmap;
        self.apply();
    }

    /// Has page allocations of a task (`pid_tgid`) reported; 0 for none.
    pub fn report_allocations_of(&mut self, task: u64) {
        self.settings.reported_task = task;
        self.apply();
    }

    /// The last allocation that was reported.
    pub fn allocated(&self) -> AllocatedPage {
        self.allocated.get(&0, 0).map(bytemuck::must_cast).unwrap_or_default()
    }

    /// Programs whose misses are read.
    pub fn watch(&mut self, programs: Vec<AttachedProgram>) {
        self.programs = programs;
    }

    /// Sets the number of free pages below which marking counts as under pressure.
    pub fn set_throttle_threshold(&mut self, pages: u64) {
        if self.settings.throttle_threshold_pages != pages {
            self.settings.throttle_threshold_pages = pages;
            self.apply();
        }
    }

    fn apply(&mut self) {
        let words: [u64; size_of::<Control>() / 8] = bytemuck::must_cast(self.settings);
        if let Err(error) = self.control.set(0, words, 0) {
            tracing::warn!("cannot hand the settings to the probes: {error}");
        }
    }

    /// Reads everything.
    pub fn read(&mut self, peek: Option<&RawTracePoint>) -> Result<Reading, MapError> {
        let mut counters = Counters::default();
        let mut durations = [Histogram { sum_ns: 0, buckets: [0; _] }; Family::COUNT];
        let mut cpus: Vec<PerCpu> =
            self.per_cpu.get(&0, 0)?.iter().map(|words| bytemuck::must_cast(*words)).collect();
        // After the credits, so that the kernel's counters are not behind them.
        let live = self.live(peek);
        for (cpu, live) in cpus.iter_mut().zip(live.as_deref().unwrap_or_default()) {
            settle(cpu, *live);
        }
        for cpu in &cpus {
            counters.add(&cpu.counters);
            for (into, from) in durations.iter_mut().zip(&cpu.durations) {
                into.merge(from);
            }
        }
        self.readings += 1;
        if self.readings.is_multiple_of(SWEEP_EVERY) {
            self.sweep();
        }
        for (family, given_up) in Family::ALL.iter().zip(self.given_up) {
            counters.bump(PerFamily::ReturnsLost, *family, given_up);
        }
        let processes = self.processes();
        let others = [Counter::OtherCalls, Counter::OtherAdvisedPages];
        for (counter, departed) in others.into_iter().zip(self.departed) {
            counters.bump_slot(counter as usize, departed);
        }
        let in_flight = Family::ALL.iter().map(|&family| {
            let of = |what| counters.in_family(what, family);
            let ended =
                of(PerFamily::Finished) + of(PerFamily::ReturnsLost) + of(PerFamily::MapFull);
            // CPUs are read one after another, so a call may be seen to end and not to start.
            of(PerFamily::Started).saturating_sub(ended)
        });
        Ok(Reading {
            in_flight: in_flight.collect(),
            durations: durations.iter().map(Durations::from).collect(),
            hooks: self.programs.iter().map(hook_sample).collect(),
            lru_batch_pending: live.map(|live| live.iter().map(|live| live.batched).sum()),
            failures: self.failures(),
            processes,
            counters,
        })
    }

    /// What the telescoping sums are made of, on each CPU.
    fn live(&mut self, peek: Option<&RawTracePoint>) -> Option<Vec<Live>> {
        if self.live.is_empty() {
            return None;
        }
        let addresses = std::mem::take(&mut self.live);
        let words = self.peek(peek, &addresses);
        self.live = addresses;
        let cpus = words?.chunks_exact(LIVE_WORDS).map(Live::from_words).collect();
        Some(cpus)
    }

    /// The words at kernel addresses; what can't be read is 0.
    fn peek(&mut self, program: Option<&RawTracePoint>, addresses: &[u64]) -> Option<Vec<u64>> {
        let program = program?;
        let mut words = Vec::with_capacity(addresses.len());
        for chunk in addresses.chunks(MAX_PEEKS as usize) {
            let run = || -> Result<(), Box<dyn std::error::Error>> {
                for (index, address) in (0..).zip(chunk) {
                    self.peeks.set(index, address, 0)?;
                }
                if chunk.len() < MAX_PEEKS as usize {
                    self.peeks.set(chunk.len() as u32, 0, 0)?;
                }
                program.test_run(RawTracePointRunOptions::new())?;
                for index in 0..chunk.len() as u32 {
                    words.push(self.peeks.get(&index, 0)?);
                }
                Ok(())
            }();
            if let Err(error) = run {
                tracing::warn!("cannot read kernel memory: {error}");
                return None;
            }
        }
        Some(words)
    }

    fn failures(&mut self) -> Vec<Failure> {
        let mut failures = Vec::new();
        while let Some(item) = self.events.next() {
            match bytemuck::try_pod_read_unaligned::<ReclaimFailure>(&item) {
                Ok(event) => failures.push(failure(&event)),
                Err(error) => tracing::warn!("an event of {} bytes: {error}", item.len()),
            }
        }
        failures
    }

    /// What each process did. When the table fills up, processes that are gone leave it.
    fn processes(&mut self) -> Vec<ProcessSample> {
        let rows: Vec<_> = self.processes.iter().filter_map(Result::ok).collect();
        let crowded = rows.len() > MAX_PROCESSES as usize / 2;
        let mut samples = Vec::with_capacity(rows.len());
        for (tgid, words) in rows {
            let counts: ProcessCounts = bytemuck::must_cast(words);
            if crowded && !host::is_alive(tgid) && self.processes.remove(&tgid).is_ok() {
                self.departed[0] += counts.calls;
                self.departed[1] += counts.advised_pages;
                continue;
            }
            samples.push(ProcessSample {
                tgid,
                comm: name_of(&counts.comm),
                calls: Some(counts.calls),
                advised_pages: Some(counts.advised_pages),
                rss_kb: None,
                lazyfree_kb: None,
            });
        }
        samples
    }

    /// Gives up calls whose return will not come any more, so that the maps can't fill up.
    fn sweep(&mut self) {
        let now = monotonic_ns();
        self.given_up[Family::Madvise as usize] += sweep(&mut self.madvise_calls, now);
        self.given_up[Family::Reclaim as usize] += sweep(&mut self.reclaim_calls, now);
        self.given_up[Family::Isolate as usize] += sweep(&mut self.compaction_calls, now);
        let stale: Vec<_> = self
            .stalls
            .iter()
            .filter_map(Result::ok)
            .filter(|(_, [start_ns])| now.saturating_sub(*start_ns) > STALE_NS)
            .map(|(key, _)| key)
            .collect();
        for key in stale {
            let StallKey { family, .. } = bytemuck::must_cast(key);
            if self.stalls.remove(&key).is_ok()
                && let Some(given_up) = self.given_up.get_mut(family as usize)
            {
                *given_up += 1;
            }
        }
    }
}

/// Words that the telescoping sums of a CPU are made of.
const LIVE_WORDS: usize = 3;

/// What the telescoping sums of a CPU are made of, read from kernel memory.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// PGLAZYFREE.
    marked: u64,
    /// PGLAZYFREED.
    freed: u64,
    /// Folios in the lazyfree batch.
    batched: u64,
}

impl Live {
    fn from_words(words: &[u64]) -> Self {
        // The number of folios is one byte, the first of its word.
        Self { marked: words[0], freed: words[1], batched: words[2] & 0xff }
    }
}

/// Credits what a CPU's sums moved by since the last probe there. A task that has left the CPU in
/// the middle of a call is credited on the one where it returns; what it did here would wait for
/// the next probe, which may be long in coming.
fn settle(cpu: &mut PerCpu, live: Live) {
    let PerCpu { counters, marked, hit, hit_owner, .. } = cpu;
    let owner = Reclaimer::ALL[(*hit_owner as usize).min(Reclaimer::COUNT - 1)];
    let hits = PerReclaimer::Hit.slot(owner);
    for (telescope, slot, now) in [
        (marked, Counter::MarkedPages as usize, live.marked + live.batched),
        (hit, hits, live.freed),
    ] {
        if telescope.primed != 0 {
            let moved = now.wrapping_sub(telescope.last);
            counters[slot] = counters[slot].wrapping_add(moved);
        }
    }
}

/// Removes the calls that started too long ago, and returns their number.
fn sweep<const WORDS: usize>(calls: &mut CallMap<WORDS>, now: u64) -> u64
where
    [u64; WORDS]: Pod,
{
    // The first word of each call's state is its start.
    let stale: Vec<_> = calls
        .iter()
        .filter_map(Result::ok)
        .filter(|(_, call)| now.saturating_sub(call[0]) > STALE_NS)
        .map(|(task, _)| task)
        .collect();
    stale.iter().filter(|task| calls.remove(task).is_ok()).count() as u64
}

fn hook_sample(program: &AttachedProgram) -> HookSample {
    HookSample {
        program: program.name.clone(),
        symbol: program.symbol.to_owned(),
        family: program.family,
        kind: program.kind,
        misses: program.tells_misses.then(|| host::misses(program.fd)).flatten(),
    }
}

fn failure(event: &ReclaimFailure) -> Failure {
    Failure {
        time_ns: event.time_ns,
        duration_ns: event.duration_ns,
        hit_pages: event.hit_pages,
        redirtied_pages: event.redirtied_pages,
        pinned_pages: event.pinned_pages,
        kept_pages: event.kept_pages,
        tgid: event.tgid,
        reclaimer: Reclaimer::ALL
            .get(event.reclaimer as usize)
            .map_or("unknown", |reclaimer| reclaimer.name())
            .to_owned(),
        comm: name_of(&event.comm),
    }
}

/// The name of a task, which is NUL padded.
fn name_of(comm: &[u8]) -> String {
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// `CLOCK_MONOTONIC`, as `bpf_ktime_get_ns` reads it.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable as _;
    use lazyfree_common::percpu::Telescope;

    use super::*;

    #[test]
    fn what_a_task_did_before_it_left_the_cpu_is_credited_to_who_was_there() {
        let mut cpu = PerCpu {
            marked: Telescope { last: 100, primed: 1 },
            hit: Telescope { last: 50, primed: 1 },
            hit_owner: Reclaimer::Direct as u64,
            ..PerCpu::zeroed()
        };
        cpu.counters[Counter::MarkedPages as usize] = 7;
        settle(&mut cpu, Live { marked: 110, freed: 75, batched: 3 });
        assert_eq!(cpu.counters[Counter::MarkedPages as usize], 7 + 13);
        assert_eq!(cpu.counters[PerReclaimer::Hit.slot(Reclaimer::Direct)], 25);
        assert_eq!(cpu.counters.iter().sum::<u64>(), 7 + 13 + 25);
    }

    #[test]
    fn a_cpu_without_a_first_reading_has_nothing_to_credit() {
        let mut cpu = PerCpu::zeroed();
        settle(&mut cpu, Live { marked: 110, freed: 75, batched: 3 });
        assert_eq!(cpu, PerCpu::zeroed());
    }
}
