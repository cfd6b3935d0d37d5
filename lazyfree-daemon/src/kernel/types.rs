//! Questions to the kernel's type information (BTF). Pure: bytes in, offsets, prototypes and
//! spellings out.

use btf_rs::{Btf, BtfType, Type};

/// The types and functions of a kernel.
pub struct Types {
    btf: Btf,
}

/// A member of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it starts, in bits.
    pub bit_offset: u32,
    /// Its type.
    type_id: u32,
}

impl Member {
    /// Where it starts, in bytes; a bit field starts somewhere in that byte.
    pub fn offset(self) -> u32 {
        self.bit_offset / 8
    }

    /// The bit of a one-bit field in its byte.
    pub fn mask(self) -> u32 {
        1 << (self.bit_offset % 8)
    }
}

/// How a function looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// Names of the parameters.
    pub parameters: Vec<String>,
    /// Size of the returned integer in bytes; `None` for anything else.
    pub returns_bytes: Option<usize>,
}

impl Types {
    /// Reads `/sys/kernel/btf/vmlinux` or a copy of it.
    pub fn parse(bytes: &[u8]) -> Result<Self, btf_rs::Error> {
        Btf::from_bytes(bytes).map(|btf| Self { btf })
    }

    /// A member by its path, `struct.member`; unions and structs without a name in between are
    /// looked through.
    pub fn member(&self, path: &str) -> Option<Member> {
        let (name, member) = path.split_once('.')?;
        let candidates = self.btf.resolve_types_by_name(name).ok()?;
        let mut structs = candidates.iter().filter(|ty| matches!(ty, Type::Struct(_)));
        structs.find_map(|ty| self.find(ty, member))
    }

    /// Offset of a member in bytes.
    pub fn offset(&self, path: &str) -> Option<u32> {
        self.member(path).map(Member::offset)
    }

    /// Length of a member that is an array.
    pub fn array_len(&self, path: &str) -> Option<u32> {
        match self.plain_type(self.member(path)?.type_id)? {
            Type::Array(array) => Some(array.len() as u32),
            _ => None,
        }
    }

    /// Size of a struct in bytes.
    pub fn size(&self, name: &str) -> Option<u32> {
        self.btf.resolve_types_by_name(name).ok()?.iter().find_map(|ty| match ty {
            Type::Struct(ty) => Some(ty.size() as u32),
            _ => None,
        })
    }

