//! Loads the eBPF object, carries out the plan of each hook, and reads what is counted.

use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::{
    Btf, Ebpf, EbpfError, EbpfLoader, Endianness, include_bytes_aligned,
    maps::MapError,
    programs::{Program, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _},
    util::online_cpus,
};
use aya_log::EbpfLogger;
use lazyfree_common::layout::{self, Layout};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{
    counts::{Counts, Reading},
    facts::facts,
    hook::Hook,
    host,
    layout::resolve,
    observation::{Facts, Outcomes, dependent_on_lru, signals, stalls},
    offer::{Memory, Offer},
    plan::{self, Candidate, ProbeKind, UNLOCK, plan},
    privileges::Lockdown,
    refusal::{describe, refusal, refusal_of_maps},
    release::Release,
    vmemmap,
};
use crate::{
    sample::{FamilyName, Refused, Session},
    signal::HookKind,
};

/// The kernel side; empty in a build without it.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lazyfree-ebpf"));

/// What to attach.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Only this kind; without it, the best that works for each hook.
    pub kind: Option<ProbeKind>,
    /// Also count folio by folio at `try_to_unmap`.
    pub audit: bool,
    /// Let the probes' own diagnostics through.
    pub kernel_log: bool,
}

/// Why nothing can be observed at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A build without the kernel side.
    #[error(
        "this lazyfree was built without its eBPF programs; build it with `cargo xtask build`, or \
         say --probes procfs to see what /proc has"
    )]
    NoObject,
    /// A release that isn't a number.
    #[error("cannot read a version out of the kernel's release `{0}`")]
    BadRelease(String),
    /// The kind that was asked for doesn't work.
    #[error("no {kind} probe could be attached: {reason}; leave out --probes to try the others")]
    NoProbes {
        /// The kind.
        kind: &'static str,
        /// What became of its first hook.
        reason: String,
    },
    /// Anything else that the kernel or the object refused.
    #[error("cannot load the eBPF object: {0}")]
    Load(String),
}

/// Programs and maps; detached and freed when dropped, or by the kernel when the process dies.
pub struct Probes {
    counts: Counts,
    logger: Option<EbpfLogger<tracing_log::LogTracer>>,
    // Links and program descriptors live in here.
    bpf: Ebpf,
}

/// A program that was attached.
#[derive(Clone, Debug)]
pub struct AttachedProgram {
    /// Name in the object.
    pub name: String,
    /// Kernel function or tracepoint.
    pub symbol: &'static str,
    /// The family whose calls it follows.
    pub family: Option<FamilyName>,
    /// Kind.
    pub kind: HookKind,
    /// Descriptor, open as long as the object.
    pub fd: i32,
    /// Whether the kernel counts the runs that it skips.
    pub tells_misses: bool,
}

/// Attaches what can be attached, and says what that is worth. In a [`Session`] of mode `procfs`
/// that is nothing, and there are no probes.
pub fn open(options: Options) -> Result<(Option<Probes>, Session), OpenError> {
    let mut offer = host::offer()?;
    let mut outcomes = Outcomes::default();
    let mut vmemmap = 0;
    let probes = match options.kind {
        Some(ProbeKind::Procfs) => None,
        _ if OBJECT.is_empty() => return Err(OpenError::NoObject),
        _ => Probes::attach(options, &mut offer, &mut outcomes, &mut vmemmap)?,
    };
    let mode = outcomes.mode();
    if let Some(kind @ (ProbeKind::Fentry | ProbeKind::Kprobe | ProbeKind::Tracepoint)) =
        options.kind
        && mode != kind.name()
    {
        let first = if kind == ProbeKind::Tracepoint { Hook::DirectReclaim } else { Hook::Madvise };
        let reason = outcomes.reason(first).unwrap_or_default();
        return Err(OpenError::NoProbes { kind: kind.name(), reason });
    }
    if options.audit
        && let Some(reason) = outcomes.reason(Hook::Unmap)
    {
        tracing::warn!("no audit: {reason}");
    }
    let page_size = rustix::param::page_size() as u64;
    let resolved = resolve(&offer, page_size);
    let kernel = Facts { release: offer.release, mglru: offer.mglru, vmemmap };
    let session = Session {
        kernel: host::release(),
        host: host::name(),
        page_size,
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        mode: mode.to_owned(),
        signals: signals(&outcomes, &resolved, kernel),
        stalls: stalls(&outcomes, &resolved),
        dependent_on_lru: dependent_on_lru(&outcomes, &resolved, kernel),
        hooks: outcomes.rows(),
        facts: facts(&offer),
    };
    Ok((probes.filter(|_| mode != ProbeKind::Procfs.name()), session))
}

