//! Files that can't be written: the start is refused, with the path and the cause, and the next one has all hits.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::support::files::{contents, entries};
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::soon;

/// Who the service is where the tests are root, whom no mode of a file holds back.
const NOBODY: u32 = 65_534;
const ROOT: u32 = 0;
const VISITS: u64 = 200;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A service that modes of files hold back.
struct Ground {
    directory: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        if is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program(&self) -> Program {
        let program = Program::under_load(self.directory.path());
        if is_root() { program.run_by(NOBODY) } else { program }
    }

    /// Has a link visited, with hits in the journal that are not counted yet.
    fn visited(&self) -> String {
        let process = self.program().serve();
        let mut connection = process.connect().unwrap();
        let made = connection.post("/shorten", ROOT_KEY, r#"{"redirect_url":"https://example.com/"}"#).unwrap();
        let link = made.expect(200).json()["short_id"].as_str().unwrap().to_owned();
        for _ in 0..VISITS {
            connection.get(&format!("/{link}"), &[]).unwrap().expect(302);
        }
        process.kill();
        link
    }

    #[track_caller]
    fn has_all(&self, link: &str) {
        let process = self.program().serve();
        soon("all hits are counted", || total_hits(&process, link) == VISITS);
        assert_eq!(process.terminate().code(), Some(0));
    }
}

fn total_hits(process: &Process, link: &str) -> u64 {
    let path = format!("/links/{link}/analytics/summary");
    let summary = process.connect().unwrap().get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200).json();
    summary["total_hits"].as_u64().unwrap()
}

/// A file or directory that the service may not write, or not even read.
struct Kept {
    path: PathBuf,
    mode: u32,
}

impl Kept {
    fn from_writing(path: &Path) -> Self {
        Self::from(path, if path.is_dir() { 0o555 } else { 0o444 })
    }

    fn from_reading(path: &Path) -> Self {
        Self::from(path, 0)
    }

    fn from(path: &Path, to: u32) -> Self {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        if is_root() {
            chown(path, Some(ROOT), Some(ROOT)).unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(to)).unwrap();
        Self { path: path.to_owned(), mode }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if is_root() {
            chown(&self.path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(&self.path, Permissions::from_mode(self.mode)).unwrap();
    }
}

#[test]
fn whatever_can_not_be_written_is_named_and_nothing_is_served_or_changed() {
    let ground = Ground::new();
    let link = ground.visited();
    let data = ground.path("data");
    let (all, before) = (entries(&data), contents(&data));
    // These are only read.
    let written = all.iter().filter(|path| !path.ends_with("master.key") && !path.ends_with("node.id"));
    let written: Vec<_> = written.chain([&data]).collect();
    for kind in ["store", "store.links", "journal", "journal.lock"] {
        assert!(written.iter().any(|path| path.ends_with(kind)), "{kind}: {written:?}");
    }
    assert!(written.iter().filter(|path| path.extension().is_some_and(|kind| kind == "seg")).count() > 0);
    for path in written {
        let kept = Kept::from_writing(path);
        let name = path.strip_prefix(ground.directory.path()).unwrap().to_str().unwrap();
        ground.program().run().refused(&[&format!("{name} can't be written"), "Permission denied"]);
        drop(kept);
    }
    for name in ["data/master.key", "data/node.id", "data/store/0.jnl"] {
        let kept = Kept::from_reading(&ground.path(name));
        ground.program().run().refused(&[name, "Permission denied"]);
        drop(kept);
    }
    assert!(contents(&data) == before, "it was changed");
    assert_eq!(entries(&data), all);
    ground.has_all(&link);
}

#[test]
fn a_directory_in_the_place_of_a_file_is_named_also_to_root() {
    let directory = tempfile::tempdir().unwrap();
    let program = || Program::under_load(directory.path());
    assert_eq!(program().serve().terminate().code(), Some(0));
    for name in ["data/store.links", "data/store.ids", "data/journal/journal.lock", "data/store/99.jnl"] {
        let path = directory.path().join(name);
        // The lock is there.
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).unwrap();
        program().run().refused(&[&format!("{name} is a directory, but must be a file")]);
        fs::remove_dir(&path).unwrap();
    }
    // Where the next segment would be made.
    let segment = directory.path().join(format!("data/journal/{:020}.new", 0));
    fs::create_dir(&segment).unwrap();
    program().run().refused(&["data/journal/00000000000000000000.new is a directory, but must be a file"]);
    fs::remove_dir(&segment).unwrap();
    assert_eq!(program().serve().terminate().code(), Some(0));
}

#[test]
fn a_file_in_the_place_of_a_directory_is_named() {
    for name in ["store", "journal"] {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("data")).unwrap();
        fs::write(directory.path().join("data").join(name), "").unwrap();
        let ended = Program::at(directory.path()).run();
        ended.refused(&[&format!("data/{name} is not a directory")]);
        assert_eq!(entries(&directory.path().join("data")).len(), 1);
    }
}

