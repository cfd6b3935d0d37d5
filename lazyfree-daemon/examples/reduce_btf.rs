//! Cuts a kernel's type information down to what lazyfree asks of it, so that the facts of a
//! kernel can be committed and tested without that kernel.
//!
//! ```sh
//! cargo run --package lazyfree-daemon --example reduce_btf < vmlinux.btf > reduced.btf
//! ```
//!
//! Input and output are raw BTF, as in `/sys/kernel/btf/vmlinux`; `tests/fixtures/kernels/README.md`
//! says where to get it. The types of [`TYPES`] are kept as they are: every member with its name and
//! its position, and structs and unions without a name within them; of their enumerators those of
//! [`ENUMERATORS`]. Beyond that, a pointer to a struct or union keeps its name alone, a pointer to
//! anything else becomes a pointer to void, any other struct, union or enum keeps name and size but
//! loses its members, and qualifiers are dropped. Functions and raw tracepoints keep their
//! prototype, cut likewise.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
};

use anyhow::{Context as _, Result, bail, ensure};
use btf_rs::{Btf, BtfType, Type};

/// What the layout is read from.
const TYPES: [&str; 15] = [
    "page",
    "folio",
    "pageflags",
    "vm_event_item",
    "vm_event_state",
    "zone_stat_item",
    "cpu_fbatches",
    "folio_batch",
    "lru_pvecs",
    "pagevec",
    "scan_control",
    "reclaim_stat",
    "pglist_data",
    "compact_control",
    "ttu_flags",
];

/// How the enumerators start that are kept.
const ENUMERATORS: [&str; 5] = ["PG_", "PGLAZY", "PGSTEAL_", "NR_", "TTU_"];

/// What is hooked, under every name that it has had.
const FUNCTIONS: [&str; 9] = [
    "madvise_free_pte_range",
    "swap_put_entries_direct",
    "free_swap_and_cache_nr",
    "free_swap_and_cache",
    "shrink_folio_list",
    "shrink_page_list",
    "isolate_migratepages_block",
    "try_to_compact_pages",
    "try_to_unmap",
];

/// The types of raw tracepoints, of which some kernels have only a few.
const TRACEPOINTS: [&str; 14] = [
    "btf_trace_mm_vmscan_lru_shrink_inactive",
    "btf_trace_mm_vmscan_reclaim_pages",
    "btf_trace_mm_vmscan_direct_reclaim_begin",
    "btf_trace_mm_vmscan_direct_reclaim_end",
    "btf_trace_mm_vmscan_memcg_reclaim_begin",
    "btf_trace_mm_vmscan_memcg_reclaim_end",
    "btf_trace_mm_vmscan_throttled",
    "btf_trace_mm_compaction_begin",
    "btf_trace_mm_compaction_end",
    "btf_trace_mm_compaction_isolate_migratepages",
    "btf_trace_mm_compaction_try_to_compact_pages",
    "btf_trace_mm_page_alloc",
    "btf_trace_writeback_congestion_wait",
    "btf_trace_writeback_wait_iff_congested",
];

fn main() -> Result<()> {
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).context("cannot read BTF from the standard input")?;
    let btf = Btf::from_bytes(&bytes).context("the standard input is not raw BTF")?;
    let mut cut = Cut { btf: &btf, ids: BTreeMap::new(), out: Out::new() };
    let mut kept = 0;
    for name in TYPES.iter().chain(&FUNCTIONS).chain(&TRACEPOINTS) {
        for id in btf.resolve_ids_by_name(name).unwrap_or_default() {
            let wanted = match btf.resolve_type_by_id(id)? {
                Type::Struct(_) | Type::Enum(_) => TYPES.contains(name),
                Type::Func(_) => FUNCTIONS.contains(name),
                Type::Typedef(_) => TRACEPOINTS.contains(name),
                _ => false,
            };
            if wanted {
                cut.keep(id).with_context(|| format!("cannot cut {name}"))?;
                kept += 1;
            }
        }
    }
    ensure!(kept > 0, "nothing that lazyfree asks for is in this BTF");
    io::stdout().write_all(&cut.out.finish()?).context("cannot write the reduced BTF")
}

/// The kinds that are written; `BTF_KIND_*` of `include/uapi/linux/btf.h`.
#[derive(Clone, Copy)]
enum Kind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Forward = 7,
    Typedef = 8,
    Func = 12,
    FuncProto = 13,
}

