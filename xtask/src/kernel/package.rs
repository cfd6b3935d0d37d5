//! Which of Debian's kernel packages to take. Pure: names in, names out.
//!
//! Debian's cloud kernels are named after what their `uname -r` says:
//! `linux-image-6.1.0-57-cloud-amd64`, `linux-image-6.12.118+deb13-cloud-amd64`. From 6.19 the
//! image package is empty; the kernel is in `linux-binary-*`, its modules in `linux-modules-*`.

use crate::debian::compare_versions;

const FLAVOUR: &str = "-cloud-amd64";

/// How the names of packages with a kernel in them begin; where both are, the image is empty.
const PREFIXES: [&str; 2] = ["linux-binary-", "linux-image-"];

/// The newest package that holds a kernel image of the series.
pub fn newest(names: &[String], series: &str) -> Option<String> {
    PREFIXES.iter().find_map(|prefix| {
        names
            .iter()
            .filter_map(|name| Some((version(name, prefix, series)?, name)))
            .max_by(|(left, _), (right, _)| compare_versions(left, right))
            .map(|(_, name)| name.clone())
    })
}

/// What `uname -r` says under the kernel in a package.
pub fn release(package: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| package.strip_prefix(prefix))
}

/// The package of a kernel's modules, where it is another one and still on offer.
pub fn siblings(names: &[String], package: &str) -> Vec<String> {
    let Some(rest) = package.strip_prefix("linux-binary-") else { return Vec::new() };
    let modules = format!("linux-modules-{rest}");
    names.iter().filter(|name| **name == modules).cloned().collect()
}

/// The version in a package's name, if it is a plain build of the series: neither signed
/// elsewhere, nor for an older release, nor with another flavour.
fn version<'a>(name: &'a str, prefix: &str, series: &str) -> Option<&'a str> {
    let version = name.strip_prefix(prefix)?.strip_suffix(FLAVOUR)?;
    let minor = version.strip_prefix(series)?.strip_prefix('.')?;
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let (minor, build) = match minor.split_once(['+', '-']) {
        Some((minor, build)) => (minor, build.strip_prefix("deb").unwrap_or(build)),
        None => (minor, "0"),
    };
    let well_formed = !minor.is_empty() && !build.is_empty() && is_plain(minor) && is_plain(build);
    // Rebuilds for an older release: 6.1.0-0.deb11.57.
    (well_formed && !version.contains("-0.")).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_newest_plain_cloud_image_of_the_series_is_taken() {
        let names = names(&[
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64",
            "linux-image-6.1.0-58-amd64",
            "linux-image-6.1.0-58-cloud-amd64-unsigned",
            "linux-image-6.1.0-58-rt-cloud-amd64",
            "linux-image-6.1.0-0.deb11.60-cloud-amd64",
            "linux-image-6.12.118+deb13-cloud-amd64",
            "linux-headers-6.1.0-59-cloud-amd64",
        ]);
        assert_eq!(newest(&names, "6.1").as_deref(), Some("linux-image-6.1.0-57-cloud-amd64"));
        let wanted = "linux-image-6.12.118+deb13-cloud-amd64";
        assert_eq!(newest(&names, "6.12").as_deref(), Some(wanted));
        assert_eq!(newest(&names, "5.10"), None);
    }

    #[test]
    fn a_package_is_named_after_the_release_of_its_kernel() {
        for name in ["6.1.0-57-cloud-amd64", "7.3.4+deb13-cloud-amd64"] {
            for prefix in PREFIXES {
                assert_eq!(release(&format!("{prefix}{name}")), Some(name));
            }
        }
        assert_eq!(release("linux-modules-7.3.4+deb13-cloud-amd64"), None);
    }

    #[test]
    fn from_6_19_the_kernel_and_its_modules_are_packages_of_their_own() {
        let names = names(&[
            "linux-image-7.3.4+deb13-cloud-amd64",
            "linux-binary-7.3.4+deb13-cloud-amd64",
            "linux-binary-7.3.3+deb13-cloud-amd64",
            "linux-modules-7.3.4+deb13-cloud-amd64",
            "linux-binary-7.1.13+deb13-cloud-amd64",
        ]);
        let package = newest(&names, "7.3").expect("on offer");
        assert_eq!(package, "linux-binary-7.3.4+deb13-cloud-amd64");
        assert_eq!(siblings(&names, &package), ["linux-modules-7.3.4+deb13-cloud-amd64"]);
        let package = newest(&names, "7.1").expect("on offer");
        assert_eq!(siblings(&names, &package), Vec::<String>::new());
        assert_eq!(
            siblings(&names, "linux-image-6.1.0-57-cloud-amd64"),
            Vec::<String>::new(),
            "older images hold their modules"
        );
    }
}
