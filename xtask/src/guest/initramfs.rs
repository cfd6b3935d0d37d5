//! The guest's root file system: a cpio archive, not compressed, since unpacking costs an
//! emulated processor more than reading does.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use cpio::newc::{Builder, trailer};

/// File types of `st_mode`.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// What will be in the archive, by path without a leading slash. Sorted, so that a folder comes
/// before what is in it.
#[derive(Debug, Default)]
pub struct Initramfs(BTreeMap<String, Entry>);

#[derive(Debug)]
enum Entry {
    Folder,
    Bytes { mode: u32, bytes: Vec<u8> },
    Copy { mode: u32, from: PathBuf },
    Link { target: String },
    Device { major: u32, minor: u32 },
}

impl Initramfs {
    /// An archive with what every Linux program takes for granted.
    pub fn new() -> Self {
        let mut archive = Self::default();
        for folder in ["bin", "dev", "etc", "proc", "root", "run", "sbin", "sys", "tmp", "usr"] {
            archive.add(folder, Entry::Folder);
        }
        archive.add("usr/bin", Entry::Link { target: "/bin".into() });
        archive.add("usr/sbin", Entry::Link { target: "/sbin".into() });
        // The first process has no standard streams without the one, and dies without the other.
        archive.add("dev/console", Entry::Device { major: 5, minor: 1 });
        archive.add("dev/null", Entry::Device { major: 1, minor: 3 });
        archive.bytes("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n".to_vec());
        archive.bytes("etc/group", b"root:x:0:\n".to_vec());
        archive.bytes("etc/hosts", b"127.0.0.1 localhost\n".to_vec());
        archive
    }

    /// Adds a file with these bytes.
    pub fn bytes(&mut self, path: &str, bytes: Vec<u8>) {
        self.add(path, Entry::Bytes { mode: 0o644, bytes });
    }

    /// Adds a program.
    pub fn program(&mut self, path: &str, from: &Path) {
        self.add(path, Entry::Copy { mode: 0o755, from: from.to_owned() });
    }

    /// Adds a symbolic link, unless the path is taken.
    pub fn link(&mut self, path: &str, target: &str) {
        if !self.0.contains_key(path) {
            self.add(path, Entry::Link { target: target.to_owned() });
        }
    }

    /// Adds a file or a folder with everything in it.
    pub fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        let kind = fs::metadata(from).with_context(|| format!("cannot copy {}", from.display()))?;
        if kind.is_dir() {
            self.add(path, Entry::Folder);
            let entries =
                fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?;
            for entry in entries {
                let from = entry.with_context(|| format!("cannot list {}", from.display()))?.path();
                let name = from.file_name().and_then(|name| name.to_str());
                let name = name.with_context(|| format!("{} is not UTF-8", from.display()))?;
                self.copy(&format!("{path}/{name}"), &from)?;
            }
        } else if kind.is_file() {
            let mode = kind.permissions().mode() & 0o7777;
            self.add(path, Entry::Copy { mode, from: from.to_owned() });
        } else {
            bail!("cannot copy {}: it is neither a file nor a folder", from.display());
        }
        Ok(())
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Entry::Folder);
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// Writes the archive.
    pub fn write(&self, mut output: impl Write) -> Result<()> {
        for (inode, (path, entry)) in (1..).zip(&self.0) {
            write_entry(&mut output, inode, path, entry)
                .with_context(|| format!("cannot write /{path} to the initramfs"))?;
        }
        trailer(&mut output).context("cannot end the initramfs")?;
        output.flush().context("cannot write the initramfs")
    }
}

fn write_entry(output: &mut impl Write, inode: u32, path: &str, entry: &Entry) -> Result<()> {
    let builder = Builder::new(path).ino(inode);
    match entry {
        Entry::Folder => write_data(output, builder.mode(FOLDER | 0o755), 0, &[][..]),
        Entry::Bytes { mode, bytes } => {
            write_data(output, builder.mode(FILE | mode), bytes.len() as u64, bytes.as_slice())
        }
        Entry::Copy { mode, from } => {
            let file =
                File::open(from).with_context(|| format!("cannot open {}", from.display()))?;
            let length = file.metadata()?.len();
            write_data(output, builder.mode(FILE | mode), length, file)
        }
        Entry::Link { target } => {
            write_data(output, builder.mode(LINK | 0o777), target.len() as u64, target.as_bytes())
        }
        Entry::Device { major, minor } => {
            let builder = builder.mode(CHARACTER_DEVICE | 0o600);
            write_data(output, builder.rdev_major(*major).rdev_minor(*minor), 0, &[][..])
        }
    }
}

fn write_data(
    output: &mut impl Write,
    builder: Builder,
    length: u64,
    from: impl Read,
) -> Result<()> {
    let size = u32::try_from(length).context("the format has no room for more than 4 GiB")?;
    let mut entry = builder.write(output, size);
    let copied = io::copy(&mut from.take(length), &mut entry)?;
    ensure!(copied == length, "the file shrank while it was read");
    entry.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use cpio::newc::Reader;

    use super::*;

    /// Path, mode and contents of each entry of an archive, in its order.
    fn read_back(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut rest = archive;
        loop {
            let mut reader = Reader::new(rest).expect("a valid entry");
            if reader.entry().is_trailer() {
                return entries;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut contents = Vec::new();
            reader.read_to_end(&mut contents).expect("contents");
            entries.push((name, mode, contents));
            rest = reader.finish().expect("the next entry");
        }
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_modes_are_kept() -> Result<()> {
        let host = tempfile::tempdir()?;
        fs::create_dir(host.path().join("sub"))?;
        fs::write(host.path().join("sub/tool"), "#!/bin/sh\n")?;
        fs::set_permissions(host.path().join("sub/tool"), fs::Permissions::from_mode(0o750))?;
        let mut archive = Initramfs::default();
        archive.copy("/opt/x", host.path())?;
        archive.link("bin/sh", "busybox");
        archive.bytes("bin/sh", b"taken over".to_vec());
        archive.link("bin/sh", "ignored");
        archive.link("bin/ls", "busybox");
        let mut bytes = Vec::new();
        archive.write(&mut bytes)?;
        let expected = [
            ("bin", 0o040_755, ""),
            ("bin/ls", 0o120_777, "busybox"),
            ("bin/sh", 0o100_644, "taken over"),
            ("opt", 0o040_755, ""),
            ("opt/x", 0o040_755, ""),
            ("opt/x/sub", 0o040_755, ""),
            ("opt/x/sub/tool", 0o100_750, "#!/bin/sh\n"),
        ];
        let expected = expected.map(|(name, mode, contents)| (name.into(), mode, contents.into()));
        assert_eq!(read_back(&bytes), expected);
        Ok(())
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = Initramfs::default().copy("x", Path::new("/no/such/file")).expect_err("absent");
        assert!(format!("{error:#}").contains("/no/such/file"), "{error:#}");
    }
}