    /// Value of an enumerator.
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        self.btf.resolve_types_by_name(enumeration).ok()?.iter().find_map(|ty| match ty {
            Type::Enum(ty) => {
                let named = |member: &&btf_rs::EnumMember| self.is_named(*member, name);
                ty.members.iter().find(named).map(btf_rs::EnumMember::val)
            }
            _ => None,
        })
    }

    /// A function by its exact name.
    pub fn function(&self, name: &str) -> Option<Prototype> {
        self.btf.resolve_types_by_name(name).ok()?.iter().find_map(|ty| {
            let Type::Func(function) = ty else { return None };
            let Type::FuncProto(proto) = self.btf.resolve_chained_type(function).ok()? else {
                return None;
            };
            let parameters = proto.parameters.iter();
            Some(Prototype {
                parameters: parameters
                    .map(|parameter| self.btf.resolve_name(parameter).unwrap_or_default())
                    .collect(),
                returns_bytes: match self.plain_type(proto.return_type_id()) {
                    Some(Type::Int(int)) => Some(int.size()),
                    _ => None,
                },
            })
        })
    }

    /// The arguments of a raw tracepoint, spelled as [`Types::spelling`] does; names of arguments
    /// aren't recorded. `None` where the kernel has no such tracepoint.
    pub fn raw_tracepoint(&self, name: &str) -> Option<Vec<String>> {
        // TRACE_EVENT() leaves behind `typedef void (*btf_trace_NAME)(void *__data, ...)`, so that
        // the verifier knows what a program gets.
        let types = self.btf.resolve_types_by_name(&format!("btf_trace_{name}")).ok()?;
        types.iter().find_map(|ty| {
            let Type::Typedef(probe) = ty else { return None };
            let Type::Ptr(pointer) = self.btf.resolve_chained_type(probe).ok()? else {
                return None;
            };
            let Type::FuncProto(proto) = self.btf.resolve_chained_type(&pointer).ok()? else {
                return None;
            };
            let spell = |parameter: &btf_rs::Parameter| self.spelling(parameter.get_type_id()?);
            let (data, arguments) = proto.parameters.split_first()?;
            if spell(data)? != "void *" {
                return None;
            }
            arguments.iter().map(spell).collect()
        })
    }

    /// How C spells a type, in a way that kernels and compilers agree on: without qualifiers,
    /// typedefs replaced by what they stand for, integers by size and sign alone. What has no name
    /// has that of its typedef.
    fn spelling(&self, id: u32) -> Option<String> {
        // Longer chains occur only where types refer to each other in a circle.
        const LONGEST: usize = 32;
        let mut ty = self.btf.resolve_type_by_id(id).ok()?;
        let mut alias = String::new();
        let mut stars = String::new();
        for _ in 0..LONGEST {
            let named = |keyword: &str, ty: &dyn BtfType| match self.btf.resolve_name(ty) {
                Ok(name) if !name.is_empty() => format!("{keyword} {name}"),
                _ if alias.is_empty() => keyword.to_owned(),
                _ => alias.clone(),
            };
            let target = match &ty {
                Type::Ptr(_) => {
                    stars.push('*');
                    alias.clear();
                    None
                }
                Type::Typedef(typedef) => {
                    alias = self.btf.resolve_name(typedef).unwrap_or_default();
                    None
                }
                Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_) => None,
                Type::Void => Some("void".to_owned()),
                Type::Int(int) => Some(spell_integer(int)?.to_owned()),
                Type::Struct(ty) => Some(named("struct", ty)),
                Type::Union(ty) => Some(named("union", ty)),
                Type::Enum(ty) => Some(named("enum", ty)),
                Type::Enum64(ty) => Some(named("enum", ty)),
                Type::Fwd(ty) if ty.is_union() => Some(named("union", ty)),
                Type::Fwd(ty) => Some(named("struct", ty)),
                // No tracepoint passes any other.
                _ => return None,
            };
            match target {
                Some(target) if stars.is_empty() => return Some(target),
                Some(target) => return Some(format!("{target} {stars}")),
                None => ty = self.btf.resolve_chained_type(ty.as_btf_type()?).ok()?,
            }
        }
        None
    }

    /// A type with typedefs and qualifiers taken off.
    fn plain_type(&self, id: u32) -> Option<Type> {
        let mut ty = self.btf.resolve_type_by_id(id).ok()?;
        loop {
            ty = match &ty {
                Type::Typedef(_)
                | Type::Const(_)
                | Type::Volatile(_)
                | Type::Restrict(_)
                | Type::TypeTag(_) => self.btf.resolve_chained_type(ty.as_btf_type()?).ok()?,
                _ => return Some(ty),
            };
        }
    }

    fn find(&self, ty: &Type, name: &str) -> Option<Member> {
        let (Type::Struct(ty) | Type::Union(ty)) = ty else { return None };
        ty.members.iter().find_map(|member| {
            let here = Member { bit_offset: member.bit_offset(), type_id: member.get_type_id()? };
            if self.is_named(member, name) {
                return Some(here);
            }
            if !self.is_named(member, "") {
                return None;
            }
            let inner = self.find(&self.plain_type(here.type_id)?, name)?;
            Some(Member { bit_offset: here.bit_offset + inner.bit_offset, ..inner })
        })
    }

    fn is_named(&self, ty: &dyn BtfType, name: &str) -> bool {
        match self.btf.resolve_name(ty) {
            Ok(found) => found == name,
            // What has no name has no entry in the string table either.
            Err(_) => name.is_empty(),
        }
    }
}

