//! The guests' kernels: one of each series that Debian's archive holds, newest package first.

mod modules;
mod package;

use std::{
    cmp::Ordering,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use anyhow::{Context as _, Result, bail, ensure};

use self::package::{newest, release, siblings};
use crate::{
    cache::{Cache, create_folder},
    debian::Archive,
    step,
};

/// Every series, oldest first.
pub const ALL: [Series; 11] = [
    Series("5.10"),
    Series("6.1"),
    Series("6.12"),
    Series("6.16"),
    Series("6.17"),
    Series("6.18"),
    Series("6.19"),
    Series("7.0"),
    Series("7.1"),
    Series("7.2"),
    Series("7.3"),
];

/// The series a guest boots when none is asked for.
pub const DEFAULT: Series = Series("7.3");

/// The series that `cargo xtask test` boots: the oldest, the oldest that a stable distribution has
/// with the folio interface, and the newest.
pub const TESTED: [Series; 3] = [Series("5.10"), Series("6.1"), DEFAULT];

/// A kernel series by its first two numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Series(&'static str);

impl Series {
    /// Its two numbers, in which series are ordered.
    pub fn version(self) -> (u32, u32) {
        let numbers = self
            .0
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        numbers.unwrap_or_default()
    }
}

impl PartialOrd for Series {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Series {
    fn cmp(&self, other: &Self) -> Ordering {
        self.version().cmp(&other.version())
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for Series {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = ALL.into_iter().find(|series| series.0 == name);
        known.ok_or_else(|| format!("no such kernel series; there are {}", names_of_all()))
    }
}

fn names_of_all() -> String {
    ALL.map(|series| series.0).join(", ")
}

/// A kernel in the cache, ready to boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its series.
    pub series: Series,
    /// What `uname -r` says under it.
    pub release: String,
    /// Where it is.
    pub folder: PathBuf,
}

impl Kernel {
    /// The kernel image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The modules that make compressed memory a block device, in the order to load them in.
    /// None where Debian no longer serves the modules' package.
    pub fn zram_modules(&self) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join("modules");
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()
            .with_context(|| format!("cannot list {}", folder.display()))?;
        paths.sort();
        Ok(paths)
    }

    /// Whether [`zram_modules`](Self::zram_modules) has any, so that a guest can have swap.
    pub fn has_zram(&self) -> bool {
        self.zram_modules().is_ok_and(|modules| !modules.is_empty())
    }

    fn cached(cache: &Cache, series: Series) -> Option<Self> {
        let folder = cache.path(name_in_cache(series));
        let release = fs::read_to_string(folder.join("release")).ok()?;
        Some(Self { series, release, folder })
    }
}

fn name_in_cache(series: Series) -> String {
    format!("kernels/{series}")
}

/// Has the kernels of these series in the cache. Nothing is downloaded, not even looked up, when
/// they all are.
pub fn ensure(cache: &Cache, wanted: &[Series]) -> Result<Vec<Kernel>> {
    let mut archive = None;
    wanted
        .iter()
        .map(|&series| {
            if let Some(kernel) = Kernel::cached(cache, series) {
                return Ok(kernel);
            }
            let archive = match &archive {
                Some(archive) => archive,
                None => archive.insert(Archive::open(cache).with_context(|| {
                    format!("kernel {series} is not in the cache, so it must be downloaded")
                })?),
            };
            fetch_newest(cache, archive, series).with_context(|| format!("kernel {series}"))
        })
        .collect()
}

/// What there is of a series now.
#[derive(Debug)]
pub enum Offer {
    /// The newest patch level that the archive has.
    Newest(Kernel),
    /// What was downloaded once; the text says why it isn't known to be the newest.
    Cached(Kernel, String),
    /// Neither the archive nor the cache has one any more.
    Gone,
    /// The archive may have one, but it could not be had.
    Failed(String),
}

/// Has the newest kernel of each of these series in the cache, as far as the archive can be
/// reached. What is in the way is told in full on standard error, and in a word in the offer.
pub fn newest_on_offer(cache: &Cache, wanted: &[Series]) -> Vec<(Series, Offer)> {
    let archive = Archive::open(cache).and_then(|archive| {
        let names = archive.package_names(PACKAGES)?;
        Ok((archive, names))
    });
    if let Err(error) = &archive {
        eprintln!("xtask: {error:#}");
    }
    let offer = |series: Series| {
        let cached = Kernel::cached(cache, series);
        let (archive, names) = match &archive {
            Ok(archive) => archive,
            Err(_told) => {
                return in_its_place(cached, "Debian's archive could not be read".to_owned());
            }
        };
        match (newest(names, series.0), cached) {
            (None, None) => Offer::Gone,
            (None, cached) => in_its_place(cached, "Debian's archive no longer has it".to_owned()),
            (Some(package), Some(kernel)) if release(&package) == Some(&kernel.release) => {
                Offer::Newest(kernel)
            }
            (Some(package), cached) => match fetch(cache, archive, names, &package, series) {
                Ok(kernel) => Offer::Newest(kernel),
                Err(error) => {
                    eprintln!("xtask: {error:#}");
                    in_its_place(cached, format!("{package} could not be had"))
                }
            },
        }
    };
    wanted.iter().map(|&series| (series, offer(series))).collect()
}

fn in_its_place(cached: Option<Kernel>, reason: String) -> Offer {
    match cached {
        Some(kernel) => Offer::Cached(kernel, reason),
        None => Offer::Failed(reason),
    }
}

/// How the names of all packages of kernels begin.
const PACKAGES: &str = "linux-";

fn fetch_newest(cache: &Cache, archive: &Archive, series: Series) -> Result<Kernel> {
    let names = archive.package_names(PACKAGES)?;
    let Some(package) = newest(&names, series.0) else {
        bail!(
            "Debian's archive no longer has a cloud kernel of series {series}; boot another of \
             {} (those in the cache stay usable)",
            names_of_all()
        );
    };
    fetch(cache, archive, &names, &package, series)
}

/// Downloads a package, and what goes with it, in place of what the cache has of the series.
fn fetch(
    cache: &Cache,
    archive: &Archive,
    names: &[String],
    package: &str,
    series: Series,
) -> Result<Kernel> {
    let mut packages = vec![package.to_owned()];
    packages.extend(siblings(names, package));
    let scratch = cache.scratch()?;
    archive.download(&packages, scratch.path())?;
    let root = scratch.path().join("root");
    unpack(scratch.path(), &root)?;
    let folder = scratch.path().join("kernel");
    create_folder(&folder)?;
    let (image, release) = find_image(&root)?;
    fs::copy(&image, folder.join("vmlinuz"))
        .with_context(|| format!("cannot copy {}", image.display()))?;
    modules::collect(&root, &release, &folder.join("modules"))?;
    fs::write(folder.join("release"), &release).context("cannot write the kernel's release")?;
    let folder = cache.replace(&folder, name_in_cache(series))?;
    Ok(Kernel { series, release, folder })
}

/// Unpacks every package in a folder below one root.
fn unpack(folder: &Path, root: &Path) -> Result<()> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("cannot list the downloads in {}", folder.display()))?;
    for entry in entries {
        let path = entry.context("cannot list the downloads")?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(&path).arg(root);
            step::run("unpacking the kernel", unpack)?;
        }
    }
    Ok(())
}