impl Probes {
    /// Carries out the plan of every hook; `None` where the kernel lets this process do nothing.
    fn attach(
        options: Options,
        offer: &mut Offer,
        outcomes: &mut Outcomes,
        vmemmap: &mut u64,
    ) -> Result<Option<Self>, OpenError> {
        // Before 5.11 maps are charged to RLIMIT_MEMLOCK. Where raising it is refused, loading
        // may still work, and says so if it doesn't.
        let unlimited = Rlimit { current: None, maximum: None };
        let _refused = setrlimit(Resource::Memlock, unlimited);

        let level = if options.kernel_log { u8::MAX } else { 0 };
        let page_size = rustix::param::page_size() as u64;
        let mut resolved = resolve(offer, page_size);
        let mut bpf = match load(&resolved.layout, level) {
            Ok(bpf) => bpf,
            Err(error) => {
                let refused = refused_to_all(&error, offer.release);
                for hook in hooks(options) {
                    let plan = plan(hook, offer, options.kind);
                    outcomes.insert(hook, plan.carry_out(|candidate| Err(refused(candidate))));
                }
                return Ok(None);
            }
        };
        // Whether kernel memory may be read is found out by doing so; the lockdown that would
        // tell needn't be readable.
        if offer.types.is_ok() {
            offer.memory = match load_by_hand(&mut bpf, PEEK) {
                Ok(()) => Memory::Readable,
                Err(error) => closed(offer.privileges.lockdown, &error),
            };
        }
        if !offer.memory.may_be_read() {
            resolved = resolve(offer, page_size);
            bpf = load(&resolved.layout, level).map_err(|e| OpenError::Load(describe(&e)))?;
        }
        tracing::debug!("created the maps");
        let mut counts = Counts::take(&mut bpf).map_err(|e| OpenError::Load(describe(&e)))?;
        if offer.memory == Memory::Readable {
            counts.learn_addresses(by_hand(&mut bpf, PEEK), &resolved);
            if counts.vmemmap() == 0 && resolved.pages.is_ok() {
                match vmemmap::derive(&mut bpf, &mut counts, resolved.layout.page_size) {
                    Ok(base) => counts.set_vmemmap(base),
                    Err(why) => tracing::debug!("vmemmap_base can't be derived: {why}"),
                }
            }
        }
        *vmemmap = counts.vmemmap();
        tracing::debug!("learned the kernel's addresses");

        let mut attaching = Attaching { bpf: &mut bpf, offer, programs: Vec::new(), btf: None };
        for hook in hooks(options) {
            let plan = plan(hook, offer, options.kind);
            outcomes.insert(hook, plan.carry_out(|candidate| attaching.all(candidate)));
            tracing::debug!("done with hook {}", hook.name());
        }
        let programs = attaching.programs;
        if programs.is_empty() {
            return Ok(None);
        }
        counts.watch(programs);
        if offer.memory == Memory::Readable
            && let Err(error) = prime(&mut bpf)
        {
            tracing::warn!("a call that is under way now may be missed: {}", describe(&error));
        }
        let logger = options.kernel_log.then(|| {
            EbpfLogger::init_with_logger(&mut bpf, tracing_log::LogTracer::new())
                .inspect_err(|e| tracing::warn!("the probes' diagnostics can't be read: {e}"))
        });
        Ok(Some(Self { counts, logger: logger.and_then(Result::ok), bpf }))
    }

    /// Reads what was counted. Not a snapshot of one instant: CPUs are read one after another.
    pub fn read(&mut self) -> Result<Reading, MapError> {
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        self.counts.read(by_hand(&mut self.bpf, PEEK))
    }

    /// Sets the number of free pages below which marking counts as under pressure.
    pub fn set_throttle_threshold(&mut self, pages: u64) {
        self.counts.set_throttle_threshold(pages);
    }
}

/// The hooks that are asked for.
fn hooks(options: Options) -> impl Iterator<Item = Hook> {
    Hook::ALL.into_iter().filter(move |hook| *hook != Hook::Unmap || options.audit)
}

fn load(layout: &Layout, log_level: u8) -> Result<Ebpf, EbpfError> {
    EbpfLoader::new()
        // The types of the kernel are read once, by us: the object has nothing to relocate.
        .btf(None)
        .override_global(layout::GLOBAL, bytemuck::bytes_of(layout), true)
        .override_global(aya_log::LEVEL, &log_level, false)
        .load(OBJECT)
}

/// The maps could not be made, which all programs need.
fn refused_to_all(
    error: &EbpfError,
    release: Release,
) -> impl Fn(&Candidate) -> Box<Refused> + use<> {
    let (cause, reason, fix) = refusal_of_maps(error, release);
    move |candidate| {
        Box::new(Refused {
            kind: candidate.entry,
            symbol: candidate.symbol.to_owned(),
            cause,
            reason: reason.clone(),
            fix: fix.clone(),
            verifier_log: String::new(),
        })
    }
}

/// Programs that are never attached, but run by hand.
const PEEK: &str = "peek";
const PRIME: &str = "prime";

/// A program to run by hand, if it could be loaded.
fn by_hand<'a>(bpf: &'a mut Ebpf, name: &str) -> Option<&'a RawTracePoint> {
    let program: &mut RawTracePoint = bpf.program_mut(name)?.try_into().ok()?;
    program.fd().is_ok().then_some(program)
}

