//! Bytes that no HTTP client sends: every error is a problem document all the same.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::support::SOON;
use crate::support::client::Answer;
use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server};
use crate::support::stores::{apply, on_each_store};

/// The only answer to `bytes`, after which the server closes.
async fn only_answer(server: &Server, bytes: &[u8]) -> Answer {
    let mut answers = Raw::exchange(server.address, bytes).await;
    assert_eq!(answers.len(), 1, "{answers:?} to {}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
    answers.remove(0)
}

fn check(answer: &Answer, status: u16, slug: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    answer.problem(slug);
    assert!(!answer.header("x-request-id").is_empty(), "{answer:?}");
    assert_eq!(answer.header("cache-control"), "no-store");
}

fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("{line}\r\nHost: x\r\nConnection: close\r\n{headers}\r\n{body}").into_bytes()
}

fn shorten(headers: &str, body: &str) -> Vec<u8> {
    request("POST /shorten HTTP/1.1", &format!("X-API-Key: {ROOT_KEY}\r\n{headers}"), body)
}

#[apply(on_each_store)]
async fn what_is_no_http_is_answered_400() {
    let server = Server::start();
    let cases: [&[u8]; 12] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/3.0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /shorten HTTP/1.0\r\n\r\n",
    ];
    for bytes in cases {
        let answer = only_answer(&server, bytes).await;
        check(&answer, 400, "malformed-body");
        assert_eq!(answer.header("connection"), "close");
        assert!(!answer.header("date").is_empty());
    }
}

