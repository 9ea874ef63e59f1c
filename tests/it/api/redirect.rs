//! `GET /{short_id}`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::{Answer, Client};
use crate::support::receiver::Receiver;
use crate::support::server::{Server, ServerBuilder};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually, middle};

const TARGET: &str = "https://example.com/";

/// A server behind a proxy at loopback, with a limit and a clock that stands.
fn limited(per_minute: u32) -> ServerBuilder {
    Server::builder()
        .clock(Clock::standing_at(Timestamp(1_795_247_382_028)))
        .set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", &per_minute.to_string())
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
}

async fn get_as(server: &Server, path: &str, client: &str) -> Answer {
    server.anonymous().get_with(path, &[("X-Forwarded-For", client)]).await
}

/// Waits until `path` shows this many hits, and a moment in which there could be more.
async fn hits(client: &Client, id: &str, count: u64) {
    eventually("hits in the analytics", SOON, async || {
        let summary = client.get(&format!("/links/{id}/analytics/summary")).await.expect(200).json();
        (summary["total_hits"] == count).then_some(())
    })
    .await;
}

#[apply(on_each_store)]
async fn a_link_is_answered_302_with_its_target_and_nothing_else() {
    let server = Server::start();
    let id = server.root().any_link().await;
    // From the cache, and from the store of a new process.
    let cached = server.anonymous().get(&format!("/{id}")).await;
    let reopened = Server::builder().directory(server.stop()).start();
    let loaded = reopened.anonymous().get(&format!("/{id}")).await;
    for answer in [cached, loaded] {
        let answer = answer.expect(302);
        assert_eq!(answer.header("location"), TARGET);
        assert_eq!(answer.header("cache-control"), "private, no-store");
        assert_eq!(answer.header("content-length"), "0");
        assert!(answer.body.is_empty() && !answer.header("x-request-id").is_empty());
        let mut names: Vec<&str> = answer.headers.keys().map(reqwest::header::HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = ["cache-control", "content-length", "date", "location", "x-request-id", "x-robots-tag"];
        assert_eq!(names, expected);
    }
}

#[apply(on_each_store)]
async fn head_answers_the_same_and_records_nothing() {
    let server = Server::start();
    let root = server.root();
    let (id, probe) = (root.any_link().await, root.any_link().await);
    let got = server.anonymous().get(&format!("/{id}")).await.expect(302);
    for _ in 0..3 {
        let head = server.anonymous().head(&format!("/{id}")).await.expect(302);
        for name in ["location", "cache-control", "content-length"] {
            assert_eq!(head.header(name), got.header(name));
        }
    }
    assert_eq!(
        server.anonymous().head("/zzzzzzz").await.expect(404).header("content-type"),
        "application/problem+json"
    );
    // What comes into the journal after them is counted after them.
    server.anonymous().get(&format!("/{probe}")).await.expect(302);
    hits(&root, &probe, 1).await;
    hits(&root, &id, 1).await;
}

#[apply(on_each_store)]
async fn a_hit_shows_in_analytics_and_usage_within_two_seconds() {
    let server = Server::start();
    let root = server.root();
    let id = root.any_link().await;
    let mut took = Vec::new();
    for count in 1..=3 {
        server.anonymous().get(&format!("/{id}?utm_source=x")).await.expect(302);
        let began = Instant::now();
        hits(&root, &id, count).await;
        took.push(began.elapsed());
    }
    assert!(middle(&took) < Duration::from_secs(2), "{took:?}");
    let usage = root.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["hits_served"]["current"], 3);
}

#[apply(on_each_store)]
async fn a_redirect_asks_for_no_key_and_minds_none() {
    let server = Server::start();
    let id = server.root().any_link().await;
    server.with_key("sp_nonsense").get(&format!("/{id}")).await.expect(302);
}

