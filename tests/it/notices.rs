//! What the log tells an operator without being asked: settings that do not fit the way of the requests, and what a crash left.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use signpost::domain::link::ShortId;
use signpost::store::embedded::EmbeddedStore;
use signpost::store::{CountStore, Lifecycle};

use crate::faults::load::{Over, Tally};
use crate::support::process::{Ended, Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::soon;
use crate::support::wire::Connection;

const FORWARDING: &str = "http.trusted_proxies";
const BASE_URL: &str = "http.base_url";

fn program(directory: &Path) -> Program {
    Program::under_load(directory).set("SIGNPOST_LOG__FORMAT", "json")
}

/// The lines of a log, each of which is a JSON object.
#[track_caller]
fn lines(log: &str) -> Vec<Value> {
    let lines = log.lines().map(|line| match serde_json::from_str(line) {
        Ok(line @ Value::Object(_)) => line,
        other => panic!("{other:?}: {line}"),
    });
    lines.collect()
}

/// The warnings that name this setting.
#[track_caller]
fn warnings(ended: &Ended, setting: &str) -> Vec<Value> {
    let is_it = |line: &Value| line["level"] == "WARN" && line["setting"] == setting;
    lines(&ended.stderr).into_iter().filter(is_it).collect()
}

fn shorten(connection: &mut Connection) -> String {
    let answer = connection.post("/shorten", ROOT_KEY, r#"{"redirect_url":"https://example.com/"}"#).unwrap();
    answer.expect(200).json()["short_id"].as_str().unwrap().to_owned()
}

/// As many redirects, each of another visitor behind the same proxy; answers how many were refused.
fn visit_by_proxy(process: &Process, id: &str, header: &str, times: usize) -> usize {
    let mut connection = process.connect().unwrap();
    let statuses = (0..times).map(|visitor| {
        let value = format!("{}203.0.113.{visitor}", if header == "Forwarded" { "for=" } else { "" });
        connection.get(&format!("/{id}"), &[(header, &value)]).unwrap().status
    });
    statuses.filter(|status| *status == 429).count()
}

#[test]
fn a_proxy_that_is_not_trusted_is_told_once() {
    for header in ["X-Forwarded-For", "Forwarded"] {
        let directory = tempfile::tempdir().unwrap();
        let process = program(directory.path()).set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "100").serve();
        let id = shorten(&mut process.connect().unwrap());
        assert_eq!(visit_by_proxy(&process, &id, header, 130), 30, "they share one limit");
        // On a connection that has left the fast path, and to the API.
        let mut connection = process.connect().unwrap();
        let headers = [(header, "for=203.0.113.7"), ("X-API-Key", ROOT_KEY)];
        for path in ["/usage", &*format!("/{id}"), "/usage", "/"] {
            connection.get(path, &headers).unwrap();
        }
        let ended = process.terminate();
        let warnings = warnings(&ended, FORWARDING);
        assert_eq!(warnings.len(), 1, "{ended:?}");
        assert_eq!(warnings[0]["peer"], "127.0.0.1", "{ended:?}");
        assert_eq!(warnings[0]["header"], header.to_lowercase(), "{ended:?}");
        assert!(!ended.stderr.contains("203.0.113."), "no client's address: {ended:?}");
    }
}

#[test]
fn a_proxy_that_is_not_trusted_is_told_before_anybody_is_refused_where_it_asks_the_api() {
    let directory = tempfile::tempdir().unwrap();
    let process = program(directory.path()).serve();
    let mut connection = process.connect().unwrap();
    for _ in 0..3 {
        connection.get("/usage", &[("X-Forwarded-For", "203.0.113.7"), ("X-API-Key", ROOT_KEY)]).unwrap().expect(200);
    }
    let ended = process.terminate();
    assert_eq!(warnings(&ended, FORWARDING).len(), 1, "{ended:?}");
}

#[test]
fn a_trusted_proxy_and_clients_without_one_are_not_told_of() {
    for (trusted, header) in [("127.0.0.0/8", "X-Forwarded-For"), ("", "X-Other")] {
        let directory = tempfile::tempdir().unwrap();
        let process = program(directory.path())
            .set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "2")
            .set("SIGNPOST_HTTP__TRUSTED_PROXIES", trusted)
            .serve();
        let id = shorten(&mut process.connect().unwrap());
        // Refused, too: the same visitors come again.
        for _ in 0..3 {
            visit_by_proxy(&process, &id, header, 2);
        }
        process.connect().unwrap().get("/usage", &[(header, "203.0.113.7"), ("X-API-Key", ROOT_KEY)]).unwrap();
        let ended = process.terminate();
        assert_eq!(warnings(&ended, FORWARDING), [Value::Null; 0], "{ended:?}");
    }
}