#[apply(on_each_store)]
async fn lengths_that_lie_and_broken_chunks_are_answered_400() {
    let server = Server::start();
    let malformed = [
        shorten("Content-Length: x\r\n", ""),
        shorten("Content-Length: -1\r\n", ""),
        shorten("Content-Length: +2\r\n", "{}"),
        shorten("Content-Length: 2, 2\r\n", "{}"),
        shorten("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"),
        shorten("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        shorten("Transfer-Encoding: gzip\r\n", "{}"),
        shorten("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
        shorten("Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n"),
        shorten("Transfer-Encoding: chunked\r\n", "-2\r\n{}\r\n0\r\n\r\n"),
        shorten("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n"),
        shorten("Transfer-Encoding: chunked\r\n", "2\r\n{}garbage\r\n"),
    ];
    for bytes in malformed {
        let mut answers = Raw::exchange(server.address, &bytes).await;
        assert!(!answers.is_empty(), "{}", String::from_utf8_lossy(&bytes));
        let answer = answers.remove(0);
        check(&answer, 400, "malformed-body");
        // A request whose body breaks off has its answer, and the connection one for the bytes that follow.
        for answer in answers {
            check(&answer, 400, "malformed-body");
        }
    }
    let too_large = shorten("Content-Length: 18446744073709551615\r\n", "{}");
    let mut raw = Raw::connect(server.address).await;
    raw.send(&too_large).await;
    check(&raw.answer().await.unwrap(), 413, "payload-too-large");
}

#[apply(on_each_store)]
async fn a_chunked_body_is_read_and_bounded() {
    let server = Server::start();
    let body = r#"{"redirect_url":"https://example.com/"}"#;
    let (first, second) = body.split_at(9);
    let chunks = format!("{:x}\r\n{first}\r\n{:X};extension=1\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    let answer = only_answer(&server, &shorten("Transfer-Encoding: chunked\r\n", &chunks)).await.expect(200);
    assert_eq!(answer.json()["redirect_url"], "https://example.com/");

    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    let mut raw = Raw::connect(server.address).await;
    raw.send(&shorten("Transfer-Encoding: chunked\r\n", &chunk.repeat(5))).await;
    check(&raw.answer().await.unwrap(), 413, "payload-too-large");
}

#[apply(on_each_store)]
async fn a_head_that_is_too_large_is_answered_431() {
    let server = Server::start();
    let long_line = request("GET / HTTP/1.1", &format!("X: {}\r\n", "x".repeat(140_000)), "");
    check(&only_answer(&server, &long_line).await, 431, "headers-too-large");
    let many = request("GET / HTTP/1.1", &"X: y\r\n".repeat(97), "");
    check(&only_answer(&server, &many).await, 431, "headers-too-large");
    let long_path = request(&format!("GET /{} HTTP/1.1", "x".repeat(140_000)), "", "");
    check(&only_answer(&server, &long_path).await, 431, "headers-too-large");
    let most = request("GET / HTTP/1.1", &"X: y\r\n".repeat(94), "");
    only_answer(&server, &most).await.expect(200);
}

#[apply(on_each_store)]
async fn who_goes_on_sending_still_gets_the_answer() {
    let server = Server::start();
    let mut raw = Raw::connect(server.address).await;
    let endless = [b"GET / HTTP/1.1\r\nHost: x\r\nX: ".to_vec(), vec![b'x'; 700_000]].concat();
    raw.send(&endless).await;
    check(&raw.answer().await.unwrap(), 431, "headers-too-large");
    assert!(raw.answer().await.is_none());
}

#[apply(on_each_store)]
async fn garbage_after_requests_on_a_connection_does_not_touch_their_answers() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let mut bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    bytes.extend(format!("GET /{link} HTTP/1.1\r\nHost: x\r\n\r\n").bytes());
    bytes.extend(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n");
    bytes.extend(b"garbage\r\n\r\n");
    let answers = Raw::exchange(server.address, &bytes).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 302, 200, 400]);
    check(&answers[3], 400, "malformed-body");

    // And where they have been answered before it comes.
    let mut raw = Raw::connect(server.address).await;
    raw.send(format!("GET /{link} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    assert_eq!(raw.answer().await.unwrap().status, 302);
    raw.send(b"garbage\r\n\r\n").await;
    check(&raw.answer().await.unwrap(), 400, "malformed-body");
    assert!(raw.answer().await.is_none());
}

#[apply(on_each_store)]
async fn a_connection_that_ends_early_is_answered_400() {
    let server = Server::start();
    for bytes in [b"GET / HT".to_vec(), b"G".to_vec(), shorten("Content-Length: 100\r\n", "{\"redirect_url\"")] {
        let mut raw = Raw::connect(server.address).await;
        raw.send(&bytes).await;
        raw.finish().await;
        check(&raw.answer().await.unwrap(), 400, "malformed-body");
        assert!(raw.answer().await.is_none());
    }
    // Who said nothing, or had all answers, is owed none.
    let mut raw = Raw::connect(server.address).await;
    raw.finish().await;
    assert!(raw.answer().await.is_none());
    let mut raw = Raw::connect(server.address).await;
    raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    raw.finish().await;
    assert_eq!(raw.answers().await.len(), 1);
    // Who goes away without listening harms nobody.
    for bytes in [b"GET / HT".to_vec(), shorten("Content-Length: 100\r\n", "{")] {
        Raw::connect(server.address).await.send(&bytes).await;
    }
    server.anonymous().get("/").await.expect(200);
}

#[apply(on_each_store)]
async fn slow_heads_and_slow_bodies_are_answered_408() {
    let server = Server::builder().set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "1s").start();
    let began = Instant::now();
    let slow_head = async {
        let mut raw = Raw::connect(server.address).await;
        raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n").await;
        let answer = raw.answer().await.unwrap();
        check(&answer, 408, "request-timeout");
        assert!(raw.answer().await.is_none());
    };
    let slow_second_head = async {
        let mut raw = Raw::connect(server.address).await;
        raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        raw.answer().await.unwrap().expect(200);
        raw.send(b"GET / HT").await;
        check(&raw.answer().await.unwrap(), 408, "request-timeout");
        assert!(raw.answer().await.is_none());
    };
    let trickled_second_head = async {
        let mut raw = Raw::connect(server.address).await;
        raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        raw.answer().await.unwrap().expect(200);
        raw.send(b"GET / HTTP/1.1\r\nX: ").await;
        let mut answer = None;
        while answer.is_none() && began.elapsed() < SOON {
            raw.send(b"x").await;
            answer = timeout(Duration::from_millis(50), raw.answer()).await.ok();
        }
        check(&answer.flatten().unwrap(), 408, "request-timeout");
    };
    let slow_body = async {
        let mut raw = Raw::connect(server.address).await;
        raw.send(&shorten("Content-Length: 100\r\n", "{")).await;
        check(&raw.answer().await.unwrap(), 408, "request-timeout");
    };
    tokio::join!(slow_head, slow_second_head, trickled_second_head, slow_body);
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[apply(on_each_store)]
async fn a_connection_in_use_outlives_the_time_for_a_head() {
    let server = Server::builder().set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "1s").start();
    let mut raw = Raw::connect(server.address).await;
    let began = Instant::now();
    // Requests in halves, so that there is always one begun when the watch looks.
    while began.elapsed() < Duration::from_millis(2_500) {
        raw.send(b"GET / HTTP/1.1\r\n").await;
        tokio::time::sleep(Duration::from_millis(15)).await;
        raw.send(b"Host: x\r\n\r\n").await;
        raw.answer().await.unwrap().expect(200);
    }
    // And idle.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    raw.answer().await.unwrap().expect(200);
}

#[apply(on_each_store)]
async fn odd_but_lawful_requests_are_answered() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let old = only_answer(&server, format!("GET /{link} HTTP/1.0\r\n\r\n").as_bytes()).await;
    assert_eq!((old.status, old.header("location")), (302, "https://example.com/"));
    let absolute = request(&format!("GET http://elsewhere.example/{link}?x#y HTTP/1.1"), "", "");
    only_answer(&server, &absolute).await.expect(302);
    for line in ["OPTIONS * HTTP/1.1", "CONNECT example.com:443 HTTP/1.1", "GET example.com:443 HTTP/1.1"] {
        let mut raw = Raw::connect(server.address).await;
        raw.send(&request(line, "", "")).await;
        check(&raw.answer().await.unwrap(), 404, "not-found");
    }
    let answer = only_answer(&server, &request("BREW / HTTP/1.1", "", "")).await;
    check(&answer, 405, "method-not-allowed");
    assert_eq!(answer.header("allow"), "GET, HEAD");
    // Upgrades that nobody offers are passed over.
    let upgrade = request("GET / HTTP/1.1", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", "");
    only_answer(&server, &upgrade).await.expect(200);
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut raw = Raw::connect(server.address).await;
    raw.send(format!("GET / HTTP/1.1\r\nHost: x\r\n{websocket}\r\n").as_bytes()).await;
    raw.answer().await.unwrap().expect(200);
}

#[apply(on_each_store)]
async fn a_client_that_waits_for_100_continue_is_told_to_go_on() {
    let server = Server::start();
    let body = r#"{"redirect_url":"https://example.com/"}"#;
    let head = shorten(&format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len()), "");
    let mut raw = Raw::connect(server.address).await;
    raw.send(&head).await;
    let mut interim = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut raw.stream, &mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    raw.send(body.as_bytes()).await;
    raw.answer().await.unwrap().expect(200);
}

#[apply(on_each_store)]
async fn paths_that_are_no_text_or_no_short_id_are_404() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let key = format!("X-API-Key: {ROOT_KEY}\r\n");
    for path in [
        "/%00".to_owned(),
        "/%ff".to_owned(),
        "/%".to_owned(),
        "/%zz".to_owned(),
        "/%2e%2e".to_owned(),
        "/../..".to_owned(),
        "//".to_owned(),
        format!("/{link}/"),
        format!("//{link}"),
        format!("/{link}%2f"),
        format!("/{link}%00"),
        format!("/{link};x=1"),
        "/%ff/qr".to_owned(),
        "/%00/webhooks/status".to_owned(),
        "/links/%ff".to_owned(),
        "/links/%ff/analytics".to_owned(),
        "/links/%00/analytics/summary".to_owned(),
        "/links/".to_owned(),
        format!("/{}", "x".repeat(60_000)),
        format!("/links/{}", "%ff".repeat(20_000)),
    ] {
        let bytes = request(&format!("GET {path} HTTP/1.1"), &key, "");
        check(&only_answer(&server, &bytes).await, 404, "not-found");
    }
    for (method, path) in [("DELETE", "/api-keys/%ff"), ("POST", "/api-keys/%00/rotate"), ("DELETE", "/api-keys/x")] {
        let bytes = request(&format!("{method} {path} HTTP/1.1"), &key, "");
        check(&only_answer(&server, &bytes).await, 404, "not-found");
    }
    // An escaped short id is the short id.
    let escaped = format!("/%{:02x}{}", link.as_bytes()[0], &link[1..]);
    only_answer(&server, &request(&format!("GET {escaped} HTTP/1.1"), "", "")).await.expect(302);
    // Longer than an URI may be.
    let long = request(&format!("GET /{} HTTP/1.1", "x".repeat(70_000)), "", "");
    check(&only_answer(&server, &long).await, 400, "malformed-body");
}

#[apply(on_each_store)]
async fn header_fields_that_are_no_text_do_no_harm() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let mut bytes = format!("GET /{link} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n").into_bytes();
    for name in ["User-Agent", "Referer", "X-Forwarded-For", "Forwarded", "X-Request-Id", "Sec-CH-UA-Mobile", "Cookie"]
    {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": \xff\xfe\x80\"\\\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    let answer = only_answer(&server, &bytes).await.expect(302);
    assert_eq!(answer.header("x-request-id").len(), 19);
    for name in ["X-API-Key", "Authorization"] {
        let head = format!("GET /usage HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}: ");
        let bytes = [head.as_bytes(), b"Bearer \xff\xfe\r\n\r\n"].concat();
        check(&only_answer(&server, &bytes).await, 401, "unauthorized");
    }
    let bytes = [&shorten("Content-Length: 2\r\nContent-Type: ", "")[..], b"\xff\r\n\r\n{}"].concat();
    let bytes = String::from_utf8_lossy(&bytes).replace("Content-Type: \r\n", "Content-Type: x").into_bytes();
    check(&only_answer(&server, &bytes).await, 415, "unsupported-media-type");
}
