//! From what a kernel offers to what is tried for each hook, in which order. Pure.
//!
//! A function is hooked with a BPF trampoline, else with a kprobe; where neither works a tracepoint
//! may tell some of it. A prototype or a tracepoint that isn't as our programs expect it is
//! refused here, with the reason, and never guessed.

use super::{
    hook::{Hook, NotFound, Point, Points, Reads, Target},
    offer::{Memory, Offer},
    privileges::{Capability, Lockdown, Privileges, Tracefs},
    symbols::Presence,
};
use crate::{
    sample::{Cause, FamilyName, Refused},
    signal::HookKind,
};

/// What a process needs to attach anything.
pub const PRIVILEGES: &str = "run as root, or give it CAP_BPF, CAP_PERFMON and CAP_SYSLOG";

/// How kernel memory is opened to programs.
pub const UNLOCK: &str = "boot with lockdown=integrity or without lockdown";

/// How tracefs is mounted.
pub const MOUNT_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing";

/// What to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProbeKind {
    /// BPF trampolines on functions: fentry and fexit.
    Fentry,
    /// kprobe and kretprobe on functions.
    Kprobe,
    /// Only tracepoints.
    Tracepoint,
    /// Nothing: only what /proc has.
    Procfs,
}

impl ProbeKind {
    /// As the argument is spelled.
    pub const fn name(self) -> &'static str {
        match self {
            ProbeKind::Fentry => "fentry",
            ProbeKind::Kprobe => "kprobe",
            ProbeKind::Tracepoint => "tracepoint",
            ProbeKind::Procfs => "procfs",
        }
    }
}

/// A program and where it is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name in the object.
    pub name: String,
    /// Kind.
    pub kind: HookKind,
    /// Function or tracepoint.
    pub symbol: &'static str,
}

/// Programs that are attached together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Function, or the tracepoint that tells most.
    pub symbol: &'static str,
    /// Kind of the program at entry, or of all of them.
    pub entry: HookKind,
    /// Kind of the program at return, where there is one.
    pub exit: Option<HookKind>,
    /// In the order of attaching: what ends something before what begins it.
    pub programs: Vec<Program>,
    /// The family that is followed from entry to return.
    pub family: Option<FamilyName>,
}

impl Candidate {
    /// Whether one of its programs is attached there.
    pub fn is_on(&self, symbol: &str) -> bool {
        self.programs.iter().any(|program| program.symbol == symbol)
    }
}

/// What is tried for a hook, in this order, and what isn't even tried.
#[derive(Clone, Debug, PartialEq)]
pub struct HookPlan {
    /// Which.
    pub hook: Hook,
    tries: Vec<Result<Candidate, Refused>>,
}

/// What came of a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What is attached.
    pub attached: Option<Candidate>,
    /// What would have been better, and why it isn't.
    pub refused: Vec<Refused>,
}

impl HookPlan {
    /// Tries one candidate after the other until `attach` succeeds with one.
    pub fn carry_out(
        self,
        mut attach: impl FnMut(&Candidate) -> Result<(), Box<Refused>>,
    ) -> Outcome {
        let mut outcome = Outcome { attached: None, refused: Vec::new() };
        for candidate in self.tries {
            let refused = match candidate {
                Ok(candidate) => match attach(&candidate) {
                    Ok(()) => {
                        outcome.attached = Some(candidate);
                        return outcome;
                    }
                    Err(refused) => *refused,
                },
                Err(refused) => refused,
            };
            outcome.refused.push(refused);
        }
        outcome
    }
}

/// A plan in the making.
struct Try<'a> {
    hook: Hook,
    offer: &'a Offer,
    tries: Vec<Result<Candidate, Refused>>,
}

