//! The bounds of live streams: hits a second, memory, clients that do not read.

use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::events::Events;
use crate::support::keys::standing;
use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server, count, metric};
use crate::support::{SOON, eventually};

/// Follows a link many times at once.
async fn rush(server: &Server, link: &str, times: usize) {
    let request = format!("GET /{link} HTTP/1.1\r\nHost: a\r\n\r\n");
    let last = format!("GET /{link} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answers = Raw::exchange(server.address, (request.repeat(times - 1) + &last).as_bytes()).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 302).count(), times);
}

/// Reads hits, and what was skipped, until there were so many in all.
async fn read_all(events: &mut Events, hits: u64) -> (u64, u64) {
    let (mut told, mut skipped) = (0, 0);
    while told + skipped < hits {
        let event = events.next().await.expect("a stream that goes on");
        match event.name.as_str() {
            "hit" => told += 1,
            "skipped" => skipped += event.data["count"].as_u64().unwrap(),
            name => panic!("{name}"),
        }
    }
    assert_eq!(told + skipped, hits);
    (told, skipped)
}

#[tokio::test]
async fn what_is_more_than_100_hits_a_second_is_skipped_and_told() {
    // All hits of a rush are of one second.
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).start();
    let root = server.root();
    let link = root.any_link().await;
    let events = Events::open(&root, "/hits/stream").await;
    let of_link = Events::open(&root, &format!("/links/{link}/hits/stream")).await;
    let mut streams = [events, of_link];
    rush(&server, &link, 2_000).await;
    for stream in &mut streams {
        assert_eq!(read_all(stream, 2_000).await, (100, 1_900));
    }
    // It goes on as before.
    clock.advance(Duration::from_secs(1));
    rush(&server, &link, 20).await;
    for stream in &mut streams {
        assert_eq!(read_all(stream, 20).await, (20, 0));
    }
    let metrics = server.metrics().await;
    assert_eq!(count(&metrics, "signpost_streamed_hits_total{outcome=\"sent\"}"), 2 * (100 + 20));
    assert_eq!(count(&metrics, "signpost_streamed_hits_total{outcome=\"skipped\"}"), 2 * 1_900);
}

#[tokio::test]
async fn no_second_of_a_stream_has_more_than_100_hits() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).start();
    let root = server.root();
    let link = root.any_link().await;
    let path = format!("/links/{link}/hits/stream");
    let mut events = Events::open(&root, &path).await;
    let first_id = events.last_id.clone();
    // Hits of three seconds wait for the client that comes back.
    for _ in 0..3 {
        rush(&server, &link, 100).await;
        assert_eq!(read_all(&mut events, 100).await, (100, 0));
        clock.advance(Duration::from_secs(1));
    }
    drop(events);
    let began = Instant::now();
    let mut again = Events::after(&root, &path, &first_id).await;
    let mut at = Vec::new();
    let mut skipped = 0;
    while at.len() as u64 + skipped < 300 {
        let event = again.next().await.unwrap();
        match event.name.as_str() {
            "hit" => at.push(began.elapsed()),
            _ => skipped += event.data["count"].as_u64().unwrap(),
        }
    }
    // More than 250 do not wait.
    assert!(at.len() >= 250, "{}", at.len());
    // Those behind the first hundred are sent a second after these at the earliest, and may be read later.
    for (second, hits) in (0..).zip(at.chunks(100)) {
        assert!(hits[0] >= Duration::from_secs(second), "{hits:?}");
    }
}

#[tokio::test]
async fn a_thousand_streams_are_told_of_each_hit_within_a_bound_of_memory() {
    let server = Server::builder().set("SIGNPOST_HTTP__WORKERS", "4").start();
    let root = server.root();
    let link = root.any_link().await;
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        streams.push(Events::open(&root, "/hits/stream").await);
    }
    assert_eq!(metric(&server.metrics().await, "signpost_hit_streams"), Some(1_000.0));
    rush(&server, &link, 1_000).await;
    for events in &mut streams {
        let (told, _) = read_all(events, 1_000).await;
        assert!(told >= 100, "{told}");
    }
    drop(streams);
    eventually("all streams are closed", SOON, async || {
        (metric(&server.metrics().await, "signpost_hit_streams") == Some(0.0)).then_some(())
    })
    .await;
}

/// A client that has asked for a stream and reads little at once.
async fn slow_client(server: &Server, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {ROOT_KEY}\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    let mut begin = [0; 256];
    assert!(stream.read(&mut begin).await.unwrap() > 0);
    stream
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let server = Server::builder().set("SIGNPOST_HTTP__SEND_TIMEOUT", "1s").start();
    let root = server.root();
    let link = root.any_link().await;
    let client = slow_client(&server, "/hits/stream").await;
    let mut beside = Events::open(&root, "/hits/stream").await;
    // It takes some seconds to fill the buffers of the connection.
    let is_gone = async || metric(&server.metrics().await, "signpost_hit_streams") == Some(1.0);
    let began = Instant::now();
    while !is_gone().await {
        rush(&server, &link, 100).await;
        read_all(&mut beside, 100).await;
        assert!(began.elapsed() < Duration::from_mins(3), "it is still there");
    }
    drop(client);
}

#[tokio::test]
async fn a_client_that_closes_its_connection_takes_no_stream_any_more() {
    let server = Server::start();
    for _ in 0..3 {
        let client = slow_client(&server, "/hits/stream").await;
        assert_eq!(metric(&server.metrics().await, "signpost_hit_streams"), Some(1.0));
        drop(client);
        let closed = Instant::now();
        eventually("the stream is closed", SOON, async || {
            (metric(&server.metrics().await, "signpost_hit_streams") == Some(0.0)).then_some(())
        })
        .await;
        assert!(closed.elapsed() < Duration::from_secs(5));
    }
}
