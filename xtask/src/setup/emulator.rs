//! qemu: the machine's own, or else Debian's, unpacked into the cache. Nothing is installed for it,
//! since its packages may stand in the way of others of qemu that are there, and it takes no root.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{is_on_path, packages};
use crate::{
    cache::{Cache, create_folder},
    step,
};

const PROGRAM: &str = "qemu-system-x86_64";
const PACKAGE: &str = "qemu-system-x86";

/// The folder in the cache.
const NAME: &str = "qemu";

/// A qemu that can be run.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// Root of what was unpacked; without it, the machine's own is meant.
    unpacked: Option<PathBuf>,
}

impl Emulator {
    /// The one that is there.
    pub fn find(cache: &Cache) -> Result<Self> {
        if is_on_path(PROGRAM) {
            return Ok(Self { unpacked: None });
        }
        let unpacked = cache.path(NAME);
        ensure!(
            unpacked.exists(),
            "cannot start {PROGRAM}: it is neither on PATH nor in the cache; `cargo xtask setup` \
             puts it there"
        );
        Ok(Self { unpacked: Some(unpacked) })
    }

    /// Unpacks one if there is none.
    pub fn ensure(cache: &Cache) -> Result<Self> {
        Self::find(cache).or_else(|_missing| {
            unpack(cache)?;
            Self::find(cache)
        })
    }

    /// The command that starts it.
    pub fn command(&self) -> Command {
        let Some(root) = &self.unpacked else { return Command::new(PROGRAM) };
        let triplet = format!("{}-linux-gnu", env::consts::ARCH);
        let [libraries, old_libraries] =
            ["usr/lib", "lib"].map(|folder| root.join(folder).join(&triplet));
        let mut search_path = libraries.clone().into_os_string();
        search_path.push(":");
        search_path.push(old_libraries);
        let mut command = Command::new(root.join("usr/bin").join(PROGRAM));
        command
            .env("LD_LIBRARY_PATH", search_path)
            .env("QEMU_MODULE_DIR", libraries.join("qemu"))
            .args([OsString::from("-L"), root.join("usr/share/qemu").into()])
            .args([OsString::from("-L"), root.join("usr/share/seabios").into()]);
        command
    }
}

/// Unpacks the package with all that it needs and this machine doesn't have.
fn unpack(cache: &Cache) -> Result<()> {
    packages::refresh();
    let mut simulation = Command::new("apt-get");
    simulation.args(["install", "--simulate", "--no-install-recommends", PACKAGE]);
    let packages = to_be_installed(&step::ask(simulation)?);
    ensure!(!packages.is_empty(), "apt-get would install nothing for {PACKAGE}");
    let scratch = cache.scratch()?;
    let (downloads, root) = (scratch.path().join("downloads"), scratch.path().join("root"));
    create_folder(&downloads)?;
    create_folder(&root)?;
    let mut download = Command::new("apt-get");
    download.args(["-o", "APT::Sandbox::User=root", "download"]);
    download.args(packages).current_dir(&downloads);
    step::run(&format!("downloading {PACKAGE} and what it needs"), download)?;
    for package in fs::read_dir(&downloads).context("cannot list what was downloaded")? {
        extract(&package.context("cannot list what was downloaded")?.path(), &root)?;
    }
    let mut version = Emulator { unpacked: Some(root.clone()) }.command();
    version.arg("--version");
    step::ask(version).context("Debian's qemu does not start on this machine")?;
    cache.keep(&root, NAME)?;
    Ok(())
}

fn extract(package: &Path, root: &Path) -> Result<()> {
    let mut extract = Command::new("dpkg-deb");
    extract.arg("--extract").arg(package).arg(root);
    step::run(&format!("unpacking {}", package.display()), extract)
}

/// `name=version` of what apt says it would install.
fn to_be_installed(simulation: &str) -> Vec<String> {
    let package = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
        let version = rest.split_once('(')?.1.split_whitespace().next()?;
        Some(format!("{name}={version}"))
    };
    simulation.lines().filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_install_is_read_from_its_simulation() {
        let simulation = "\
Reading package lists...
The following packages will be REMOVED:
  qemu-utils
Remv qemu-utils [1:10.0.2+ds-2]
Inst libfdt1 (1.6.1-4+b1 Debian:12.15/oldstable [amd64])
Inst libslirp0 [4.6.0-1] (4.7.0-1 Debian:12.15/oldstable [amd64]) []
Conf libfdt1 (1.6.1-4+b1 Debian:12.15/oldstable [amd64])
";
        assert_eq!(to_be_installed(simulation), ["libfdt1=1.6.1-4+b1", "libslirp0=4.7.0-1"]);
    }
}
