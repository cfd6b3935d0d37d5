//! Debian packages of the machine itself.

use std::{
    fs,
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Result, bail};

use super::is_on_path;
use crate::step;

/// What apt fetches its lists into; each update changes it, whatever it brings.
const LISTS: &str = "/var/lib/apt/lists/partial";

/// Lists older than this name packages that are gone, and none of those that came since.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// Installs those of the packages that are missing.
pub fn ensure(purpose: &str, packages: &[&str]) -> Result<()> {
    let missing = missing(packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    install(purpose, &missing)
}

/// Installs the newest version on offer of each of the packages.
pub fn install(purpose: &str, packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    // A package of the user's that stands in the way is the user's to remove.
    let install = format!("apt-get install --yes --no-install-recommends --no-remove {list}");
    if !rustix::process::geteuid().is_root() {
        bail!("{purpose}, this machine lacks: {list}\nrun, as root: {install}");
    }
    refresh();
    if packages.iter().any(|package| !is_listed(package)) {
        update()?;
    }
    let mut words = install.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    step::run(&format!("installing, {purpose}: {list}"), command)
}

/// Whether the machine's apt knows a package that can be installed.
pub fn is_on_offer(package: &str) -> bool {
    is_listed(package) || {
        refresh();
        is_listed(package)
    }
}

/// Updates apt's lists if they are old and we may. Without the network the old ones may do.
pub fn refresh() {
    let age = fs::metadata(LISTS)
        .and_then(|lists| lists.modified())
        .map(|updated| SystemTime::now().duration_since(updated).unwrap_or_default());
    let fresh = age.is_ok_and(|age| age < FRESH);
    if !fresh
        && rustix::process::geteuid().is_root()
        && let Err(error) = update()
    {
        eprintln!("xtask: going on with apt's old package lists: {error:#}");
    }
}

fn update() -> Result<()> {
    let mut update = Command::new("apt-get");
    update.arg("update");
    step::run("updating apt's package lists", update)
}

fn is_listed(package: &str) -> bool {
    let mut policy = Command::new("apt-cache");
    policy.args(["policy", package]);
    step::ask(policy).is_ok_and(|text| has_candidate(&text))
}

fn has_candidate(policy: &str) -> bool {
    policy
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Candidate:"))
        .any(|candidate| candidate.trim() != "(none)")
}

fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    if !is_on_path("dpkg-query") || !is_on_path("apt-get") {
        bail!(
            "no apt and dpkg here, so nothing can be installed; on another distribution, put in \
             place what these Debian packages hold, or work in a Debian container: {}",
            packages.join(" ")
        );
    }
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"]).args(packages);
    // It fails when it does not know one of them, and still prints the others.
    let output = query.output()?;
    let installed = installed(&String::from_utf8_lossy(&output.stdout));
    Ok(packages.iter().copied().filter(|p| !installed.iter().any(|i| i == p)).collect())
}

fn installed(listing: &str) -> Vec<String> {
    listing.lines().filter_map(|line| line.strip_suffix(" installed")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let listing = "kmod installed\nxz-utils config-files\nbusybox-static not-installed\n";
        assert_eq!(installed(listing), ["kmod"]);
    }

    #[test]
    fn a_package_without_a_candidate_is_not_on_offer() {
        assert!(has_candidate("kmod:\n  Installed: 30\n  Candidate: 30\n"));
        assert!(!has_candidate("kmod:\n  Installed: (none)\n  Candidate: (none)\n"));
        assert!(!has_candidate(""));
    }
}