#[test]
fn a_base_url_that_is_not_set_is_told_where_others_can_reach_the_listener() {
    for (listen, base_url, told) in [
        ("0.0.0.0:0", "", 1),
        ("0.0.0.0:0", "https://go.example", 0),
        ("[::]:0", "", 1),
        ("127.0.0.1:0", "", 0),
        ("[::1]:0", "", 0),
    ] {
        if listen.starts_with('[') && TcpListener::bind(listen).is_err() {
            eprintln!("no IPv6 on this machine");
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let process = program(directory.path())
            .set("SIGNPOST_HTTP__LISTEN", listen)
            .set("SIGNPOST_HTTP__BASE_URL", base_url)
            .serve();
        let port = process.address.port();
        let ended = process.terminate();
        let warnings = warnings(&ended, BASE_URL);
        assert_eq!(warnings.len(), told, "{listen} {base_url}: {ended:?}");
        for warning in warnings {
            assert!(warning["base_url"].as_str().unwrap().ends_with(&format!(":{port}")), "{warning}");
        }
    }
}

#[test]
fn requests_for_another_host_than_that_of_short_links_are_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let process = program(directory.path()).set("SIGNPOST_HTTP__BASE_URL", "https://go.example").serve();
    let host = process.address.to_string();
    let mut connection = process.connect().unwrap();
    // A stranger, who may name any host, gets nothing into the log.
    connection.get("/usage", &[("X-API-Key", "sp_a-wrong-key-0123456789")]).unwrap().expect(401);
    connection.get("/", &[]).unwrap().expect(200);
    assert!(!process.stderr().contains(BASE_URL), "{}", process.stderr());
    let id = shorten(&mut connection);
    for _ in 0..3 {
        shorten(&mut connection);
        connection.get(&format!("/{id}"), &[]).unwrap().expect(302);
    }
    let ended = process.terminate();
    let warnings = warnings(&ended, BASE_URL);
    assert_eq!(warnings.len(), 1, "{ended:?}");
    assert_eq!((&warnings[0]["host"], &warnings[0]["base_url"]), (&host.into(), &"https://go.example".into()));
}

#[test]
fn requests_for_the_host_of_short_links_are_not_told_of() {
    // A proxy leaves the port out, and ends TLS.
    for base_url in ["https://127.0.0.1", "http://localhost:1", ""] {
        let directory = tempfile::tempdir().unwrap();
        let process = program(directory.path()).set("SIGNPOST_HTTP__BASE_URL", base_url).serve();
        shorten(&mut process.connect().unwrap());
        let ended = process.terminate();
        assert_eq!(warnings(&ended, BASE_URL), [Value::Null; 0], "{base_url}: {ended:?}");
    }
}

fn recovered(process: &Process) -> Vec<Value> {
    let is_it = |line: &Value| line["message"].as_str().unwrap().starts_with("recovered hits");
    lines(&process.stderr()).into_iter().filter(is_it).collect()
}

/// What the store has counted of a link, while no process runs.
fn counted(directory: &Path, id: &str) -> u64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::open(&directory.join("data/store"), 16 << 20).unwrap();
        let hits = store.link_hits(ShortId::parse(id).unwrap(), None).await.unwrap();
        store.close().await;
        hits.days.iter().map(|(_, devices)| devices.total().all()).sum()
    })
}

/// Redirects over one connection until it ends or it is over.
fn visit_all_the_time(address: std::net::SocketAddr, id: &str, over: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut connection = Connection::open(address).unwrap();
    while !over.load(Ordering::Relaxed) {
        if connection.get(&format!("/{id}"), &[]).is_err() {
            tally.unanswered += 1;
            break;
        }
        tally.answered += 1;
    }
    tally
}

