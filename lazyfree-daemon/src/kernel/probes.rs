//! Loads the eBPF object, chooses a kind for each hook, and attaches.

use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::{
    Btf, Ebpf, EbpfError, EbpfLoader, include_bytes_aligned,
    maps::MapError,
    programs::{
        KProbeError, Program, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _,
    },
    sys::SyscallError,
    util::online_cpus,
};
use aya_log::EbpfLogger;
use lazyfree_common::layout;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{
    counts::{Counts, Reading},
    hook::{Hook, Target},
    host::{self, Unreadable},
    layout::resolve,
    plan::{Attached, Facts, Outcomes, signals},
    release::Release,
    types::Types,
};
use crate::{
    sample::{FamilyName, Session},
    signal::HookKind,
};

/// The kernel side; empty in a build without it.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lazyfree-ebpf"));

/// The two ways to hook a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// BPF trampolines: fentry and fexit.
    Fentry,
    /// kprobe and kretprobe.
    Kprobe,
}

impl Family {
    const fn name(self) -> &'static str {
        match self {
            Family::Fentry => "fentry",
            Family::Kprobe => "kprobe",
        }
    }

    const fn kinds(self) -> (HookKind, HookKind) {
        match self {
            Family::Fentry => (HookKind::Fentry, HookKind::Fexit),
            Family::Kprobe => (HookKind::Kprobe, HookKind::Kretprobe),
        }
    }
}

/// What to attach.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Only this family; without it, fentry where it works and kprobe where it doesn't.
    pub family: Option<Family>,
    /// Also count folio by folio at `try_to_unmap`.
    pub audit: bool,
    /// Let the probes' own diagnostics through.
    pub kernel_log: bool,
}

