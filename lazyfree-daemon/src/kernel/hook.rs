//! The hooks: which kernel functions, under which names, with which arguments. Pure.

use super::types::Types;
use crate::sample::FamilyName;

/// A function that is hooked, whatever its name on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// MADV_FREE of up to one PMD.
    Madvise,
    /// Freeing of swap entries; what isn't inside [`Hook::Madvise`] is filtered out.
    SwapFree,
    /// A batch of reclaim.
    Reclaim,
    /// An isolation of compaction.
    Isolate,
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

impl Hook {
    /// Every hook, in the order in which they are attached.
    pub const ALL: [Hook; 5] =
        [Hook::Madvise, Hook::SwapFree, Hook::Reclaim, Hook::Isolate, Hook::Unmap];

    /// The family whose calls the programs follow from entry to return.
    pub const fn family(self) -> Option<FamilyName> {
        match self {
            Hook::Madvise => Some(FamilyName::Madvise),
            Hook::Reclaim => Some(FamilyName::Reclaim),
            Hook::Isolate => Some(FamilyName::Isolate),
            Hook::SwapFree | Hook::Unmap => None,
        }
    }

    /// The names that the function has had, newest first.
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
            Hook::Unmap => &[Target {
                symbol: "try_to_unmap",
                program: "unmap",
                returns: true,
                arguments: &[(1, "flags")],
            }],
        }
    }

    /// The function on this kernel, or why there is none.
    pub fn find(self, types: &Types) -> Result<Target, String> {
        let targets = self.targets();
        let found = targets.iter().find_map(|t| Some((t, types.function(t.symbol)?)));
        let Some((target, prototype)) = found else {
            let names: Vec<_> = targets.iter().map(|target| target.symbol).collect();
            return Err(format!(
                "this kernel has no function {}: it was inlined or renamed",
                names.join(" or ")
            ));
        };
        for (position, name) in target.arguments {
            let parameter = prototype.parameters.get(*position);
            if parameter.is_none_or(|parameter| parameter != name) {
                return Err(format!(
                    "argument {position} of {} should be {name}, but the function is ({})",
                    target.symbol,
                    prototype.parameters.join(", ")
                ));
            }
        }
        Ok(*target)
    }
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
                (Hook::Unmap, ("try_to_unmap", "unmap")),
            ];
            assert_eq!(expected.map(|(hook, _)| hook), Hook::ALL);
            let types = kernel.types();
            for (hook, (symbol, program)) in expected {
                let target = hook.find(&types).unwrap();
                assert_eq!((target.symbol, target.program), (symbol, program), "{}", kernel.uname);
            }
        }
    }

    #[test]
    fn a_function_that_is_gone_is_reported_with_all_its_names() {
        let types = Kernel::of(6, 12).types_with(&[
            ("shrink_folio_list", "shrink_pages_list"),
            ("try_to_unmap", "try_to_xxxxx"),
        ]);
        assert_eq!(
            Hook::Reclaim.find(&types).unwrap_err(),
            "this kernel has no function shrink_folio_list or shrink_page_list: \
             it was inlined or renamed"
        );
        assert_eq!(
            Hook::Unmap.find(&types).unwrap_err(),
            "this kernel has no function try_to_unmap: it was inlined or renamed"
        );
    }

    #[test]
    fn arguments_elsewhere_or_under_another_name_are_refused() {
        let kernel = Kernel::of(6, 12);
        let moved = kernel.types_with(&[("low_pfn", "end_pfn"), ("end_pfn", "low_pfn")]);
        assert_eq!(
            Hook::Isolate.find(&moved).unwrap_err(),
            "argument 1 of isolate_migratepages_block should be low_pfn, \
             but the function is (cc, end_pfn, low_pfn, mode)"
        );
        let renamed = kernel.types_with(&[("pgdat", "lruve")]);
        assert_eq!(
            Hook::Reclaim.find(&renamed).unwrap_err(),
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
            Hook::Madvise.find(&exchanged).unwrap_err(),
            "argument 1 of madvise_free_pte_range should be addr, but the function is (entry, nr)"
        );
        assert_eq!(
            Hook::SwapFree.find(&exchanged).unwrap_err(),
            "argument 1 of free_swap_and_cache_nr should be nr, \
             but the function is (pmd, addr, end, walk)"
        );
    }
}
