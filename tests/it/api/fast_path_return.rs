//! Connections that leave the fast path for the dispatcher, and come back.

use std::time::{Duration, Instant};

use serde_json::json;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::support::client::Answer;
use crate::support::keys::{Key, text};
use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server, count, metric};
use crate::support::{SOON, eventually};

/// A request with the root key; with a body, its length has to be among `fields`.
fn api(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: a\r\nX-API-Key: {ROOT_KEY}\r\n{fields}\r\n")
}

fn redirect(link: &str) -> String {
    format!("GET /{link} HTTP/1.1\r\nHost: a\r\n\r\n")
}

const BODY: &str = r#"{"redirect_url":"https://example.com/made"}"#;

fn shorten() -> String {
    api("POST /shorten", &format!("Content-Length: {}\r\n", BODY.len())) + BODY
}

fn shorten_in_chunks() -> String {
    let chunks = format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    api("POST /shorten", "Transfer-Encoding: chunked\r\n") + &chunks
}

async fn link_to(server: &Server, target: &str) -> String {
    server.root().shorten(json!({"redirect_url": target})).await
}

/// How many redirects were answered behind the dispatcher, and how many in all.
async fn dispatched_of_found(server: &Server) -> (u64, u64) {
    let metrics = server.metrics().await;
    let found = count(&metrics, "signpost_redirects_total{outcome=\"found\"}");
    (count(&metrics, "signpost_redirects_dispatched_total"), found)
}

async fn exchange(raw: &mut Raw, request: &str) -> Answer {
    raw.send(request.as_bytes()).await;
    raw.answer_to(request.starts_with("HEAD")).await.unwrap_or_else(|| panic!("no answer to {request}"))
}

#[tokio::test]
async fn redirects_after_an_api_request_are_answered_on_the_fast_path() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let mut raw = Raw::connect(server.address).await;
    for request in
        [shorten(), api("GET /usage", ""), shorten_in_chunks(), api("HEAD /", ""), api("GET /nowhere/at/all", "")]
    {
        let answer = exchange(&mut raw, &request).await;
        assert!([200, 404].contains(&answer.status), "{answer:?}");
        for _ in 0..3 {
            exchange(&mut raw, &redirect(&link)).await.expect(302);
        }
    }
    assert_eq!(dispatched_of_found(&server).await, (0, 15));
    // A head that the fast path does not answer is the dispatcher's, and the next one is not.
    let odd = format!("GET /{link} HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, x\r\n\r\n");
    for _ in 0..3 {
        exchange(&mut raw, &odd).await.expect(302);
        exchange(&mut raw, &redirect(&link)).await.expect(302);
    }
    assert_eq!(dispatched_of_found(&server).await, (3, 21));
}

#[tokio::test]
async fn where_requests_are_logged_all_are_dispatched() {
    let server = Server::builder().set("SIGNPOST_LOG__REQUESTS", "true").start();
    let link = server.root().any_link().await;
    let mut raw = Raw::connect(server.address).await;
    for request in [redirect(&link), api("GET /usage", ""), redirect(&link)] {
        assert!(exchange(&mut raw, &request).await.status < 400);
    }
    assert_eq!(dispatched_of_found(&server).await, (2, 2));
}

