//! A binary that was built without the eBPF toolchain says so, whoever runs it.

use std::process::Command;

#[test]
fn every_command_that_observes_names_the_command_that_builds_the_probes() {
    if option_env!("LAZYFREE_EBPF_TOOLCHAIN").is_some() {
        println!("skipped: these tests were built with the eBPF object");
        return;
    }
    for arguments in [
        &["stat", "--for", "1s"][..],
        &["stat", "--json", "--", "true"],
        &["run", "--listen", "127.0.0.1:0", "--socket", "/tmp/lazyfree-no-object.sock"],
        &["top", "--local"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_lazyfree")).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
        assert!(errors.contains("`cargo xtask build`"), "{arguments:?}: {errors}");
    }
}
