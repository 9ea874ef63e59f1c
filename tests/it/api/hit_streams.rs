//! `GET /hits/stream` and `GET /links/{short_id}/hits/stream`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::events::Events;
use crate::support::keys::{Key, text};
use crate::support::links::{TARGET, free_key};
use crate::support::server::{Server, ServerBuilder, metric};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const CHROME: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/153.0.0.0 Safari/537.36";

/// A server on which keys may begin any number of streams.
fn streaming() -> ServerBuilder {
    ["FREE", "PRO"]
        .iter()
        .fold(Server::builder(), |server, tier| server.set(&format!("SIGNPOST_TIERS__{tier}__STREAMS_PER_MINUTE"), "0"))
}

async fn click_as(server: &Server, link: &str, agent: &str) {
    let headers = [("User-Agent", agent), ("Referer", "https://www.example.com/page")];
    server.anonymous().get_with(&format!("/{link}"), &headers).await.expect(302);
}

fn ids(hits: &[Value]) -> Vec<&str> {
    hits.iter().map(|hit| text(&hit["hit_id"])).collect()
}

fn times(hits: &[Value]) -> Vec<&str> {
    hits.iter().map(|hit| text(&hit["hit_at"])).collect()
}

#[apply(on_each_store)]
async fn hits_come_with_what_is_counted_of_them() {
    let server = streaming().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let link = owner.shorten(json!({"redirect_url": TARGET, "slug": "named"})).await;
    let mut events = Events::open(&owner, "/hits/stream").await;
    click_as(&server, &link, CHROME).await;
    let first = events.next().await.unwrap();
    let data = first.data.as_object().unwrap();
    let names: Vec<&str> = data.keys().map(String::as_str).collect();
    let expected = [
        "hit_id",
        "hit_at",
        "short_id",
        "device",
        "browser",
        "os",
        "country",
        "language",
        "referrer",
        "destination",
        "bot",
    ];
    assert_eq!((first.name.as_str(), &names[..]), ("hit", &expected[..]));
    for (field, value) in [
        ("short_id", json!("named")),
        ("device", json!("desktop")),
        ("browser", json!("chrome")),
        ("os", json!("windows")),
        ("country", Value::Null),
        ("referrer", json!("example.com")),
        ("destination", json!("default")),
        ("bot", Value::Null),
    ] {
        assert_eq!(data[field], value, "{field}");
    }
    click_as(&server, &link, "Googlebot/2.1 (+http://www.google.com/bot.html)").await;
    let second = events.next().await.unwrap();
    assert_eq!(second.data["bot"], "crawler");
    assert!(text(&first.data["hit_at"]) <= text(&second.data["hit_at"]));
    assert_ne!((&first.id, &first.data["hit_id"]), (&second.id, &second.data["hit_id"]));
}

#[apply(on_each_store)]
async fn a_stream_has_the_hits_of_its_link_or_key_alone() {
    let server = streaming().start();
    let [owner, other] = ["owner", "other"].map(|name| json!({"name": name}));
    let (owner, other) = (free_key(&server, owner).await, free_key(&server, other).await);
    let (first, second, foreign) = (owner.any_link().await, owner.any_link().await, other.any_link().await);
    let untracked = owner.shorten(json!({"redirect_url": TARGET, "tracked": false})).await;
    let root = server.root();
    let mut of_link = Events::open(&root, &format!("/links/{first}/hits/stream")).await;
    let mut of_key = Events::open(&owner, "/hits/stream").await;
    let mut of_root = Events::open(&root, "/hits/stream").await;
    for link in [&untracked, &foreign, &second, &first] {
        server.click(link, 1).await;
    }
    let of_key = of_key.hits(2).await;
    assert_eq!(of_key.iter().map(|hit| text(&hit["short_id"])).collect::<Vec<_>>(), [&second, &first]);
    assert_eq!(ids(&of_link.hits(1).await), ids(&of_key[1..]));
    of_root.expect_none_for(Duration::from_millis(300)).await;
    of_link.expect_none_for(Duration::from_millis(300)).await;
}

#[apply(on_each_store)]
async fn a_client_that_comes_back_misses_no_hit() {
    let server = streaming().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let link = owner.any_link().await;
    for path in ["/hits/stream".to_owned(), format!("/links/{link}/hits/stream")] {
        let mut events = Events::open(&owner, &path).await;
        // Also one that had no hit yet.
        let begin = events.last_id.clone();
        server.click(&link, 3).await;
        let before = events.hits(3).await;
        let last = events.last_id.clone();
        drop(events);
        server.click(&link, 4).await;
        let mut events = Events::when_free(&owner, &path, &last).await;
        let missed = events.hits(4).await;
        server.click(&link, 1).await;
        let live = events.hits(1).await;
        drop(events);
        let mut again = Events::when_free(&owner, &path, &begin).await;
        let all = again.hits(8).await;
        assert_eq!(ids(&all), [&before[..], &missed, &live].map(ids).concat());
        assert!(times(&all).is_sorted());
        again.expect_none_for(Duration::from_millis(300)).await;
        drop(again);
        eventually("no stream is open", SOON, async || {
            (metric(&server.metrics().await, "signpost_hit_streams") == Some(0.0)).then_some(())
        })
        .await;
    }
}

