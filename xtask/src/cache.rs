//! The one folder in which downloads and built tools are kept between runs.
//!
//! `$LAZYFREE_CACHE`, else `$XDG_CACHE_HOME/lazyfree`, else `~/.cache/lazyfree`. Everything in it
//! can be made again: removing the folder, or any part of it, is always safe. What is in it is
//! complete, since files and folders are made under another name and renamed when done.

use std::{
    env,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

/// A scratch folder that old is no longer in use: no run takes so long.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder, which exists.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Finds the folder, and creates it when it is not there.
    pub fn open() -> Result<Self> {
        let from = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = from("LAZYFREE_CACHE")
            .or_else(|| from("XDG_CACHE_HOME").map(|base| base.join("lazyfree")))
            .or_else(|| from("HOME").map(|home| home.join(".cache/lazyfree")))
            .context("set LAZYFREE_CACHE or HOME: there is no folder to keep downloads in")?;
        let root = std::path::absolute(&root)
            .with_context(|| format!("cannot tell where {} is", root.display()))?;
        create_folder(&root)?;
        Ok(Self { root })
    }

    /// The path of something in the cache, whether it exists or not.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// A folder to make something in, removed when dropped; on the same file system as the rest.
    pub fn scratch(&self) -> Result<TempDir> {
        let parent = self.path("scratch");
        create_folder(&parent)?;
        sweep(&parent);
        TempDir::new_in(&parent)
            .with_context(|| format!("cannot create a folder in {}", parent.display()))
    }

    /// Keeps a folder that was made in a [`scratch`](Self::scratch) under `name`, unless another
    /// run was faster, whose result is as good.
    pub fn keep(&self, folder: &Path, name: impl AsRef<Path>) -> Result<PathBuf> {
        let target = self.path(name);
        if let Some(parent) = target.parent() {
            create_folder(parent)?;
        }
        match fs::rename(folder, &target) {
            Ok(()) => Ok(target),
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(target),
            Err(error) => Err(error).with_context(|| {
                format!("cannot rename {} to {}", folder.display(), target.display())
            }),
        }
    }

    /// As [`keep`](Self::keep), but in place of what has the name, which is then where the folder
    /// was. At no time is there neither.
    pub fn replace(&self, folder: &Path, name: impl AsRef<Path>) -> Result<PathBuf> {
        let target = self.path(&name);
        if !target.exists() {
            return self.keep(folder, name);
        }
        renameat_with(CWD, folder, CWD, &target, RenameFlags::EXCHANGE).with_context(|| {
            format!("cannot exchange {} for {}", target.display(), folder.display())
        })?;
        Ok(target)
    }

    /// Waits until no other run holds the lock of this name, and holds it until dropped.
    pub fn lock(&self, name: &str) -> Result<File> {
        let path = self.path(format!("{name}.lock"));
        let file = File::create(&path)
            .with_context(|| format!("cannot create the lock {}", path.display()))?;
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }
}

/// Removes what runs that were killed left behind. Whatever is in the way of that can stay.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let changed = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        if changed.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > ABANDONED) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Creates a folder and those above it, if they are missing.
pub fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create the folder {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_takes_the_place_of_another() -> Result<()> {
        let root = tempfile::tempdir()?;
        let cache = Cache { root: root.path().to_owned() };
        for content in ["old", "new"] {
            let scratch = cache.scratch()?;
            let folder = scratch.path().join("kernel");
            create_folder(&folder)?;
            fs::write(folder.join("release"), content)?;
            cache.replace(&folder, "kernels/6.1")?;
            assert_eq!(fs::read_to_string(cache.path("kernels/6.1/release"))?, content);
        }
        Ok(())
    }
}
