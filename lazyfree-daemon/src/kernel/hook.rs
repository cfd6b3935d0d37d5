//! The hooks: which kernel functions, under which names, with which arguments. Pure.

use super::types::Types;

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