#[test]
fn a_read_only_data_directory_is_used_if_store_and_journal_can_be_written() {
    let ground = Ground::new();
    let link = ground.visited();
    for name in ["data/store.links", "data/store.ids"] {
        let _ = fs::remove_file(ground.path(name));
    }
    let kept = Kept::from_writing(&ground.path("data"));
    let before = entries(&ground.path("data")).len();
    ground.has_all(&link);
    ground.has_all(&link);
    assert!(before > 0 && !ground.path("data/store.links").exists());
    drop(kept);
}

#[test]
fn a_read_only_data_directory_is_named_if_a_file_in_it_has_to_be_created() {
    for name in ["master.key", "node.id"] {
        let ground = Ground::new();
        assert_eq!(ground.program().serve().terminate().code(), Some(0));
        for name in [name, "store.links", "store.ids"] {
            let _ = fs::remove_file(ground.path("data").join(name));
        }
        let kept = Kept::from_writing(&ground.path("data"));
        ground.program().run().refused(&["data can't be written", "Permission denied"]);
        drop(kept);
    }
}

#[test]
fn what_others_have_put_beside_the_service_s_files_may_be_theirs() {
    let ground = Ground::new();
    let link = ground.visited();
    let mut kept = Vec::new();
    for name in ["data/lost+found", "data/store/lost+found", "data/journal/lost+found"] {
        fs::create_dir(ground.path(name)).unwrap();
        kept.push(Kept::from_reading(&ground.path(name)));
    }
    for name in ["data/README", "data/journal/README"] {
        fs::write(ground.path(name), "").unwrap();
        kept.push(Kept::from_reading(&ground.path(name)));
    }
    ground.has_all(&link);
}

#[test]
fn on_a_cluster_the_journal_is_looked_at_before_the_cluster_is_asked() {
    let ground = Ground::new();
    ground.visited();
    let kept = Kept::from_writing(&ground.path("data/journal/journal.lock"));
    // Nobody listens there.
    let ended = ground
        .program()
        .set("SIGNPOST_STORE__KIND", "scylla")
        .set("SIGNPOST_SCYLLA__NODES", "127.0.0.1:9")
        .set("SIGNPOST_MASTER_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
        .run();
    ended.refused(&["data/journal/journal.lock can't be written", "Permission denied"]);
    drop(kept);
}

#[test]
fn an_export_and_an_import_name_what_can_not_be_written() {
    let ground = Ground::new();
    let link = ground.visited();
    let before = contents(&ground.path("data"));
    for arguments in [["export", "all.jsonl"], ["import", "all.jsonl"]] {
        if arguments[0] == "import" {
            let ended = ground.program().arguments(&["export", "all.jsonl"]).run();
            assert_eq!(ended.code(), Some(0), "{ended:?}");
        }
        let kept = Kept::from_writing(&ground.path("data/store/0.jnl"));
        let ended = ground.program().arguments(&arguments).run();
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains("data/store/0.jnl can't be written: Permission denied"), "{ended:?}");
        drop(kept);
    }
    assert!(contents(&ground.path("data/journal")).iter().all(|(path, bytes)| before.get(path) == Some(bytes)));
    ground.has_all(&link);
}
