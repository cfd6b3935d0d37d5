//! Questions to the kernel's type information (BTF). Pure: bytes in, offsets out.

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

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{KERNELS, Kernel},
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
    fn what_is_no_type_information_is_an_error() {
        assert!(Types::parse(b"").is_err());
        assert!(Types::parse(&[0; 64]).is_err());
    }
}
