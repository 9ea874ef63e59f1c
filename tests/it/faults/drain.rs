//! SIGTERM: what was begun is finished, what was answered is counted, and the process ends in time.

use std::path::Path;
use std::time::{Duration, Instant};

use super::load::{Random, Visits, visit_until_the_end};
use crate::support::process::{Ended, Process, Program};
use crate::support::server::{ROOT_KEY, count};
use crate::support::soon;
use crate::support::wire::Connection;

/// Less than a drain takes that something holds up.
const AT_ONCE: Duration = Duration::from_secs(8);

fn new_link(process: &Process) -> String {
    let mut root = process.connect().unwrap();
    let answer = root.post("/shorten", ROOT_KEY, r#"{"redirect_url":"https://example.com/"}"#).unwrap();
    answer.expect(200).json()["short_id"].as_str().unwrap().to_owned()
}

const SLOW_BODY: &str = r#"{"redirect_url":"https://example.com/slow"}"#;

/// Sends the head and the first ten bytes of a creation, and waits until a worker has read them.
fn half_a_request(process: &Process) -> Connection {
    let mut slow = process.connect().unwrap();
    let length = SLOW_BODY.len();
    let head =
        format!("POST /shorten HTTP/1.1\r\nHost: a\r\nX-API-Key: {ROOT_KEY}\r\nContent-Length: {length}\r\n\r\n");
    slow.send(format!("{head}{}", &SLOW_BODY[..10]).as_bytes()).unwrap();
    // Connections go to the two workers in turn, and each takes them in order.
    for _ in 0..4 {
        process.connect().unwrap().get("/", &[]).unwrap().expect(200);
    }
    slow
}

/// What the next start has counted of a link, once it has read what the one before left.
fn counted_by_the_next_start(directory: &Path, link: &str) -> u64 {
    let process = Program::under_load(directory).serve();
    soon("all hits are counted", || process.has_counted_all());
    let mut root = process.connect().unwrap();
    let summary = root.get(&format!("/links/{link}/analytics/summary"), &[("X-API-Key", ROOT_KEY)]).unwrap();
    summary.expect(200).json()["total_hits"].as_u64().unwrap()
}

/// Sends `signals` under load; answers the process's end, how long that took, and the outcome of the visits.
fn end_under_load(process: Process, link: &str, signals: &[&str]) -> (Ended, Duration, Visits) {
    let (address, links) = (process.address, [link.to_owned()]);
    let (mut random, mut visits) = (Random::seeded(), Visits::default());
    let (ended, took) = std::thread::scope(|scope| {
        let visitors: Vec<_> = (0..8)
            .map(|_| random.fork())
            .map(|random| scope.spawn(|| visit_until_the_end(address, &links, usize::MAX, Duration::ZERO, random)))
            .collect();
        soon("all visitors are at it", || count(&process.metrics(), "signpost_journal_hits_appended_total") > 1_000);
        let began = Instant::now();
        for signal in signals {
            process.signal(signal);
        }
        let ended = process.wait(Duration::from_secs(30));
        let took = began.elapsed();
        for visitor in visitors {
            visits.merge(visitor.join().unwrap());
        }
        (ended, took)
    });
    (ended, took, visits)
}

/// Busy clients are told with an answer that their connection ends, so that no request of theirs is cut off.
#[test]
fn sigterm_under_load_loses_no_answer_and_no_hit() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let link = new_link(&process);
    let (ended, _, visits) = end_under_load(process, &link, &["TERM"]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("ERROR") && !ended.stderr.contains("left in the journal"), "{ended:?}");
    assert_eq!((visits.torn, visits.total().unanswered), (0, 0), "{visits:?}");
    assert_eq!(counted_by_the_next_start(directory.path(), &link), visits.of(&link).answered, "{visits:?}");
}

#[test]
fn a_second_signal_ends_the_process_at_once_and_loses_no_hit() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let link = new_link(&process);
    // A request whose body does not come would hold up the drain for as long as it may take.
    let _slow = half_a_request(&process);
    let (ended, took, visits) = end_under_load(process, &link, &["TERM", "INT"]);
    assert_eq!(ended.code(), Some(130), "{ended:?}");
    assert!(took < AT_ONCE, "{took:?}");
    visits.of(&link).allows(counted_by_the_next_start(directory.path(), &link), "total_hits");
}

