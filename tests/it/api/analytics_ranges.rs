//! What series and breakdowns have in common: who may see them, of which links, and how often.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::Client;
use crate::support::keys::{standing, text};
use crate::support::links::{TARGET, changing, free_key};
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};
use crate::support::visits::{CRAWLER, DESKTOP, counted, counted_in_all, visit};
use crate::support::{SOON, eventually, middle};

const KINDS: [&str; 2] = ["series", "breakdown?dimension=os"];

fn of_link(id: &str, kind: &str) -> String {
    format!("/links/{id}/analytics/{kind}")
}

fn of_key(kind: &str) -> String {
    format!("/analytics/{kind}")
}

async fn total(client: &Client, path: &str) -> Value {
    client.get(path).await.expect(200).json()["total"].clone()
}

#[apply(on_each_store)]
async fn a_link_is_shown_to_its_owner_and_to_the_root_key_alone() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let other = free_key(&server, json!({"name": "other"})).await;
    let blind =
        free_key(&server, json!({"name": "blind", "scopes": ["links:write", "links:read", "usage:read"]})).await;
    let (id, of_blind) = (owner.link_named("mine").await, blind.any_link().await);
    let untracked = owner.shorten(json!({"redirect_url": TARGET, "tracked": false})).await;
    for kind in KINDS {
        for client in [&owner, &server.root()] {
            assert_eq!(total(client, &of_link(&id, kind)).await, 0);
            client.get(&of_link(&untracked, kind)).await.expect(403).problem("untracked-link");
            client.get(&of_link("unknown", kind)).await.expect(404).problem("not-found");
            client.get(&of_link("-no-name-", kind)).await.expect(404).problem("not-found");
        }
        for link in [&id, &untracked] {
            other.get(&of_link(link, kind)).await.expect(403).problem("not-owner");
        }
        let missing = blind.get(&of_link(&of_blind, kind)).await.expect(403).problem("scope-missing");
        assert_eq!(missing["scope"], "analytics:read");
        blind.get(&of_key(kind)).await.expect(403).problem("scope-missing");
        for path in [of_link(&id, kind), of_key(kind)] {
            server.anonymous().get(&path).await.expect(401).problem("unauthorized");
            let refused = owner.send(Method::POST, &path, &[], None).await.expect(405);
            assert_eq!(refused.header("allow"), "GET, HEAD");
        }
    }
}

#[apply(on_each_store)]
async fn a_link_that_leads_nowhere_keeps_its_numbers_until_it_is_deleted() {
    let clock = standing();
    let server = changing().clock(clock.clone()).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let [expired, blocked, archived, deleted] = ["expired", "blocked", "archived", "deleted"];
    owner.shorten(json!({"redirect_url": TARGET, "slug": expired, "expires_at": "2026-11-21T13:00:00Z"})).await;
    for name in [blocked, archived, deleted] {
        owner.link_named(name).await;
    }
    for name in [expired, blocked, archived, deleted] {
        visit(&server, name, DESKTOP).await;
        visit(&server, name, CRAWLER).await;
        counted(&owner, name, 2).await;
    }
    counted_in_all(&owner, 8).await;
    server.root().post("/links/blocked/block", json!({"reason": "phishing"})).await.expect(200);
    owner.patch_link(archived, json!({"archived": true})).await.expect(200);
    owner.delete("/links/deleted").await.expect(204);
    clock.advance(Duration::from_hours(2));
    for kind in KINDS {
        for name in [expired, blocked, archived] {
            assert_eq!(total(&owner, &of_link(name, kind)).await, 2, "{name}");
        }
        owner.get(&of_link(deleted, kind)).await.expect(404).problem("not-found");
        assert_eq!(total(&owner, &of_key(kind)).await, 8);
    }
    // A link that gets the name of a deleted one has none of its hits.
    owner.link_named(deleted).await;
    for kind in KINDS {
        assert_eq!(total(&owner, &of_link(deleted, kind)).await, 0);
        assert_eq!(total(&owner, &of_key(kind)).await, 8);
    }
}

#[apply(on_each_store)]
async fn links_and_keys_share_a_limit_for_series_and_one_for_breakdowns() {
    let server = Server::builder().clock(standing()).start();
    for (tier, limit) in [("Free", 30), ("Pro", 120)] {
        let owner = free_key(&server, json!({"name": "limited", "tier": tier})).await;
        let id = owner.any_link().await;
        for (kind, name) in KINDS.into_iter().zip(["series", "breakdown"]) {
            let paths = [of_link(&id, kind), of_key(kind)];
            for used in 0..limit {
                let answer = owner.get(&paths[used % 2]).await.expect(200);
                assert_eq!(answer.header("ratelimit-policy"), format!("\"{name}\";q={limit};w=60"));
                assert_eq!(answer.header("ratelimit"), format!("\"{name}\";r={};t=60", limit - used - 1), "{tier}");
            }
            for path in &paths {
                owner.get(path).await.expect(429).problem("rate-limited");
            }
        }
    }
}

#[apply(on_each_store)]
async fn the_root_key_has_the_numbers_of_its_own_links() {
    let server = changing().start();
    let (root, owner) = (server.root(), free_key(&server, json!({"name": "owner"})).await);
    let (of_root, of_owner) = (root.any_link().await, owner.any_link().await);
    server.click(&of_root, 2).await;
    server.click(&of_owner, 3).await;
    counted_in_all(&root, 2).await;
    counted_in_all(&owner, 3).await;
    for kind in KINDS {
        assert_eq!((total(&root, &of_key(kind)).await, total(&owner, &of_key(kind)).await), (json!(2), json!(3)));
    }
}

#[apply(on_each_store)]
async fn hits_are_shown_within_two_seconds_and_outlive_a_restart() {
    let unlimited = || {
        let limits =
            ["SERIES", "BREAKDOWN", "SUMMARY"].map(|limit| format!("SIGNPOST_TIERS__FREE__{limit}_PER_MINUTE"));
        limits.iter().fold(Server::builder(), |server, limit| server.set(limit, "0"))
    };
    let server = unlimited().start();
    let key = server.root().new_key(json!({"name": "owner"})).await;
    let owner = server.with_key(text(&key["key"]));
    let id = owner.any_link().await;
    let paths = KINDS.iter().flat_map(|kind| [of_link(&id, kind), of_key(kind)]).collect::<Vec<_>>();
    let mut took = Vec::new();
    for count in 1..=3 {
        visit(&server, &id, DESKTOP).await;
        let began = Instant::now();
        for path in &paths {
            eventually("the hit", SOON, async || (total(&owner, path).await == count).then_some(())).await;
        }
        took.push(began.elapsed());
    }
    assert!(middle(&took) < Duration::from_secs(2), "{took:?}");
    let server = unlimited().directory(server.stop()).start();
    let owner = server.with_key(text(&key["key"]));
    for path in &paths {
        assert_eq!(total(&owner, path).await, 3, "{path}");
    }
}

#[apply(on_each_store)]
async fn while_the_store_is_out_of_reach_the_answer_is_503() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = changing().wrap_store(move |store| Arc::new(FaultyStore::new(store, faults))).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let id = owner.any_link().await;
    let paths = KINDS.iter().flat_map(|kind| [of_link(&id, kind), of_key(kind)]).collect::<Vec<_>>();
    for path in &paths {
        owner.get(path).await.expect(200);
    }
    switch.out_of_reach(true);
    for path in &paths {
        let answer = owner.get(path).await.expect(503);
        answer.problem("unavailable");
        assert!(!answer.header("retry-after").is_empty());
    }
    switch.out_of_reach(false);
}
