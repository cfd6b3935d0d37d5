//! The configuration that the kernel was built with, where the host keeps it. For explaining what
//! doesn't work, never for deciding: many hosts don't have it, and what a kernel can do shows
//! better by other means.

use std::{collections::HashMap, path::Path};

use procfs::{ConfigSetting, Current as _, FromBufRead as _, FromRead as _, KernelConfig};

/// The options; unknown where the host has no file with them.
#[derive(Clone, Debug, Default)]
pub struct Config {
    options: Option<HashMap<String, ConfigSetting>>,
}

impl Config {
    /// Reads `/proc/config.gz`, else the file that distributions install beside the kernel of this
    /// release (`uname -r`), in `/boot` or with its modules.
    pub fn read(release: &str) -> Self {
        // Where that exists, procfs reads no other; it would go on with a file of any kernel.
        let compressed = Path::new(KernelConfig::PATH).exists();
        let running = compressed.then(KernelConfig::current).and_then(Result::ok);
        let config = running.or_else(|| {
            let beside = ["/boot/config-RELEASE", "/usr/lib/modules/RELEASE/config"];
            let paths = beside.iter().map(|path| path.replace("RELEASE", release));
            paths.map(KernelConfig::from_file).find_map(Result::ok)
        });
        Self::new(config)
    }

    /// Reads the text of such a file.
    #[cfg(test)]
    pub fn parse(text: &[u8]) -> Self {
        Self::new(KernelConfig::from_buf_read(text).ok())
    }

    fn new(config: Option<KernelConfig>) -> Self {
        // A file without a single option isn't a configuration in which all are off.
        Self { options: config.map(|config| config.0).filter(|options| !options.is_empty()) }
    }

    /// An option that is set, such as `CONFIG_KPROBES`.
    pub fn get(&self, option: &str) -> Option<&ConfigSetting> {
        self.options.as_ref()?.get(option)
    }

    /// Whether the configuration is known, and the option isn't set in it.
    pub fn is_off(&self, option: &str) -> bool {
        self.options.is_some() && self.get(option).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
#
# Automatically generated file; DO NOT EDIT.
#
CONFIG_CC_VERSION_TEXT=\"gcc-14 (Debian 14.2.0-19) 14.2.0 = x\"
CONFIG_BPF_SYSCALL=y
CONFIG_ZRAM=m
CONFIG_HZ=250
# CONFIG_KPROBES is not set
";

    #[test]
    fn an_option_is_built_in_a_module_a_value_or_off() {
        let config = Config::parse(TEXT);
        assert_eq!(config.get("CONFIG_BPF_SYSCALL"), Some(&ConfigSetting::Yes));
        assert_eq!(config.get("CONFIG_ZRAM"), Some(&ConfigSetting::Module));
        assert_eq!(config.get("CONFIG_HZ"), Some(&ConfigSetting::Value("250".to_owned())));
        assert!(!config.is_off("CONFIG_BPF_SYSCALL") && !config.is_off("CONFIG_ZRAM"));
        // One that is switched off, and one that this kernel doesn't know or can't have.
        for off in ["CONFIG_KPROBES", "CONFIG_FPROBE"] {
            assert_eq!(config.get(off), None);
            assert!(config.is_off(off));
        }
    }

    #[test]
    fn without_a_configuration_nothing_is_off() {
        let empty = b"".as_slice();
        let comments = b"# CONFIG_KPROBES is not set\n".as_slice();
        let binary = b"\x1f\x8b\x08\x00\xff\xfe=y\n".as_slice();
        for text in [empty, comments, binary, b"garbage\n".as_slice()] {
            let config = Config::parse(text);
            assert!(!config.is_off("CONFIG_KPROBES"), "{text:?}");
            assert_eq!(config.get("CONFIG_KPROBES"), None, "{text:?}");
        }
        assert!(!Config::default().is_off("CONFIG_KPROBES"));
    }

    #[test]
    fn the_running_kernels_own_configuration_is_unpacked() {
        let config = Config::read("no/such/release");
        // What makes the file is an option too.
        let own = config.get("CONFIG_IKCONFIG_PROC");
        let exists = Path::new("/proc/config.gz").exists();
        assert_eq!(own, exists.then_some(&ConfigSetting::Yes));
    }
}
