//! The log lines about failing webhooks, at the default level.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::{SOON, until};

const HITS: usize = 20;
const TRIES: usize = 3;

fn status(process: &Process, link: &str) -> Value {
    let mut root = process.connect().unwrap();
    root.get(&format!("/{link}/webhooks/status"), &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200).json()
}

/// The numbers of failures in the lines of a host.
fn failures_of(log: &str, host: &str) -> Vec<usize> {
    let lines = log.lines().filter(|line| line.contains("webhooks fail") && line.contains(&format!("host=\"{host}\"")));
    let failures = |line: &str| line.split_once(" failures=")?.1.split(' ').next()?.parse().ok();
    lines.map(|line| failures(line).unwrap_or_else(|| panic!("no number: {line}"))).collect()
}

#[test]
fn failing_webhooks_are_logged_once_a_minute_and_host_with_their_number() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "50ms,50ms").serve();
    // No process listens there any more.
    let hosts = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string());
    let urls: Vec<_> = hosts.iter().map(|host| format!("http://{host}/a-secret-path")).collect();
    let body = json!({"redirect_url": "https://example.com/", "webhooks": urls}).to_string();
    let made = process.connect().unwrap().post("/shorten", ROOT_KEY, &body).unwrap().expect(200).json();
    let link = made["short_id"].as_str().unwrap();
    for _ in 0..HITS {
        process.connect().unwrap().get(&format!("/{link}"), &[]).unwrap().expect(302);
    }
    until("all have failed for good", SOON, || {
        let status = status(&process, link);
        let urls = status["webhooks"].as_array().unwrap();
        urls.iter().all(|url| url["failed"] == HITS)
    });
    let log = process.stderr();
    for host in &hosts {
        assert_eq!(failures_of(&log, host).first(), Some(&1), "at once: {log}");
        assert!(failures_of(&log, host).len() <= 2, "{log}");
    }
    assert!(log.contains("connection refused"), "the reason: {log}");
    let ended = process.terminate();
    for host in &hosts {
        assert_eq!(failures_of(&ended.stderr, host).iter().sum::<usize>(), HITS * TRIES, "{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("a-secret-path"), "a URL may be a secret: {}", ended.stderr);
}
