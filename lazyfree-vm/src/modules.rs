//! The kernel modules that came in the initramfs.

use std::{fs, fs::File, path::PathBuf};

use anyhow::{Context as _, Result};
use lazyfree_vm::job;
use rustix::{io::Errno, system::finit_module};

/// Loads all modules in the order of their file names, which is the order of their dependencies.
pub fn load_all() -> Result<()> {
    let folder = format!("/{}", job::MODULES);
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()
        .with_context(|| format!("cannot list {folder}"))?;
    paths.sort();
    for path in paths {
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        match finit_module(&file, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("the kernel refused module {}", path.display()));
            }
        }
    }
    Ok(())
}