/// The plan of a hook.
pub fn plan(hook: Hook, offer: &Offer, wanted: Option<ProbeKind>) -> HookPlan {
    let mut tries = Try { hook, offer, tries: Vec::new() };
    let functions = match wanted {
        None => &[ProbeKind::Fentry, ProbeKind::Kprobe][..],
        Some(ProbeKind::Fentry) => &[ProbeKind::Fentry],
        Some(ProbeKind::Kprobe) => &[ProbeKind::Kprobe],
        Some(ProbeKind::Tracepoint | ProbeKind::Procfs) => &[],
    };
    let has_function = !hook.targets().is_empty();
    if has_function {
        functions.iter().for_each(|kind| tries.function(*kind));
    }
    let points = match wanted {
        None | Some(ProbeKind::Tracepoint) => true,
        // What only tracepoints tell belongs to either.
        Some(ProbeKind::Fentry | ProbeKind::Kprobe) => !has_function,
        Some(ProbeKind::Procfs) => false,
    };
    if points {
        hook.points().iter().for_each(|points| tries.points(points));
    }
    HookPlan { hook, tries: tries.tries }
}

/// Why something isn't tried.
struct Reason {
    cause: Cause,
    reason: String,
    fix: String,
}

impl Reason {
    fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self { cause, reason: reason.into(), fix: String::new() }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: fix.into(), ..self }
    }
}

