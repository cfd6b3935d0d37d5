//! Addresses of symbols, and names of functions, from `/proc/kallsyms`. Pure: text in, facts out.

use std::collections::BTreeMap;

use super::hook::Hook;

/// Data symbols that the layout needs.
pub const DATA: [&str; 6] = [
    "__per_cpu_offset",
    "vm_event_states",
    "cpu_fbatches",
    "lru_pvecs",
    "vm_zone_stat",
    "vmemmap_base",
];

/// The data, and the functions that are hooked under every name that they have had.
pub fn wanted() -> Vec<&'static str> {
    let functions = Hook::ALL.iter().flat_map(|hook| hook.targets()).map(|target| target.symbol);
    DATA.into_iter().chain(functions).collect()
}

/// The symbols that were looked for and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    addresses: BTreeMap<String, u64>,
    functions: BTreeMap<String, Presence>,
}

/// What became of a function in this build of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// It is there under its name.
    Exact,
    /// It is there only as a clone, under this name. The compiler took arguments away (`.isra.0`),
    /// replaced them by constants (`.constprop.0`) or did something that we don't know (any other
    /// suffix), so that arguments may not be where the source says.
    Changed(String),
    /// It isn't there, since it was inlined, has another name, or wasn't looked for. Pieces split
    /// off from it (`.cold`, `.part.0`) aren't the function.
    #[default]
    Absent,
}

