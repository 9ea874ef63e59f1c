//! Connections: how many there are, who serves them, and what comes first on them.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use signpost::store::faulty::{FaultSwitch, FaultyStore};
use tokio::time::timeout;

use crate::support::client::Answer;
use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server, count};
use crate::support::{SOON, eventually};

fn redirect(link: &str, fields: &str) -> String {
    format!("GET /{link} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// A connection that stays open, and has had one answer.
async fn kept(server: &Server, link: &str) -> Raw {
    let mut raw = Raw::connect(server.address).await;
    raw.send(redirect(link, "").as_bytes()).await;
    raw.answer().await.unwrap().expect(302);
    raw
}

#[tokio::test]
async fn all_places_of_all_workers_are_used_and_further_connections_wait_for_one() {
    let server =
        Server::builder().set("SIGNPOST_HTTP__WORKERS", "3").set("SIGNPOST_HTTP__MAX_CONNECTIONS", "5").start();
    // The API's client keeps connections, too.
    let link = any_link_with_a_connection_that_closes(&server).await;
    // Whichever worker the kernel gives them to.
    let mut open = Vec::new();
    for _ in 0..15 {
        open.push(kept(&server, &link).await);
    }
    // A place is taken before its client is answered, so none of the fifteen is still free here.
    let mut waiting = Raw::connect(server.address).await;
    waiting.send(redirect(&link, "").as_bytes()).await;
    assert!(timeout(Duration::from_millis(300), waiting.stream.readable()).await.is_err(), "there is no place for it");
    drop(open.pop());
    waiting.answer().await.unwrap().expect(302);
}

async fn any_link_with_a_connection_that_closes(server: &Server) -> String {
    let body = r#"{"redirect_url":"https://example.com/"}"#;
    let length = body.len();
    let request = format!(
        "POST /shorten HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-API-Key: {ROOT_KEY}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let answers = Raw::exchange(server.address, request.as_bytes()).await;
    answers[0].json()["short_id"].as_str().unwrap().to_owned()
}

/// Requests that come with the connection are answered before anything else is made for it.
#[tokio::test]
async fn whatever_comes_first_is_answered_and_counted() {
    let server = Server::builder().set("SIGNPOST_HTTP__WORKERS", "2").start();
    let link = server.root().any_link().await;
    let close = redirect(&link, "Connection: close\r\n");
    let mut hits = 0;
    for _ in 0..100 {
        let answers = Raw::exchange(server.address, close.as_bytes()).await;
        assert_eq!(statuses(&answers), [302]);
        hits += 1;
    }
    let one = redirect(&link, "");
    for (requests, expected) in [
        (format!("{one}{one}{close}"), vec![302, 302, 302]),
        // What stands behind the last one is not looked at.
        (format!("{one}{close}{one}"), vec![302, 302]),
        (format!("{}{close}", redirect("abcdefg", "")), vec![404, 302]),
        (format!("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n{close}"), vec![404, 302]),
        (format!("{one}GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), vec![302, 200]),
        ("no request at all\r\n\r\n".to_owned(), vec![400]),
    ] {
        let answers = Raw::exchange(server.address, requests.as_bytes()).await;
        assert_eq!(statuses(&answers), expected, "{requests}");
        hits += expected.iter().filter(|status| **status == 302).count();
    }
    // In pieces, however small.
    let mut raw = Raw::connect(server.address).await;
    for piece in close.as_bytes().chunks(7) {
        raw.send(piece).await;
        tokio::task::yield_now().await;
    }
    raw.answer().await.unwrap().expect(302);
    assert!(raw.answer().await.is_none());
    hits += 1;
    let found = count(&server.metrics().await, "signpost_redirects_total{outcome=\"found\"}");
    assert_eq!(found, hits as u64);
    let path = format!("/links/{link}/analytics");
    eventually("all hits are counted", SOON, async || {
        let record = server.root().get(&path).await.expect(200).json();
        (record["total_hits"] == hits).then_some(())
    })
    .await;
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

/// A connection that is closed while there is something to read is reset, and a reset drops what was not sent yet.
#[tokio::test]
async fn a_client_that_goes_on_sending_behind_its_last_request_is_answered() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let (address, close) = (server.address, redirect(&link, "Connection: close\r\n"));
    let answered = tokio::task::spawn_blocking(move || {
        let exchange = || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(close.as_bytes()).unwrap();
            // Some of it comes after the request was read, and before the connection is closed.
            while stream.write_all(b"x").is_ok() {}
            let (mut answer, mut part) = (Vec::new(), [0; 4096]);
            while let Ok(read @ 1..) = stream.read(&mut part) {
                answer.extend_from_slice(&part[..read]);
            }
            answer.starts_with(b"HTTP/1.1 302 ") && answer.ends_with(b"\r\n\r\n")
        };
        (0..200).filter(|_| exchange()).count()
    });
    assert_eq!(answered.await.unwrap(), 200);
}

/// The store has to be asked for the link of a connection's first request; meanwhile the worker goes on.
#[tokio::test]
async fn a_first_request_that_waits_for_the_store_holds_up_nobody() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = Server::builder()
        .set("SIGNPOST_HTTP__WORKERS", "1")
        .wrap_store(|store| Arc::new(FaultyStore::new(store, faults)))
        .start();
    let (warm, cold) = (server.root().any_link().await, server.root().any_link().await);
    kept(&server, &warm).await;
    switch.holds_calls(true);
    let mut waiting = Raw::connect(server.address).await;
    waiting.send(redirect(&cold, "Connection: close\r\n").as_bytes()).await;
    switch.held(1).await;
    let other = Raw::exchange(server.address, redirect(&warm, "Connection: close\r\n").as_bytes()).await;
    assert_eq!(statuses(&other), [302]);
    switch.holds_calls(false);
    assert_eq!(statuses(&waiting.answers().await), [302]);
}