impl Try<'_> {
    fn refuse(&mut self, kind: HookKind, symbol: &str, reason: Reason) {
        let Reason { cause, reason, fix } = reason;
        self.tries.push(Err(Refused {
            kind,
            symbol: symbol.to_owned(),
            cause,
            reason,
            fix,
            verifier_log: String::new(),
        }));
    }

    fn function(&mut self, kind: ProbeKind) {
        let (entry, exit) = match kind {
            ProbeKind::Fentry => (HookKind::Fentry, HookKind::Fexit),
            _ => (HookKind::Kprobe, HookKind::Kretprobe),
        };
        let target =
            self.allowed(entry, self.hook.needs_memory()).and_then(|()| self.target(entry));
        let target = match target {
            Ok(target) => target,
            Err(reason) => return self.refuse(entry, self.name(), reason),
        };
        let program = |kind: HookKind| Program {
            name: format!("{}_{}", kind.name(), target.program),
            kind,
            symbol: target.symbol,
        };
        // The return first, so that no call is seen at entry whose return isn't.
        let exit = target.returns.then_some(exit);
        self.tries.push(Ok(Candidate {
            symbol: target.symbol,
            entry,
            exit,
            programs: exit.into_iter().chain([entry]).map(program).collect(),
            family: self.hook.family(),
        }));
    }

    /// The function's name on this kernel, or the newest one that is known.
    fn name(&self) -> &'static str {
        let here = self.offer.types.as_ref().ok().and_then(|types| self.hook.find(types).ok());
        here.map_or(self.hook.targets()[0].symbol, |target| target.symbol)
    }

    /// What no kind of program can do without.
    fn allowed(&self, kind: HookKind, needs_memory: bool) -> Result<(), Reason> {
        let Offer { privileges, config, memory, .. } = self.offer;
        if let Some(reason) = not_privileged(privileges) {
            return Err(Reason::new(Cause::NotPermitted, reason).fix(PRIVILEGES));
        }
        if needs_memory && let Memory::Closed { why, fix } = memory {
            let confidential = privileges.lockdown == Some(Lockdown::Confidentiality);
            let cause = if confidential { Cause::Lockdown } else { Cause::Verifier };
            return Err(Reason::new(cause, why).fix(*fix));
        }
        let is_kprobe = matches!(kind, HookKind::Kprobe | HookKind::Kretprobe);
        if is_kprobe {
            let off: Vec<_> = ["CONFIG_KPROBES", "CONFIG_KPROBE_EVENTS"]
                .into_iter()
                .filter(|option| config.is_off(option))
                .collect();
            if !off.is_empty() {
                let reason = format!("this kernel was built without {}", off.join(" and "));
                let fix = "a kernel built with CONFIG_KPROBES=y and CONFIG_KPROBE_EVENTS=y";
                return Err(Reason::new(Cause::NotBuiltIn, reason).fix(fix));
            }
            if privileges.lockdown == Some(Lockdown::Confidentiality) {
                let reason = "kprobes are forbidden (lockdown=confidentiality)";
                return Err(Reason::new(Cause::Lockdown, reason).fix(UNLOCK));
            }
        }
        Ok(())
    }

    fn target(&self, kind: HookKind) -> Result<Target, Reason> {
        let types = match &self.offer.types {
            Ok(types) => types,
            Err(why) => return self.target_without_types(kind, why),
        };
        self.hook.find(types).map_err(|error| match error {
            NotFound::Unknown(reason) => Reason::new(Cause::UnknownShape, reason),
            NotFound::Absent => self.absent_function(),
        })
    }

    /// A kprobe whose programs read no argument needs the name only.
    fn target_without_types(&self, kind: HookKind, why: &str) -> Result<Target, Reason> {
        let by_name = self.hook.targets().iter().find(|target| {
            target.takes_any_prototype()
                && self.offer.symbols.function(target.symbol) == Presence::Exact
        });
        match by_name {
            Some(target) if kind == HookKind::Kprobe => Ok(*target),
            _ => Err(no_types(why)),
        }
    }

    fn absent_function(&self) -> Reason {
        let names: Vec<_> = self.hook.targets().iter().map(|target| target.symbol).collect();
        let changed = names.iter().find_map(|name| match self.offer.symbols.function(name) {
            Presence::Changed(suffixed) => Some(suffixed),
            Presence::Exact | Presence::Absent => None,
        });
        match changed {
            Some(name) => Reason::new(
                Cause::UnknownShape,
                format!("only {name} is there: the compiler changed its arguments"),
            ),
            None => Reason::new(
                Cause::Absent,
                format!(
                    "this kernel has no function {}: it was inlined or renamed",
                    names.join(" or ")
                ),
            ),
        }
    }

    fn points(&mut self, points: &Points) {
        if let Err(reason) = self.allowed(points.kind, points.needs_memory) {
            return self.refuse(points.kind, points.symbol, reason);
        }
        let mut programs = Vec::new();
        for point in points.points {
            match self.point(points.kind, point) {
                Ok(()) => programs.push(Program {
                    name: format!("{}_{}", points.kind.name(), point.program),
                    kind: points.kind,
                    symbol: point.name,
                }),
                // That it has changed is something to know of; that it isn't there yet is not.
                Err(reason) if point.optional => {
                    if reason.cause != Cause::Absent {
                        self.refuse(points.kind, point.name, reason);
                    }
                }
                Err(reason) => return self.refuse(points.kind, point.name, reason),
            }
        }
        self.tries.push(Ok(Candidate {
            symbol: points.symbol,
            entry: points.kind,
            exit: None,
            programs,
            family: self.hook.family().filter(|_| points.follows),
        }));
    }

    /// Whether a tracepoint is there, and as our program expects it.
    fn point(&self, kind: HookKind, point: &Point) -> Result<(), Reason> {
        let Point { name, reads, .. } = point;
        let absent = || Reason::new(Cause::Absent, format!("this kernel has no tracepoint {name}"));
        if let Reads::Record(fields) = reads {
            match &self.offer.privileges.tracefs {
                Tracefs::At(_) => {}
                Tracefs::Absent => {
                    let reason = "tracefs isn't mounted, or shows no events";
                    return Err(Reason::new(Cause::NoTracefs, reason).fix(MOUNT_TRACEFS));
                }
                Tracefs::Forbidden(path) => {
                    let reason = format!("{} may not be read", path.display());
                    return Err(Reason::new(Cause::NotPermitted, reason).fix("run as root"));
                }
            }
            let format = self
                .offer
                .formats
                .get(*name)
                .ok_or_else(|| absent().fix("a kernel built with CONFIG_FTRACE_SYSCALLS=y"))?;
            return format
                .expect(name, fields)
                .map_err(|differs| Reason::new(Cause::UnknownShape, differs));
        }
        debug_assert_eq!(kind, HookKind::RawTracepoint);
        match (&self.offer.types, reads) {
            (Ok(types), _) => {
                let arguments = types.raw_tracepoint(name).ok_or_else(absent)?;
                let expected = if let Reads::Arguments(expected) = reads { *expected } else { &[] };
                if arguments.len() < expected.len()
                    || arguments.iter().zip(expected).any(|(found, expected)| found != expected)
                {
                    let reason = format!(
                        "tracepoint {name} should start with the arguments ({}), but has ({})",
                        expected.join(", "),
                        arguments.join(", ")
                    );
                    return Err(Reason::new(Cause::UnknownShape, reason));
                }
                Ok(())
            }
            (Err(_), Reads::Nothing) => Ok(()),
            (Err(why), _) => Err(no_types(why)),
        }
    }
}

