//! Who is asking: the two headers, the one answer to all who prove nothing, scopes, and the order of refusals.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::client::{Answer, Client};
use crate::support::server::{ROOT_KEY, Server, count};
use crate::support::stores::{apply, on_each_store};

/// Every operation that asks for a key, with the scope that it needs.
const KEYED: [(&str, &str, &str); 13] = [
    ("POST", "/shorten", "links:write"),
    ("GET", "/links/aaaaaaa", "links:read"),
    ("GET", "/links/aaaaaaa/analytics", "analytics:read"),
    ("GET", "/links/aaaaaaa/analytics/summary", "analytics:read"),
    ("GET", "/usage", "usage:read"),
    ("GET", "/aaaaaaa/webhooks/status", "webhooks:read"),
    ("POST", "/aaaaaaa/webhooks/test", "webhooks:write"),
    ("POST", "/aaaaaaa/webhooks/replay", "webhooks:write"),
    ("POST", "/api-keys", "keys:manage"),
    ("GET", "/api-keys", "keys:manage"),
    ("DELETE", "/api-keys/01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f", "keys:manage"),
    ("PATCH", "/api-keys/01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f", "keys:manage"),
    ("POST", "/api-keys/01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f/rotate", "keys:manage"),
];

async fn call(client: &Client, method: &str, path: &str) -> Answer {
    client.send(Method::from_bytes(method.as_bytes()).unwrap(), path, &[], None).await
}

#[apply(on_each_store)]
async fn a_key_comes_as_x_api_key_or_as_bearer_and_x_api_key_wins() {
    let server = Server::start();
    let anyone = server.anonymous();
    let bearer = format!("Bearer {ROOT_KEY}");
    let lower_case = format!("bearer {ROOT_KEY}");
    let basic = format!("Basic {ROOT_KEY}");
    let cases: [(&[(&str, &str)], u16); 7] = [
        (&[("X-API-Key", ROOT_KEY)], 200),
        (&[("Authorization", &bearer)], 200),
        (&[("Authorization", &lower_case)], 200),
        (&[("X-API-Key", ROOT_KEY), ("Authorization", "Bearer wrong")], 200),
        (&[("X-API-Key", "wrong"), ("Authorization", &bearer)], 401),
        (&[("Authorization", &basic)], 401),
        (&[("Authorization", ROOT_KEY)], 401),
    ];
    for (headers, status) in cases {
        anyone.get_with("/usage", headers).await.expect(status);
    }
}

#[apply(on_each_store)]
async fn missing_unknown_expired_and_revoked_keys_get_the_same_answer() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    let server = Server::builder().clock(clock.clone()).start();
    let root = server.root();
    let expiring = root.new_key(json!({"name": "short-lived", "expires_at": "2026-11-21T12:00:10Z"})).await;
    let revoked = root.new_key(json!({"name": "revoked"})).await;
    let [expiring_key, revoked_key] = [&expiring, &revoked].map(|key| key["key"].as_str().unwrap());
    for key in [expiring_key, revoked_key] {
        server.with_key(key).get("/usage").await.expect(200);
    }
    clock.advance(Duration::from_millis(9_999));
    server.with_key(expiring_key).get("/usage").await.expect(200);
    clock.advance(Duration::from_millis(1));
    root.delete(&format!("/api-keys/{}", revoked["key_id"].as_str().unwrap())).await.expect(204);

    let unknown = format!("sp_{}", "x".repeat(43));
    let refused = [
        server.with_key(&unknown).get("/usage").await,
        server.with_key("short").get("/usage").await,
        server.with_key(expiring_key).get("/usage").await,
        server.with_key(revoked_key).get("/usage").await,
        server.anonymous().get("/usage").await,
        server.with_key("").get("/usage").await,
    ];
    for answer in &refused {
        answer.problem("unauthorized");
        assert_eq!(answer.status, 401);
        assert!(answer.header("www-authenticate").contains("X-API-Key"), "{:?}", answer.headers);
        assert_eq!(answer.text(), refused[0].text());
        let mut headers = answer.headers.clone();
        let mut others = refused[0].headers.clone();
        for of_the_moment in ["x-request-id", "date"] {
            assert!(headers.remove(of_the_moment).is_some());
            others.remove(of_the_moment);
        }
        assert_eq!(headers, others);
    }
}

#[apply(on_each_store)]
async fn every_keyed_operation_asks_for_a_key_and_its_scope() {
    let server = Server::start();
    let scopes = signpost::domain::key::Scope::ALL.map(signpost::domain::key::Scope::name);
    let (anyone, root) = (server.anonymous(), server.root());
    let mut lacking = std::collections::HashMap::new();
    for scope in scopes {
        let others: Vec<_> = scopes.into_iter().filter(|other| *other != scope).collect();
        let key = root.new_key(json!({"name": scope, "scopes": others})).await;
        lacking.insert(scope, server.with_key(key["key"].as_str().unwrap()));
    }
    for (method, path, scope) in KEYED {
        let answer = call(&anyone, method, path).await.expect(401);
        answer.problem("unauthorized");
        assert_eq!(answer.header("cache-control"), "no-store");

        let answer = call(&lacking[scope], method, path).await.expect(403);
        let problem = answer.problem("scope-missing");
        assert_eq!(problem["scope"], scope, "{method} {path}");
        assert!(problem["detail"].as_str().unwrap().contains(scope));
        assert_eq!(answer.header("cache-control"), "no-store");

        let other = if scope == "links:write" { "links:read" } else { "links:write" };
        let answer = call(&lacking[other], method, path).await;
        assert!(![401, 429].contains(&answer.status) && !answer.text().contains("scope-missing"), "{method} {path}");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_ne!(answer.header("ratelimit"), "", "{method} {path}");
    }
}