impl Symbols {
    /// Picks the symbols named in `wanted` out of kallsyms lines, and the clones of functions among
    /// them. Symbols of modules, which carry the module's name in a fourth column, are left out.
    pub fn pick<'a>(lines: impl Iterator<Item = &'a str>, wanted: &[&str]) -> Self {
        let mut symbols = Self::default();
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(symbol), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (name, suffix) = symbol.split_once('.').unwrap_or((symbol, ""));
            if wanted.contains(&name) {
                symbols.add(address, kind, symbol, name, suffix);
            }
        }
        symbols
    }

    fn add(&mut self, address: &str, kind: &str, symbol: &str, name: &str, suffix: &str) {
        let Ok(address) = u64::from_str_radix(address, 16) else { return };
        let exact = symbol == name;
        if exact {
            self.addresses.insert(name.to_owned(), address);
        }
        let is_code = matches!(kind, "T" | "t" | "W" | "w");
        // A number alone is for a variable local to a function, and 7.3 has variables of kind `t`.
        let is_number = !exact && suffix.bytes().all(|byte| byte.is_ascii_digit());
        let is_piece = suffix.split('.').any(|word| matches!(word, "cold" | "part"));
        if !is_code || is_number || is_piece {
            return;
        }
        if exact {
            self.functions.insert(name.to_owned(), Presence::Exact);
        } else {
            let changed = || Presence::Changed(symbol.to_owned());
            self.functions.entry(name.to_owned()).or_insert_with(changed);
        }
    }

    /// Address of a symbol; `None` also where the kernel hides addresses (`kptr_restrict`).
    pub fn address(&self, name: &str) -> Option<u64> {
        self.addresses.get(name).copied().filter(|address| *address != 0)
    }

    /// Whether the symbol is there, and its address is hidden.
    pub fn hides(&self, name: &str) -> bool {
        self.addresses.get(name) == Some(&0)
    }

    /// What became of a function; addresses needn't be shown for that.
    pub fn function(&self, name: &str) -> Presence {
        self.functions.get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{KERNELS, hide, since},
        *,
    };

    const TEXT: &str = "\
ffffffff82a00000 D vm_zone_stat
0000000000023480 A vm_event_states
ffffffffc0101000 d vm_zone_stat\t[other]
ffffffff81234560 t shrink_folio_list.cold
ffffffff81234500 t shrink_folio_list
";

    #[test]
    fn picks_exact_names_of_the_kernel_itself() {
        let symbols = Symbols::pick(
            TEXT.lines(),
            &["vm_zone_stat", "vm_event_states", "shrink_folio_list", "try_to_unmap"],
        );
        assert_eq!(symbols.address("vm_zone_stat"), Some(0xffff_ffff_82a0_0000));
        assert_eq!(symbols.address("vm_event_states"), Some(0x23480));
        assert_eq!(symbols.address("shrink_folio_list"), Some(0xffff_ffff_8123_4500));
        assert_eq!(symbols.address("try_to_unmap"), None);
    }

    #[test]
    fn hidden_addresses_are_no_addresses() {
        let symbols = Symbols::pick("0000000000000000 D vm_zone_stat\n".lines(), &["vm_zone_stat"]);
        assert!(symbols.hides("vm_zone_stat"));
        assert_eq!(symbols.address("vm_zone_stat"), None);
        // What isn't there isn't hidden.
        assert!(!symbols.hides("vm_event_states"));
    }

    #[test]
    fn finds_the_layouts_symbols_on_every_recorded_kernel_among_their_look_alikes() {
        for kernel in KERNELS {
            let symbols = kernel.symbols();
            let batches = since(kernel.release(), "lru_pvecs", &[((6, 1), "cpu_fbatches")]);
            for name in DATA {
                let ending = format!(" {name}");
                let line = kernel.kallsyms.lines().find(|line| line.ends_with(&ending));
                let expected = line.map(|line| u64::from_str_radix(&line[..16], 16).unwrap());
                assert_eq!(symbols.address(name), expected, "{name} of {}", kernel.uname);
                let either = ["lru_pvecs", "cpu_fbatches"].contains(&name) && name != batches;
                assert_eq!(expected.is_none(), either, "{name} of {}", kernel.uname);
            }
            assert!(!symbols.hides(batches));
            assert!(kernel.hidden_symbols().hides(batches));
        }
    }

    #[test]
    fn every_recorded_kernel_has_the_functions_under_their_names_of_the_time() {
        for kernel in KERNELS {
            let from = |first, changes| since(kernel.release(), first, changes);
            let swap_free = from(
                "free_swap_and_cache",
                &[((6, 12), "free_swap_and_cache_nr"), ((7, 0), "swap_put_entries_direct")],
            );
            let there = [
                "madvise_free_pte_range",
                "isolate_migratepages_block",
                "try_to_compact_pages",
                "try_to_unmap",
                from("shrink_page_list", &[((6, 1), "shrink_folio_list")]),
                swap_free,
            ];
            let all: Vec<_> = wanted().into_iter().chain(there).collect();
            let shown = Symbols::pick(kernel.kallsyms.lines(), &all);
            let hidden: Vec<_> = hide(kernel.kallsyms).collect();
            let hidden = Symbols::pick(hidden.iter().map(String::as_str), &all);
            for name in all.iter().filter(|name| !DATA.contains(name)) {
                let expected =
                    if there.contains(name) { Presence::Exact } else { Presence::Absent };
                assert_eq!(shown.function(name), expected, "{name} of {}", kernel.uname);
                assert_eq!(hidden.function(name), expected, "{name} of {}", kernel.uname);
            }
        }
    }

    #[test]
    fn a_clone_is_told_from_the_function_and_a_piece_is_neither() {
        let presence = |names: &[&str]| {
            let lines: Vec<_> = names.iter().map(|name| format!("{:016x} t {name}", 0)).collect();
            Symbols::pick(lines.iter().map(String::as_str), &["f"]).function("f")
        };
        let changed = |name: &str| Presence::Changed(name.to_owned());
        for (names, expected) in [
            (&["f"][..], Presence::Exact),
            (&["f.isra.0"], changed("f.isra.0")),
            (&["f.constprop.0"], changed("f.constprop.0")),
            (&["f.constprop.0.isra.0"], changed("f.constprop.0.isra.0")),
            (&["f.llvm.123"], changed("f.llvm.123")),
            // A piece of a clone, and the clone of a piece.
            (&["f.isra.0.cold"], Presence::Absent),
            (&["f.part.0.isra.0"], Presence::Absent),
            (&["f.cold"], Presence::Absent),
            (&["f.part.0"], Presence::Absent),
            (&["f.0"], Presence::Absent),
            (&["f."], Presence::Absent),
            // The order of lines doesn't matter.
            (&["f.cold", "f"], Presence::Exact),
            (&["f.isra.0", "f"], Presence::Exact),
            (&["f", "f.isra.0"], Presence::Exact),
            (&["f.isra.0", "f.isra.1"], changed("f.isra.0")),
            // Other names.
            (&["__pfx_f", "ff", "f_nr", "f\t[module]", "f.isra.0\t[module]"], Presence::Absent),
            (&[], Presence::Absent),
        ] {
            assert_eq!(presence(names), expected, "{names:?}");
        }
    }

    #[test]
    fn a_variable_is_no_function() {
        let lines = "ffffffff90200000 d f.0\nffffffff90200010 D f\n";
        let symbols = Symbols::pick(lines.lines(), &["f"]);
        assert_eq!(symbols.function("f"), Presence::Absent);
        assert_eq!(symbols.address("f"), Some(0xffff_ffff_9020_0010));
    }

    #[test]
    fn broken_lines_are_passed_over() {
        for line in ["", " ", "f", "t f", "0 t", "xyz t f", "1ffffffffffffffff t f", "0 t .f"] {
            let symbols = Symbols::pick([line].into_iter(), &["f", ""]);
            assert_eq!(symbols.function("f"), Presence::Absent, "{line:?}");
            assert_eq!(symbols.address("f"), None, "{line:?}");
        }
    }
}
