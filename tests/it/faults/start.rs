//! What keeps the program from starting is said in one line that names it, and that it starts to whoever looks after it.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::soon;
use crate::support::wire::Connection;

#[test]
fn a_data_directory_that_can_not_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    for path in ["file", "file/data", "/proc/signpost"] {
        let ended = Program::at(directory.path()).set("SIGNPOST_DATA_DIR", path).run();
        ended.refused(&["data_dir", path, "SIGNPOST_DATA_DIR"]);
    }
}

#[test]
fn what_can_not_be_used_inside_the_data_directory_is_named() {
    type Spoil = fn(&std::path::Path) -> std::io::Result<()>;
    let cases: [(&str, Spoil); 6] = [
        ("store", |path| fs::write(path, "")),
        ("journal", |path| fs::write(path, "")),
        ("node.id", |path| fs::create_dir(path)),
        ("node.id", |path| fs::write(path, "nonsense")),
        ("master.key", |path| fs::create_dir(path)),
        ("master.key", |path| fs::write(path, "nonsense")),
    ];
    for (name, spoil) in cases {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("data")).unwrap();
        spoil(&directory.path().join("data").join(name)).unwrap();
        Program::at(directory.path()).run().refused(&[&format!("data/{name}")]);
    }
}

#[test]
fn a_read_only_data_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o500)).unwrap();
    if fs::write(data.join("probe"), "").is_ok() {
        // Root may write anywhere; sysfs is read-only even for root.
        let ended = Program::at(directory.path()).set("SIGNPOST_DATA_DIR", "/sys").run();
        return ended.refused(&["/sys/"]);
    }
    Program::at(directory.path()).run().refused(&["data/", "denied"]);
}

#[test]
fn a_data_directory_that_another_process_uses_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let first = Program::under_load(directory.path()).serve();
    Program::under_load(directory.path()).run().refused(&["data/store", "another process"]);
    // And the first goes on.
    first.connect().unwrap().get("/usage", &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200);
    assert_eq!(first.terminate().code(), Some(0));
}

#[test]
fn an_address_in_use_is_named_with_its_setting_and_nothing_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    for (setting, variable) in [("http.listen", "SIGNPOST_HTTP__LISTEN"), ("admin.listen", "SIGNPOST_ADMIN__LISTEN")] {
        let ended = Program::at(directory.path()).set(variable, &address).run();
        ended.refused(&[setting, &address, "in use", variable]);
        assert!(!directory.path().join("data").exists());
    }
}

#[test]
fn a_geo_database_that_is_none_is_named_by_the_start_and_by_the_check_alike() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("wrong.mmdb"), "this is no database").unwrap();
    for path in ["wrong.mmdb", "missing.mmdb"] {
        let told = ["serve", "check-config"].map(|command| {
            let program = Program::at(directory.path()).arguments(&[command]);
            let ended = program.set("SIGNPOST_GEO__DATABASE", path).run();
            ended.refused(&["geo.database", path, "SIGNPOST_GEO__DATABASE"]);
            ended.stderr
        });
        assert_eq!(told[0], told[1]);
    }
}

#[test]
fn an_authority_of_a_cluster_that_is_none_is_named_by_the_start_and_by_the_check_alike() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("wrong.pem"), "this is no certificate").unwrap();
    let settings = [
        ("SIGNPOST_STORE__KIND", "scylla"),
        ("SIGNPOST_SCYLLA__NODES", "127.0.0.1:9"),
        ("SIGNPOST_SCYLLA__TLS", "true"),
        ("SIGNPOST_SCYLLA__TLS_CA", "wrong.pem"),
        ("SIGNPOST_MASTER_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
    ];
    for command in ["serve", "check-config"] {
        let program = Program::at(directory.path()).arguments(&[command]);
        let program = settings.iter().fold(program, |program, (name, value)| program.set(name, value));
        program.run().refused(&["scylla.tls_ca", "wrong.pem", "SIGNPOST_SCYLLA__TLS_CA"]);
    }
}

#[test]
fn another_master_key_than_before_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    assert_eq!(Program::under_load(directory.path()).serve().terminate().code(), Some(0));
    let ended = Program::under_load(directory.path()).set("SIGNPOST_MASTER_KEY", key).run();
    ended.refused(&["master key"]);
    assert!(!ended.stderr.contains(key));
    // The first start's own key still opens them.
    assert_eq!(Program::under_load(directory.path()).serve().terminate().code(), Some(0));
}

/// An address for the operator that no other test has.
fn operators_address() -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    TcpListener::bind((Ipv4Addr::new(127, 91, high, low), 0)).unwrap().local_addr().unwrap()
}

#[track_caller]
fn lives_and_is_not_ready(program: Program, admin: SocketAddr) -> Process {
    let mut process = program.set("SIGNPOST_ADMIN__LISTEN", &admin.to_string()).spawn();
    process.admin = admin;
    soon("it answers", || process.ready_status().is_some());
    let mut operator = Connection::open(process.admin).unwrap();
    operator.get("/readyz", &[]).unwrap().expect(503);
    operator.get("/livez", &[]).unwrap().expect(200);
    let metrics = process.metrics();
    assert!(metrics.contains("\nsignpost_serving 0\n"), "{metrics}");
    assert!(!process.has_ended(), "it still starts: {}", process.stderr());
    process
}

#[test]
fn while_it_waits_for_its_store_it_tells_that_it_lives_and_is_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    // Who is asked for the store takes the connection, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let program = Program::at(directory.path())
        .set("SIGNPOST_MASTER_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
        .set("SIGNPOST_STORE__KIND", "scylla")
        .set("SIGNPOST_SCYLLA__REQUEST_TIMEOUT", "1m")
        .set("SIGNPOST_SCYLLA__NODES", &silent.local_addr().unwrap().to_string());
    lives_and_is_not_ready(program, operators_address()).kill();
}

#[test]
fn while_it_reads_its_disk_it_tells_that_it_lives_and_is_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("data")).unwrap();
    // Whoever reads it waits for somebody to write.
    let fifo = directory.path().join("data/node.id");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    lives_and_is_not_ready(Program::at(directory.path()), operators_address()).kill();
}