#[apply(on_each_store)]
async fn unknown_ids_and_what_is_no_id_are_404() {
    let server = Server::start();
    let id = server.root().any_link().await;
    let other_case: String =
        id.chars().map(|c| if c.is_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() }).collect();
    for path in ["zzzzzzz", "short", "eightchr", "a-b-c-d", "aäbcde", "favicon.png", "robots.html", &other_case] {
        if path != id {
            server.anonymous().get(&format!("/{path}")).await.expect(404).problem("not-found");
        }
    }
}

#[apply(on_each_store)]
async fn without_its_store_the_service_answers_from_cache_and_says_503_for_the_rest() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let server = Server::builder().wrap_store(move |store| Arc::new(FaultyStore::new(store, around))).start();
    let id = server.root().any_link().await;
    server.anonymous().get("/missing").await.expect(404);
    switch.out_of_reach(true);
    let answer = server.anonymous().get(&format!("/{id}")).await.expect(302);
    assert_eq!(answer.header("location"), TARGET);
    let unavailable = server.anonymous().get("/zzzzzzz").await.expect(503);
    unavailable.problem("unavailable");
    assert!(unavailable.header("retry-after").parse::<u32>().unwrap() > 0);
    // What can't be a name needs no store to be unknown.
    for path in ["/-short", "/short-", "/a.b.c.d", "/%C3%A4", "/favicon.png", &format!("/{}", "x".repeat(65))] {
        server.anonymous().get(path).await.expect(404).problem("not-found");
    }
    server.anonymous().get(&format!("/{id}")).await.expect(302);
    switch.out_of_reach(false);
    server.anonymous().get("/zzzzzzz").await.expect(404);
    // The hits of the time without the store are counted.
    hits(&server.root(), &id, 2).await;
}

#[apply(on_each_store)]
async fn a_redirect_from_cache_waits_for_no_store() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let server = Server::builder().wrap_store(move |store| Arc::new(FaultyStore::new(store, around))).start();
    let id = server.root().any_link().await;
    switch.holds_calls(true);
    server.anonymous().get(&format!("/{id}")).await.expect(302);
    switch.holds_calls(false);
}

#[apply(on_each_store)]
async fn a_redirect_does_not_wait_for_its_webhooks() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    receiver.holds_answers(true);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/slow")]).await;
    server.anonymous().get(&format!("/{id}")).await.expect(302);
    // It is asked all the same, in the background, and has not answered yet.
    receiver.wait_for(1, SOON).await;
    let status = root.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
    assert_eq!(status["deliveries"][0]["attempts"], 0, "{status}");
    receiver.holds_answers(false);
}

#[apply(on_each_store)]
async fn a_client_is_let_in_up_to_its_limit_and_told_truly_when_it_may_come_again() {
    let server = limited(5).start();
    let id = server.root().any_link().await;
    let get = async || get_as(&server, &format!("/{id}"), "192.0.2.1").await;
    for _ in 0..5 {
        get().await.expect(302);
    }
    let refused = get().await.expect(429);
    refused.problem("rate-limited");
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds));
    server.clock.advance(Duration::from_secs(seconds - 1));
    let again = get().await.expect(429);
    assert_eq!(again.header("retry-after"), "1");
    server.clock.advance(Duration::from_secs(1));
    get().await.expect(302);
    // Half way through the next window the estimate still counts half of the last.
    let mut let_in = 0;
    while get().await.status == 302 {
        let_in += 1;
    }
    let refused = get().await.expect(429);
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    assert!(let_in < 5 && seconds >= 1, "{let_in} {seconds}");
    server.clock.advance(Duration::from_secs(seconds - 1));
    get().await.expect(429);
    server.clock.advance(Duration::from_secs(1));
    get().await.expect(302);
}

#[apply(on_each_store)]
async fn the_limit_is_100_over_all_links_unless_it_is_set() {
    let server = Server::builder().unset("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE").start();
    let ids = [server.root().any_link().await, server.root().any_link().await];
    for n in 0..100 {
        server.anonymous().get(&format!("/{}", ids[n % 2])).await.expect(302);
    }
    for id in &ids {
        server.anonymous().get(&format!("/{id}")).await.expect(429);
    }
}

