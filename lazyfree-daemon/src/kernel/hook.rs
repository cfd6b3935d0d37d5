//! The hooks: what is to be seen, and by which programs on which functions or tracepoints it can
//! be. Pure.

use super::types::Types;
use crate::{sample::FamilyName, signal::HookKind};

/// Something that programs are attached for, whatever they are attached to on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// MADV_FREE of up to one PMD.
    Madvise,
    /// Freeing of swap entries; what isn't inside [`Hook::Madvise`] is filtered out.
    SwapFree,
    /// A batch of reclaim.
    Reclaim,
    /// An isolation of compaction.
    Isolate,
    /// Waits in direct reclaim.
    DirectReclaim,
    /// Waits in reclaim of a memory cgroup.
    MemcgReclaim,
    /// Waits in direct compaction.
    DirectCompaction,
    /// Waits that reclaim imposes.
    Throttle,
    /// One folio of reclaim; only for the audit.
    Unmap,
}

/// A kernel function under one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the function.
    pub symbol: &'static str,
    /// What follows `fentry_`, `kprobe_` and so on in the names of our programs.
    pub program: &'static str,
    /// Whether the return is hooked as well as the entry.
    pub returns: bool,
    /// The arguments that our programs read: position and name.
    arguments: &'static [(usize, &'static str)],
}

impl Target {
    /// Whether its programs read no argument, so that any prototype will do.
    pub fn takes_any_prototype(&self) -> bool {
        self.arguments.is_empty()
    }
}

/// A program on a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Name of the tracepoint, without its category.
    pub name: &'static str,
    /// What follows `raw_tracepoint_` or `tracepoint_` in the name of our program.
    pub program: &'static str,
    /// What our program reads of it.
    pub reads: Reads,
    /// Whether the hook is worth having on a kernel that doesn't have this tracepoint, as long as
    /// there is another one.
    pub optional: bool,
}

/// What a program reads of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Nothing but that it was reached.
    Nothing,
    /// Arguments of a raw tracepoint, from the first up to the last that is read, by their types.
    Arguments(&'static [&'static str]),
    /// Fields of the record of a system call: name, offset and size.
    Record(&'static [(&'static str, u32, u32)]),
}

/// Tracepoints that are attached together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Points {
    /// Raw, or with a record.
    pub kind: HookKind,
    /// The one that is named for all of them.
    pub symbol: &'static str,
    /// Each of them.
    pub points: &'static [Point],
    /// Whether the programs are of no use where kernel memory may not be read.
    pub needs_memory: bool,
    /// Whether they follow the hook's family from begin to end.
    pub follows: bool,
}

/// `unsigned long`, as the type information spells it.
const LONG: &str = "unsigned long";

const NID_SCANNED_RECLAIMED_STAT: Reads =
    Reads::Arguments(&["int", LONG, LONG, "struct reclaim_stat *"]);
const CONTROL: Reads = Reads::Arguments(&["struct compact_control *"]);

/// The last first, so that nothing is seen to begin whose end isn't.
const fn end_and_begin(
    end: (&'static str, &'static str),
    begin: (&'static str, &'static str),
) -> [Point; 2] {
    const fn point((name, program): (&'static str, &'static str)) -> Point {
        Point { name, program, reads: Reads::Nothing, optional: false }
    }
    [point(end), point(begin)]
}

const DIRECT_RECLAIM: &[Point] = &end_and_begin(
    ("mm_vmscan_direct_reclaim_end", "direct_reclaim_end"),
    ("mm_vmscan_direct_reclaim_begin", "direct_reclaim_begin"),
);
const MEMCG_RECLAIM: &[Point] = &end_and_begin(
    ("mm_vmscan_memcg_reclaim_end", "memcg_reclaim_end"),
    ("mm_vmscan_memcg_reclaim_begin", "memcg_reclaim_begin"),
);

impl Hook {
    /// Every hook, in the order in which they are attached.
    pub const ALL: [Hook; 9] = [
        Hook::Madvise,
        Hook::SwapFree,
        Hook::Reclaim,
        Hook::Isolate,
        Hook::DirectReclaim,
        Hook::MemcgReclaim,
        Hook::DirectCompaction,
        Hook::Throttle,
        Hook::Unmap,
    ];