#[test]
fn two_sigterms_within_a_second_are_one() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let mut slow = half_a_request(&process);
    // The kernel merges signals that wait; the second is sent when the first was heard.
    process.signal("TERM");
    soon("the drain has begun", || process.ready_status() == Some(503));
    process.signal("TERM");
    slow.send(&SLOW_BODY.as_bytes()[10..]).unwrap();
    slow.answer(true).unwrap().expect(200);
    assert_eq!(process.wait(Duration::from_secs(30)).code(), Some(0));
}

#[test]
fn a_second_sigterm_after_a_second_ends_the_process_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let _slow = half_a_request(&process);
    process.signal("TERM");
    // The second counts from when the first is heard.
    soon("the drain has begun", || process.ready_status() == Some(503));
    std::thread::sleep(Duration::from_millis(1_100));
    process.signal("TERM");
    assert_eq!(process.wait(AT_ONCE).code(), Some(130));
}

#[test]
fn a_request_under_way_is_finished_while_the_process_says_that_it_is_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let mut slow = half_a_request(&process);
    process.signal("TERM");
    let began = Instant::now();
    while process.ready_status() != Some(503) {
        assert!(began.elapsed() < AT_ONCE, "still ready: {:?}", process.ready_status());
    }
    while process.connect().is_ok() {
        assert!(began.elapsed() < AT_ONCE, "still accepts");
    }
    slow.send(&SLOW_BODY.as_bytes()[10..]).unwrap();
    let answer = slow.answer(true).unwrap().expect(200);
    assert!(answer.closes(), "{answer:?}");
    let link = answer.json()["short_id"].as_str().unwrap().to_owned();
    assert_eq!(process.wait(Duration::from_secs(30)).code(), Some(0));
    let process = Program::under_load(directory.path()).serve();
    process.connect().unwrap().get(&format!("/{link}"), &[]).unwrap().expect(302);
}

#[test]
fn a_request_that_never_ends_holds_up_the_end_for_less_than_thirty_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "5m").serve();
    let _slow = half_a_request(&process);
    let began = Instant::now();
    let ended = process.terminate();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    eprintln!("a drain with a stuck request took {:?}", began.elapsed());
    assert!(began.elapsed() > Duration::from_secs(2), "it was not stuck");
}

#[test]
fn idle_connections_do_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let mut idle: Vec<_> = (0..200).map(|_| process.connect().unwrap()).collect();
    for connection in &mut idle {
        connection.get("/", &[]).unwrap().expect(200);
    }
    let began = Instant::now();
    let ended = process.terminate();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    eprintln!("a drain with 200 idle connections took {:?}", began.elapsed());
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

/// Some were last answered on the fast path, others by the dispatcher.
#[test]
fn connections_that_changed_between_fast_path_and_dispatcher_end_with_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let link = new_link(&process);
    let (redirect, mut hits, mut cut) = (format!("/{link}"), 0, 0);
    let mut connections: Vec<_> = (0..60).map(|_| process.connect().unwrap()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        for (path, status) in [("/", 200), (&*redirect, 302), ("/", 200)].into_iter().take(1 + number % 3) {
            connection.get(path, &[]).unwrap().expect(status);
            hits += u64::from(status == 302);
        }
    }
    process.signal("TERM");
    soon("the process is not ready", || process.ready_status() == Some(503));
    for connection in &mut connections[..30] {
        match connection.get(&redirect, &[]) {
            Ok(answer) => {
                assert!(answer.expect(302).closes());
                hits += 1;
            }
            // Its time for a last request was over.
            Err(unanswered) => {
                assert!(!unanswered.is_torn(), "{unanswered:?}");
                cut += 1;
            }
        }
    }
    assert_eq!(process.wait(AT_ONCE).code(), Some(0));
    let counted = counted_by_the_next_start(directory.path(), &link);
    assert!((hits..=hits + cut).contains(&counted), "{counted} of {hits} and {cut}");
}
