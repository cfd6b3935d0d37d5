//! The layout of a tracepoint's record, as tracefs says it in the `format` file of the event. Pure.
//!
//! Programs on tracepoints read records at fixed places; this is for refusing a kernel that puts
//! something else there.

/// A tracepoint and the fields of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Name of the event.
    pub event: String,
    /// The fields, those that all events have among them.
    pub fields: Vec<Field>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Where it starts, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

/// A text that is no `format` file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There is no line `name: EVENT`.
    #[error("no event is named")]
    NoName,
    /// A line starts like a field and doesn't go on like one.
    #[error("cannot make out a field in {0:?}")]
    Field(String),
}

impl Format {
    /// Reads the `format` file of an event.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let event = text.lines().find_map(|line| line.strip_prefix("name:")).map(str::trim);
        let event = event.filter(|event| !event.is_empty()).ok_or(Malformed::NoName)?;
        let declared = text.lines().filter_map(|line| line.trim_start().strip_prefix("field:"));
        let fields = declared
            .map(|line| Field::parse(line).ok_or_else(|| Malformed::Field(line.to_owned())));
        Ok(Self { event: event.to_owned(), fields: fields.collect::<Result<_, _>>()? })
    }

    /// Whether this is the format of an event, with fields where they should be: their names,
    /// offsets and sizes, in bytes. The error says what differs.
    pub fn expect(&self, event: &str, fields: &[(&str, u32, u32)]) -> Result<(), String> {
        if self.event != event {
            return Err(format!(
                "the tracepoint should be {event}, but calls itself {}",
                self.event
            ));
        }
        for (name, offset, size) in fields {
            let found = self.field(name)?;
            if (found.offset, found.size) != (*offset, *size) {
                return Err(format!(
                    "{name} of the tracepoint {} should be {size} bytes at {offset}, but is {} \
                     bytes at {}",
                    self.event, found.size, found.offset
                ));
            }
        }
        Ok(())
    }

    fn field(&self, name: &str) -> Result<&Field, String> {
        self.fields.iter().find(|field| field.name == name).ok_or_else(|| {
            let own = |field: &&Field| !field.name.starts_with("common_");
            let names = self.fields.iter().filter(own).map(|field| &*field.name);
            let names = names.collect::<Vec<_>>().join(", ");
            format!("the tracepoint {} has no field {name}, but ({names})", self.event)
        })
    }
}

impl Field {
    /// Reads what follows `field:`, such as `char comm[16]; offset:8; size:16; signed:0;`.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(';').map(str::trim);
        let declaration = parts.next()?;
        let declaration = match declaration.strip_suffix(']') {
            Some(array) => array.rsplit_once('[')?.0,
            None => declaration,
        };
        let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (_, name) = declaration.trim_end().rsplit_once(|c| !in_name(c))?;
        let mut number =
            |key: &str| parts.next()?.strip_prefix(key)?.strip_prefix(':')?.parse::<u32>().ok();
        let (offset, size, signed) = (number("offset")?, number("size")?, number("signed")?);
        if name.is_empty() || signed > 1 {
            return None;
        }
        Some(Self { name: name.to_owned(), offset, size })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::KERNELS, *};

    const ENTRY: &str = "\
name: sys_enter_madvise
ID: 585
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:int __syscall_nr;	offset:8;	size:4;	signed:1;
	field:unsigned long start;	offset:16;	size:8;	signed:0;
	field:size_t len_in;	offset:24;	size:8;	signed:0;
	field:int behavior;	offset:32;	size:8;	signed:0;

