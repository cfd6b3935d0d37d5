//! A private view of Debian's archive, so that suites other than the machine's can be read.
//!
//! The machine's own apt keeps its state and its sources; only its mirrors, its keys and its
//! network settings are used.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::sources::{Mirrors, Source, mirrors, parse_deb822, parse_list};
use crate::{
    cache::{Cache, create_folder},
    step,
};

/// The suites that between them hold all kernel series we boot, as found on Debian's mirrors in
/// November 2026.
const MAIN_SUITES: [&str; 1] = ["trixie-backports"];
const SECURITY_SUITES: [&str; 3] = ["bullseye-security", "bookworm-security", "trixie-security"];

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The archive, with package lists of now.
pub struct Archive {
    options: Vec<OsString>,
    /// Two runs of apt on one state would fail.
    _lock: File,
}

impl Archive {
    /// Downloads the package lists.
    pub fn open(cache: &Cache) -> Result<Self> {
        let lock = cache.lock("apt")?;
        let root = cache.path("apt");
        create_folder(&root.join("lists/partial"))?;
        create_folder(&root.join("cache/archives/partial"))?;
        let sources = root.join("sources.list");
        write(&root.join("status"), "")?;
        write(&sources, &sources_list(&machine_mirrors()?))?;
        let archive = Self { options: options(&root, &sources), _lock: lock };
        let mut update = archive.command("apt-get");
        // Without this, apt takes lists it could not download for a warning.
        update.args(["-o", "APT::Update::Error-Mode=any", "update"]);
        step::run("downloading Debian's package lists", update)?;
        Ok(archive)
    }

    /// The names of all packages that begin so.
    pub fn package_names(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = self.command("apt-cache");
        names.args(["pkgnames", prefix]);
        Ok(step::ask(names)?.lines().map(str::to_owned).collect())
    }

    /// Downloads the newest version of each package into a folder, checked against the archive's
    /// signed lists.
    pub fn download(&self, packages: &[String], folder: &Path) -> Result<()> {
        let mut download = self.command("apt-get");
        download.arg("download").args(packages).current_dir(folder);
        step::run(&format!("downloading {}", packages.join(", ")), download)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }
}

fn options(root: &Path, sources: &Path) -> Vec<OsString> {
    let folder = |name: &str| root.join(name).into_os_string();
    let settings: [(&str, OsString); 10] = [
        ("Dir::State", root.into()),
        ("Dir::State::lists", folder("lists")),
        ("Dir::State::status", folder("status")),
        ("Dir::Cache", folder("cache")),
        ("Dir::Etc::sourcelist", sources.into()),
        ("Dir::Etc::sourceparts", "-".into()),
        // Kernels are all we ask for.
        ("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false".into()),
        ("Acquire::Languages", "none".into()),
        // As root, apt would download as a user who may not write to the cache.
        ("APT::Sandbox::User", "root".into()),
        ("quiet", "1".into()),
    ];
    let mut options = Vec::new();
    for (name, value) in settings {
        let mut setting = OsString::from(format!("{name}="));
        setting.push(value);
        options.extend([OsString::from("-o"), setting]);
    }
    options
}

fn machine_mirrors() -> Result<Mirrors> {
    let mut sources = parse_list(&fs::read_to_string("/etc/apt/sources.list").unwrap_or_default());
    let mut parts: Vec<PathBuf> = fs::read_dir("/etc/apt/sources.list.d")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    parts.sort();
    for path in parts {
        let parse = match path.extension().and_then(|extension| extension.to_str()) {
            Some("list") => parse_list,
            Some("sources") => parse_deb822,
            _ => continue,
        };
        let text = fs::read_to_string(&path);
        sources.extend(parse(&text.with_context(|| format!("cannot read {}", path.display()))?));
    }
    mirrors(&sources).context(
        "guest kernels come from Debian's archive by way of this machine's mirrors, but its apt \
         sources name no Debian mirror, or none for security updates; add both, or work in a \
         Debian container",
    )
}

fn sources_list(mirrors: &Mirrors) -> String {
    let lines = |source: &Source, suites: &[&str]| {
        let key = source.signed_by.as_deref().unwrap_or(KEYRING);
        let uri = &source.uri;
        suites.iter().map(|suite| format!("deb [signed-by={key}] {uri} {suite} main\n")).collect()
    };
    let main: String = lines(&mirrors.main, &MAIN_SUITES);
    let security: String = lines(&mirrors.security, &SECURITY_SUITES);
    main + &security
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
