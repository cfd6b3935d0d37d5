//! `cargo xtask build`: the eBPF object, and the release binaries that contain it, static so that
//! they run on any host and in a guest that has nothing else.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context as _, Result};

use crate::{
    cache::Cache,
    setup::{self, Ebpf},
    step,
};

/// What a build makes.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The product, in `target/release`.
    pub lazyfree: PathBuf,
    /// The first process of a guest.
    pub init: PathBuf,
    /// The end-to-end tests.
    pub end_to_end: PathBuf,
    /// The guest's half of the matrix.
    pub matrix: PathBuf,
    /// The guest's half of the bench.
    pub bench: PathBuf,
}

/// Builds everything, after setting up what that needs.
pub fn release(cache: &Cache) -> Result<Binaries> {
    let ebpf = setup::for_build(cache)?;
    let target = host_triple()?;
    let mut build = cargo();
    build
        .args(["build", "--release", "--target", &target])
        .args(["--package", "lazyfree-daemon", "--package", "lazyfree-vm"])
        .arg("--message-format=json-render-diagnostics")
        .env("RUSTFLAGS", static_flags());
    if let Some(revision) = revision() {
        build.env("LAZYFREE_REVISION", revision);
    }
    with_ebpf(&mut build, &ebpf)?;
    let messages = step::run_for_output("building lazyfree", build)?;
    let messages = String::from_utf8(messages).context("what cargo says is not UTF-8")?;
    let find = |name: &str| {
        executable(&messages, name).with_context(|| format!("cargo built no program `{name}`"))
    };
    let built = find("lazyfree")?;
    Ok(Binaries {
        lazyfree: publish(&built)?,
        init: find("init")?,
        end_to_end: find("lazyfree-e2e")?,
        matrix: find("lazyfree-matrix")?,
        bench: find("lazyfree-bench")?,
    })
}

/// The commit that is built, for `lazyfree_build_info`; none outside of a git checkout.
fn revision() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(workspace());
    let text = step::ask(git).ok()?;
    Some(text.trim().to_owned()).filter(|revision| !revision.is_empty())
}

/// Cargo, the one that runs us, for the whole workspace wherever we were called.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// Tells lazyfree-daemon's build script how to build the eBPF object.
pub fn with_ebpf(command: &mut Command, ebpf: &Ebpf) -> Result<()> {
    let Ebpf { toolchain, path } = ebpf;
    let rest = env::var_os("PATH").unwrap_or_default();
    let folders = [path.clone()].into_iter().chain(env::split_paths(&rest));
    command
        .env("LAZYFREE_EBPF_TOOLCHAIN", toolchain)
        .env("PATH", env::join_paths(folders).context("PATH with bpf-linker")?);
    Ok(())
}

/// The user's own flags stay: setting the variable again would lose them.
fn static_flags() -> OsString {
    let mut flags = env::var_os("RUSTFLAGS").unwrap_or_default();
    if !flags.is_empty() {
        flags.push(" ");
    }
    flags.push("-Ctarget-feature=+crt-static");
    flags
}

/// Named as a target, so that the flags are for the binaries and not for build scripts and
/// procedural macros, which cannot be static.
fn host_triple() -> Result<String> {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg("-vV");
    let text = step::ask(rustc)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).with_context(|| format!("no host in what rustc says:\n{text}"))
}

/// The path of a program in cargo's messages, one JSON object a line.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Puts the binary where a build for no named target would have, `target/release`.
fn publish(built: &Path) -> Result<PathBuf> {
    let folder = built.ancestors().nth(3).context("cargo's target folder")?.join("release");
    let name = built.file_name().context("the name of the binary")?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Renamed, since a binary that runs cannot be written to.
    let fresh = folder.join(format!(".lazyfree.{}", process::id()));
    let target = folder.join(name);
    fs::copy(built, &fresh)
        .and_then(|_| fs::rename(&fresh, &target))
        .with_context(|| format!("cannot copy {} to {}", built.display(), target.display()))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"name":"lazyfree","kind":["lib"]},"executable":null}
{"reason":"compiler-artifact","target":{"name":"init"},"executable":"/t/release/init"}
{"reason":"compiler-artifact","target":{"name":"lazyfree"},"executable":"/t/release/lazyfree"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "lazyfree"), Some("/t/release/lazyfree".into()));
        assert_eq!(executable(messages, "e2e"), None);
    }

    #[test]
    fn the_binary_is_published_beside_the_targets_folder() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let built = folder.path().join("x86_64-unknown-linux-gnu/release/lazyfree");
        fs::create_dir_all(built.parent().expect("a parent"))?;
        fs::write(&built, "binary")?;
        let published = publish(&built)?;
        assert_eq!(published, folder.path().join("release/lazyfree"));
        assert_eq!(fs::read(&published)?, b"binary");
        Ok(())
    }
}