#[apply(on_each_store)]
async fn a_key_has_so_many_streams_at_once() {
    let server = streaming().set("SIGNPOST_TIERS__PRO__STREAMS", "3").start();
    let free = free_key(&server, json!({"name": "free"})).await;
    let pro = free_key(&server, json!({"name": "pro", "tier": "Pro"})).await;
    let root = server.root();
    for (client, limit) in [(&free, Some(1)), (&pro, Some(3)), (&root, None)] {
        let mut open = Vec::new();
        for _ in 0..limit.unwrap_or(12) {
            open.push(Events::open(client, "/hits/stream").await);
        }
        if limit.is_some() {
            let refused = client.get("/hits/stream").await.expect(429);
            refused.problem("rate-limited");
            assert_eq!(refused.header("retry-after"), "3");
        }
        drop(open.pop());
        open.push(Events::when_free(client, "/hits/stream", "").await);
    }
}

#[apply(on_each_store)]
async fn streams_are_for_owners_and_tracked_links() {
    let server = streaming().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let other = free_key(&server, json!({"name": "other"})).await;
    let without = free_key(&server, json!({"name": "without", "scopes": ["links:read"]})).await;
    let link = owner.any_link().await;
    let untracked = owner.shorten(json!({"redirect_url": TARGET, "tracked": false})).await;
    let path = |link: &str| format!("/links/{link}/hits/stream");
    other.get(&path(&link)).await.expect(403).problem("not-owner");
    other.get(&path("unknown")).await.expect(404).problem("not-found");
    owner.get(&path(&untracked)).await.expect(403).problem("untracked-link");
    without.get("/hits/stream").await.expect(403).problem("scope-missing");
    server.anonymous().get("/hits/stream").await.expect(401);
    owner.get("/hits/stream?from=x").await.expect(422).problem("validation");
    for id in ["x", "AAAA", "no base64!", &"A".repeat(5_000)] {
        let problem = owner.get_with("/hits/stream", &[("Last-Event-ID", id)]).await.expect(422).problem("validation");
        assert_eq!(problem["errors"][0]["header"], "Last-Event-ID");
    }
    // A look at the head takes no stream.
    for path in ["/hits/stream".to_owned(), path(&link)] {
        let head = owner.head(&path).await.expect(200);
        assert_eq!(head.header("content-type"), "text/event-stream");
        Events::when_free(&owner, &path, "").await;
    }
    owner.head(&path(&untracked)).await.expect(403);
}

#[apply(on_each_store)]
async fn a_stream_ends_with_its_key() {
    let server = streaming().start();
    let root = server.root();
    let key = Key::new(&server, &root, json!({"name": "revoked"})).await;
    let mut events = Events::open(&key.client, "/hits/stream").await;
    let revoked = Instant::now();
    root.delete(&key.path()).await.expect(204);
    assert!(events.next_within(Duration::from_secs(5)).await.is_none());
    assert!(revoked.elapsed() < Duration::from_secs(5));
}

#[apply(on_each_store)]
async fn a_stream_ends_when_its_key_may_not_listen_any_more() {
    let server = streaming().start();
    let root = server.root();
    let key = Key::new(&server, &root, json!({"name": "changed"})).await;
    let mut events = Events::open(&key.client, "/hits/stream").await;
    let body = json!({"scopes": ["links:read"]}).to_string().into();
    let headers = [("Content-Type", "application/json")];
    root.send(reqwest::Method::PATCH, &key.path(), &headers, Some(body)).await.expect(200);
    assert!(events.next_within(Duration::from_secs(5)).await.is_none());
}

#[tokio::test]
async fn a_stream_ends_when_nobody_knows_whether_its_key_is_valid() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = streaming().wrap_store(move |store| std::sync::Arc::new(FaultyStore::new(store, faults))).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let mut events = Events::open(&owner, "/hits/stream").await;
    switch.refuses(Some("key"));
    assert!(events.next_within(Duration::from_secs(6)).await.is_none());
}

#[apply(on_each_store)]
async fn a_stream_ends_at_a_drain() {
    let server = streaming().start();
    let root = server.root();
    let mut events = Events::open(&root, "/hits/stream").await;
    let began = Instant::now();
    let stopping = tokio::task::spawn_blocking(move || drop(server));
    assert!(events.next_within(Duration::from_secs(5)).await.is_none());
    stopping.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(15), "it holds up nothing");
}

#[apply(on_each_store)]
async fn a_client_that_comes_back_after_a_restart_misses_no_hit() {
    let server = streaming().start();
    let root = server.root();
    let link = root.any_link().await;
    let mut events = Events::open(&root, "/hits/stream").await;
    server.click(&link, 3).await;
    let before = events.hits(3).await;
    let last = events.last_id.clone();
    drop(events);
    // One of its last hits.
    server.click(&link, 1).await;
    let home = tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    let server = tokio::task::spawn_blocking(move || streaming().directory(home).start()).await.unwrap();
    server.click(&link, 2).await;
    let mut events = Events::after(&server.root(), "/hits/stream", &last).await;
    let missed = events.hits(3).await;
    server.click(&link, 1).await;
    let live = events.hits(1).await;
    let all = [before, missed, live].concat();
    let distinct: std::collections::HashSet<&str> = ids(&all).into_iter().collect();
    assert_eq!(distinct.len(), 7, "each hit once");
    assert!(times(&all).is_sorted());
}

#[tokio::test]
async fn a_comment_comes_every_15_seconds() {
    let server = streaming().start();
    let root = server.root();
    let mut events = Events::open(&root, "/hits/stream").await;
    let began = Instant::now();
    events.comment(Duration::from_secs(17)).await;
    assert!(began.elapsed() > Duration::from_secs(14));
}