print fmt: \"start: 0x%08lx, field:x;\", ((unsigned long)(REC->start))
";

    /// What our programs read of the two.
    const ENTRY_FIELDS: &[(&str, u32, u32)] = &[("len_in", 24, 8), ("behavior", 32, 8)];
    const EXIT_FIELDS: &[(&str, u32, u32)] = &[("ret", 16, 8)];

    #[test]
    fn every_recorded_kernel_has_the_madvise_records_that_the_programs_read() {
        for kernel in KERNELS {
            let parse = |name| Format::parse(kernel.tracepoint(name).unwrap()).unwrap();
            let (entry, exit) = (parse("sys_enter_madvise"), parse("sys_exit_madvise"));
            assert_eq!(entry.expect("sys_enter_madvise", ENTRY_FIELDS), Ok(()), "{}", kernel.uname);
            assert_eq!(exit.expect("sys_exit_madvise", EXIT_FIELDS), Ok(()), "{}", kernel.uname);
            // Neither passes for the other.
            assert!(exit.expect("sys_enter_madvise", EXIT_FIELDS).is_err());
            assert!(exit.expect("sys_exit_madvise", ENTRY_FIELDS).is_err());
        }
    }

    #[test]
    fn from_6_1_on_throttling_is_a_tracepoint_of_the_same_format() {
        for kernel in KERNELS {
            let text = kernel.tracepoint("mm_vmscan_throttled");
            assert_eq!(text.is_none(), kernel.uname.starts_with("5.10"), "{}", kernel.uname);
            let Some(text) = text else { continue };
            let delayed = ("usec_delayed", 16, 4);
            assert_eq!(
                Format::parse(text).unwrap().expect("mm_vmscan_throttled", &[delayed]),
                Ok(()),
                "{}",
                kernel.uname
            );
        }
    }

    #[test]
    fn a_format_has_a_name_and_fields() {
        let format = Format::parse(ENTRY).unwrap();
        assert_eq!(format.event, "sys_enter_madvise");
        let field = |name: &str, offset, size| Field { name: name.to_owned(), offset, size };
        assert_eq!(
            format.fields,
            [
                field("common_type", 0, 2),
                field("common_pid", 4, 4),
                field("__syscall_nr", 8, 4),
                field("start", 16, 8),
                field("len_in", 24, 8),
                field("behavior", 32, 8),
            ]
        );
    }

    #[test]
    fn a_field_has_the_name_of_its_declaration_however_it_is_declared() {
        for (declaration, name) in [
            ("const char * filename", "filename"),
            ("const char *filename", "filename"),
            ("char comm[16]", "comm"),
            ("char comm[TASK_COMM_LEN]", "comm"),
            ("__data_loc char[] name", "name"),
            ("unsigned long args[6]", "args"),
        ] {
            let text = format!("name: x\n\tfield:{declaration};\toffset:8;\tsize:4;\tsigned:0;\n");
            assert_eq!(Format::parse(&text).unwrap().fields[0].name, name, "{declaration}");
        }
    }

    #[test]
    fn what_differs_is_said() {
        let entry = |from: &str, to: &str| {
            assert!(ENTRY.contains(from));
            Format::parse(&ENTRY.replace(from, to))
                .unwrap()
                .expect("sys_enter_madvise", ENTRY_FIELDS)
                .unwrap_err()
        };
        assert_eq!(
            entry("len_in;\toffset:24", "len_in;\toffset:20"),
            "len_in of the tracepoint sys_enter_madvise should be 8 bytes at 24, but is 8 bytes at 20"
        );
        assert_eq!(
            entry("offset:32;\tsize:8", "offset:32;\tsize:4"),
            "behavior of the tracepoint sys_enter_madvise should be 8 bytes at 32, but is 4 bytes at \
             32"
        );
        assert_eq!(
            entry(" len_in;", " len;"),
            "the tracepoint sys_enter_madvise has no field len_in, but (__syscall_nr, start, len, \
             behavior)"
        );
        assert_eq!(
            entry("name: sys_enter_madvise", "name: sys_enter_mremap"),
            "the tracepoint should be sys_enter_madvise, but calls itself sys_enter_mremap"
        );
    }

    #[test]
    fn what_is_no_format_is_an_error() {
        for text in ["", "name:", "name: \n", "garbage", "\0\u{fffd}\n\n", "format:\n"] {
            assert_eq!(Format::parse(text), Err(Malformed::NoName), "{text:?}");
        }
        for field in [
            "",
            "int",
            "int a",
            "int a;\toffset:0",
            "int a;\toffset:0;\tsize:4;",
            "int a;\toffset:0;\tsize:4;\tsigned:",
            "int a;\toffset:0;\tsize:4;\tsigned:2;",
            "int a;\toffset:-1;\tsize:4;\tsigned:0;",
            "int a;\toffset:4294967296;\tsize:4;\tsigned:0;",
            "int a;\tsize:4;\toffset:0;\tsigned:0;",
            "int ;\toffset:0;\tsize:4;\tsigned:0;",
            "int *;\toffset:0;\tsize:4;\tsigned:0;",
            "int a];\toffset:0;\tsize:4;\tsigned:0;",
        ] {
            let text = format!("name: x\n\tfield:{field}\n");
            assert_eq!(Format::parse(&text), Err(Malformed::Field(field.to_owned())));
        }
    }

    #[test]
    fn a_format_that_ends_early_is_never_taken_for_the_known_one() {
        let known = ENTRY.find("print fmt").unwrap();
        // The last field is whole with its last digit.
        let whole = ENTRY[..known].trim_end().trim_end_matches(';').len();
        for end in 0..whole {
            let format = Format::parse(&ENTRY[..end]);
            let accepted =
                format.is_ok_and(|format| format.expect("sys_enter_madvise", ENTRY_FIELDS).is_ok());
            assert!(!accepted, "{:?}", &ENTRY[..end]);
        }
        assert_eq!(
            Format::parse(&ENTRY[..whole]).unwrap().expect("sys_enter_madvise", ENTRY_FIELDS),
            Ok(())
        );
    }
}