/// `BTF_INT_*`.
const INT_SIGNED: u32 = 1 << 24;
const INT_CHAR: u32 = 2 << 24;
const INT_BOOL: u32 = 4 << 24;

/// The cutting: what was kept so far, by its old number.
struct Cut<'a> {
    btf: &'a Btf,
    ids: BTreeMap<u32, u32>,
    out: Out,
}

impl Cut<'_> {
    /// Keeps a type, and returns its new number.
    fn keep(&mut self, id: u32) -> Result<u32> {
        if let Some(kept) = self.ids.get(&id) {
            return Ok(*kept);
        }
        let kept = match self.btf.resolve_type_by_id(id)? {
            Type::Void | Type::Fwd(_) => 0,
            Type::Int(int) => {
                let flags = [(int.is_signed(), INT_SIGNED), (int.is_char(), INT_CHAR)];
                let flags = flags.into_iter().chain([(int.is_bool(), INT_BOOL)]);
                let encoding: u32 = flags.filter_map(|(set, flag)| set.then_some(flag)).sum();
                let name = self.name(&int);
                let size = int.size() as u32;
                self.out.add(Kind::Int, &name, false, 0, size, &[encoding | (size * 8)])
            }
            Type::Ptr(pointer) => self.pointer(target(&pointer)?)?,
            Type::Array(array) => {
                let element = self.keep(target(&array)?)?;
                let index = self.out.index_type();
                let words = [element, index, array.len() as u32];
                self.out.add(Kind::Array, "", false, 0, 0, &words)
            }
            Type::Struct(ty) => self.compound(Kind::Struct, &ty)?,
            Type::Union(ty) => self.compound(Kind::Union, &ty)?,
            Type::Enum(ty) => {
                let name = self.name(&ty);
                let mut words = Vec::new();
                for member in ty.members.iter().filter(|_| TYPES.contains(&&*name)) {
                    let enumerator = self.name(member);
                    if ENUMERATORS.iter().any(|start| enumerator.starts_with(start)) {
                        words.extend([self.out.string(&enumerator), member.val()]);
                    }
                }
                let (number, size) = (words.len() / 2, ty.size() as u32);
                self.out.add(Kind::Enum, &name, ty.is_signed(), number, size, &words)
            }
            Type::Typedef(ty) => {
                let name = self.name(&ty);
                let target = if TRACEPOINTS.contains(&&*name) {
                    self.function_pointer(&ty)?
                } else {
                    self.keep(target(&ty)?)?
                };
                self.out.add(Kind::Typedef, &name, false, 0, target, &[])
            }
            Type::Const(ty) | Type::Volatile(ty) | Type::Restrict(ty) => self.keep(target(&ty)?)?,
            Type::Func(ty) => {
                let Type::FuncProto(proto) = self.btf.resolve_chained_type(&ty)? else {
                    bail!("a function without a prototype");
                };
                let proto = self.prototype(&proto)?;
                let name = self.name(&ty);
                self.out.add(Kind::Func, &name, false, 0, proto, &[])
            }
            other => bail!("no rule for the kind {}", other.name()),
        };
        self.ids.insert(id, kept);
        Ok(kept)
    }

    fn prototype(&mut self, proto: &btf_rs::FuncProto) -> Result<u32> {
        let returns = self.keep(proto.return_type_id())?;
        let mut words = Vec::new();
        for parameter in &proto.parameters {
            let kept = self.keep(target(parameter)?)?;
            words.extend([self.out.string(&self.name(parameter)), kept]);
        }
        Ok(self.out.add(Kind::FuncProto, "", false, proto.parameters.len(), returns, &words))
    }

    /// What the typedef of a raw tracepoint stands for.
    fn function_pointer(&mut self, typedef: &btf_rs::Typedef) -> Result<u32> {
        let Type::Ptr(pointer) = self.btf.resolve_chained_type(typedef)? else {
            bail!("not a pointer");
        };
        let Type::FuncProto(proto) = self.btf.resolve_chained_type(&pointer)? else {
            bail!("not a pointer to a function");
        };
        let proto = self.prototype(&proto)?;
        Ok(self.out.pointer(proto))
    }

    /// A pointer to a type of this old number.
    fn pointer(&mut self, mut target_id: u32) -> Result<u32> {
        loop {
            let ty = self.btf.resolve_type_by_id(target_id)?;
            let (name, union) = match &ty {
                Type::Const(_)
                | Type::Volatile(_)
                | Type::Restrict(_)
                | Type::TypeTag(_)
                | Type::Typedef(_) => {
                    target_id = target(ty.as_btf_type().context("a reference")?)?;
                    continue;
                }
                Type::Struct(ty) => (self.name(ty), false),
                Type::Union(ty) => (self.name(ty), true),
                Type::Fwd(ty) => (self.name(ty), ty.is_union()),
                _ => (String::new(), false),
            };
            let target = if name.is_empty() { 0 } else { self.out.forward(&name, union) };
            return Ok(self.out.pointer(target));
        }
    }

    fn compound(&mut self, kind: Kind, ty: &btf_rs::Struct) -> Result<u32> {
        let name = self.name(ty);
        let whole = name.is_empty() || TYPES.contains(&&*name);
        let members = if whole { &*ty.members } else { &[] };
        let has_bit_fields = members.iter().any(|member| member.bitfield_size().is_some());
        let mut words = Vec::new();
        for member in members {
            let kept = self.keep(target(member)?)?;
            let position = (member.bitfield_size().unwrap_or(0) << 24) | member.bit_offset();
            words.extend([self.out.string(&self.name(member)), kept, position]);
        }
        Ok(self.out.add(kind, &name, has_bit_fields, members.len(), ty.size() as u32, &words))
    }

    /// Nothing without a name has an entry in the string table.
    fn name(&self, ty: &dyn BtfType) -> String {
        self.btf.resolve_name(ty).unwrap_or_default()
    }
}