#[apply(on_each_store)]
async fn a_limit_of_0_is_none() {
    let server = limited(0).start();
    let id = server.root().any_link().await;
    for _ in 0..150 {
        get_as(&server, &format!("/{id}"), "192.0.2.1").await.expect(302);
    }
}

#[apply(on_each_store)]
async fn look_ups_of_any_kind_count_against_the_limit() {
    let server = limited(1).start();
    let id = server.root().any_link().await;
    let paths =
        [format!("/{id}"), "/zzzzzzz".into(), "/favicon.png".into(), format!("/%{:02x}{}", id.as_bytes()[0], &id[1..])];
    for (n, path) in paths.iter().enumerate() {
        let client = format!("192.0.2.{n}");
        let first = get_as(&server, path, &client).await;
        assert!([302, 404].contains(&first.status), "{path}");
        for path in &paths {
            get_as(&server, path, &client).await.expect(429).problem("rate-limited");
        }
    }
    let head = async |client: &str| {
        let headers = [("X-Forwarded-For", client)];
        server.anonymous().send(reqwest::Method::HEAD, &format!("/{id}"), &headers, None).await
    };
    head("192.0.2.77").await.expect(302);
    head("192.0.2.77").await.expect(429);
    // What is no look-up does not.
    for path in ["/", "/docs", "/openapi.json", "/robots.txt", "/favicon.ico"] {
        get_as(&server, path, "192.0.2.77").await.expect(200);
    }
    // A refused request is no hit.
    hits(&server.root(), &id, 2).await;
}

#[apply(on_each_store)]
async fn a_client_is_an_ipv4_address_or_an_ipv6_64() {
    let server = limited(1).start();
    let path = format!("/{}", server.root().any_link().await);
    // The first is let in; the second is the same client or another.
    for (first, second, same) in [
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.3", "192.0.2.4", false),
        ("192.0.2.5", "::ffff:192.0.2.5", true),
        ("2001:db8:1::1", "2001:db8:1:0:ffff:ffff:ffff:ffff", true),
        ("2001:db8:2::1", "2001:db8:2:1::1", false),
        ("[2001:db8:3::1]:443", "2001:db8:3::2", true),
        ("192.0.2.6:1234", "192.0.2.6", true),
        // What the client itself wrote to the left is not looked at.
        ("10.9.9.9, 192.0.2.7", "nonsense, 192.0.2.7", true),
        // Trusted proxies are stepped over.
        ("192.0.2.8, 127.0.0.5", "192.0.2.8", true),
        ("192.0.2.9, 127.0.0.5", "192.0.2.10, 127.0.0.5", false),
        // Malformed where it is looked at: the peer, which is one client.
        ("192.0.2.11, nonsense", "nonsense", true),
    ] {
        assert_ne!(get_as(&server, &path, first).await.status, 429, "{first}");
        let expected = if same { 429 } else { 302 };
        assert_eq!(get_as(&server, &path, second).await.status, expected, "{first} and {second}");
    }
}

#[apply(on_each_store)]
async fn forwarding_headers_are_believed_of_trusted_proxies_only() {
    let server = limited(1).set("SIGNPOST_HTTP__TRUSTED_PROXIES", "10.0.0.0/8").start();
    let path = format!("/{}", server.root().any_link().await);
    get_as(&server, &path, "192.0.2.1").await.expect(302);
    get_as(&server, &path, "192.0.2.2").await.expect(429);

    let server = limited(1).start();
    let path = format!("/{}", server.root().any_link().await);
    let get = async |headers: &[(&str, &str)]| server.anonymous().get_with(&path, headers).await.status;
    assert_eq!(get(&[("Forwarded", "for=192.0.2.1")]).await, 302);
    assert_eq!(get(&[("Forwarded", "for=192.0.2.1;proto=https")]).await, 429);
    // Only where there is no `X-Forwarded-For`.
    assert_eq!(get(&[("Forwarded", "for=192.0.2.1"), ("X-Forwarded-For", "192.0.2.2")]).await, 302);
}
