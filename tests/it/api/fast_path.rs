//! The fast path, on which short links are answered before any dispatcher: it must not be told from the dispatcher.

use std::time::Duration;

use serde_json::json;
use signpost::clock::Clock;
use signpost::domain::bots::BotKind;
use signpost::domain::calendar::Timestamp;
use signpost::domain::device::Device;
use signpost::domain::privacy::PrivateVisitor;
use signpost::journal::record::HitRecord;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::Answer;
use crate::support::journal::{each_record, what_is_told};
use crate::support::raw::Raw;
use crate::support::server::{Server, metric};
use crate::support::{SOON, eventually};

/// A server whose connections begin on the fast path, or (as it writes a line for each request) with the dispatcher.
async fn server(has_fast_path: bool) -> (Server, String) {
    server_with(has_fast_path, &[]).await
}

async fn server_with(has_fast_path: bool, settings: &[(&str, &str)]) -> (Server, String) {
    let builder = Server::builder().set("SIGNPOST_LOG__REQUESTS", if has_fast_path { "false" } else { "true" });
    let server = settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start();
    let link = server.root().any_link().await;
    (server, link)
}

/// What can be told of an answer, but for what is different each time.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let mut headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .map(|(name, value)| if name == "date" { (name, value.len().to_string()) } else { (name, value) })
        .map(
            |(name, value)| {
                if value.len() == 19 && name == "x-request-id" { (name, "made".into()) } else { (name, value) }
            },
        )
        .collect();
    headers.sort_unstable();
    (answer.status, headers, answer.text())
}

