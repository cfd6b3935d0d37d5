//! Addresses from `/proc/kallsyms`. Pure: text in, addresses out.

use std::collections::BTreeMap;

/// Data symbols that the layout needs.
pub const DATA: [&str; 6] = [
    "__per_cpu_offset",
    "vm_event_states",
    "cpu_fbatches",
    "lru_pvecs",
    "vm_zone_stat",
    "vmemmap_base",
];

/// The symbols that were looked for and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols(BTreeMap<String, u64>);

impl Symbols {
    /// Picks the symbols named in `wanted` out of kallsyms lines. Symbols of modules, which carry
    /// the module's name in a fourth column, are left out.
    pub fn pick<'a>(lines: impl Iterator<Item = &'a str>, wanted: &[&str]) -> Self {
        let found = lines.filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (address, _kind, name) = (words.next()?, words.next()?, words.next()?);
            if words.next().is_some() || !wanted.contains(&name) {
                return None;
            }
            Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
        });
        Self(found.collect())
    }

    /// Address of a symbol; `None` also where the kernel hides addresses (`kptr_restrict`).
    pub fn address(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied().filter(|address| *address != 0)
    }

    /// Whether there are symbols, and all of their addresses are hidden.
    pub fn hidden(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|address| *address == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{KERNELS, since},
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
        assert!(!symbols.hidden());
    }

    #[test]
    fn hidden_addresses_are_no_addresses() {
        let symbols = Symbols::pick("0000000000000000 D vm_zone_stat\n".lines(), &["vm_zone_stat"]);
        assert!(symbols.hidden());
        assert_eq!(symbols.address("vm_zone_stat"), None);
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
            assert!(!symbols.hidden());
            assert!(kernel.hidden_symbols().hidden());
        }
    }
}
