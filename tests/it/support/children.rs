//! Tests that run again as a process of their own: for what only a process can meet, such as its end or limits of the system.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DIRECTORY: &str = "SIGNPOST_TEST_DIRECTORY";

/// What a child goes through to get a mount namespace of its own, in which it may mount, and which ends with it. Tests that
/// need it are left out where `mount_namespaces` is not set.
pub const IN_A_MOUNT_NAMESPACE: [&str; 4] = ["unshare", "--user", "--map-root-user", "--mount"];

/// The command line that runs one test of `module` in another process, with `directory`, through another program or none.
pub fn child(module: &str, name: &str, directory: &Path, through: &[&str]) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match through {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    // The harness knows tests by their path without the crate.
    let (_crate, module) = module.split_once("::").unwrap();
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture"]);
    command.env(DIRECTORY, directory).stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}

/// The directory of a child; none where the test is not run as one, and has nothing to do.
pub fn child_directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs a child to its end.
#[track_caller]
pub fn assert_passed(mut child: Command) {
    let output = child.stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}