#[test]
fn hits_that_a_crash_left_uncounted_are_told_with_their_number_and_after_a_clean_end_nothing_is() {
    let directory = tempfile::tempdir().unwrap();
    let process = program(directory.path()).serve();
    let id = shorten(&mut process.connect().unwrap());
    assert_eq!(recovered(&process), [Value::Null; 0], "a first start");
    let (mut next, mut visits, mut all_recovered) = (Some(process), Tally::default(), 0);
    for _ in 0..3 {
        let process = next.take().unwrap();
        let (address, over) = (process.address, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _over = Over(&over);
            let visitors = [(); 2].map(|()| scope.spawn(|| visit_all_the_time(address, &id, &over)));
            std::thread::sleep(Duration::from_millis(700));
            process.kill();
            for visitor in visitors {
                visits += visitor.join().unwrap();
            }
        });
        let before = counted(directory.path(), &id);
        let file = directory.path().join(format!("{before}.jsonl"));
        let exported = program(directory.path()).arguments(&["export", file.to_str().unwrap()]).run();
        assert_eq!(exported.code(), Some(0), "{exported:?}");
        let process = program(directory.path()).serve();
        soon("hits are counted", || total_hits(&process, &id) >= visits.answered && process.has_counted_all());
        let total = total_hits(&process, &id);
        visits.allows(total, "total_hits");
        let left = total - before;
        // It comes when the store has answered, a moment after the hits are seen.
        soon("the line", || left == 0 || !recovered(&process).is_empty());
        let told = recovered(&process);
        let hits: Vec<_> = told.iter().map(|line| line["hits"].as_u64().unwrap()).collect();
        assert_eq!(hits, Vec::from_iter((left > 0).then_some(left)), "{}", process.stderr());
        let warning = format!("{left} hits are only in the journal: they are not exported.");
        let warned = exported.stderr.contains(if left > 0 { &warning } else { "only in the journal" });
        assert_eq!(warned, left > 0, "{left}: {exported:?}");
        for line in &told {
            assert!((0.0..20.0).contains(&line["seconds"].as_f64().unwrap()), "{line}");
        }
        all_recovered += left;
        next = Some(process);
    }
    assert!(all_recovered > 0, "the counter is never up to date under load");

    // Hits of this life are counted at its end, and the next one has nothing to recover.
    let process = next.unwrap();
    let total = total_hits(&process, &id);
    let click = |process: &Process| process.connect().unwrap().get(&format!("/{id}"), &[]).unwrap().expect(302);
    click(&process);
    assert_eq!(process.terminate().code(), Some(0));
    assert_eq!(counted(directory.path(), &id), total + 1);
    let process = program(directory.path()).serve();
    click(&process);
    // Whatever an earlier life had left would be counted before this one.
    soon("the hit is counted", || total_hits(&process, &id) == total + 2);
    assert_eq!(recovered(&process), [Value::Null; 0]);
}

fn total_hits(process: &Process, id: &str) -> u64 {
    let path = format!("/links/{id}/analytics/summary");
    let answer = process.connect().unwrap().get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap();
    answer.expect(200).json()["total_hits"].as_u64().unwrap()
}

