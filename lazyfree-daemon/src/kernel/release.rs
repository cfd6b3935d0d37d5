//! The kernel's release. Used only where a kernel's behaviour changed without a trace in its types.

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// A release to compare with.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Reads what `uname -r` prints.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_distributions_print() {
        for (text, release) in [
            ("6.1.0-57-cloud-amd64", Some(Release::new(6, 1))),
            ("7.3.4+deb13-cloud-amd64", Some(Release::new(7, 3))),
            ("7.3-rc7", Some(Release::new(7, 3))),
            ("5.10.262", Some(Release::new(5, 10))),
            ("6", None),
            ("linux", None),
        ] {
            assert_eq!(Release::parse(text), release, "{text}");
        }
        assert!(Release::new(6, 2) < Release::new(6, 16));
    }
}
