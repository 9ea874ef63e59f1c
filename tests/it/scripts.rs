//! Scripts that are run by hand, on a machine that has nothing of what they need.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// `docker/image-check` has functions that are named as the programs which they call.
#[test]
fn the_check_of_the_image_installs_the_programs_that_are_missing() {
    let script = fs::read_to_string("docker/image-check").unwrap();
    let functions: Vec<&str> =
        script.lines().filter(|line| line.starts_with("buildah()") || line.starts_with("podman()")).collect();
    let packages = script.split_once("\npackages() {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    let stubs = tempfile::tempdir().unwrap();
    let apt = stubs.path().join("apt-get");
    fs::write(&apt, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&apt, fs::Permissions::from_mode(0o755)).unwrap();
    for tool in ["env", "sh"] {
        symlink(format!("/usr/bin/{tool}"), stubs.path().join(tool)).unwrap();
    }
    let program =
        format!("set -eu\nas_root=(env)\n{}\npackages() {{\n{packages}\n}}\npackages\n", functions.join("\n"));
    let ran = Command::new("/bin/bash").args(["-c", &program]).env("PATH", stubs.path()).output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    for program in ["buildah", "podman"] {
        assert!(printed.split_whitespace().any(|word| word == program), "{program} is not installed: {printed}");
    }
}