/// Finds the one kernel image below a root, and its release. Up to 7.1 it is in /boot, then
/// beside its modules.
fn find_image(root: &Path) -> Result<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in list(&root.join("boot")) {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(release) = name.strip_prefix("vmlinuz-") {
            found.push((entry, release.to_owned()));
        }
    }
    for entry in list(&root.join("usr/lib/modules")) {
        let image = entry.join("vmlinuz");
        if image.exists() {
            let release = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((image, release));
        }
    }
    ensure!(found.len() == 1, "expected one kernel image in the packages, found {found:?}");
    found.pop().context("no kernel image")
}

/// The entries of a folder; none when it cannot be read.
fn list(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_series_is_answered_with_the_known_ones() {
        assert_eq!("6.12".parse(), Ok(Series("6.12")));
        for name in ["6.6", "6.1.0", "", "latest"] {
            let error = name.parse::<Series>().expect_err(name);
            assert!(ALL.iter().all(|series| error.contains(series.0)), "{error}");
        }
    }

    #[test]
    fn series_are_ordered_by_number_and_all_are_in_order() {
        assert!(ALL.is_sorted() && Series("5.10") < Series("6.1"));
        assert!(Series("6.2") < Series("6.12"));
        assert!(ALL.iter().all(|series| series.version() > (0, 0)));
    }

    #[test]
    fn the_series_named_in_constants_are_known() {
        for series in TESTED {
            assert_eq!(series.0.parse(), Ok(series));
        }
    }

    #[test]
    fn the_image_is_found_in_both_places_and_must_be_one() -> Result<()> {
        let root = tempfile::tempdir()?;
        assert!(find_image(root.path()).is_err());
        fs::create_dir_all(root.path().join("usr/lib/modules/7.3.4-cloud"))?;
        fs::write(root.path().join("usr/lib/modules/7.3.4-cloud/vmlinuz"), "")?;
        assert_eq!(find_image(root.path())?.1, "7.3.4-cloud");
        fs::create_dir(root.path().join("boot"))?;
        fs::write(root.path().join("boot/config-6.1.0-57-cloud"), "")?;
        assert_eq!(find_image(root.path())?.1, "7.3.4-cloud");
        fs::write(root.path().join("boot/vmlinuz-6.1.0-57-cloud"), "")?;
        assert!(find_image(root.path()).is_err());
        Ok(())
    }
}
