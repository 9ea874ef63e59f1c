//! Many connections that stay open.

use std::time::{Duration, Instant};

use super::load::Random;
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::wire::{Connection, Unanswered};

const CONNECTIONS: usize = 200;
const FOR: Duration = Duration::from_secs(10);

#[test]
fn two_hundred_connections_of_mixed_work_see_no_5xx_and_no_reset() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let mut root = process.connect().unwrap();
    let link = root.post("/shorten", ROOT_KEY, r#"{"redirect_url":"https://example.com/"}"#).unwrap().json();
    let link = link["short_id"].as_str().unwrap();
    let mut random = Random::seeded();

    let end = Instant::now() + FOR;
    let (mut requests, mut hits) = (0, 0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| (process.connect().unwrap(), random.fork()))
            .map(|(connection, random)| scope.spawn(move || work(connection, link, end, random)))
            .collect();
        for client in clients {
            let (its_requests, its_hits) = client.join().unwrap();
            assert!(its_requests > 0, "a connection was starved");
            requests += its_requests;
            hits += its_hits;
        }
    });
    eprintln!("{requests} requests, {hits} of them hits");
    let ended = drained(process);
    assert!(!ended.contains("ERROR") && !ended.contains("panicked"), "{ended}");

    let process = Program::under_load(directory.path()).serve();
    let mut root = process.connect().unwrap();
    let summary = root.get(&format!("/links/{link}/analytics/summary"), &[("X-API-Key", ROOT_KEY)]).unwrap();
    assert_eq!(summary.expect(200).json()["total_hits"], hits);
}

fn drained(process: Process) -> String {
    let ended = process.terminate();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    ended.stderr
}

/// Requests of all kinds until `end`; answers how many, and how many of them were hits.
fn work(mut connection: Connection, link: &str, end: Instant, mut random: Random) -> (u64, u64) {
    let key = [("X-API-Key", ROOT_KEY)];
    let (mut requests, mut hits) = (0, 0);
    while Instant::now() < end {
        let mut get = |path: String, expected: u16| {
            let answer = connection.get(&path, &key)?;
            Ok((answer, expected))
        };
        let answered: Result<_, Unanswered> = match random.below(20) {
            0..9 => {
                hits += 1;
                get(format!("/{link}"), 302)
            }
            9 => get("/nowhere".into(), 404),
            10 => get("/a/b/c".into(), 404),
            11 => get(format!("/{link}/qr?scale=2"), 200),
            12 => get(format!("/links/{link}/analytics"), 200),
            13 => get(format!("/links/{link}/analytics/summary"), 200),
            14 => get("/usage".into(), 200),
            15 => get(format!("/{link}/webhooks/status"), 200),
            16 => get("/api-keys?limit=5".into(), 200),
            17 => connection.request("HEAD", &format!("/{link}"), &[], "").map(|answer| (answer, 302)),
            18 => connection.post("/shorten", ROOT_KEY, r#"{"redirect_url":"ftp://x"}"#).map(|answer| (answer, 422)),
            _ => {
                let body = r#"{"redirect_url":"https://example.com/made","data":{"a":1}}"#;
                connection.post("/shorten", ROOT_KEY, body).map(|answer| (answer, 200))
            }
        };
        let (answer, expected) = answered.unwrap_or_else(|end| panic!("a connection ended: {end:?}"));
        assert!(!answer.closes(), "{answer:?}");
        answer.expect(expected);
        requests += 1;
    }
    (requests, hits)
}
