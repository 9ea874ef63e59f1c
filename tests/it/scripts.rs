//! Scripts that are run by hand, on a machine that has nothing of what they need.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// What every machine has.
const BASE: [&str; 11] = ["bash", "cat", "dirname", "env", "id", "mkdir", "mktemp", "od", "rm", "sed", "tr"];

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The packages that a script asks apt-get for; there it ends.
fn installed_by(script: &str) -> Vec<String> {
    let machine = tempfile::tempdir().unwrap();
    let paths: Vec<_> = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    for name in BASE {
        let real = paths.iter().map(|path| path.join(name)).find(|path| path.exists()).unwrap();
        symlink(real, machine.path().join(name)).unwrap();
    }
    let asked = machine.path().join("asked");
    let apt = format!("#!/usr/bin/env bash\necho \"$*\" >>'{}'\n[ \"$1\" = update ]\n", asked.display());
    program(&machine.path().join("apt-get"), &apt);
    program(&machine.path().join("sudo"), "#!/usr/bin/env bash\nwhile [[ $1 == -* ]]; do shift; done\nexec \"$@\"\n");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ended = Command::new("bash").arg(root.join(script)).env("PATH", machine.path()).output().unwrap();
    assert!(!ended.status.success(), "{script} went on without its packages");
    let said = String::from_utf8_lossy(&ended.stderr);
    let asked = fs::read_to_string(asked).unwrap_or_else(|_| panic!("{script} installs nothing: {said}"));
    let asked: Vec<&str> = asked.lines().collect();
    let [update, install] = &asked[..] else { panic!("{script}: {asked:?}") };
    assert!(update.starts_with("update") && install.starts_with("install"), "{script}: {asked:?}");
    install.split(' ').filter(|word| !word.starts_with('-')).skip(1).map(str::to_owned).collect()
}

#[test]
fn scripts_install_what_a_fresh_machine_lacks() {
    // What may be in /usr/sbin of the machine of this test, where scripts look too, is not among them.
    for (script, packages) in [
        ("docker/image-check", &["buildah", "podman", "curl"][..]),
        ("loadtests/run", &["vmtouch", "wrk"]),
        ("loadtests/profile", &["wrk", "linux-perf"]),
        ("tests/monitoring/run", &["prometheus", "python3-venv"]),
    ] {
        let installed = installed_by(script);
        for package in packages {
            assert!(installed.iter().any(|name| name == package), "{script}: {package} is not in {installed:?}");
        }
    }
}