/// Why nothing can be observed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A build without the kernel side.
    #[error("this lazyfree was built without its eBPF programs; build it with `cargo xtask build`")]
    NoObject,
    /// BPF is for the privileged.
    #[error(
        "the kernel refused to create BPF maps ({0}): run lazyfree as root, or give it \
         CAP_BPF, CAP_PERFMON and CAP_SYSLOG"
    )]
    NotPermitted(String),
    /// No type information.
    #[error(
        "{0}; lazyfree takes the kernel's structure offsets from there, and the kernel has to be \
         built with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf(Unreadable),
    /// Type information that can't be read.
    #[error("the kernel's type information ({path}) makes no sense: {0}", path = host::BTF)]
    BadBtf(String),
    /// No symbol table.
    #[error("{0}; lazyfree needs CONFIG_KALLSYMS=y and /proc")]
    NoSymbols(Unreadable),
    /// A release that isn't a number.
    #[error("cannot read a version out of the kernel's release `{0}`")]
    BadRelease(String),
    /// The family that was asked for doesn't work.
    #[error(
        "no {family} probe could be attached: {reason}; leave out --probes to try the other kind"
    )]
    NoProbes {
        /// The family.
        family: &'static str,
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
    /// Kernel function.
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

impl Probes {
    /// Attaches what can be attached. In a [`Session`] of mode `vmstat` that is nothing.
    pub fn open(options: Options) -> Result<(Self, Session), OpenError> {
        if OBJECT.is_empty() {
            return Err(OpenError::NoObject);
        }
        let btf_bytes = host::btf().map_err(OpenError::NoBtf)?;
        let types = Types::parse(&btf_bytes).map_err(|e| OpenError::BadBtf(e.to_string()))?;
        let btf = Btf::parse(&btf_bytes, aya::Endianness::default())
            .map_err(|e| OpenError::BadBtf(e.to_string()))?;
        let symbols = host::symbols().map_err(OpenError::NoSymbols)?;
        let (kernel, release) = host::release();
        let release = release.ok_or_else(|| OpenError::BadRelease(kernel.clone()))?;
        let page_size = rustix::param::page_size() as u64;
        let resolved = resolve(&types, &symbols, release, page_size);

        // Before 5.11 maps are charged to RLIMIT_MEMLOCK. Where raising it is refused, loading
        // may still work, and says so if it doesn't.
        let unlimited = Rlimit { current: None, maximum: None };
        let _refused = setrlimit(Resource::Memlock, unlimited);

        let level = if options.kernel_log { u8::MAX } else { 0 };
        let layout_bytes = bytemuck::bytes_of(&resolved.layout);
        let mut bpf = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global(layout::GLOBAL, layout_bytes, true)
            .override_global(aya_log::LEVEL, &level, false)
            .load(OBJECT)
            .map_err(load_error)?;

        let mut counts = Counts::take(&mut bpf).map_err(|e| OpenError::Load(describe(&e)))?;
        match load_by_hand(&mut bpf, PEEK) {
            Ok(()) => counts.learn_addresses(by_hand(&mut bpf, PEEK), &resolved),
            Err(error) => tracing::warn!("kernel memory can't be read: {}", describe(&error)),
        }

        let (outcomes, programs) = attach_all(&mut bpf, &btf, &types, options, release);
        if let (Some(family), "vmstat") = (options.family, outcomes.mode()) {
            let reason = outcomes.madvise.err().unwrap_or_default();
            return Err(OpenError::NoProbes { family: family.name(), reason });
        }
        if let (true, Err(reason)) = (options.audit, &outcomes.unmap) {
            tracing::warn!("no audit: {reason}");
        }
        counts.watch(programs);
        if let Err(error) = prime(&mut bpf) {
            tracing::warn!("a call that is under way now may be missed: {}", describe(&error));
        }
        let facts = Facts { release, mglru: host::mglru(), vmemmap: counts.vmemmap() };
        let session = Session {
            kernel,
            host: host::name(),
            page_size,
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            mode: outcomes.mode().to_owned(),
            signals: signals(&outcomes, &resolved, facts),
            stalls: Vec::new(),
            hooks: Vec::new(),
            facts: Vec::new(),
        };
        let logger = options.kernel_log.then(|| {
            EbpfLogger::init_with_logger(&mut bpf, tracing_log::LogTracer::new())
                .inspect_err(|e| tracing::warn!("the probes' diagnostics can't be read: {e}"))
        });
        Ok((Self { counts, logger: logger.and_then(Result::ok), bpf }, session))
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

/// Programs that are never attached, but run by hand.
const PEEK: &str = "peek";
const PRIME: &str = "prime";

/// A program to run by hand, if it could be loaded.
fn by_hand<'a>(bpf: &'a mut Ebpf, name: &str) -> Option<&'a RawTracePoint> {
    let program: &mut RawTracePoint = bpf.program_mut(name)?.try_into().ok()?;
    program.fd().is_ok().then_some(program)
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

/// Attaches every hook that is asked for.
fn attach_all(
    bpf: &mut Ebpf,
    btf: &Btf,
    types: &Types,
    options: Options,
    release: Release,
) -> (Outcomes, Vec<AttachedProgram>) {
    let mut outcomes = Outcomes::all(&Err("not asked for".to_owned()));
    let mut programs = Vec::new();
    for hook in Hook::ALL {
        if hook == Hook::Unmap && !options.audit {
            continue;
        }
        let outcome = hook.find(types).and_then(|target| {
            let families = match options.family {
                Some(family) => vec![family],
                None => vec![Family::Fentry, Family::Kprobe],
            };
            let mut refusals = Vec::new();
            for family in families {
                match attach_pair(bpf, btf, &target, family) {
                    Ok(pair) => {
                        programs.extend(pair.map(|(name, kind, fd)| AttachedProgram {
                            name,
                            symbol: target.symbol,
                            family: hook.family(),
                            kind,
                            fd,
                            tells_misses: family == Family::Fentry || release >= Release::new(6, 7),
                        }));
                        let (entry, exit) = family.kinds();
                        let exit = target.returns.then_some(exit);
                        return Ok(Attached { symbol: target.symbol, entry, exit });
                    }
                    Err(error) => {
                        tracing::debug!(
                            symbol = target.symbol,
                            "{} refused: {error}",
                            family.name()
                        );
                        refusals.push(format!("{}: {}", family.name(), refusal(&error)));
                    }
                }
            }
            Err(format!("{} can't be hooked: {}", target.symbol, refusals.join("; ")))
        });
        *outcomes.get_mut(hook) = outcome;
    }
    (outcomes, programs)
}

/// Attaches to the return and the entry of a function; both or none.
fn attach_pair(
    bpf: &mut Ebpf,
    btf: &Btf,
    target: &Target,
    family: Family,
) -> Result<impl Iterator<Item = (String, HookKind, i32)> + use<>, ProgramError> {
    let (entry, exit) = family.kinds();
    // The return first, so that no call is seen at entry whose return isn't.
    let kinds = if target.returns { vec![exit, entry] } else { vec![entry] };
    let mut attached = Vec::new();
    for kind in kinds {
        let name = format!("{}_{}", kind.name(), target.program);
        match attach(bpf, btf, &name, target.symbol, kind) {
            Ok(fd) => attached.push((name, kind, fd)),
            Err(error) => {
                for (name, ..) in attached {
                    detach(bpf, &name);
                }
                return Err(error);
            }
        }
    }
    Ok(attached.into_iter())
}

fn attach(
    bpf: &mut Ebpf,
    btf: &Btf,
    name: &str,
    symbol: &str,
    kind: HookKind,
) -> Result<i32, ProgramError> {
    let program = bpf.program_mut(name).ok_or(ProgramError::NotLoaded)?;
    match (kind, &mut *program) {
        (HookKind::Fentry, Program::FEntry(program)) => {
            program.load(symbol, btf)?;
            program.attach()?;
        }
        (HookKind::Fexit, Program::FExit(program)) => {
            program.load(symbol, btf)?;
            program.attach()?;
        }
        (HookKind::Kprobe | HookKind::Kretprobe, Program::KProbe(program)) => {
            program.load()?;
            program.attach(symbol, 0)?;
        }
        _ => return Err(ProgramError::UnexpectedProgramType),
    }
    Ok(program.fd()?.as_fd().as_raw_fd())
}

/// Unloading a program drops its links.
fn detach(bpf: &mut Ebpf, name: &str) {
    let unloaded = match bpf.program_mut(name) {
        Some(Program::FEntry(program)) => program.unload(),
        Some(Program::FExit(program)) => program.unload(),
        Some(Program::KProbe(program)) => program.unload(),
        _ => return,
    };
    if let Err(error) = unloaded {
        tracing::warn!("cannot unload {name}: {error}");
    }
}

fn load_error(error: EbpfError) -> OpenError {
    let refused = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    if refused {
        OpenError::NotPermitted(describe(&error))
    } else {
        OpenError::Load(describe(&error))
    }
}

/// Why a program couldn't be loaded or attached, in words that lead on.
fn refusal(error: &ProgramError) -> String {
    match error {
        // The kind of perf event that kprobes are attached through isn't registered.
        ProgramError::KProbeError(KProbeError::FileError { io_error, .. })
            if io_error.kind() == std::io::ErrorKind::NotFound =>
        {
            "this kernel has no kprobe events; it would have to be built with \
             CONFIG_KPROBE_EVENTS=y"
                .to_owned()
        }
        ProgramError::SyscallError(SyscallError { call: "perf_event_open", io_error })
            if io_error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "perf_event_open is refused (Permission denied): set kernel.perf_event_paranoid to 2 or \
             less, or run as root"
                .to_owned()
        }
        ProgramError::LoadError { io_error, verifier_log }
            if io_error.kind() == std::io::ErrorKind::PermissionDenied
                && verifier_log.to_string().trim().is_empty() =>
        {
            "BPF_PROG_LOAD is refused before verification (Operation not permitted): a security \
             module or a restriction of this machine forbids such programs"
                .to_owned()
        }
        _ => describe(error),
    }
}

/// Longest part of a verifier's log that fits into a reason; the end of it says what is wrong.
const LOG_LINES: usize = 4;

/// An error with its causes, on one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    for error in std::iter::successors(Some(error), |error| error.source()) {
        let text = error.to_string();
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let tail = lines.len().saturating_sub(LOG_LINES).max(1).min(lines.len());
        let text = [&lines[..lines.len().min(1)], &lines[tail..]].concat().join(" | ");
        if !causes.iter().any(|cause| cause.contains(&text)) {
            causes.push(text);
        }
    }
    causes.join(": ")
}