/// Heads, one request or more, plain and odd; `{link}` stands for a link's id.
fn requests() -> Vec<String> {
    let plain = "GET /{link} HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut requests: Vec<String> = [
        "GET /{link} HTTP/1.1",
        "GET /{link}?a=b&c=%20 HTTP/1.1",
        "GET /{link}?a\"b HTTP/1.1",
        "GET /{link}#a HTTP/1.1",
        "GET /{link}/ HTTP/1.1",
        "GET //{link} HTTP/1.1",
        "GET /{link} HTTP/1.0",
        "GET /{link} HTTP/1.2",
        "GET {link} HTTP/1.1",
        "GET http://a/{link} HTTP/1.1",
        "GET /{link}%20 HTTP/1.1",
        "GET /zzzzzzz HTTP/1.1",
        "GET /zzzzzzzz HTTP/1.1",
        "GET /openapi HTTP/1.1",
        "POST /{link} HTTP/1.1",
        "DELETE /{link} HTTP/1.1",
        "get /{link} HTTP/1.1",
        "GET  /{link} HTTP/1.1",
        "GET /{link}",
        "GET /{link}? HTTP/1.1",
        "GET /{link}?\u{e9} HTTP/1.1",
        "OPTIONS * HTTP/1.1",
    ]
    .iter()
    .map(|line| format!("{line}\r\nHost: a\r\n\r\n"))
    .collect();
    for (path, fields) in [
        ("{link}", ""),
        ("{link}", "Host: a\r\nConnection: close\r\n"),
        ("{link}", "Host: a\r\nConnection: keep-alive\r\n"),
        ("{link}", "Host: a\r\nX-Request-Id: mine-1\r\n"),
        ("zzzzzzz", "Host: a\r\n"),
    ] {
        requests.push(format!("GET /{path} HTTP/1.0\r\n{fields}\r\n"));
    }
    for fields in [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host:\r\n",
        "host: a\r\nUSER-AGENT: x\r\n",
        "Host: a\r\nConnection: close\r\n",
        "Host: a\r\nConnection: Keep-Alive\r\n",
        "Host: a\r\nConnection: close\r\nConnection: keep-alive\r\n",
        "Host: a\r\nConnection: keep-alive, close\r\n",
        "Host: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n",
        "Host: a\r\nX-Request-Id: mine-1\r\n",
        "Host: a\r\nX-Request-Id: not mine\r\n",
        "Host: a\r\nX-Request-Id: \r\n",
        "Host: a\r\nX-Request-Id: first\r\nX-Request-Id: second\r\n",
        "Host: a\r\nContent-Length: 0\r\n",
        "Host: a\r\nContent-Length: 2\r\n",
        "Host: a\r\nContent-Length: x\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nExpect: 100-continue\r\n",
        "Host: a\r\nno colon\r\n",
        "Host: a\r\n folded\r\n",
        "Host: a\r\nX: \u{1}\r\n",
        "Host: a\r\nUser-Agent: \u{fc}\r\nReferer: ://\r\n",
        "Host: a\r\nCookie: a=b\r\nAccept: */*\r\nRange: bytes=0-1\r\n",
        "Host: a\r\nAccept: text/html\r\n",
    ] {
        requests.push(format!("GET /{{link}} HTTP/1.1\r\n{fields}\r\n"));
    }
    for accept in [
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n",
        "accept: TEXT/HTML\r\n",
        "Accept: application/json\r\nAccept: text/html\r\n",
        "Accept: application/json;q=0.5\r\nAccept: text/html\r\n",
        "Accept: text/html;q=nonsense\r\n",
        "Accept: \u{fc}, text/*\r\n",
        "Accept:\r\n",
    ] {
        for path in ["zzzzzzz", "zzzzzzz?a=b", "no-id", "zzzzzzz+", "%3Cb%3E", ""] {
            // The second one may be answered by what is remembered of the first.
            requests.push(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n{accept}\r\n").repeat(2));
        }
    }
    requests.push(format!("GET /{{link}} HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(40)));
    requests.push(format!("GET /{{link}} HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(20_000)));
    requests.push(plain.replace('\r', ""));
    requests.push(format!("\r\n{plain}"));
    requests.push(plain.repeat(3));
    requests.push(format!("{plain}GET / HTTP/1.1\r\nHost: a\r\n\r\n{plain}"));
    requests.push(format!("{plain}garbage\r\n\r\n{plain}"));
    requests.push(format!("{plain}POST /shorten HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}{plain}"));
    requests.push(plain[..20].to_owned());
    requests
}

async fn answers(server: &Server, link: &str, request: &str) -> Vec<(u16, Vec<(String, String)>, String)> {
    let mut raw = Raw::connect(server.address).await;
    raw.send(request.replace("{link}", link).as_bytes()).await;
    raw.finish().await;
    raw.answers().await.iter().map(seen).collect()
}

#[tokio::test]
async fn the_fast_path_and_the_dispatcher_answer_alike_and_count_alike() {
    let (fast_path, dispatcher) = (server(true).await, server(false).await);
    for request in requests() {
        let expected = answers(&dispatcher.0, &dispatcher.1, &request).await;
        assert_eq!(answers(&fast_path.0, &fast_path.1, &request).await, expected, "{request}");
    }
    for accept in ["", "Accept: text/html\r\n"] {
        let request = format!("HEAD /zzzzzzz HTTP/1.1\r\nHost: a\r\n{accept}\r\n");
        let mut heads = Vec::new();
        for server in [&fast_path.0, &dispatcher.0] {
            let mut raw = Raw::connect(server.address).await;
            raw.send(request.as_bytes()).await;
            heads.push(seen(&raw.answer_to(true).await.unwrap().expect(404)));
        }
        assert_eq!(heads[0], heads[1], "{accept}");
    }
    let (on_the_fast_path, by_the_dispatcher) = (found(&fast_path.0).await, found(&dispatcher.0).await);
    assert!(
        (on_the_fast_path - by_the_dispatcher).abs() < 0.5 && on_the_fast_path > 20.0,
        "{on_the_fast_path} {by_the_dispatcher}"
    );
}

#[tokio::test]
async fn they_answer_alike_also_with_a_fallback_with_pages_of_the_operator_and_without_noindex() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("not-found.html"), "<h1>{{short_url}}</h1>{{title}}|{{target}}").unwrap();
    // The page tells it, so it has to be the same on both servers.
    let base_url = ("SIGNPOST_HTTP__BASE_URL", "https://sign.example");
    for settings in [
        [("SIGNPOST_FALLBACKS__NOT_FOUND", "https://example.com/lost"), base_url],
        [("SIGNPOST_PAGES__DIRECTORY", directory.path().to_str().unwrap()), base_url],
        [("SIGNPOST_REDIRECT__NOINDEX", "false"), base_url],
    ] {
        let (fast_path, dispatcher) = (server_with(true, &settings).await, server_with(false, &settings).await);
        for request in requests() {
            let expected = answers(&dispatcher.0, &dispatcher.1, &request).await;
            assert_eq!(answers(&fast_path.0, &fast_path.1, &request).await, expected, "{settings:?} {request}");
        }
        let counts = async |server: &Server| {
            let metrics = server.metrics().await;
            let of_route =
                |class: &str| format!("signpost_http_requests_total{{route=\"/{{short_id}}\",status=\"{class}\"}}");
            [of_route("3xx"), of_route("4xx"), "signpost_redirects_total{outcome=\"not_found\"}".into()]
                .map(|name| metric(&metrics, &name).unwrap())
        };
        let (on_the_fast_path, by_the_dispatcher) = (counts(&fast_path.0).await, counts(&dispatcher.0).await);
        assert_eq!(format!("{on_the_fast_path:?}"), format!("{by_the_dispatcher:?}"), "{settings:?}");
    }
}

/// Links with names and with every option of their redirects.
#[tokio::test]
async fn they_answer_alike_whatever_a_link_has() {
    let begin = Timestamp::parse("2026-11-21T12:00:00Z").unwrap();
    let long = "x".repeat(64);
    let mut seen_by_both = Vec::new();
    for has_fast_path in [true, false] {
        let clock = Clock::standing_at(begin);
        let server = Server::builder()
            .clock(clock.clone())
            .set("SIGNPOST_LOG__REQUESTS", if has_fast_path { "false" } else { "true" })
            .start();
        let root = server.root();
        let over = "2026-11-21T12:00:01Z";
        for (slug, options) in [
            ("a", json!({})),
            (&long, json!({"redirect_status": 301})),
            ("kept", json!({"redirect_status": 308, "cache_seconds": 60, "expires_at": "2026-11-21T12:00:31Z"})),
            ("over", json!({"expires_at": over})),
            ("led-on", json!({"expires_at": over, "fallback_url": "https://example.org/over", "redirect_status": 307})),
            ("early", json!({"not_before": "2026-11-21T13:00:00Z"})),
            ("blocked", json!({})),
        ] {
            let mut body = options;
            body["redirect_url"] = "https://example.com/".into();
            body["slug"] = slug.into();
            root.shorten(body).await;
        }
        root.post("/links/blocked/block", json!({"reason": "x"})).await.expect(200);
        clock.advance(Duration::from_secs(1));
        let mut all = Vec::new();
        for name in ["a", "a?b=c", &long, "kept", "over", "led-on", "early", "blocked", "A", "-a", "a%20", "k%65pt"] {
            for fields in ["", "Accept: text/html\r\n"] {
                // The second one may be answered by what is remembered of the first.
                let request = format!("GET /{name} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").repeat(2);
                let host = server.address.to_string();
                for (status, headers, text) in answers(&server, "", &request).await {
                    all.push((request.clone(), status, headers, text.replace(&host, "HOST")));
                }
            }
        }
        assert_eq!(all.len(), 48);
        seen_by_both.push(all);
    }
    for (on_the_fast_path, by_the_dispatcher) in seen_by_both[0].iter().zip(&seen_by_both[1]) {
        assert_eq!(on_the_fast_path, by_the_dispatcher);
    }
}

const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                     Version/17.0 Mobile/15E148 Safari/604.1";

/// The query and the fields of requests for a link with UTM parameters, and what is recorded of them where signals of
/// privacy are respected.
fn visits() -> Vec<(&'static str, String, HitRecord<'static>)> {
    let hit = HitRecord { skips_bots: true, utm: [b"target", b"", b"", b"t", b""], ..HitRecord::EMPTY };
    let private = |device, bot| HitRecord {
        private: Some(PrivateVisitor { device, bot }),
        address: [0, 0, 0, 0].into(),
        utm: [b""; 5],
        ..hit
    };
    let (prefetch, phone) = (HitRecord { is_prefetch: true, ..hit }, format!("User-Agent: {PHONE}\r\n"));
    let visit = |query, fields: &str, hit| (query, fields.to_owned(), hit);
    vec![
        visit("", "", hit),
        visit("?", "Accept-Language: *\r\nSec-GPC: 0\r\nDNT: 0\r\nPurpose: navigate\r\n", hit),
        visit(
            "?utm_sourc=a&xutm_term=b",
            "accept-language: pt-BR,en;q=0.5\r\nAccept-Language: de\r\n",
            HitRecord { language: b"pt-br", ..hit },
        ),
        visit(
            "?a&utm_source=m%C3%BC+%2B&utm_source=b&utm_medium=&utm_content=c",
            "Sec-CH-UA-Mobile: ?1\r\n",
            HitRecord { ch_ua_mobile: Some(true), utm: ["mü +".as_bytes(), b"", b"", b"t", b"c"], ..hit },
        ),
        visit(
            "?utm_source=\"",
            "User-Agent: x\r\nReferer: https://a.example/b\r\nACCEPT-LANGUAGE: zh-Hant-TW\r\n",
            HitRecord {
                user_agent: b"x",
                referer: b"https://a.example/b",
                language: b"zh-tw",
                utm: [b"\"", b"", b"", b"t", b""],
                ..hit
            },
        ),
        visit("", "Sec-Purpose: prefetch;prerender\r\n", prefetch),
        visit("", "sec-purpose: x\r\nSEC-PURPOSE: PREFETCH\r\n", prefetch),
        visit("", "Purpose: Preview\r\n", prefetch),
        visit("", "x-moz: prefetch\r\n", prefetch),
        visit("", "X-Purpose: preview\r\n", prefetch),
        visit("", "Sec-Purpose: preview\r\nX-Moz: prefetch;x\r\n", hit),
        visit(
            "?utm_source=a",
            &format!("{phone}Sec-GPC: 1\r\nReferer: https://a.example/\r\nAccept-Language: de\r\n"),
            private(Device::Mobile, None),
        ),
        visit("", "DNT: 0\r\nSec-CH-UA-Mobile: ?1\r\ndnt: 1\r\n", private(Device::Mobile, Some(BotKind::Tool))),
        visit("", "User-Agent: Googlebot/2.1\r\nSec-GPC:  1 \r\n", private(Device::Desktop, Some(BotKind::Crawler))),
        visit(
            "",
            &format!("{phone}sec-gpc: 1\r\nPurpose: prefetch\r\n"),
            private(Device::Mobile, Some(BotKind::Prefetch)),
        ),
    ]
}

#[tokio::test]
async fn they_record_alike() {
    for (has_fast_path, respect) in [(true, "gpc+dnt"), (false, "gpc+dnt"), (true, "none")] {
        let switch = FaultSwitch::default();
        let faults = switch.clone();
        let server = Server::builder()
            .set("SIGNPOST_LOG__REQUESTS", if has_fast_path { "false" } else { "true" })
            .set("SIGNPOST_PRIVACY__RESPECT", respect)
            .wrap_store(|store| std::sync::Arc::new(FaultyStore::new(store, faults)))
            .start();
        let target = "https://example.com/?utm_source=target&utm_term=t#&utm_medium=x";
        let link = server.root().shorten(json!({"redirect_url": target, "skip_bots": true})).await;
        server.anonymous().head(&format!("/{link}")).await.expect(302);
        // So that hits stay in the journal.
        switch.out_of_reach(true);
        for (query, fields, _) in visits() {
            let request = format!("GET /{link}{query} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            assert_eq!(answers(&server, "", &request).await[0].0, 302, "{request}");
        }
        let dispatched = metric(&server.metrics().await, "signpost_redirects_dispatched_total").unwrap();
        assert_eq!(dispatched < 1.5, has_fast_path, "{dispatched}");
        let mut expected = visits().into_iter();
        each_record(&server.stop(), |hit| {
            let (query, fields, expected) = expected.next().unwrap();
            if respect == "none" {
                let address = std::net::IpAddr::from([127, 0, 0, 1]);
                assert_eq!((hit.private, hit.address), (None, address), "{query} {fields}");
            } else {
                assert_eq!(what_is_told(hit), what_is_told(&expected), "{has_fast_path} {query} {fields}");
            }
        });
        assert!(expected.next().is_none());
    }
}

async fn found(server: &Server) -> f64 {
    metric(&server.metrics().await, "signpost_redirects_total{outcome=\"found\"}").unwrap()
}

/// Everything in pieces of each size, as the network may bring it.
#[tokio::test]
async fn requests_in_pieces_are_answered_as_if_they_had_come_whole() {
    let (server, link) = server(true).await;
    let request = format!("GET /{link} HTTP/1.1\r\nHost: a\r\n\r\n");
    for size in [1, 7, request.len() - 1, request.len(), request.len() + 1] {
        let mut raw = Raw::connect(server.address).await;
        for piece in request.repeat(3).as_bytes().chunks(size) {
            raw.send(piece).await;
            tokio::task::yield_now().await;
        }
        raw.finish().await;
        let statuses: Vec<u16> = raw.answers().await.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [302; 3], "pieces of {size}");
    }
}

#[tokio::test]
async fn head_is_answered_without_a_body_and_the_connection_goes_on() {
    let (server, link) = server(true).await;
    let mut raw = Raw::connect(server.address).await;
    for (path, status) in [(link.as_str(), 302), ("zzzzzzz", 404), (link.as_str(), 302)] {
        raw.send(format!("HEAD /{path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
        assert_eq!(raw.answer_to(true).await.unwrap().status, status);
    }
    raw.send(format!("GET /{link} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    assert_eq!(raw.answer().await.unwrap().status, 302);
}

/// The socket is full long before the client reads its first answer.
#[tokio::test]
async fn a_client_that_reads_late_gets_every_answer() {
    const ROUNDS: u32 = 200;
    const AT_ONCE: u32 = 50;
    let server = Server::start();
    let target = format!("https://example.com/{}", "x".repeat(900));
    let link = server.root().post("/shorten", json!({"redirect_url": target})).await.expect(200).json();
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", link["short_id"].as_str().unwrap());
    let mut raw = Raw::connect(server.address).await;
    let mut stalled = false;
    for round in 1..=ROUNDS {
        raw.send(request.repeat(AT_ONCE as usize).as_bytes()).await;
        let asked = f64::from(round * AT_ONCE);
        let answered = async || (found(&server).await >= asked).then_some(());
        // Once the server waits for the client it reads no more.
        if !stalled {
            stalled =
                tokio::time::timeout(Duration::from_millis(500), eventually("answers", SOON, answered)).await.is_err();
        }
    }
    assert!(stalled, "the socket took everything: the test shows nothing");
    for _ in 0..ROUNDS * AT_ONCE {
        assert_eq!(raw.answer().await.unwrap().header("location"), target);
    }
}

#[tokio::test]
async fn idle_connections_are_closed_after_their_time_and_silent_ones_are_told() {
    // The link is made where there is more time for it.
    let (patient, link) = server(true).await;
    let server = Server::builder()
        .set("SIGNPOST_HTTP__KEEP_ALIVE", "100ms")
        .set("SIGNPOST_HTTP__REQUEST_TIMEOUT", "1s")
        .directory(patient.stop())
        .start();
    let mut raw = Raw::connect(server.address).await;
    raw.send(format!("GET /{link} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    assert_eq!(raw.answer().await.unwrap().status, 302);
    assert!(raw.answer().await.is_none());
    let silent = Raw::connect(server.address).await.answer().await.unwrap();
    assert_eq!(silent.status, 408);
    silent.problem("request-timeout");
}

/// As RFC 9112, section 9.6, has it: what follows may have been sent without knowing that the connection ends.
#[tokio::test]
async fn what_stands_behind_a_request_that_closes_the_connection_is_neither_answered_nor_counted() {
    let (server, link) = server(true).await;
    let request = |fields: &str| format!("GET /{link} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let answers = Raw::exchange(server.address, (request("Connection: close\r\n") + &request("")).as_bytes()).await;
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].header("connection"), "close");
    assert!(found(&server).await < 1.5);
}

#[tokio::test]
async fn without_keep_alive_each_answer_is_its_connections_last() {
    let server = Server::builder().set("SIGNPOST_HTTP__KEEP_ALIVE", "0s").start();
    let link = server.root().any_link().await;
    let mut raw = Raw::connect(server.address).await;
    raw.send(format!("GET /{link} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    assert_eq!(raw.answer().await.unwrap().header("connection"), "close");
    assert!(raw.answer().await.is_none());
}

/// A server that has its link in no cache, and whose store holds what it is asked.
async fn server_that_waits() -> (Server, FaultSwitch, String) {
    let (first, link) = server(true).await;
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = Server::builder()
        .wrap_store(|store| std::sync::Arc::new(FaultyStore::new(store, faults)))
        .directory(first.stop())
        .start();
    (server, switch, link)
}

#[tokio::test]
async fn a_redirect_that_waits_for_the_store_has_all_that_its_head_said() {
    let (server, switch, link) = server_that_waits().await;
    let root = server.root();
    root.get("/usage").await.expect(200);
    switch.holds_calls(true);
    // As long as the journal keeps it, and more than that.
    let long = format!("https://seen.example/{}", "x".repeat(1_000));
    let more = "Accept-Language: de-AT\r\nSec-Purpose: prefetch\r\nSec-CH-UA-Mobile: ?1\r\n";
    let fields = format!("Host: a\r\nUser-Agent: {PHONE}\r\nReferer: {long}\r\nX-Request-Id: mine-1\r\n{more}");
    let mut raw = Raw::connect(server.address).await;
    let behind = format!("HEAD /{link} HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-2\r\n\r\n");
    raw.send(format!("GET /{link}?utm_term=a HTTP/1.1\r\n{fields}\r\n{behind}").as_bytes()).await;
    let mut head = Raw::connect(server.address).await;
    head.send(format!("HEAD /{link} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n").as_bytes()).await;
    switch.held(1).await;
    switch.holds_calls(false);
    for (id, is_head) in [("mine-1", false), ("mine-2", true)] {
        let answer = raw.answer_to(is_head).await.unwrap().expect(302);
        assert_eq!((answer.header("x-request-id"), answer.header("location")), (id, "https://example.com/"));
        assert_eq!(answer.header("connection"), "");
    }
    let answer = head.answer_to(true).await.unwrap().expect(302);
    assert_eq!((answer.header("x-request-id"), answer.header("connection")), ("mine-1", "close"));
    assert!(head.answer().await.is_none());
    // The HEADs are none.
    let record = eventually("the hit is counted", SOON, async || {
        let record = root.get(&format!("/links/{link}/analytics")).await.expect(200).json();
        (record["total_hits"] == 1).then_some(record)
    })
    .await;
    assert_eq!(record["referrers"], json!([{"label": "seen.example", "count": 1}]));
    assert_eq!(record["devices"][0], json!({"label": "mobile", "count": 1}));
    let expected = HitRecord {
        is_prefetch: true,
        ch_ua_mobile: Some(true),
        user_agent: PHONE.as_bytes(),
        referer: &long.as_bytes()[..512],
        language: b"de-at",
        utm: [b"", b"", b"", b"a", b""],
        ..HitRecord::EMPTY
    };
    let mut records = 0;
    each_record(&server.stop(), |hit| {
        assert_eq!(what_is_told(hit), what_is_told(&expected));
        records += 1;
    });
    assert_eq!(records, 1);
}

#[tokio::test]
async fn a_redirect_whose_load_panics_is_its_connections_last_answer() {
    let (server, switch, link) = server_that_waits().await;
    switch.panics_in(Some("link"));
    for method in ["GET", "HEAD"] {
        let mut raw = Raw::connect(server.address).await;
        let request = format!("{method} /{link} HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-1\r\n\r\n");
        raw.send(request.repeat(2).as_bytes()).await;
        let answer = raw.answer_to(method == "HEAD").await.unwrap().expect(500);
        assert_eq!((answer.header("x-request-id"), answer.header("connection")), ("mine-1", "close"));
        assert!(raw.answer().await.is_none());
    }
    switch.panics_in(None);
    server.anonymous().get(&format!("/{link}")).await.expect(302);
}