/// What to say where the program that reads kernel memory is refused.
fn closed(lockdown: Option<Lockdown>, error: &ProgramError) -> Memory {
    let (cause, fix) = match lockdown {
        Some(Lockdown::Confidentiality) => ("lockdown=confidentiality".to_owned(), UNLOCK),
        // It may be locked down without telling this process.
        None => (describe(error), UNLOCK),
        Some(Lockdown::None | Lockdown::Integrity) => (describe(error), ""),
    };
    Memory::Closed { why: format!("programs may not read kernel memory ({cause})"), fix }
}

fn load_by_hand(bpf: &mut Ebpf, name: &str) -> Result<(), ProgramError> {
    let program = bpf.program_mut(name).ok_or(ProgramError::NotLoaded)?;
    TryInto::<&mut RawTracePoint>::try_into(program)?.load()
}

/// Takes the first reading of the telescoping counters on each CPU.
fn prime(bpf: &mut Ebpf) -> Result<(), ProgramError> {
    load_by_hand(bpf, PRIME)?;
    let program = by_hand(bpf, PRIME).ok_or(ProgramError::NotLoaded)?;
    let cpus = online_cpus().map_err(|(_, error)| ProgramError::IOError(error))?;
    for cpu in cpus {
        let mut options = RawTracePointRunOptions::new();
        options.cpu = Some(cpu);
        program.test_run(options)?;
    }
    Ok(())
}

/// Programs being attached.
struct Attaching<'a> {
    bpf: &'a mut Ebpf,
    offer: &'a Offer,
    /// Those that are, so far.
    programs: Vec<AttachedProgram>,
    /// The kernel's types as aya reads them; only trampolines need them, and reading takes long.
    btf: Option<Btf>,
}

impl Attaching<'_> {
    /// Attaches all programs of a candidate, or none.
    fn all(&mut self, candidate: &Candidate) -> Result<(), Box<Refused>> {
        let before = self.programs.len();
        for program in &candidate.programs {
            let plan::Program { name, kind, symbol } = program;
            match self.one(name, symbol, *kind) {
                Ok(fd) => self.programs.push(AttachedProgram {
                    name: name.clone(),
                    symbol,
                    family: candidate.family,
                    kind: *kind,
                    fd,
                    tells_misses: tells_misses(*kind, self.offer.release),
                }),
                Err(error) => {
                    for program in self.programs.split_off(before) {
                        self.detach(&program.name);
                    }
                    // Loaded, and of no use.
                    self.detach(name);
                    tracing::debug!(symbol, "{} refused: {}", kind.name(), describe(&error));
                    let Candidate { entry, symbol, .. } = candidate;
                    return Err(Box::new(refusal(*entry, symbol, &error, self.offer)));
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, name: &str, symbol: &str, kind: HookKind) -> Result<i32, ProgramError> {
        let trampoline = matches!(kind, HookKind::Fentry | HookKind::Fexit);
        if trampoline && self.btf.is_none() {
            let bytes = host::btf().map_err(|error| ProgramError::IOError(error.error))?;
            self.btf = Some(Btf::parse(&bytes, Endianness::default())?);
        }
        let btf = self.btf.as_ref().filter(|_| trampoline);
        let program = self.bpf.program_mut(name).ok_or(ProgramError::NotLoaded)?;
        match (&mut *program, btf) {
            (Program::FEntry(program), Some(btf)) => {
                program.load(symbol, btf)?;
                program.attach()?;
            }
            (Program::FExit(program), Some(btf)) => {
                program.load(symbol, btf)?;
                program.attach()?;
            }
            (Program::KProbe(program), None) => {
                program.load()?;
                program.attach(symbol, 0)?;
            }
            (Program::RawTracePoint(program), None) => {
                program.load()?;
                program.attach(symbol)?;
            }
            (Program::TracePoint(program), None) => {
                program.load()?;
                program.attach("syscalls", symbol)?;
            }
            _ => return Err(ProgramError::UnexpectedProgramType),
        }
        Ok(program.fd()?.as_fd().as_raw_fd())
    }

    /// Unloading a program drops its links.
    fn detach(&mut self, name: &str) {
        let unloaded = match self.bpf.program_mut(name) {
            Some(Program::FEntry(program)) => program.unload(),
            Some(Program::FExit(program)) => program.unload(),
            Some(Program::KProbe(program)) => program.unload(),
            Some(Program::RawTracePoint(program)) => program.unload(),
            Some(Program::TracePoint(program)) => program.unload(),
            _ => return,
        };
        match unloaded {
            Ok(()) | Err(ProgramError::NotLoaded) => {}
            Err(error) => tracing::warn!("cannot unload {name}: {error}"),
        }
    }
}

/// Trampolines and raw tracepoints count what they skip from 5.12 on, perf's probes from 6.7 on.
fn tells_misses(kind: HookKind, release: Release) -> bool {
    let perf = matches!(kind, HookKind::Kprobe | HookKind::Kretprobe | HookKind::Tracepoint);
    !perf || release >= Release::new(6, 7)
}
