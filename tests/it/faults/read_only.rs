//! A journal whose disk can only be read: at the start, and from some moment on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::children::{IN_A_MOUNT_NAMESPACE, assert_passed, child, child_directory};
use crate::support::process::{Process, Program};
use crate::support::server::{ROOT_KEY, count};
use crate::support::{soon, wire::Connection};

/// Makes a record so long that a few hundred of them fill two segments.
const AGENT_BYTES: usize = 400;

fn in_a_namespace(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    assert_passed(child(module_path!(), name, directory.path(), &IN_A_MOUNT_NAMESPACE));
}

#[test]
#[cfg_attr(not(mount_namespaces), ignore = "this system permits no mount namespaces")]
fn a_journal_that_can_only_be_read_is_named_by_the_start_and_loses_no_hit() {
    in_a_namespace("child_that_starts_on_a_read_only_journal");
}

#[test]
fn child_that_starts_on_a_read_only_journal() {
    const VISITS: u64 = 300;
    let Some(directory) = child_directory() else { return };
    let journal = directory.join("data/journal");
    let process = Program::under_load(&directory).serve();
    let link = any_link(&process);
    let mut visitor = process.connect().unwrap();
    for _ in 0..VISITS {
        visit(&mut visitor, &link);
    }
    // At once, so that the journal has hits that are not counted yet.
    process.kill();
    let before = contents(&journal);

    let disk = ReadOnly::mount_over(&journal);
    let ended = Program::under_load(&directory).run();
    ended.refused(&["data/journal", "Read-only file system"]);
    drop(disk);
    assert!(contents(&journal) == before && before.len() > 1, "it was left as it was");

    let process = Program::under_load(&directory).serve();
    soon("all hits are counted", || total_hits(&process, &link) == VISITS);
}

#[test]
#[cfg_attr(not(mount_namespaces), ignore = "this system permits no mount namespaces")]
fn while_the_journal_can_only_be_read_redirects_go_on_and_what_is_not_recorded_is_counted() {
    in_a_namespace("child_whose_journal_becomes_read_only");
}

#[test]
fn child_whose_journal_becomes_read_only() {
    const SEGMENT: &str = "65536";
    let Some(directory) = child_directory() else { return };
    let process = Program::under_load(&directory).set("SIGNPOST_JOURNAL__SEGMENT_BYTES", SEGMENT).serve();
    let link = any_link(&process);
    let mut visitor = process.connect().unwrap();
    let mut visits = 0;
    let not_recorded = || count(&process.metrics(), "signpost_journal_hits_not_recorded_total");
    let recorded = || count(&process.metrics(), "signpost_journal_hits_appended_total");

    // Segments that are there can still be filled; others can't be made, nor old ones deleted.
    let disk = ReadOnly::mount_over(&directory.join("data/journal"));
    soon("hits are refused", || {
        // Some hundred fit into the segments: metrics after each of them would take longer than all hits.
        for _ in 0..20 {
            visit(&mut visitor, &link);
            visits += 1;
        }
        not_recorded() > 0
    });
    for _ in 0..100 {
        visit(&mut visitor, &link);
        visits += 1;
    }
    assert_eq!(recorded() + not_recorded(), visits);
    soon("what was recorded is counted", || total_hits(&process, &link) == recorded());
    for told in ["hits are not recorded", "Read-only file system", "can't delete"] {
        soon(told, || process.stderr().contains(told));
    }
    let log = process.stderr();
    // As often as the counter looks, it would be of no use to anybody.
    assert_eq!(log.matches("can't delete").count(), 1, "{log}");

    drop(disk);
    let refused_before = recorded();
    soon("hits are recorded again", || {
        visit(&mut visitor, &link);
        visits += 1;
        recorded() > refused_before
    });
    let lost = not_recorded();
    for _ in 0..500 {
        visit(&mut visitor, &link);
        visits += 1;
    }
    assert_eq!((not_recorded(), recorded()), (lost, visits - lost));
    soon("they are counted", || total_hits(&process, &link) == visits - lost);
    // That which is written to, and the next.
    soon("consumed segments are deleted", || count(&process.metrics(), "signpost_journal_bytes") <= 2 * 65_536);
    let ended = process.terminate();
    assert!(ended.code() == Some(0) && ended.stderr.contains("hits are recorded again"), "{ended:?}");
}

/// A read-only mount over a directory of the same files. As long as it is there, paths lead to it; what was open before goes
/// on as it was.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn mount_over(path: &Path) -> Self {
        let mut command = Command::new("mount");
        let status = command.args(["--bind", "-o", "ro"]).args([path, path]).status().unwrap();
        assert!(status.success() && fs::write(path.join("probe"), "").is_err(), "not read-only: {}", path.display());
        Self(path.to_owned())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.0).status();
        assert!(status.unwrap().success() || std::thread::panicking());
    }
}

fn any_link(process: &Process) -> String {
    let body = r#"{"redirect_url":"https://example.com/"}"#;
    let made = process.connect().unwrap().post("/shorten", ROOT_KEY, body).unwrap().expect(200);
    made.json()["short_id"].as_str().unwrap().to_owned()
}

fn visit(visitor: &mut Connection, link: &str) {
    visitor.get(&format!("/{link}"), &[("User-Agent", &"a".repeat(AGENT_BYTES))]).unwrap().expect(302);
}

fn total_hits(process: &Process, link: &str) -> u64 {
    let path = format!("/links/{link}/analytics/summary");
    let summary = process.connect().unwrap().get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200).json();
    summary["total_hits"].as_u64().unwrap()
}

fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}
