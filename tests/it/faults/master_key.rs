//! A master key that is lost, or not the one of a store: said before anything is changed, with what to restore.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::files::{contents, entries};
use crate::support::keyspaces::Keyspace;
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::soon;

const VISITS: u64 = 50;

/// Of no store.
fn another_key() -> String {
    STANDARD.encode([9; 32])
}

struct Ground {
    directory: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program(&self) -> Program {
        Program::under_load(self.directory.path())
    }

    fn import_into(&self, data: &str) -> Program {
        self.program().arguments(&["import", "all.jsonl"]).set("SIGNPOST_DATA_DIR", data)
    }

    /// An export of a store in `data`, whose key is in its file.
    fn exported(&self) -> String {
        let process = self.program().serve();
        let link = visited(&process);
        soon("all hits are counted", || total_hits(&process, &link) == VISITS);
        assert_eq!(process.terminate().code(), Some(0));
        let ended = self.program().arguments(&["export", "all.jsonl"]).run();
        assert_eq!(ended.code(), Some(0), "{ended:?}");
        link
    }
}

/// Whether files are as they were, except that the engine has cut off the end of its journal: what a kill left of a
/// write that it interrupted, and whose success nobody was told of. The engine does so when it is opened, and it has to
/// be opened to read which master key the store has.
fn are_unchanged(directory: &Path, before: &BTreeMap<PathBuf, Vec<u8>>) -> bool {
    let after = contents(directory);
    let is_unchanged = |(path, bytes): (&PathBuf, &Vec<u8>)| {
        let is_of_the_engine = path.strip_prefix(directory).is_ok_and(|path| path.starts_with("store"));
        after.get(path).is_some_and(|now| now == bytes || is_of_the_engine && bytes.starts_with(now))
    };
    after.len() == before.len() && before.iter().all(is_unchanged)
}

fn visited(process: &Process) -> String {
    let mut connection = process.connect().unwrap();
    let body = r#"{"redirect_url":"https://example.com/","webhooks":["http://127.0.0.1:9/"]}"#;
    let made = connection.post("/shorten", ROOT_KEY, body).unwrap().expect(200);
    let link = made.json()["short_id"].as_str().unwrap().to_owned();
    for _ in 0..VISITS {
        connection.get(&format!("/{link}"), &[]).unwrap().expect(302);
    }
    link
}

fn total_hits(process: &Process, link: &str) -> u64 {
    let path = format!("/links/{link}/analytics/summary");
    let summary = process.connect().unwrap().get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200).json();
    summary["total_hits"].as_u64().unwrap()
}

#[track_caller]
fn has_all(program: Program, link: &str) {
    let process = program.serve();
    soon("all hits are counted", || total_hits(&process, link) == VISITS);
    assert_eq!(process.terminate().code(), Some(0));
}

#[test]
fn a_start_without_the_master_key_of_its_store_makes_no_other() {
    let ground = Ground::new();
    let process = ground.program().serve();
    let link = visited(&process);
    // At once, so that the journal has hits that are not counted yet.
    process.kill();
    let (data, file) = (ground.path("data"), ground.path("data/master.key"));
    let key = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let (all, before) = (entries(&data), contents(&data));
    for _ in 0..2 {
        let ended = ground.program().run();
        ended.refused(&["data/master.key is not there", "data/store", "Restore", "SIGNPOST_MASTER_KEY"]);
        assert_eq!(entries(&data), all);
        assert!(are_unchanged(&data, &before), "it was changed");
    }
    // Either way of giving it back.
    let setting = String::from_utf8(key.clone()).unwrap();
    has_all(ground.program().set("SIGNPOST_MASTER_KEY", setting.trim()), &link);
    assert!(!file.exists());
    fs::write(&file, key).unwrap();
    has_all(ground.program(), &link);
}