    /// Value of the `hook` label.
    pub const fn name(self) -> &'static str {
        match self {
            Hook::Madvise => "madvise_free",
            Hook::SwapFree => "swap_free",
            Hook::Reclaim => "reclaim",
            Hook::Isolate => "isolate",
            Hook::DirectReclaim => "direct_reclaim",
            Hook::MemcgReclaim => "memcg_reclaim",
            Hook::DirectCompaction => "compaction",
            Hook::Throttle => "throttle",
            Hook::Unmap => "unmap",
        }
    }

    /// The family whose calls the programs follow from entry to return.
    pub const fn family(self) -> Option<FamilyName> {
        match self {
            Hook::Madvise => Some(FamilyName::Madvise),
            Hook::Reclaim => Some(FamilyName::Reclaim),
            Hook::Isolate => Some(FamilyName::Isolate),
            Hook::DirectReclaim => Some(FamilyName::DirectReclaim),
            Hook::MemcgReclaim => Some(FamilyName::MemcgReclaim),
            Hook::DirectCompaction => Some(FamilyName::DirectCompaction),
            Hook::Throttle => Some(FamilyName::Throttle),
            Hook::SwapFree | Hook::Unmap => None,
        }
    }

    /// The names that the function has had, newest first; empty where tracepoints tell it better.
    pub const fn targets(self) -> &'static [Target] {
        const SWAP_FREE_MANY: Target = Target {
            symbol: "swap_put_entries_direct",
            program: "swap_free_many",
            returns: false,
            arguments: &[(1, "nr")],
        };
        const SHRINK: Target = Target {
            symbol: "shrink_folio_list",
            program: "reclaim",
            returns: true,
            arguments: &[(1, "pgdat"), (2, "sc"), (3, "stat")],
        };
        match self {
            Hook::Madvise => &[Target {
                symbol: "madvise_free_pte_range",
                program: "madvise_free",
                returns: true,
                arguments: &[(1, "addr"), (2, "end")],
            }],
            Hook::SwapFree => &[
                SWAP_FREE_MANY,
                Target { symbol: "free_swap_and_cache_nr", ..SWAP_FREE_MANY },
                Target {
                    symbol: "free_swap_and_cache",
                    program: "swap_free_one",
                    arguments: &[],
                    ..SWAP_FREE_MANY
                },
            ],
            Hook::Reclaim => &[SHRINK, Target { symbol: "shrink_page_list", ..SHRINK }],
            Hook::Isolate => &[Target {
                symbol: "isolate_migratepages_block",
                program: "isolate",
                returns: true,
                arguments: &[(0, "cc"), (1, "low_pfn")],
            }],
            Hook::DirectCompaction => &[Target {
                symbol: "try_to_compact_pages",
                program: "direct_compaction",
                returns: true,
                arguments: &[],
            }],
            Hook::Unmap => &[Target {
                symbol: "try_to_unmap",
                program: "unmap",
                returns: true,
                arguments: &[(1, "flags")],
            }],
            Hook::DirectReclaim | Hook::MemcgReclaim | Hook::Throttle => &[],
        }
    }

    /// Whether the programs on the function are of no use where kernel memory may not be read.
    pub const fn needs_memory(self) -> bool {
        matches!(self, Hook::Reclaim | Hook::Isolate | Hook::Unmap)
    }

    /// The tracepoints that tell what the function would, or some of it; the better ones first.
    pub const fn points(self) -> &'static [Points] {
        match self {
            Hook::Madvise => &[Points {
                kind: HookKind::Tracepoint,
                symbol: "sys_enter_madvise",
                points: &[
                    Point {
                        name: "sys_exit_madvise",
                        program: "madvise_exit",
                        reads: Reads::Record(&[("ret", 16, 8)]),
                        optional: false,
                    },
                    Point {
                        name: "sys_enter_madvise",
                        program: "madvise_enter",
                        reads: Reads::Record(&[("len_in", 24, 8), ("behavior", 32, 8)]),
                        optional: false,
                    },
                ],
                needs_memory: false,
                follows: true,
            }],
            Hook::Reclaim => &[Points {
                kind: HookKind::RawTracepoint,
                symbol: "mm_vmscan_lru_shrink_inactive",
                points: &[
                    Point {
                        name: "mm_vmscan_lru_shrink_inactive",
                        program: "shrink_inactive",
                        reads: NID_SCANNED_RECLAIMED_STAT,
                        optional: false,
                    },
                    Point {
                        name: "mm_vmscan_reclaim_pages",
                        program: "reclaim_pages",
                        reads: NID_SCANNED_RECLAIMED_STAT,
                        optional: true,
                    },
                ],
                needs_memory: true,
                follows: false,
            }],
            Hook::Isolate => &[Points {
                kind: HookKind::RawTracepoint,
                symbol: "mm_compaction_isolate_migratepages",
                points: &[
                    Point {
                        name: "mm_compaction_isolate_migratepages",
                        program: "isolate",
                        reads: Reads::Arguments(&[LONG, LONG, LONG, LONG]),
                        optional: false,
                    },
                    Point {
                        name: "mm_compaction_end",
                        program: "compaction_end",
                        reads: CONTROL,
                        optional: true,
                    },
                    Point {
                        name: "mm_compaction_begin",
                        program: "compaction_begin",
                        reads: CONTROL,
                        optional: true,
                    },
                ],
                needs_memory: false,
                follows: false,
            }],
            Hook::DirectReclaim => &[Points {
                kind: HookKind::RawTracepoint,
                symbol: "mm_vmscan_direct_reclaim_begin",
                points: DIRECT_RECLAIM,
                needs_memory: false,
                follows: true,
            }],
            Hook::MemcgReclaim => &[Points {
                kind: HookKind::RawTracepoint,
                symbol: "mm_vmscan_memcg_reclaim_begin",
                points: MEMCG_RECLAIM,
                needs_memory: false,
                follows: true,
            }],
            Hook::DirectCompaction => &[Points {
                kind: HookKind::RawTracepoint,
                symbol: "mm_compaction_begin",
                points: &[
                    Point {
                        name: "mm_compaction_end",
                        program: "direct_compaction_end",
                        reads: CONTROL,
                        optional: false,
                    },
                    Point {
                        name: "mm_compaction_begin",
                        program: "direct_compaction_begin",
                        reads: CONTROL,
                        optional: false,
                    },
                ],
                needs_memory: true,
                follows: true,
            }],
            Hook::Throttle => &[
                Points {
                    kind: HookKind::RawTracepoint,
                    symbol: "mm_vmscan_throttled",
                    points: &[Point {
                        name: "mm_vmscan_throttled",
                        program: "throttled",
                        reads: Reads::Arguments(&["int", "int", "int"]),
                        optional: false,
                    }],
                    needs_memory: false,
                    follows: true,
                },
                Points {
                    kind: HookKind::RawTracepoint,
                    symbol: "writeback_congestion_wait",
                    points: &[
                        Point {
                            name: "writeback_congestion_wait",
                            program: "congestion_wait",
                            reads: Reads::Arguments(&["unsigned int", "unsigned int"]),
                            optional: false,
                        },
                        Point {
                            name: "writeback_wait_iff_congested",
                            program: "wait_iff_congested",
                            reads: Reads::Arguments(&["unsigned int", "unsigned int"]),
                            optional: true,
                        },
                    ],
                    needs_memory: false,
                    follows: true,
                },
            ],
            Hook::SwapFree | Hook::Unmap => &[],
        }
    }

    /// The function on this kernel, or why there is none.
    pub fn find(self, types: &Types) -> Result<Target, NotFound> {
        let targets = self.targets();
        let found = targets.iter().find_map(|t| Some((t, types.function(t.symbol)?)));
        let Some((target, prototype)) = found else { return Err(NotFound::Absent) };
        for (position, name) in target.arguments {
            let parameter = prototype.parameters.get(*position);
            if parameter.is_none_or(|parameter| parameter != name) {
                return Err(NotFound::Unknown(format!(
                    "argument {position} of {} should be {name}, but the function is ({})",
                    target.symbol,
                    prototype.parameters.join(", ")
                )));
            }
        }
        Ok(*target)
    }
}