/// An integer type of this size and sign; `long` has 64 bits wherever BPF runs.
fn spell_integer(int: &btf_rs::Int) -> Option<&'static str> {
    Some(match (int.is_bool(), int.size(), int.is_signed()) {
        (true, ..) => "bool",
        (_, 1, true) => "signed char",
        (_, 1, false) => "unsigned char",
        (_, 2, true) => "short",
        (_, 2, false) => "unsigned short",
        (_, 4, true) => "int",
        (_, 4, false) => "unsigned int",
        (_, 8, true) => "long",
        (_, 8, false) => "unsigned long",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{KERNELS, Kernel, since},
        *,
    };

    #[test]
    fn members_are_found_through_structs_and_unions_without_a_name() {
        let types = Kernel::of(6, 12).types();
        // struct folio { union { struct { flags; union { lru; struct { ... } }; mapping; ... } } }
        assert_eq!(types.offset("folio.mapping"), Some(24));
        // The second struct of that union starts behind the first struct page.
        assert_eq!(types.offset("folio._large_mapcount"), Some(64 + 16));
        // A member with a name is a border, even where its type has none.
        assert_eq!(Kernel::of(7, 3).types().offset("page.flags"), Some(0));
        assert_eq!(Kernel::of(7, 3).types().offset("page.f"), None);
    }

    #[test]
    fn a_bit_field_has_a_byte_and_a_bit_in_it() {
        let proactive = |major, minor| {
            let member = Kernel::of(major, minor).types().member("scan_control.proactive")?;
            Some((member.offset(), member.mask()))
        };
        assert_eq!(proactive(5, 10), None);
        assert_eq!(proactive(6, 1), Some((40, 0b1000_0000)));
        assert_eq!(proactive(6, 12), Some((49, 0b10)));
    }

    #[test]
    fn arrays_sizes_and_enumerators_are_of_the_kind_asked_for() {
        let types = Kernel::of(6, 12).types();
        assert_eq!(types.array_len("folio_batch.folios"), Some(31));
        assert_eq!(types.array_len("folio_batch.nr"), None);
        assert_eq!(types.array_len("folio_batch.pages"), None);
        assert_eq!(types.size("page"), Some(64));
        assert_eq!(types.size("pageflags"), None);
        assert_eq!(types.enumerator("pageflags", "PG_swapbacked"), Some(17));
        assert_eq!(types.enumerator("vm_event_item", "PG_swapbacked"), None);
        assert_eq!(types.enumerator("page", "PG_swapbacked"), None);
    }

    #[test]
    fn a_function_has_named_parameters_and_the_size_of_what_it_returns() {
        for kernel in KERNELS {
            let types = kernel.types();
            let isolate = types.function("isolate_migratepages_block").unwrap();
            assert_eq!(isolate.parameters[..3], ["cc", "low_pfn", "end_pfn"], "{}", kernel.uname);
            // A struct is no function, and a longer name isn't the name.
            assert_eq!(types.function("compact_control"), None);
            assert_eq!(types.function("isolate_migratepages"), None);
        }
        let returns = |kernel: Kernel, name| kernel.types().function(name).unwrap().returns_bytes;
        assert_eq!(returns(Kernel::of(5, 10), "isolate_migratepages_block"), Some(8));
        assert_eq!(returns(Kernel::of(6, 1), "isolate_migratepages_block"), Some(4));
        assert_eq!(returns(Kernel::of(5, 10), "try_to_unmap"), Some(1));
        assert_eq!(returns(Kernel::of(6, 1), "try_to_unmap"), None);
    }

    #[test]
    fn raw_tracepoints_have_the_arguments_of_their_time() {
        type Arguments = Option<&'static [&'static str]>;
        const UINT: &str = "unsigned int";
        const ULONG: &str = "unsigned long";
        const BATCH: &[&str] = &["int", ULONG, ULONG, "struct reclaim_stat *", "int", "int"];
        const CONTROL: &str = "struct compact_control *";
        const MEMCG: &str = "struct mem_cgroup *";
        for kernel in KERNELS {
            let types = kernel.types();
            let from = |first: Arguments, changed: (u32, u32), then: Arguments| {
                since(kernel.release(), first, &[(changed, then)])
            };
            let begin = from(Some(&["int", UINT]), (7, 1), Some(&[UINT, "int", MEMCG]));
            let end = from(Some(&[ULONG]), (7, 1), Some(&[ULONG, MEMCG]));
            let congestion = from(Some(&[UINT, UINT]), (6, 1), None);
            // TP_PROTO() of include/trace/events/{vmscan,compaction,kmem,writeback}.h.
            let expected: [(&str, Arguments); 15] = [
                ("mm_vmscan_lru_shrink_inactive", Some(BATCH)),
                ("mm_vmscan_reclaim_pages", from(None, (6, 16), Some(&BATCH[..4]))),
                ("mm_vmscan_direct_reclaim_begin", begin),
                ("mm_vmscan_direct_reclaim_end", end),
                ("mm_vmscan_memcg_reclaim_begin", begin),
                ("mm_vmscan_memcg_reclaim_end", end),
                ("mm_vmscan_throttled", from(None, (6, 1), Some(&["int"; 4]))),
                (
                    "mm_compaction_begin",
                    from(
                        Some(&[ULONG, ULONG, ULONG, ULONG, "bool"]),
                        (6, 1),
                        Some(&[CONTROL, ULONG, ULONG, "bool"]),
                    ),
                ),
                (
                    "mm_compaction_end",
                    from(
                        Some(&[ULONG, ULONG, ULONG, ULONG, "bool", "int"]),
                        (6, 1),
                        Some(&[CONTROL, ULONG, ULONG, "bool", "int"]),
                    ),
                ),
                ("mm_compaction_isolate_migratepages", Some(&[ULONG; 4])),
                ("mm_compaction_try_to_compact_pages", Some(&["int", UINT, "int"])),
                ("mm_page_alloc", Some(&["struct page *", UINT, UINT, "int"])),
                ("writeback_congestion_wait", congestion),
                ("writeback_wait_iff_congested", congestion),
                ("mm_no_such_tracepoint", None),
            ];
            for (name, expected) in expected {
                let found = types.raw_tracepoint(name);
                let found: Option<Vec<_>> =
                    found.as_ref().map(|found| found.iter().map(String::as_str).collect());
                assert_eq!(found.as_deref(), expected, "{name} of {}", kernel.uname);
            }
        }
    }

    /// BTF of types that refer to each other by number, counted from 1, and of their names.
    fn btf_of(types: &[&[u32]], strings: &str) -> Types {
        let types: Vec<u8> = types.concat().iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types_bytes, strings_bytes) = (types.len() as u32, strings.len() as u32);
        let words = [24, 0, types_bytes, types_bytes, strings_bytes];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(types);
        bytes.extend(strings.as_bytes());
        Types::parse(&bytes).unwrap()
    }

    const PTR: u32 = 2 << 24;
    const STRUCT: u32 = 4 << 24;
    const TYPEDEF: u32 = 8 << 24;
    const CONST: u32 = 10 << 24;
    const FUNC_PROTO: u32 = 13 << 24;

    #[test]
    fn a_spelling_sees_through_qualifiers_and_typedefs_up_to_a_name() {
        // 1: btf_trace_x -> 2: * -> 3: void (void *, const alias *const *, struct s)
        let types = btf_of(
            &[
                &[1, TYPEDEF, 2],
                &[0, PTR, 3],
                &[0, FUNC_PROTO | 3, 0, 0, 4, 0, 5, 0, 10],
                &[0, PTR, 0],
                // 5: * -> 6: const -> 7: * -> 8: alias -> 9: struct without a name
                &[0, PTR, 6],
                &[0, CONST, 7],
                &[0, PTR, 8],
                &[13, TYPEDEF, 9],
                &[0, STRUCT, 8],
                &[19, STRUCT, 8],
            ],
            "\0btf_trace_x\0alias\0s\0",
        );
        assert_eq!(types.raw_tracepoint("x").unwrap(), ["alias **", "struct s"]);
        assert_eq!(types.raw_tracepoint("y"), None);
    }

    #[test]
    fn types_in_a_circle_and_other_typedefs_are_no_raw_tracepoints() {
        // An argument that is a pointer to itself.
        let circle = btf_of(
            &[
                &[1, TYPEDEF, 2],
                &[0, PTR, 3],
                &[0, FUNC_PROTO | 2, 0, 0, 4, 0, 5],
                &[0, PTR, 0],
                &[0, PTR, 5],
            ],
            "\0btf_trace_x\0",
        );
        assert_eq!(circle.raw_tracepoint("x"), None);
        // A function that takes nothing, and one that starts with something else than void *.
        for proto in [&[0, FUNC_PROTO, 0][..], &[0, FUNC_PROTO | 1, 0, 0, 2]] {
            let other = btf_of(&[&[1, TYPEDEF, 2], &[0, PTR, 3], proto], "\0btf_trace_x\0");
            assert_eq!(other.raw_tracepoint("x"), None);
        }
        // Not a pointer; a pointer to nothing; a type that isn't there.
        for target in [&[0, STRUCT, 8], &[0, PTR, 0], &[0, PTR, 77]] {
            let other = btf_of(&[&[1, TYPEDEF, 2], target], "\0btf_trace_x\0");
            assert_eq!(other.raw_tracepoint("x"), None);
        }
    }

    #[test]
    fn what_is_no_type_information_is_an_error() {
        assert!(Types::parse(b"").is_err());
        assert!(Types::parse(&[0; 64]).is_err());
    }
}
