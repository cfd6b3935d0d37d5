//! The modules a guest needs to have swap: zram, and what it needs itself.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{cache::create_folder, step};

/// `lzo-rle` is how zram compresses by default up to 6.1, where it asks the crypto layer by name
/// and not by symbol, so that no dependency shows it.
const WANTED: [&str; 2] = ["lzo-rle", "zram"];

/// Programs of kmod, whose folder is not on everybody's PATH.
const DEPMOD: &str = "/sbin/depmod";
const MODPROBE: &str = "/sbin/modprobe";

/// Copies the modules out of an unpacked kernel, decompressed, under names that sort in the
/// order to load them in. The folder stays empty when the kernel came without modules.
pub fn collect(root: &Path, release: &str, folder: &Path) -> Result<()> {
    create_folder(folder)?;
    // The packages of newer kernels leave the link to the base system.
    if !root.join("lib").exists() {
        symlink("usr/lib", root.join("lib")).context("cannot link lib to usr/lib")?;
    }
    if !root.join("lib/modules").join(release).join("kernel").exists() {
        return Ok(());
    }
    let mut depmod = Command::new(DEPMOD);
    depmod.arg("--basedir").arg(root).arg(release);
    step::run("finding out which modules need which", depmod)?;
    let mut modules: Vec<PathBuf> = Vec::new();
    for wanted in WANTED {
        let mut modprobe = Command::new(MODPROBE);
        modprobe.arg("--dirname").arg(root).args(["--set-version", release]);
        modprobe.args(["--show-depends", wanted]);
        // Newer kernels have no module of the first name, and need none.
        for path in step::ask(modprobe).map(|text| insmods(&text)).unwrap_or_default() {
            if !modules.contains(&path) {
                modules.push(path);
            }
        }
    }
    let has_zram = modules.iter().any(|path| file_name(path).starts_with("zram.ko"));
    ensure!(has_zram, "the modules of kernel {release} hold no zram");
    for (number, path) in modules.iter().enumerate() {
        decompress(path, folder, number)?;
    }
    Ok(())
}

/// The files that `modprobe --show-depends` would load, in its order.
fn insmods(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .map(|path| PathBuf::from(path.trim()))
        .collect()
}

fn decompress(path: &Path, folder: &Path, number: usize) -> Result<()> {
    let name = file_name(path);
    let copy = |name: &str| folder.join(format!("{number:02}-{name}"));
    let Some(name) = name.strip_suffix(".xz") else {
        let copied = fs::copy(path, copy(&name));
        return copied.map(drop).with_context(|| format!("cannot copy {}", path.display()));
    };
    let target = copy(name);
    let output =
        File::create(&target).with_context(|| format!("cannot create {}", target.display()))?;
    let status = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(output)
        .status()
        .context("cannot start xz")?;
    ensure!(status.success(), "xz could not decompress {}", path.display());
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modprobe_names_modules_in_the_order_to_load_them_in() {
        let text = "insmod /r/lib/modules/6.1/kernel/mm/zsmalloc.ko \nbuiltin lz4\n\
                    insmod /r/lib/modules/6.1/kernel/drivers/block/zram/zram.ko \n";
        assert_eq!(
            insmods(text),
            [
                PathBuf::from("/r/lib/modules/6.1/kernel/mm/zsmalloc.ko"),
                PathBuf::from("/r/lib/modules/6.1/kernel/drivers/block/zram/zram.ko"),
            ]
        );
    }
}