#[test]
fn with_json_every_line_is_json_from_the_start_to_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let serve = || program(directory.path()).set("SIGNPOST_LOG__REQUESTS", "true").serve();
    let first = serve().terminate();
    lines(&first.stderr);
    // The secrets of the first start are for people; nothing else is there.
    assert!(first.stdout.starts_with("This is the first start."), "{first:?}");
    assert!(first.stdout.contains("whsec_") && !first.stdout.contains("serves on"), "{first:?}");

    let process = serve();
    let mut connection = process.connect().unwrap();
    let id = shorten(&mut connection);
    connection.get(&format!("/{id}"), &[]).unwrap().expect(302);
    connection.get("/nowhere/at/all", &[]).unwrap().expect(404);
    connection.send(b"no request\r\n\r\n").unwrap();
    let admin = process.admin.to_string();
    let check = || program(directory.path()).arguments(&["healthcheck"]).set("SIGNPOST_ADMIN__LISTEN", &admin);
    assert_eq!(lines(&check().run().stdout)[0]["message"], "ready");
    let ended = process.terminate();
    refused(check(), 1, &[&admin]);
    assert_eq!((ended.code(), &*ended.stdout), (Some(0), ""));
    let log = lines(&ended.stderr);
    let serving = log.iter().find(|line| line["message"] == "serving").unwrap();
    assert!(serving["base_url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{serving}");
    assert_eq!(serving["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(log.last().unwrap()["message"], "stopped");
}

/// A start that was refused in JSON; answers what it said.
#[track_caller]
fn refused(program: Program, code: i32, parts: &[&str]) {
    let ended = program.run();
    assert_eq!((ended.code(), &*ended.stdout), (Some(code), ""), "{ended:?}");
    let [line] = &lines(&ended.stderr)[..] else { panic!("{ended:?}") };
    assert_eq!(line["level"], "ERROR", "{line}");
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z') && line["target"] == "signpost", "{line}");
    for part in parts {
        assert!(line["message"].as_str().unwrap().contains(part), "{part}: {line}");
    }
}

#[test]
fn with_json_a_refused_start_is_a_line_of_json_whatever_the_level_and_wherever_the_format_is_set() {
    let directory = tempfile::tempdir().unwrap();
    let at = || Program::at(directory.path());
    let in_environment = || at().set("SIGNPOST_LOG__FORMAT", "json");
    refused(in_environment().set("SIGNPOST_HTTP__LISTENN", "x"), 1, &["http.listenn"]);
    refused(in_environment().set("SIGNPOST_ROOT_KEY", "too-short"), 1, &["root_key"]);
    refused(in_environment().arguments(&["--config", "gone.toml"]), 1, &["gone.toml"]);
    refused(in_environment().arguments(&["check-config"]).set("SIGNPOST_HTTP__WORKERS", "x"), 1, &["http.workers"]);
    refused(in_environment().arguments(&["sevre"]), 2, &["sevre"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let with_taken_port =
        |level| in_environment().set("SIGNPOST_HTTP__LISTEN", &taken).set("SIGNPOST_LOG__LEVEL", level);
    for level in ["off", "info"] {
        refused(with_taken_port(level), 1, &["http.listen", &taken]);
    }

    let file = directory.path().join("signpost.toml");
    std::fs::write(&file, "[http]\nworkres = 2\n[log]\nformat = \"json\"\n").unwrap();
    refused(at(), 1, &["http.workres"]);
    // The environment wins, also here.
    at().set("SIGNPOST_LOG__FORMAT", "text").run().refused(&["http.workres"]);
    std::fs::write(&file, "[log]\nformat = \"xml\"\n").unwrap();
    at().run().refused(&["log.format"]);
}

#[test]
fn with_json_commands_tell_their_outcome_in_json() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = one.path().join("all.jsonl");
    let file = file.to_str().unwrap();
    let at = |directory: &Path, arguments: &[&str]| program(directory).arguments(arguments).run();
    assert_eq!(program(one.path()).serve().terminate().code(), Some(0));
    std::fs::create_dir(other.path().join("data")).unwrap();
    std::fs::copy(one.path().join("data/master.key"), other.path().join("data/master.key")).unwrap();
    let said = [
        at(one.path(), &["export", file]),
        at(other.path(), &["import", file]),
        at(other.path(), &["import", file]),
        at(other.path(), &["migrate"]),
    ];
    let outcomes = said.map(|ended| {
        assert_eq!(ended.code(), Some(0), "{ended:?}");
        lines(&ended.stderr);
        let outcome = lines(&ended.stdout);
        outcome.iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect::<String>()
    });
    let expected = ["Exported 0 links", "Imported 0 links", "Nothing to do", "The embedded store needs no migration"];
    for (outcome, expected) in outcomes.iter().zip(expected) {
        assert!(outcome.starts_with(expected), "{outcome}");
    }
    let ended = at(one.path(), &["export", "/nowhere/at/all"]);
    assert!(ended.code() == Some(1) && lines(&ended.stderr).last().unwrap()["level"] == "ERROR", "{ended:?}");
}
