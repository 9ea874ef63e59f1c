//! Bytes that no HTTP client sends: every error is a problem document all the same.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::support::client::Answer;
use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, soon};

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
        shorten("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\n"),
        shorten("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nX: y\n\r\n"),
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
async fn a_body_that_never_ends_holds_no_connection() {
    let server = Server::builder().set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "1s").start();
    let endless = async |line: &str, fields: &str, chunks: &str, status: u16| {
        let mut raw = Raw::connect(server.address).await;
        raw.send(
            format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}Transfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes(),
        )
        .await;
        raw.answer().await.unwrap().expect(status);
        // No second answer to the same request.
        assert!(raw.answer().await.is_none(), "{line} {fields} {chunks}");
    };
    let trickled = async {
        let mut raw = Raw::connect(server.address).await;
        raw.send(b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        raw.answer().await.unwrap().expect(200);
        let began = Instant::now();
        while raw.stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            assert!(began.elapsed() < SOON, "it is still open");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let key = format!("X-API-Key: {ROOT_KEY}\r\n");
    tokio::join!(
        endless("GET /", "", "", 200),
        endless("GET /", "Connection: close\r\n", "5\r\nab", 200),
        endless("GET /usage", "", "", 401),
        endless("GET /nothing/here", "", "0\r\nX: y\r\n", 404),
        endless("POST /shorten", &key, "1\r\n{\r\n", 408),
        trickled,
    );
}

#[apply(on_each_store)]
async fn a_request_behind_a_body_that_came_late_has_its_own_time() {
    let server = Server::builder().set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "1s").start();
    let mut raw = Raw::connect(server.address).await;
    // It is answered before its body is there.
    raw.send(b"POST /shorten HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    raw.answer().await.unwrap().expect(401);
    raw.send(b"0\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    raw.send(b"GET /usage HTTP/1.1\r\nHo").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    raw.send(b"st: x\r\n\r\n").await;
    raw.answer().await.unwrap().expect(401);
}

#[apply(on_each_store)]
async fn an_empty_line_behind_a_request_is_no_request() {
    let server = Server::builder().set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "500ms").start();
    let root = server.root();
    let id = root.any_link().await;
    let posted = format!("POST /shorten HTTP/1.1\r\nHost: x\r\nX-API-Key: {ROOT_KEY}\r\nContent-Length: 2\r\n\r\n{{}}");
    for (request, status) in [(plain(&format!("GET /{id}"), ""), 302), (posted, 422), (plain("GET /usage", ""), 401)] {
        // With the request, and behind its answer.
        for (with, behind) in [("\r\n", ""), ("", "\r\n\r\n")] {
            let mut raw = Raw::connect(server.address).await;
            raw.send(format!("{request}{with}").as_bytes()).await;
            raw.answer().await.unwrap().expect(status);
            raw.send(behind.as_bytes()).await;
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            raw.send(request.as_bytes()).await;
            raw.answer().await.unwrap().expect(status);
            // Nothing was answered in between, and nothing is at the end.
            raw.stream.shutdown().await.unwrap();
            assert!(raw.answer().await.is_none(), "{request} {with:?}");
        }
    }
}

#[apply(on_each_store)]
async fn a_client_that_reads_nothing_for_longer_than_the_time_for_a_head_gets_all_of_its_answers() {
    let server = Server::builder().set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "1s").start();
    let mut stream = connect_with_a_small_buffer(&server).await;
    // More than both kernels take.
    let asked = [plain("GET /", "").repeat(4_000), plain("GET /", "Connection: close\r\n")].concat();
    let (mut reading, mut writing) = stream.split();
    let mut received = Vec::new();
    let read = async {
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        reading.read_to_end(&mut received).await
    };
    let (written, read) = tokio::join!(writing.write_all(asked.as_bytes()), read);
    written.unwrap();
    read.unwrap();
    let count = |text: &[u8]| received.windows(text.len()).filter(|window| *window == text).count();
    assert_eq!((count(b"HTTP/1.1 200"), count(b"HTTP/1.1 408")), (4_001, 0));
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

fn plain(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[apply(on_each_store)]
async fn pipelined_requests_are_each_answered_as_if_they_had_come_alone() {
    let server = Server::start();
    let (qr, root) = (format!("GET /{}/qr", server.root().any_link().await), format!("X-API-Key: {ROOT_KEY}\r\n"));
    let body = r#"{"redirect_url":"https://example.com/"}"#;
    let length = format!("{root}Content-Length: {}\r\n", body.len());
    // Each request, whether it is a HEAD, and the status of its answer.
    let requests = [
        (plain(&qr, ""), false, 200),
        (plain("HEAD /", ""), true, 200),
        (plain("HEAD /usage", &root), true, 200),
        (plain("GET /", ""), false, 200),
        (plain("POST /shorten", &length) + body, false, 200),
        (plain("GET /usage", &root), false, 200),
        (
            plain("POST /shorten", &format!("{root}Transfer-Encoding: chunked\r\n"))
                + "27\r\n"
                + body
                + "\r\n0\r\n\r\n",
            false,
            200,
        ),
        (plain("GET /docs", ""), false, 200),
        (plain("GET /usage", &format!("{root}Connection: close\r\n")), false, 200),
        // Never looked at.
        (plain("POST /api-keys", &format!("{root}Content-Length: 12\r\n")) + r#"{"name":"a"}"#, false, 0),
    ];
    for cut in [1, 7, 64, 100_000] {
        let mut raw = Raw::connect(server.address).await;
        let all: String = requests.iter().map(|(request, ..)| request.as_str()).collect();
        for piece in all.as_bytes().chunks(cut) {
            // The server closes before it has read the last one.
            if raw.stream.write_all(piece).await.is_err() {
                break;
            }
        }
        for (request, is_head, status) in &requests[..9] {
            let answer = raw.answer_to(*is_head).await.unwrap_or_else(|| panic!("no answer to {request}"));
            assert_eq!(answer.status, *status, "{request}: {}", answer.text());
            let closes = answer.headers.get("connection").is_some_and(|it| it == "close");
            assert_eq!(closes, request.contains("close"), "{request}: {answer:?}");
        }
    }
    let keys = server.root().get("/api-keys").await.expect(200).json();
    assert_eq!(keys["api_keys"].as_array().unwrap().len(), 1, "a request behind a close was executed: {keys}");
}

#[apply(on_each_store)]
async fn requests_that_wait_are_answered_though_the_client_sends_no_more() {
    let server = Server::start();
    let mut raw = Raw::connect(server.address).await;
    raw.send(plain("GET /docs", "").repeat(3).as_bytes()).await;
    raw.send(plain("GET /", "Connection: close\r\n").as_bytes()).await;
    raw.finish().await;
    let statuses: Vec<u16> = raw.answers().await.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200; 4]);
}

#[apply(on_each_store)]
async fn a_host_that_is_empty_or_odd_is_answered_400() {
    let server = Server::start();
    let id = server.root().any_link().await;
    for path in ["/", "/usage", &format!("/{id}")] {
        for host in ["", "a b", "a/b", "a\"", "<a>", "a@b", "a?b"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = Raw::exchange(server.address, request.as_bytes()).await.remove(0);
            answer.expect(400).problem("malformed-body");
        }
        let request = format!("GET {path} HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: close\r\n\r\n");
        assert_ne!(Raw::exchange(server.address, request.as_bytes()).await[0].status, 400);
    }
}

#[apply(on_each_store)]
async fn what_other_sites_append_to_a_short_link_costs_no_visitor_the_redirect() {
    let server = Server::start();
    let id = server.root().any_link().await;
    for query in [&b"q=\"<b>\"&x={|}^`\\"[..], "q=ü".as_bytes(), b"q=\xfc\xff", b"?a=%zz&&"] {
        // On a connection of its own, and on one that begins with the dispatcher.
        for first in ["", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let request =
                [format!("{first}GET /{id}?").as_bytes(), query, b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
                    .concat();
            let answers = Raw::exchange(server.address, &request).await;
            assert_eq!(answers.last().unwrap().status, 302, "{:?}", String::from_utf8_lossy(&request));
        }
    }
    let began = Instant::now();
    let path = format!("/links/{id}/analytics/summary");
    while server.root().get(&path).await.expect(200).json()["total_hits"] != 8 {
        assert!(began.elapsed() < SOON, "the hits are not counted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[apply(on_each_store)]
async fn an_upgrade_is_not_echoed() {
    let server = Server::start();
    let id = server.root().any_link().await;
    for fields in
        ["Connection: Upgrade\r\n", "Connection: upgrade\r\nUpgrade: h2c\r\n", "Connection: keep-alive, Upgrade\r\n"]
    {
        for path in ["/", &format!("/{id}")] {
            let mut raw = Raw::connect(server.address).await;
            raw.send(plain(&format!("GET {path}"), fields).as_bytes()).await;
            let answer = raw.answer().await.unwrap();
            assert!(!answer.headers.contains_key("upgrade"));
            assert!(answer.headers.get("connection").is_none_or(|it| it != "upgrade"), "{:?}", answer.headers);
        }
    }
}

/// A client whose kernel takes little.
async fn connect_with_a_small_buffer(server: &Server) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    socket.connect(server.address).await.unwrap()
}

#[apply(on_each_store)]
async fn a_client_that_takes_nothing_is_disconnected() {
    let server = Server::builder().set("SIGNPOST_HTTP__SEND_TIMEOUT", "1s").start();
    let id = server.root().any_link().await;
    for request in [plain("GET /docs", ""), plain(&format!("GET /{id}"), "")] {
        let mut stream = connect_with_a_small_buffer(&server).await;
        // More than both kernels take; the rest can't be sent.
        let all = request.repeat(20_000);
        let sending = stream.write_all(all.as_bytes());
        let _ = tokio::time::timeout(Duration::from_millis(500), sending).await;
        soon("the client is disconnected", || stream.take_error().unwrap().is_some());
    }
}

#[apply(on_each_store)]
async fn a_slow_but_steady_client_gets_all_of_its_answers() {
    let server = Server::builder().set("SIGNPOST_HTTP__SEND_TIMEOUT", "3s").start();
    let mut stream = connect_with_a_small_buffer(&server).await;
    let asked = [plain("GET /docs", "").repeat(20), plain("GET /", "Connection: close\r\n")].concat();
    stream.write_all(asked.as_bytes()).await.unwrap();
    let (began, mut received, mut bytes) = (Instant::now(), Vec::new(), vec![0; 8 * 1024]);
    // For longer than the time-out, and what the kernels hold.
    while began.elapsed() < Duration::from_secs(8) {
        let count = stream.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0, "cut off");
        received.extend_from_slice(&bytes[..count]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stream.read_to_end(&mut received).await.unwrap();
    let answers = received.windows(12).filter(|window| *window == b"HTTP/1.1 200").count();
    assert_eq!(answers, 21);
}

#[apply(on_each_store)]
async fn an_answer_arrives_whole_though_much_is_sent_behind_its_request() {
    let server = Server::start();
    let mut raw = Raw::connect(server.address).await;
    raw.send(plain("GET /docs", "Connection: close\r\n").as_bytes()).await;
    let (mut reading, mut writing) = raw.stream.split();
    let behind = plain("GET /", "").repeat(4_000);
    let mut received = Vec::new();
    let (_, read) = tokio::join!(writing.write_all(behind.as_bytes()), reading.read_to_end(&mut received));
    read.unwrap();
    let head = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let length = String::from_utf8_lossy(&received[..head])
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
    assert_eq!(received.len() - head - 4, length.unwrap().parse::<usize>().unwrap());
}