#[test]
fn a_start_with_another_master_key_says_which_one_to_restore_and_changes_nothing() {
    let ground = Ground::new();
    let process = ground.program().serve();
    let link = visited(&process);
    process.kill();
    let (data, file) = (ground.path("data"), ground.path("data/master.key"));
    let right = fs::read_to_string(&file).unwrap();
    let (all, before) = (entries(&data), contents(&data));
    let is_unchanged = || entries(&data) == all && are_unchanged(&data, &before);

    let ended = ground.program().set("SIGNPOST_MASTER_KEY", &another_key()).run();
    ended.refused(&[
        "SIGNPOST_MASTER_KEY is not the master key",
        "data/store",
        "data/master.key is the right one: unset",
    ]);
    assert!(is_unchanged(), "it was changed");

    fs::write(&file, another_key()).unwrap();
    let ended = ground.program().run();
    ended.refused(&["data/master.key is not the master key", "data/store", "Restore the original file"]);
    let ended = ground.program().set("SIGNPOST_MASTER_KEY", &another_key()).run();
    ended.refused(&["SIGNPOST_MASTER_KEY is not the master key", "Restore the original value"]);
    for secret in [right.trim(), &another_key()] {
        assert!(!ended.stderr.contains(secret), "{ended:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), another_key());
    fs::write(&file, &right).unwrap();
    assert!(is_unchanged(), "it was changed");
    has_all(ground.program(), &link);
}

#[test]
fn an_import_without_the_master_key_of_its_file_is_refused_before_anything_is_made() {
    let ground = Ground::new();
    let link = ground.exported();
    let ended = ground.import_into("fresh").run();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    for part in ["all.jsonl", "no master key", "SIGNPOST_MASTER_KEY", "fresh/master.key", "Nothing was changed"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    let ended = ground.import_into("fresh").set("SIGNPOST_MASTER_KEY", &another_key()).run();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("SIGNPOST_MASTER_KEY is not the master key of the store that all.jsonl"),
        "{ended:?}"
    );
    assert!(!ground.path("fresh").exists());

    fs::create_dir(ground.path("fresh")).unwrap();
    fs::write(ground.path("fresh/master.key"), another_key()).unwrap();
    let ended = ground.import_into("fresh").run();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("fresh/master.key is not the master key of the store that all.jsonl"), "{ended:?}");
    assert_eq!(entries(&ground.path("fresh")).len(), 1);

    // What it asked for.
    fs::copy(ground.path("data/master.key"), ground.path("fresh/master.key")).unwrap();
    let ended = ground.import_into("fresh").run();
    assert!(ended.code() == Some(0) && ended.stdout.starts_with("Imported 1 links"), "{ended:?}");
    has_all(ground.program().set("SIGNPOST_DATA_DIR", "fresh"), &link);
}

#[test]
fn a_start_after_an_import_needs_the_master_key_that_the_import_had() {
    let ground = Ground::new();
    let link = ground.exported();
    let key = fs::read_to_string(ground.path("data/master.key")).unwrap();
    let ended = ground.import_into("fresh").set("SIGNPOST_MASTER_KEY", key.trim()).run();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let program = || ground.program().set("SIGNPOST_DATA_DIR", "fresh");
    program().run().refused(&["fresh/master.key is not there", "SIGNPOST_MASTER_KEY"]);
    assert!(!ground.path("fresh/master.key").exists());
    // Also where all of the file is there, nothing is well without the key.
    let again = ground.import_into("fresh").run();
    assert!(again.code() == Some(1) && again.stderr.contains("no master key"), "{again:?}");
    has_all(program().set("SIGNPOST_MASTER_KEY", key.trim()), &link);
}

#[test]
fn a_store_that_is_in_use_is_not_touched_by_an_import() {
    let ground = Ground::new();
    ground.exported();
    let before = contents(&ground.path("data"));
    let ended = ground.import_into("data").run();
    assert!(ended.code() == Some(1) && ended.stderr.contains("the store is not empty"), "{ended:?}");
    assert!(contents(&ground.path("data")) == before, "it was changed");
}

#[test]
fn an_export_with_another_master_key_is_refused_and_one_without_says_so() {
    let ground = Ground::new();
    ground.exported();
    let export = |file: &str| ground.program().arguments(&["export", file]);
    let ended = export("other.jsonl").set("SIGNPOST_MASTER_KEY", &another_key()).run();
    ended.refused(&["SIGNPOST_MASTER_KEY is not the master key", "data/store", "data/master.key is"]);
    assert!(!ground.path("other.jsonl").exists());

    fs::remove_file(ground.path("data/master.key")).unwrap();
    let ended = export("other.jsonl").run();
    assert!(ended.code() == Some(0) && ended.stdout.starts_with("Exported 1 links"), "{ended:?}");
    assert!(ended.stderr.contains("which is not on this machine"), "{ended:?}");
    assert!(!ground.path("data/master.key").exists());
}

/// What tells a process to use this keyspace, and this key.
fn sharing(directory: &Path, keyspace: &Keyspace, key: &str) -> Program {
    Program::under_load(directory).sharing(keyspace).set("SIGNPOST_MASTER_KEY", key)
}

#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn a_node_with_another_master_key_than_its_cluster_changes_nothing_there_or_here() {
    let keyspace = Keyspace::empty_blocking();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(keyspace.migrate());
    let (ground, right) = (Ground::new(), STANDARD.encode([7; 32]));
    let process = sharing(ground.directory.path(), &keyspace, &right).serve();
    let link = visited(&process);
    soon("all hits are counted", || total_hits(&process, &link) == VISITS);
    assert_eq!(process.terminate().code(), Some(0));
    let ended = sharing(ground.directory.path(), &keyspace, &right).arguments(&["export", "all.jsonl"]).run();
    assert_eq!(ended.code(), Some(0), "{ended:?}");

    let node = Ground::new();
    let directory = node.directory.path();
    fs::copy(ground.path("all.jsonl"), node.path("all.jsonl")).unwrap();
    let (files, rows) = (entries(directory), runtime.block_on(keyspace.rows()));
    for arguments in [&["serve"][..], &["export", "other.jsonl"], &["migrate"]] {
        let ended = sharing(directory, &keyspace, &another_key()).arguments(arguments).run();
        ended.refused(&["SIGNPOST_MASTER_KEY is not the master key", &keyspace.name, "Restore the original value"]);
        let ended =
            Program::under_load(directory).sharing(&keyspace).without("SIGNPOST_MASTER_KEY").arguments(arguments).run();
        ended.refused(&["SIGNPOST_MASTER_KEY, the same on all nodes, which is not set"]);
    }
    let ended = sharing(directory, &keyspace, &another_key()).arguments(&["import", "all.jsonl"]).run();
    assert!(ended.code() == Some(1) && ended.stderr.contains("is not the master key of the store"), "{ended:?}");
    let ended = sharing(directory, &keyspace, &right).arguments(&["import", "all.jsonl"]).run();
    assert!(ended.code() == Some(1) && ended.stderr.contains("the store is not empty"), "{ended:?}");
    assert_eq!(entries(directory), files);
    assert!(runtime.block_on(keyspace.rows()) == rows, "the cluster was changed");

    // One that came from a machine whose key is in a file.
    fs::create_dir(node.path("data")).unwrap();
    fs::write(node.path("data/master.key"), &right).unwrap();
    let ended = sharing(directory, &keyspace, &another_key()).run();
    ended.refused(&["data/master.key is the right one: set SIGNPOST_MASTER_KEY to it"]);
    has_all(sharing(directory, &keyspace, &right), &link);
}