fn target(ty: &dyn BtfType) -> Result<u32> {
    ty.get_type_id().context("a reference to nothing")
}

/// The two sections of BTF in the making.
struct Out {
    types: Vec<u8>,
    number: u32,
    strings: Vec<u8>,
    offsets: BTreeMap<String, u32>,
    pointers: BTreeMap<u32, u32>,
    forwards: BTreeMap<(String, bool), u32>,
    index_type: Option<u32>,
}

impl Out {
    /// The first string is the empty one.
    fn new() -> Self {
        Self {
            types: Vec::new(),
            number: 0,
            strings: vec![0],
            offsets: BTreeMap::from([(String::new(), 0)]),
            pointers: BTreeMap::new(),
            forwards: BTreeMap::new(),
            index_type: None,
        }
    }

    fn string(&mut self, text: &str) -> u32 {
        if let Some(offset) = self.offsets.get(text) {
            return *offset;
        }
        let offset = self.strings.len() as u32;
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        self.offsets.insert(text.to_owned(), offset);
        offset
    }

    /// Adds a `struct btf_type` and what follows it, and returns its number. They count from 1.
    fn add(
        &mut self,
        kind: Kind,
        name: &str,
        flag: bool,
        length: usize,
        size_or_type: u32,
        rest: &[u32],
    ) -> u32 {
        let info = (u32::from(flag) << 31) | ((kind as u32) << 24) | length as u32;
        let head = [self.string(name), info, size_or_type];
        self.types.extend(head.iter().chain(rest).flat_map(|word| word.to_le_bytes()));
        self.number += 1;
        self.number
    }

    /// A pointer to what has this new number; 0 is void.
    fn pointer(&mut self, target: u32) -> u32 {
        if let Some(pointer) = self.pointers.get(&target) {
            return *pointer;
        }
        let pointer = self.add(Kind::Ptr, "", false, 0, target, &[]);
        self.pointers.insert(target, pointer);
        pointer
    }

    /// The declaration of a struct or union without its members.
    fn forward(&mut self, name: &str, union: bool) -> u32 {
        let key = (name.to_owned(), union);
        if let Some(forward) = self.forwards.get(&key) {
            return *forward;
        }
        let forward = self.add(Kind::Forward, name, union, 0, 0, &[]);
        self.forwards.insert(key, forward);
        forward
    }

    fn index_type(&mut self) -> u32 {
        let index = self.index_type;
        let index = index.unwrap_or_else(|| self.add(Kind::Int, "index", false, 0, 4, &[32]));
        *self.index_type.insert(index)
    }

    /// `struct btf_header`, the types, the strings.
    fn finish(self) -> Result<Vec<u8>> {
        const HEADER: u32 = 24;
        let types = u32::try_from(self.types.len())?;
        let strings = u32::try_from(self.strings.len())?;
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let words = [HEADER, 0, types, types, strings];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(self.types);
        bytes.extend(self.strings);
        Ok(bytes)
    }
}