#[apply(on_each_store)]
async fn an_api_answer_is_not_kept_by_caches() {
    let server = Server::start();
    let root = server.root();
    let id = root.any_link().await;
    for path in ["/usage", "/api-keys", &format!("/links/{id}"), &format!("/links/{id}/analytics")] {
        assert_eq!(root.get(path).await.expect(200).header("cache-control"), "no-store", "{path}");
    }
}

#[apply(on_each_store)]
async fn refusals_come_in_their_order() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    let server = Server::builder()
        .clock(clock.clone())
        .set("SIGNPOST_TIERS__FREE__ANALYTICS_PER_MINUTE", "1")
        .set("SIGNPOST_TIERS__FREE__SUMMARY_PER_MINUTE", "1")
        .start();
    let root = server.root();
    let foreign = root.shorten(json!({"redirect_url": "https://example.com/", "tracked": false})).await;
    let foreign_tracked = root.any_link().await;
    let key = root.new_key(json!({"name": "reader"})).await;
    let reader = server.with_key(key["key"].as_str().unwrap());
    let own = reader.shorten(json!({"redirect_url": "https://example.com/", "tracked": false})).await;
    let scopeless = root.new_key(json!({"name": "scopeless", "scopes": ["links:read"]})).await;
    let scopeless = server.with_key(scopeless["key"].as_str().unwrap());

    for tail in ["analytics", "analytics/summary"] {
        let path = |id: &str| format!("/links/{id}/{tail}");
        // 401 and a missing scope go before whether the link is there.
        server.anonymous().get(&path("zzzzzzz")).await.expect(401);
        scopeless.get(&path("zzzzzzz")).await.expect(403).problem("scope-missing");
        scopeless.get(&path(&foreign)).await.expect(403).problem("scope-missing");

        // What is not there, then whose it is, then whether it is tracked; each takes its place in the window, and what is
        // over the limit is not looked at.
        for (id, status, slug) in [
            ("zzzzzzz", 404, "not-found"),
            ("no-short-id", 404, "not-found"),
            (foreign.as_str(), 403, "not-owner"),
            (&foreign_tracked, 403, "not-owner"),
            (&own, 403, "untracked-link"),
        ] {
            reader.get(&path(id)).await.expect(status).problem(slug);
            for other in ["zzzzzzz", &foreign, &own] {
                reader.get(&path(other)).await.expect(429).problem("rate-limited");
            }
            clock.advance(Duration::from_mins(1));
        }
        root.get(&path(&foreign_tracked)).await.expect(200);
        root.get(&path(&own)).await.expect(403).problem("untracked-link");
    }
}

#[tokio::test]
async fn a_client_that_is_answered_401_too_often_is_answered_429_and_with_a_valid_key_as_ever() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    let server = Server::builder()
        .clock(clock.clone())
        .set("SIGNPOST_LIMITS__UNAUTHORIZED_PER_MINUTE", "3")
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
        .start();
    let unknown = |n: usize| format!("sp_{n:x>43}");
    let ask = async |client: &str, key: &str| {
        let headers: Vec<_> =
            [("X-Forwarded-For", client), ("X-API-Key", key)].into_iter().filter(|h| !h.1.is_empty()).collect();
        server.anonymous().get_with("/usage", &headers).await
    };
    let look_ups = async || {
        let metrics = server.metrics().await;
        count(&metrics, "signpost_store_operations_total{operation=\"key_by_secret\",outcome=\"ok\"}")
    };
    let made = server.root().new_key(json!({"name": "valid"})).await;
    for key in ["", &unknown(1), "short"] {
        ask("203.0.113.7", key).await.expect(401);
    }
    for key in ["", &unknown(1), &unknown(2), "short"] {
        let answer = ask("203.0.113.7", key).await.expect(429);
        answer.problem("rate-limited");
        assert_eq!(answer.header("retry-after"), "60");
    }
    // Neither what is missing, nor what can be nobody's, nor what is known to be unknown, is looked up.
    let before = look_ups().await;
    for key in ["", "short", &unknown(1), &unknown(2)] {
        ask("203.0.113.7", key).await.expect(429);
    }
    assert_eq!(look_ups().await, before);
    // A valid key is let in, one that is not known here yet among them; other clients have a limit of their own.
    ask("203.0.113.7", made["key"].as_str().unwrap()).await.expect(200);
    ask("203.0.113.7", ROOT_KEY).await.expect(200);
    ask("203.0.113.8", "").await.expect(401);
    clock.advance(Duration::from_mins(2));
    ask("203.0.113.7", "").await.expect(401);
    let limited = server.metrics().await;
    assert_eq!(count(&limited, "signpost_requests_limited_total{limit=\"unauthorized\"}"), 8);
}