/// Why there is no function that our programs could be attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// None of its names is there.
    Absent,
    /// It is there in a shape that our programs don't know.
    Unknown(String),
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{KERNELS, Kernel, since},
        *,
    };

    #[test]
    fn finds_every_function_of_every_recorded_kernel_under_its_name_there() {
        for kernel in KERNELS {
            let from = |first, changes| since(kernel.release(), first, changes);
            let expected = [
                (Hook::Madvise, ("madvise_free_pte_range", "madvise_free")),
                (
                    Hook::SwapFree,
                    from(
                        ("free_swap_and_cache", "swap_free_one"),
                        &[
                            ((6, 12), ("free_swap_and_cache_nr", "swap_free_many")),
                            ((7, 0), ("swap_put_entries_direct", "swap_free_many")),
                        ],
                    ),
                ),
                (
                    Hook::Reclaim,
                    from(
                        ("shrink_page_list", "reclaim"),
                        &[((6, 1), ("shrink_folio_list", "reclaim"))],
                    ),
                ),
                (Hook::Isolate, ("isolate_migratepages_block", "isolate")),
                (Hook::DirectCompaction, ("try_to_compact_pages", "direct_compaction")),
                (Hook::Unmap, ("try_to_unmap", "unmap")),
            ];
            let with_function = Hook::ALL.into_iter().filter(|hook| !hook.targets().is_empty());
            assert!(with_function.eq(expected.map(|(hook, _)| hook)));
            let types = kernel.types();
            for (hook, (symbol, program)) in expected {
                let target = hook.find(&types).unwrap();
                assert_eq!((target.symbol, target.program), (symbol, program), "{}", kernel.uname);
            }
        }
    }

    #[test]
    fn a_function_that_is_gone_is_absent() {
        let types = Kernel::of(6, 12).types_with(&[
            ("shrink_folio_list", "shrink_pages_list"),
            ("try_to_unmap", "try_to_xxxxx"),
        ]);
        assert_eq!(Hook::Reclaim.find(&types), Err(NotFound::Absent));
        assert_eq!(Hook::Unmap.find(&types), Err(NotFound::Absent));
    }

    /// Why a function that is there isn't taken.
    fn unknown(hook: Hook, types: &Types) -> String {
        match hook.find(types) {
            Err(NotFound::Unknown(why)) => why,
            other => panic!("{hook:?}: {other:?}"),
        }
    }

    #[test]
    fn arguments_elsewhere_or_under_another_name_are_refused() {
        let kernel = Kernel::of(6, 12);
        let moved = kernel.types_with(&[("low_pfn", "end_pfn"), ("end_pfn", "low_pfn")]);
        assert_eq!(
            unknown(Hook::Isolate, &moved),
            "argument 1 of isolate_migratepages_block should be low_pfn, \
             but the function is (cc, end_pfn, low_pfn, mode)"
        );
        let renamed = kernel.types_with(&[("pgdat", "lruve")]);
        assert_eq!(
            unknown(Hook::Reclaim, &renamed),
            "argument 1 of shrink_folio_list should be pgdat, \
             but the function is (folio_list, lruve, sc, stat, ignore_references)"
        );
        // Arguments that our programs don't read may be called anything.
        assert!(Hook::Reclaim.find(&kernel.types_with(&[("folio_list", "other_list")])).is_ok());
    }

    #[test]
    fn another_function_under_the_name_is_refused() {
        let exchanged = Kernel::of(6, 12).types_with(&[
            ("madvise_free_pte_range", "free_swap_and_cache_nr"),
            ("free_swap_and_cache_nr", "madvise_free_pte_range"),
        ]);
        assert_eq!(
            unknown(Hook::Madvise, &exchanged),
            "argument 1 of madvise_free_pte_range should be addr, but the function is (entry, nr)"
        );
        assert_eq!(
            unknown(Hook::SwapFree, &exchanged),
            "argument 1 of free_swap_and_cache_nr should be nr, \
             but the function is (pmd, addr, end, walk)"
        );
    }
}
