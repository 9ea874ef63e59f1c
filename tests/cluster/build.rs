//! Sets `cql_engine` where tests can have a CQL engine, `nginx` where there is one, and `mount_namespaces` where a process may
//! have mounts of its own; elsewhere the tests that need them are ignored, and say why.
//!
//! It looks again when one of the things below changes. `PATH` is not among them, for it differs from shell to shell and
//! everything is compiled again when it does: after Java, Maven or nginx has been installed, or mount namespaces permitted,
//! `touch tests/cluster/build.rs`.

use std::env;
use std::process::Command;

const NODES_VARIABLE: &str = "SIGNPOST_TEST_CQL_NODES";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(cql_engine)");
    println!("cargo::rustc-check-cfg=cfg(nginx)");
    println!("cargo::rustc-check-cfg=cfg(mount_namespaces)");
    let namespace = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).output();
    if namespace.is_ok_and(|tried| tried.status.success()) {
        println!("cargo::rustc-cfg=mount_namespaces");
    }
    // Debian puts it where not everybody's path leads.
    if ["nginx", "/usr/sbin/nginx"].iter().any(|nginx| Command::new(nginx).arg("-v").output().is_ok()) {
        println!("cargo::rustc-cfg=nginx");
    }
    for variable in [NODES_VARIABLE, "JAVA_HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    for file in ["build.rs", "lib.bash", "pom.xml", "up"] {
        println!("cargo::rerun-if-changed=tests/cluster/{file}");
    }
    let runs = || Command::new("tests/cluster/up").arg("--check").output().is_ok_and(|check| check.status.success());
    if env::var_os(NODES_VARIABLE).is_some() || runs() {
        println!("cargo::rustc-cfg=cql_engine");
    }
}