/// Requests for the dispatcher and for the fast path in turns, in pieces of each size.
#[tokio::test]
async fn pipelined_requests_of_both_kinds_are_answered_in_order() {
    let server = Server::start();
    let (first, second) =
        (link_to(&server, "https://example.com/1").await, link_to(&server, "https://example.com/2").await);
    // What is told of each answer: its status, and the end of its location.
    let requests = [
        (redirect(&first), 302, "/1"),
        (shorten(), 200, ""),
        (redirect(&second), 302, "/2"),
        (redirect(&first), 302, "/1"),
        (api("GET /usage", ""), 200, ""),
        (shorten_in_chunks(), 200, ""),
        (redirect("zzzzzzz"), 404, ""),
        (format!("HEAD /{second} HTTP/1.1\r\nHost: a\r\n\r\n"), 302, "/2"),
        (api(&format!("GET /{first}/qr"), ""), 200, ""),
        ("HEAD /zzzzzzz HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404, ""),
        (redirect(&second), 302, "/2"),
        (api(&format!("GET /links/{first}"), ""), 200, ""),
        (format!("GET /{first} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), 302, "/1"),
    ];
    let all: String = requests.iter().map(|(request, ..)| &**request).collect();
    for cut in [1, 7, 64, 100, 100_000] {
        let mut raw = Raw::connect(server.address).await;
        for piece in all.as_bytes().chunks(cut) {
            raw.send(piece).await;
            tokio::task::yield_now().await;
        }
        for (request, status, location) in &requests {
            let answer = raw.answer_to(request.starts_with("HEAD")).await;
            let answer = answer.unwrap_or_else(|| panic!("no answer to {request}, in pieces of {cut}"));
            assert_eq!(answer.status, *status, "{request} in pieces of {cut}: {}", answer.text());
            assert_eq!(answer.header("location").trim_start_matches("https://example.com"), *location, "{request}");
            assert_eq!(answer.header("connection") == "close", request.contains("close"), "{request}");
        }
        assert!(raw.answer().await.is_none());
    }
    // Both kinds of GET for each link, but for the HEAD and the unknown ids.
    let hits = 5 * 5;
    eventually("all hits are counted", SOON, async || {
        (metric(&server.metrics().await, "signpost_hits_counted_total") == Some(f64::from(hits))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn redirects_behind_a_body_that_comes_in_pieces_are_answered_after_it() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let mut raw = Raw::connect(server.address).await;
    let (request, behind) = (shorten(), redirect(&link).repeat(2));
    let (head, rest) = request.split_at(request.len() - 20);
    raw.send(head.as_bytes()).await;
    // Connections go to the two workers in turn, and each takes them in order: the first part is read now.
    for _ in 0..4 {
        server.anonymous().get("/").await.expect(200);
    }
    for piece in [&rest[..5], &[&rest[5..], &behind[..10]].concat(), &behind[10..]] {
        raw.send(piece.as_bytes()).await;
    }
    assert_eq!(raw.answer().await.unwrap().expect(200).json()["redirect_url"], "https://example.com/made");
    for _ in 0..2 {
        raw.answer().await.unwrap().expect(302);
    }
}

#[tokio::test]
async fn redirects_wait_for_the_answer_before_them_however_long_it_takes() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = Server::builder().wrap_store(|store| std::sync::Arc::new(FaultyStore::new(store, faults))).start();
    let link = server.root().any_link().await;
    switch.holds_calls(true);
    let mut raw = Raw::connect(server.address).await;
    raw.send(shorten().as_bytes()).await;
    raw.send(redirect(&link).repeat(3).as_bytes()).await;
    switch.held(1).await;
    // Others are answered meanwhile, also by the same worker.
    for _ in 0..4 {
        exchange(&mut Raw::connect(server.address).await, &redirect(&link)).await.expect(302);
    }
    assert_eq!(dispatched_of_found(&server).await, (0, 4));
    switch.holds_calls(false);
    raw.answer().await.unwrap().expect(200);
    for _ in 0..3 {
        raw.answer().await.unwrap().expect(302);
    }
    assert_eq!(dispatched_of_found(&server).await, (0, 7));
}

/// Reads until `end` has come.
async fn read_until(raw: &mut Raw, end: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(end) {
            let mut piece = [0; 4096];
            let read = raw.stream.read(&mut piece).await.unwrap();
            assert!(read > 0, "the connection has ended: {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    };
    timeout(SOON, reading).await.unwrap_or_else(|_| panic!("no {end}"));
    text
}

#[tokio::test]
async fn what_comes_while_an_answer_goes_on_waits_for_its_end_and_does_not_hold_it_up() {
    let server = Server::start();
    let key = Key::new(&server, &server.root(), json!({"name": "owner", "tier": "Pro"})).await;
    let link = key.client.shorten(json!({"redirect_url": "https://example.com/"})).await;
    let stream = format!("GET /hits/stream HTTP/1.1\r\nHost: a\r\nX-API-Key: {}\r\n\r\n", text(&key.record["key"]));
    for behind_at_once in [true, false] {
        let mut raw = Raw::connect(server.address).await;
        raw.send(stream.as_bytes()).await;
        if !behind_at_once {
            read_until(&mut raw, "retry: ").await;
        }
        raw.send(redirect(&link).repeat(2).as_bytes()).await;
        if behind_at_once {
            read_until(&mut raw, "retry: ").await;
        }
        for _ in 0..3 {
            server.anonymous().get(&format!("/{link}")).await.expect(302);
            let told = read_until(&mut raw, "event: hit").await;
            assert!(!told.contains("302 Found"), "{told}");
        }
    }
    let mut raw = Raw::connect(server.address).await;
    raw.send((stream + &redirect(&link)).as_bytes()).await;
    read_until(&mut raw, "retry: ").await;
    server.root().delete(&key.path()).await.expect(204);
    let rest = read_until(&mut raw, "302 Found").await;
    assert!(
        rest.contains("\r\n0\r\n\r\nHTTP/1.1 302 Found") || rest.starts_with("0\r\n\r\nHTTP/1.1 302 Found"),
        "{rest}"
    );
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_harms_nobody() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = Server::builder().wrap_store(|store| std::sync::Arc::new(FaultyStore::new(store, faults))).start();
    let link = server.root().any_link().await;
    switch.holds_calls(true);
    for behind in [String::new(), redirect(&link), redirect(&link)[..9].to_owned(), redirect(&link) + &shorten()] {
        let mut raw = Raw::connect(server.address).await;
        exchange(&mut raw, &redirect(&link)).await.expect(302);
        raw.send((shorten() + &behind).as_bytes()).await;
    }
    switch.held(4).await;
    switch.holds_calls(false);
    exchange(&mut Raw::connect(server.address).await, &redirect(&link)).await.expect(302);
    // A drain waits for connections: it ends at once where none is left.
    server.stop();
}

/// As RFC 9112, section 9.6, has it: what follows may have been sent without knowing that the connection ends.
#[tokio::test]
async fn what_stands_behind_an_answer_that_closes_is_neither_answered_nor_counted() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let without_key = |length: usize| {
        format!("POST /shorten HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length))
    };
    // The client closes; and the service does, which has not looked at a body that came with its head, or behind it.
    let closing = [api("GET /usage", "Connection: close\r\n"), without_key(100), without_key(50_000)];
    for request in closing {
        let mut raw = Raw::connect(server.address).await;
        exchange(&mut raw, &redirect(&link)).await.expect(302);
        raw.send((request + &redirect(&link)).as_bytes()).await;
        assert_eq!(raw.answer().await.unwrap().header("connection"), "close");
        assert!(raw.answer().await.is_none());
    }
    assert_eq!(dispatched_of_found(&server).await, (0, 3));
}

#[tokio::test]
async fn a_connection_that_came_back_has_the_fast_paths_time_between_requests() {
    // The link is made where there is more time for it.
    let patient = Server::start();
    let link = patient.root().any_link().await;
    let server = Server::builder()
        .set("SIGNPOST_HTTP__KEEP_ALIVE", "1s")
        .set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "1s")
        .directory(patient.stop())
        .start();
    let mut raw = Raw::connect(server.address).await;
    exchange(&mut raw, &api("GET /usage", "")).await.expect(200);
    let began = Instant::now();
    // The dispatcher, which has seen none of these, would have closed the connection.
    while began.elapsed() < Duration::from_millis(2_500) {
        exchange(&mut raw, &redirect(&link)).await.expect(302);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(raw.answer().await.is_none(), "an idle connection is closed without a word");
    // A head that does not come to its end is told so, after any number of changes.
    let mut raw = Raw::connect(server.address).await;
    for _ in 0..3 {
        exchange(&mut raw, &api("GET /usage", "")).await.expect(200);
        exchange(&mut raw, &redirect(&link)).await.expect(302);
    }
    raw.send(&redirect(&link).as_bytes()[..20]).await;
    raw.answer().await.unwrap().expect(408).problem("request-timeout");
    assert!(raw.answer().await.is_none());
}

/// More answers than are made at once: the fast path goes on with the rest.
#[tokio::test]
async fn a_long_pipeline_stays_on_the_fast_path() {
    let server = Server::start();
    let target = format!("https://example.com/{}", "x".repeat(900));
    let link = link_to(&server, &target).await;
    let mut raw = Raw::connect(server.address).await;
    // Some 380 fit into one read, and 70 answers into one piece.
    raw.send(redirect(&link).repeat(380).as_bytes()).await;
    for _ in 0..380 {
        assert_eq!(raw.answer().await.unwrap().expect(302).header("location"), target);
    }
    let (dispatched, found) = dispatched_of_found(&server).await;
    // Two reads, where the network so brings them: then a head stands in both.
    assert!(dispatched <= 1 && found == 380, "{dispatched} {found}");
}