/// What this process lacks to attach anything, if that is known.
fn not_privileged(privileges: &Privileges) -> Option<String> {
    let capabilities = privileges.capabilities?;
    let missing: Vec<_> = [Capability::Bpf, Capability::Perfmon]
        .into_iter()
        .filter(|capability| !capabilities.allows(*capability))
        .map(|capability| capability.to_string())
        .collect();
    if !missing.is_empty() {
        return Some(format!("this process lacks {}", missing.join(" and ")));
    }
    (privileges.host_user_ids == Some(false))
        .then(|| "this process runs in a user namespace, where capabilities are not enough".into())
}

fn no_types(why: &str) -> Reason {
    Reason::new(Cause::NoTypes, why).fix("a kernel built with CONFIG_DEBUG_INFO_BTF=y, and /sys")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        super::{
            config::Config,
            fixture::{KERNELS, Kernel, refusing, since},
            privileges::Capabilities,
            release::Release,
            symbols::Symbols,
        },
        *,
    };

    fn best(hook: Hook, offer: &Offer) -> Outcome {
        refusing(&[], hook, offer, None)
    }

    /// `kind:symbol` of what is attached.
    fn attached(outcome: &Outcome) -> Option<String> {
        let candidate = outcome.attached.as_ref()?;
        Some(format!("{}:{}", candidate.entry.name(), candidate.symbol))
    }

    fn causes(outcome: &Outcome) -> Vec<(HookKind, Cause)> {
        outcome.refused.iter().map(|refused| (refused.kind, refused.cause)).collect()
    }

    const NO_FUNCTIONS: [HookKind; 2] = [HookKind::Fentry, HookKind::Kprobe];

    #[test]
    fn the_first_choice_on_every_recorded_kernel() {
        for kernel in KERNELS {
            let from = |first, changes| since(kernel.release(), first, changes);
            let offer = kernel.offer();
            for (hook, expected) in [
                (Hook::Madvise, "fentry:madvise_free_pte_range"),
                (
                    Hook::SwapFree,
                    from(
                        "fentry:free_swap_and_cache",
                        &[
                            ((6, 12), "fentry:free_swap_and_cache_nr"),
                            ((7, 0), "fentry:swap_put_entries_direct"),
                        ],
                    ),
                ),
                (
                    Hook::Reclaim,
                    from("fentry:shrink_page_list", &[((6, 1), "fentry:shrink_folio_list")]),
                ),
                (Hook::Isolate, "fentry:isolate_migratepages_block"),
                (Hook::DirectReclaim, "raw_tracepoint:mm_vmscan_direct_reclaim_begin"),
                (Hook::MemcgReclaim, "raw_tracepoint:mm_vmscan_memcg_reclaim_begin"),
                (Hook::DirectCompaction, "fentry:try_to_compact_pages"),
                (
                    Hook::Throttle,
                    from(
                        "raw_tracepoint:writeback_congestion_wait",
                        &[((6, 1), "raw_tracepoint:mm_vmscan_throttled")],
                    ),
                ),
                (Hook::Unmap, "fentry:try_to_unmap"),
            ] {
                let outcome = best(hook, &offer);
                assert_eq!(attached(&outcome).as_deref(), Some(expected), "{}", kernel.uname);
                // What is newer than the kernel is told, if it would have been better.
                let newer = hook == Hook::Throttle && expected.contains("congestion");
                assert_eq!(outcome.refused.is_empty(), !newer, "{hook:?} of {}", kernel.uname);
            }
        }
    }

    #[test]
    fn where_functions_cant_be_hooked_tracepoints_tell_what_they_can() {
        for kernel in KERNELS {
            let offer = kernel.offer();
            let old = kernel.release() < Release::new(6, 1);
            for (hook, expected) in [
                (Hook::Madvise, Some("tracepoint:sys_enter_madvise")),
                (Hook::SwapFree, None),
                (Hook::Reclaim, Some("raw_tracepoint:mm_vmscan_lru_shrink_inactive")),
                (Hook::Isolate, Some("raw_tracepoint:mm_compaction_isolate_migratepages")),
                // In 5.10 mm_compaction_begin doesn't say on whose behalf.
                (Hook::DirectCompaction, (!old).then_some("raw_tracepoint:mm_compaction_begin")),
                (Hook::Unmap, None),
            ] {
                let outcome = refusing(&NO_FUNCTIONS, hook, &offer, None);
                assert_eq!(attached(&outcome).as_deref(), expected, "{}", kernel.uname);
                let kinds: Vec<_> = outcome.refused.iter().map(|refused| refused.kind).collect();
                assert_eq!(kinds[..2], NO_FUNCTIONS, "{hook:?}");
                assert!(outcome.refused[0].reason.contains("this host refuses"));
            }
            let reclaim = refusing(&NO_FUNCTIONS, Hook::Reclaim, &offer, None).attached.unwrap();
            let tells = reclaim.is_on("mm_vmscan_reclaim_pages");
            assert_eq!(tells, kernel.release() >= Release::new(6, 16), "{}", kernel.uname);
            let isolate = refusing(&NO_FUNCTIONS, Hook::Isolate, &offer, None).attached.unwrap();
            assert_eq!(isolate.is_on("mm_compaction_begin"), !old, "{}", kernel.uname);
        }
    }

    #[test]
    fn what_ends_something_is_attached_before_what_begins_it() {
        let offer = Kernel::of(7, 3).offer();
        for hook in Hook::ALL {
            for refused in [&[][..], &NO_FUNCTIONS] {
                let Some(candidate) = refusing(refused, hook, &offer, None).attached else {
                    continue;
                };
                let names: Vec<_> = candidate.programs.iter().map(|p| p.name.as_str()).collect();
                let place = |parts: &[&str]| {
                    names.iter().position(|name| parts.iter().any(|part| name.contains(part)))
                };
                let ends = place(&["fexit", "kretprobe", "_end", "_exit"]);
                let begins = place(&["fentry", "kprobe_", "_begin", "_enter"]);
                if let (Some(ends), Some(begins)) = (ends, begins) {
                    assert!(ends < begins, "{names:?}");
                }
            }
        }
    }

    #[test]
    fn only_what_is_asked_for_is_tried() {
        let offer = Kernel::of(6, 12).offer();
        let kinds = |wanted| -> Vec<Option<HookKind>> {
            let hooks = [Hook::Madvise, Hook::Reclaim, Hook::SwapFree, Hook::DirectReclaim];
            let attached = hooks.map(|hook| refusing(&[], hook, &offer, Some(wanted)).attached);
            attached.into_iter().map(|candidate| Some(candidate?.entry)).collect()
        };
        use HookKind::{Fentry, Kprobe, RawTracepoint, Tracepoint};
        let raw = Some(RawTracepoint);
        assert_eq!(kinds(ProbeKind::Fentry), [Some(Fentry), Some(Fentry), Some(Fentry), raw]);
        assert_eq!(kinds(ProbeKind::Kprobe), [Some(Kprobe), Some(Kprobe), Some(Kprobe), raw]);
        assert_eq!(kinds(ProbeKind::Tracepoint), [Some(Tracepoint), raw, None, raw]);
        assert_eq!(kinds(ProbeKind::Procfs), [None; 4]);
        // And what isn't doesn't stand in for it.
        let refused = refusing(&[Fentry], Hook::Madvise, &offer, Some(ProbeKind::Fentry));
        assert_eq!(attached(&refused), None);
    }

    #[test]
    fn a_symbol_that_the_compiler_changed_is_no_function() {
        let kernel = Kernel::of(6, 12);
        for (symbols, cause, word) in [
            ("shrink_folio_list.constprop.0", Cause::UnknownShape, "shrink_folio_list.constprop.0"),
            ("shrink_folio_list.isra.0", Cause::UnknownShape, "shrink_folio_list.isra.0"),
            ("shrink_folio_list.cold", Cause::Absent, "inlined or renamed"),
            ("shrink_folio_list.part.0", Cause::Absent, "inlined or renamed"),
            ("shrink_folio_lists", Cause::Absent, "shrink_folio_list or shrink_page_list"),
        ] {
            let line = format!("ffffffff81000000 t {symbols}");
            let offer = Offer {
                types: Ok(kernel.types_with(&[("shrink_folio_list", "shrink_xxxxx_list")])),
                symbols: Symbols::pick([line.as_str()].into_iter(), &["shrink_folio_list"]),
                ..kernel.offer()
            };
            let outcome = best(Hook::Reclaim, &offer);
            assert_eq!(
                attached(&outcome).as_deref(),
                Some("raw_tracepoint:mm_vmscan_lru_shrink_inactive")
            );
            let functions = [(HookKind::Fentry, cause), (HookKind::Kprobe, cause)];
            assert_eq!(causes(&outcome), functions, "{symbols}");
            let reason = &outcome.refused[0].reason;
            assert!(reason.contains(word), "{symbols}: {reason}");
        }
    }

    #[test]
    fn types_without_functions_leave_the_tracepoints() {
        let kernel = Kernel::of(6, 18);
        let names: Vec<_> = Hook::ALL.iter().flat_map(|hook| hook.targets()).collect();
        let types = kernel.types();
        let names = names.iter().filter(|target| types.function(target.symbol).is_some());
        let renamed: Vec<_> =
            names.map(|target| (target.symbol, "x".repeat(target.symbol.len()))).collect();
        let renamed: Vec<_> = renamed.iter().map(|(name, other)| (*name, other.as_str())).collect();
        let offer = Offer { types: Ok(kernel.types_with(&renamed)), ..kernel.offer() };
        for hook in Hook::ALL {
            let outcome = best(hook, &offer);
            let kind = outcome.attached.map(|candidate| candidate.entry);
            let expected = match hook {
                Hook::SwapFree | Hook::Unmap => None,
                Hook::Madvise => Some(HookKind::Tracepoint),
                _ => Some(HookKind::RawTracepoint),
            };
            assert_eq!(kind, expected, "{hook:?}");
        }
    }

    #[test]
    fn another_prototype_is_refused_and_said() {
        let kernel = Kernel::of(6, 12);
        let types = kernel.types_with(&[("low_pfn", "end_pfn"), ("end_pfn", "low_pfn")]);
        let offer = Offer { types: Ok(types), ..kernel.offer() };
        let outcome = best(Hook::Isolate, &offer);
        let functions =
            [(HookKind::Fentry, Cause::UnknownShape), (HookKind::Kprobe, Cause::UnknownShape)];
        assert_eq!(causes(&outcome), functions);
        assert!(outcome.refused[0].reason.contains("argument 1 of isolate_migratepages_block"));
    }

    #[test]
    fn a_tracepoint_with_other_arguments_is_refused_and_said() {
        let kernel = Kernel::of(7, 3);
        let types = kernel.types_with(&[("reclaim_stat", "xxxxxxx_stat")]);
        let offer = Offer { types: Ok(types), ..kernel.offer() };
        let outcome = refusing(&NO_FUNCTIONS, Hook::Reclaim, &offer, None);
        assert_eq!(attached(&outcome), None);
        let last = outcome.refused.last().unwrap();
        assert_eq!((last.kind, last.cause), (HookKind::RawTracepoint, Cause::UnknownShape));
        assert!(last.reason.contains("struct reclaim_stat *"), "{}", last.reason);
        // One that goes without arguments is not asked for them.
        let renamed = kernel.types_with(&[("mem_cgroup", "xxx_cgroup")]);
        let offer = Offer { types: Ok(renamed), ..kernel.offer() };
        assert!(best(Hook::MemcgReclaim, &offer).attached.is_some());
    }

    #[test]
    fn a_tracepoint_that_is_gone_is_absent_and_an_optional_one_is_done_without() {
        let kernel = Kernel::of(7, 3);
        let gone = |name: &str| {
            let from = format!("btf_trace_{name}");
            let to = "x".repeat(from.len());
            Offer { types: Ok(kernel.types_with(&[(&from, &to)])), ..kernel.offer() }
        };
        let offer = gone("mm_vmscan_direct_reclaim_end");
        let outcome = best(Hook::DirectReclaim, &offer);
        assert_eq!(causes(&outcome), [(HookKind::RawTracepoint, Cause::Absent)]);
        assert_eq!(outcome.refused[0].symbol, "mm_vmscan_direct_reclaim_end");
        let offer = gone("mm_vmscan_reclaim_pages");
        let outcome = refusing(&NO_FUNCTIONS, Hook::Reclaim, &offer, None);
        assert!(outcome.refused.iter().all(|refused| NO_FUNCTIONS.contains(&refused.kind)));
        assert_eq!(outcome.attached.unwrap().programs.len(), 1);
    }

    #[test]
    fn an_optional_tracepoint_that_is_not_as_we_know_it_is_said_beside_what_is_attached() {
        // It gives page frames there, and no compact_control.
        let offer = Kernel::of(5, 10).offer();
        let outcome = refusing(&NO_FUNCTIONS, Hook::Isolate, &offer, None);
        assert_eq!(outcome.attached.unwrap().programs.len(), 1);
        let refused =
            outcome.refused.iter().filter(|refused| !NO_FUNCTIONS.contains(&refused.kind));
        let refused: Vec<_> = refused.map(|row| (&*row.symbol, row.cause)).collect();
        let shape = Cause::UnknownShape;
        assert_eq!(refused, [("mm_compaction_end", shape), ("mm_compaction_begin", shape)]);
    }

    #[test]
    fn without_types_only_what_reads_no_argument_is_tried() {
        for kernel in KERNELS {
            let why = "this kernel shows no type information".to_owned();
            let offer = Offer { types: Err(why.clone()), ..kernel.offer() };
            let one_at_a_time = kernel.release() < Release::new(6, 12);
            for (hook, expected) in [
                (Hook::Madvise, Some("tracepoint:sys_enter_madvise")),
                (Hook::SwapFree, one_at_a_time.then_some("kprobe:free_swap_and_cache")),
                (Hook::Reclaim, None),
                (Hook::Isolate, None),
                (Hook::DirectReclaim, Some("raw_tracepoint:mm_vmscan_direct_reclaim_begin")),
                (Hook::MemcgReclaim, Some("raw_tracepoint:mm_vmscan_memcg_reclaim_begin")),
                (Hook::DirectCompaction, Some("kprobe:try_to_compact_pages")),
                (Hook::Throttle, None),
            ] {
                let outcome = best(hook, &offer);
                assert_eq!(attached(&outcome).as_deref(), expected, "{hook:?} {}", kernel.uname);
                for refused in &outcome.refused {
                    assert_eq!((refused.cause, &refused.reason), (Cause::NoTypes, &why));
                    assert!(refused.fix.contains("CONFIG_DEBUG_INFO_BTF"));
                }
            }
        }
    }

    #[test]
    fn without_capabilities_nothing_is_tried() {
        let capabilities = Some(Capabilities::default());
        let privileges = Privileges { capabilities, ..Privileges::default() };
        let offer = Offer { privileges, ..Kernel::of(6, 12).offer() };
        for hook in Hook::ALL {
            let outcome = best(hook, &offer);
            assert_eq!(attached(&outcome), None);
            assert!(!outcome.refused.is_empty(), "{hook:?}");
            for refused in &outcome.refused {
                assert_eq!(refused.cause, Cause::NotPermitted);
                assert!(refused.reason.contains("CAP_BPF and CAP_PERFMON"), "{}", refused.reason);
                assert_eq!(refused.fix, PRIVILEGES);
            }
        }
    }

    #[test]
    fn closed_memory_gets_the_fix_of_its_cause_and_no_other() {
        for fix in ["", UNLOCK] {
            let memory = Memory::Closed { why: "refused by the verifier".to_owned(), fix };
            let outcome = best(Hook::Reclaim, &Offer { memory, ..Kernel::of(6, 12).offer() });
            assert_eq!(attached(&outcome), None);
            for refused in &outcome.refused {
                assert_eq!((refused.cause, refused.fix.as_str()), (Cause::Verifier, fix));
            }
        }
    }

    #[test]
    fn under_confidentiality_what_reads_no_memory_is_left() {
        // tracefs is closed then, too.
        let privileges = Privileges {
            lockdown: Some(Lockdown::Confidentiality),
            tracefs: Tracefs::Absent,
            ..Privileges::default()
        };
        let why = "programs may not read kernel memory".to_owned();
        let memory = Memory::Closed { why, fix: UNLOCK };
        let offer = Offer { privileges, memory, ..Kernel::of(6, 12).offer() };
        let kinds: BTreeMap<_, _> =
            Hook::ALL.map(|hook| (hook, attached(&best(hook, &offer)))).into_iter().collect();
        let expected = |hook: Hook, name: &str| (hook, Some(name.to_owned()));
        assert_eq!(
            kinds,
            BTreeMap::from([
                expected(Hook::Madvise, "fentry:madvise_free_pte_range"),
                expected(Hook::SwapFree, "fentry:free_swap_and_cache_nr"),
                (Hook::Reclaim, None),
                expected(Hook::Isolate, "raw_tracepoint:mm_compaction_isolate_migratepages"),
                expected(Hook::DirectReclaim, "raw_tracepoint:mm_vmscan_direct_reclaim_begin"),
                expected(Hook::MemcgReclaim, "raw_tracepoint:mm_vmscan_memcg_reclaim_begin"),
                expected(Hook::DirectCompaction, "fentry:try_to_compact_pages"),
                expected(Hook::Throttle, "raw_tracepoint:mm_vmscan_throttled"),
                (Hook::Unmap, None),
            ])
        );
        let refused = refusing(&[HookKind::Fentry], Hook::Madvise, &offer, None);
        let causes: Vec<_> = refused.refused.iter().map(|refused| refused.cause).collect();
        assert_eq!(causes, [Cause::Refused, Cause::Lockdown, Cause::NoTracefs]);
    }

    #[test]
    fn a_kernel_built_without_kprobes_is_told_by_its_options() {
        let config = Config::parse(b"# CONFIG_KPROBES is not set\nCONFIG_BPF=y\n");
        let offer = Offer { config, ..Kernel::of(6, 18).offer() };
        let outcome = refusing(&[HookKind::Fentry], Hook::Madvise, &offer, None);
        let refused = &outcome.refused[1];
        assert_eq!((refused.kind, refused.cause), (HookKind::Kprobe, Cause::NotBuiltIn));
        assert!(refused.reason.contains("CONFIG_KPROBES"), "{}", refused.reason);
        assert!(refused.fix.contains("CONFIG_KPROBE_EVENTS=y"), "{}", refused.fix);
    }

    #[test]
    fn without_tracefs_a_record_cant_be_known() {
        let offer = Offer { privileges: Privileges::default(), ..Kernel::of(6, 18).offer() };
        let outcome = refusing(&NO_FUNCTIONS, Hook::Madvise, &offer, None);
        assert_eq!(attached(&outcome), None);
        let last = outcome.refused.last().unwrap();
        assert_eq!((last.kind, last.cause), (HookKind::Tracepoint, Cause::NoTracefs));
        assert!(last.fix.contains("mount -t tracefs"), "{}", last.fix);
    }
}
