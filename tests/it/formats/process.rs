//! The data directory of the whole program: with hits that are in the journal alone, after `kill -9`, and after a clean end.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{keep, restore, to_write, versions};
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::{SOON, until};

const NAME: &str = "process";

fn start(directory: &Path) -> Process {
    Program::under_load(directory).set("SIGNPOST_JOURNAL__SYNC_INTERVAL", "1s").serve()
}

fn hits(process: &Process, link: &str) -> u64 {
    let mut api = process.connect().unwrap();
    let path = format!("/links/{link}/analytics");
    api.get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200).json()["total_hits"].as_u64().unwrap()
}

fn redirect(process: &Process, link: &str, times: u64) {
    let mut visitor = process.connect().unwrap();
    for _ in 0..times {
        let answer = visitor.get(&format!("/{link}"), &[]).unwrap().expect(302);
        assert_eq!(answer.header("location"), "https://example.com/kept");
    }
}

fn write(fixture: &Path) {
    const COUNTED: u64 = 7;
    const LEFT: u64 = 40;
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("data")).unwrap();
    let process = start(directory.path());
    let mut api = process.connect().unwrap();
    let body = r#"{"redirect_url":"https://example.com/kept","data":{"order":17}}"#;
    let made = api.post("/shorten", ROOT_KEY, body).unwrap().expect(200).json();
    let link = made["short_id"].as_str().unwrap().to_owned();
    let key = api.post("/api-keys", ROOT_KEY, r#"{"name":"kept"}"#).unwrap().expect(201).json();
    redirect(&process, &link, COUNTED);
    until("they are counted", SOON, || hits(&process, &link) == COUNTED);
    redirect(&process, &link, LEFT);
    process.kill();
    let expected = json!({ "link": link, "hits": COUNTED + LEFT, "key": key["key"], "key_id": key["key_id"] });
    let _ = fs::remove_dir_all(fixture);
    fs::create_dir_all(fixture).unwrap();
    fs::write(fixture.join("expected.json"), format!("{expected:#}\n")).unwrap();
    keep(&directory.path().join("data"), &fixture.join("killed"));
    let process = start(directory.path());
    until("all is counted", SOON, || process.has_counted_all());
    assert!(process.terminate().status.success());
    keep(&directory.path().join("data"), &fixture.join("closed"));
}

#[test]
fn data_directories_of_all_versions_are_served() {
    if let Some(fixture) = to_write(NAME) {
        write(&fixture);
    }
    for fixture in versions(NAME) {
        let expected: Value = serde_json::from_slice(&fs::read(fixture.join("expected.json")).unwrap()).unwrap();
        let (link, total) = (expected["link"].as_str().unwrap(), expected["hits"].as_u64().unwrap());
        for end in ["killed", "closed"] {
            let directory = tempfile::tempdir().unwrap();
            restore(&fixture.join(end), &directory.path().join("data"));
            let process = start(directory.path());
            until("all is counted", SOON, || process.has_counted_all());
            assert_eq!(hits(&process, link), total, "{end}");
            redirect(&process, link, 3);
            until("those are counted too", SOON, || hits(&process, link) == total + 3);
            let mut api = process.connect().unwrap();
            let key = expected["key"].as_str().unwrap();
            let own = api.get("/usage", &[("X-API-Key", key)]).unwrap().expect(200).json();
            assert_eq!(own["api_key_id"], expected["key_id"]);
            assert!(process.terminate().status.success());
        }
    }
}
