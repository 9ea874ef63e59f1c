//! Requests with an `Idempotency-Key`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use uuid::Uuid;

use crate::support::client::{Answer, Client};
use crate::support::keys::standing;
use crate::support::links::{TARGET, changing, faults, free_key};
use crate::support::server::{Server, count};
use crate::support::stores::{Home, StoreKind, apply, on_each_store};

async fn send(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
    client.send(Method::POST, path, &headers, Some(body.to_string().into())).await
}

async fn links_created(client: &Client) -> u64 {
    client.get("/usage").await.expect(200).json()["usage"]["links_created"]["current"].as_u64().unwrap()
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == "true"
}

#[apply(on_each_store)]
async fn a_link_is_made_once_and_the_answer_is_told_again() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    for (made, body) in [
        json!({"redirect_url": TARGET}),
        json!({"redirect_url": TARGET, "slug": "summer"}),
        json!({"redirect_url": TARGET, "slug": "Summer7"}),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("key-{made}");
        let first = send(&owner, "/shorten", &key, &body).await.expect(200);
        assert!(!is_replayed(&first));
        assert_eq!(first.header("x-usage-links-created"), (made + 1).to_string());
        for same in [key.clone(), format!("\"{key}\"")] {
            let again = send(&owner, "/shorten", &same, &body).await.expect(200);
            assert!(is_replayed(&again));
            assert_eq!((again.text(), again.header("content-type")), (first.text(), "application/json"));
        }
        let name = first.json()["short_id"].as_str().unwrap().to_owned();
        server.anonymous().get(&format!("/{name}")).await.expect(302);
        assert_eq!(links_created(&owner).await, made as u64 + 1);
        let again = send(&owner, "/shorten", &key, &body).await.expect(200);
        let usage = (again.header("x-usage-links-created"), again.header("x-usage-links-limit"));
        assert_eq!(usage, (&*(made + 1).to_string(), "100"));
    }
    // Another key, another endpoint and another API key have nothing to do with it.
    let body = json!({"redirect_url": TARGET});
    assert!(!is_replayed(&send(&owner, "/shorten", "other", &body).await.expect(200)));
    let other = free_key(&server, json!({"name": "other"})).await;
    assert!(!is_replayed(&send(&other, "/shorten", "key-0", &body).await.expect(200)));
    let bulk = send(&owner, "/shorten/bulk", "key-0", &json!({"links": [body]})).await.expect(200);
    assert!(!is_replayed(&bulk));
    assert_eq!((links_created(&owner).await, links_created(&other).await), (5, 1));
    let metrics = server.metrics().await;
    assert_eq!(count(&metrics, "signpost_idempotent_requests_total{outcome=\"done\"}"), 6);
    assert_eq!(count(&metrics, "signpost_idempotent_requests_total{outcome=\"replayed\"}"), 9);
}

#[apply(on_each_store)]
async fn another_body_is_refused() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let body = json!({"redirect_url": TARGET});
    send(&owner, "/shorten", "key", &body).await.expect(200);
    for other in [json!({"redirect_url": "https://example.org/"}), json!({"redirect_url": 7}), json!({})] {
        send(&owner, "/shorten", "key", &other).await.expect(422).problem("idempotency-key-reused");
    }
    let headers = [("Content-Type", "application/json; charset=utf-8"), ("Idempotency-Key", "key")];
    let other_type = owner.send(Method::POST, "/shorten", &headers, Some(body.to_string().into())).await;
    other_type.expect(422).problem("idempotency-key-reused");
    assert!(is_replayed(&send(&owner, "/shorten", "key", &body).await.expect(200)));
    assert_eq!(links_created(&owner).await, 1);
}

#[apply(on_each_store)]
async fn what_makes_nothing_leaves_the_key_free() {
    let server = changing().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "1").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    server.root().link_named("taken").await;
    assert_eq!(faults(send(&owner, "/shorten", "key", &json!({"redirect_url": 7})).await), ["/redirect_url"]);
    let taken = json!({"redirect_url": TARGET, "slug": "taken"});
    for _ in 0..2 {
        send(&owner, "/shorten", "key", &taken).await.expect(409).problem("slug-taken");
    }
    let none = json!({"links": [taken, {}]});
    for _ in 0..2 {
        assert_eq!(send(&owner, "/shorten/bulk", "key", &none).await.expect(200).json()["created"], 0);
    }
    let body = json!({"redirect_url": TARGET});
    let first = send(&owner, "/shorten", "key", &body).await.expect(200);
    // The quota is used up, which an answer that is told again does not need.
    for _ in 0..2 {
        send(&owner, "/shorten", "other", &body).await.expect(403).problem("link-quota-exceeded");
        let again = send(&owner, "/shorten", "key", &body).await.expect(200);
        assert!(is_replayed(&again) && again.text() == first.text());
    }
    assert_eq!(links_created(&owner).await, 1);
    let metrics = server.metrics().await;
    assert_eq!(count(&metrics, "signpost_idempotent_requests_total{outcome=\"done\"}"), 1);
}

#[apply(on_each_store)]
async fn the_header_has_faults_and_is_refused_where_it_means_nothing() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    let longer = "x".repeat(256);
    for malformed in ["", "\"\"", "a b", "\"a", "\"a\";b", &longer] {
        let answer = send(&root, "/shorten", malformed, &json!({"redirect_url": TARGET})).await.expect(422);
        let problem = answer.problem("validation");
        let fault = &problem["errors"][0];
        assert_eq!(fault["header"], "Idempotency-Key", "{malformed:?}: {problem}");
        assert!(fault["pointer"].is_null() && fault["parameter"].is_null());
    }
    let path = format!("/links/{id}");
    for (method, path) in [
        (Method::PATCH, &*path),
        (Method::PUT, &path),
        (Method::DELETE, &path),
        (Method::POST, &format!("{path}/block")),
    ] {
        let answer = root.send(method.clone(), path, &[("Idempotency-Key", "key")], Some("{}".into())).await;
        let problem = answer.expect(422).problem("validation");
        assert_eq!(problem["errors"][0]["header"], "Idempotency-Key", "{method}");
    }
    for path in [&*path, "/usage"] {
        root.get_with(path, &[("Idempotency-Key", "\"")]).await.expect(200);
    }
    // The body goes first, and the rest of the request behind.
    send(&root, "/shorten", "", &json!({})).await.expect(422);
    let malformed = root.send(Method::POST, "/shorten", &[("Idempotency-Key", "")], Some("{".into())).await;
    malformed.expect(400).problem("malformed-body");
    let longest = "x".repeat(70_000);
    for (status, media_type, body) in
        [(415, "text/plain", "{}"), (400, "application/json", "{"), (413, "application/json", &longest)]
    {
        let headers = [("Content-Type", media_type), ("Idempotency-Key", "key")];
        for method in [Method::PATCH, Method::PUT] {
            root.send(method, &path, &headers, Some(body.to_owned().into())).await.expect(status);
        }
    }
}

#[apply(on_each_store)]
async fn many_links_are_made_once() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let links = json!({"links": [
        {"redirect_url": "https://example.com/a"},
        {"redirect_url": "nonsense"},
        {"redirect_url": "https://example.com/b", "slug": "summer"},
        {"redirect_url": "https://example.com/c", "slug": "Summer7"},
        {"redirect_url": "https://example.com/d", "slug": "summer"},
    ]});
    let first = send(&owner, "/shorten/bulk", "key", &links).await.expect(200);
    assert_eq!((&first.json()["created"], &first.json()["failed"]), (&json!(3), &json!(2)));
    assert_eq!(first.header("x-usage-links-created"), "3");
    for _ in 0..2 {
        let again = send(&owner, "/shorten/bulk", "key", &links).await.expect(200);
        assert!(is_replayed(&again) && again.text() == first.text());
    }
    assert_eq!(links_created(&owner).await, 3);
    for result in first.json()["results"].as_array().unwrap().iter().filter(|result| result["status"] == 200) {
        let name = result["link"]["short_id"].as_str().unwrap();
        server.anonymous().get(&format!("/{name}")).await.expect(302);
    }
    // One of the longest answers.
    let longest = format!("https://example.com/{}", "t".repeat(1_800));
    let links = json!({"links": vec![json!({"redirect_url": longest}); 500]});
    let root = server.root();
    let first = send(&root, "/shorten/bulk", "key", &links).await.expect(200);
    assert_eq!(first.json()["created"], 500);
    let again = send(&root, "/shorten/bulk", "key", &links).await.expect(200);
    assert!(is_replayed(&again) && again.text() == first.text());
}

#[apply(on_each_store)]
async fn a_key_is_made_once_and_its_secrets_are_told_once() {
    let server = changing().start();
    let root = server.root();
    let body = json!({"name": "shop", "tier": "Pro"});
    let first = send(&root, "/api-keys", "key", &body).await.expect(201).json();
    server.with_key(first["key"].as_str().unwrap()).get("/usage").await.expect(200);
    let again = send(&root, "/api-keys", "key", &body).await.expect(201);
    assert!(is_replayed(&again));
    let mut expected = first.clone();
    expected["key"] = Value::Null;
    expected["webhook_secret"] = Value::Null;
    assert_eq!(again.json(), expected);
    let list = root.get("/api-keys").await.expect(200).json();
    assert_eq!(list["api_keys"].as_array().unwrap().iter().filter(|key| key["name"] == "shop").count(), 1);
    send(&root, "/api-keys", "key", &json!({"name": "other"})).await.expect(422).problem("idempotency-key-reused");
    // What makes nothing leaves the key free.
    let free = server
        .with_key(root.new_key(json!({"name": "free", "scopes": ["keys:manage"]})).await["key"].as_str().unwrap());
    for _ in 0..2 {
        send(&free, "/api-keys", "key", &body).await.expect(403).problem("forbidden");
    }
    send(&free, "/api-keys", "key", &json!({"name": "child", "scopes": []})).await.expect(201);
}

#[apply(on_each_store)]
async fn of_many_requests_at_once_one_is_done() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let links = json!({"links": [{"redirect_url": TARGET}, {"redirect_url": TARGET, "slug": "both"}]});
    for (path, body, made) in
        [("/shorten", json!({"redirect_url": TARGET, "slug": "summer"}), 1), ("/shorten/bulk", links, 3)]
    {
        let answers = join_all((0..30).map(|_| send(&owner, path, "key", &body))).await;
        let mut texts: Vec<String> = answers.iter().filter(|answer| answer.status == 200).map(Answer::text).collect();
        assert_eq!(answers.iter().filter(|answer| answer.status == 200 && !is_replayed(answer)).count(), 1);
        texts.dedup();
        assert_eq!(texts.len(), 1);
        for refused in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!((refused.status, refused.header("retry-after")), (409, "1"));
            refused.problem("idempotency-in-progress");
        }
        assert_eq!(links_created(&owner).await, made);
    }
}

/// A server whose store has faults, a client, and the switch of the faults.
async fn faulty() -> (Server, Client, FaultSwitch) {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = changing().wrap_store(move |store| Arc::new(FaultyStore::new(store, faults))).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    links_created(&owner).await;
    (server, owner, switch)
}

#[apply(on_each_store)]
async fn a_request_whose_answer_was_lost_is_done_once() {
    let (_server, owner, switch) = faulty().await;
    let links = json!({"links": [{"redirect_url": TARGET}, {"redirect_url": TARGET, "slug": "both"}]});
    for (path, body, made) in [("/shorten", json!({"redirect_url": TARGET}), 1), ("/shorten/bulk", links, 3)] {
        switch.loses_answers_of(Some("create_links_once"));
        send(&owner, path, "key", &body).await.expect(503);
        switch.loses_answers_of(None);
        for _ in 0..2 {
            assert!(is_replayed(&send(&owner, path, "key", &body).await.expect(200)));
            assert_eq!(links_created(&owner).await, made);
        }
    }
}

#[apply(on_each_store)]
async fn a_request_that_did_not_reach_the_store_leaves_the_key_free() {
    let (_server, owner, switch) = faulty().await;
    let body = json!({"redirect_url": TARGET});
    switch.out_of_reach(true);
    send(&owner, "/shorten", "key", &json!({"redirect_url": TARGET, "slug": "other"})).await.expect(503);
    switch.out_of_reach(false);
    assert!(!is_replayed(&send(&owner, "/shorten", "key", &body).await.expect(200)));
    assert_eq!(links_created(&owner).await, 1);
}

#[apply(on_each_store)]
async fn a_name_that_the_root_key_did_not_get_stays_with_its_keeper() {
    let (server, owner, switch) = faulty().await;
    owner.link_named("summer").await;
    owner.delete("/links/summer").await.expect(204);
    let body = json!({"redirect_url": TARGET, "slug": "summer"});
    switch.refuses(Some("create_links_once"));
    send(&server.root(), "/shorten", "key", &body).await.expect(503);
    switch.refuses(None);
    owner.link_named("summer").await;
}

/// Leaves requests that were answered as if the node that was at work had died before it wrote the answer.
async fn cut_off(home: &Home) {
    let session = home.keyspace().session().await;
    let statement = "SELECT owner, endpoint, key FROM idempotency";
    let rows = session.query_unpaged(statement, ()).await.unwrap().into_rows_result().unwrap();
    for row in rows.rows::<(Uuid, i8, String)>().unwrap() {
        let (owner, endpoint, key) = row.unwrap();
        let statement = "UPDATE idempotency SET holder = ?, status = null, answer = null \
                         WHERE owner = ? AND endpoint = ? AND key = ? IF EXISTS";
        session.query_unpaged(statement, (Uuid::nil(), owner, endpoint, key)).await.unwrap();
    }
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn what_was_valid_when_a_request_began_is_made_by_its_repetition() {
    Box::pin(StoreKind::Cql.run(async {
        let clock = standing();
        // The second server has another port.
        let changing = || changing().set("SIGNPOST_HTTP__BASE_URL", "https://sign.example").clock(clock.clone());
        let server = changing().start();
        let soon = json!({"redirect_url": TARGET, "expires_at": "2026-11-21T12:00:20Z"});
        let links = json!({"links": [soon, {}, {"redirect_url": TARGET}]});
        let asked = [("/shorten", soon.clone()), ("/shorten/bulk", links)];
        let mut first = Vec::new();
        for (path, body) in &asked {
            first.push(send(&server.root(), path, "key", body).await.expect(200).json());
        }
        let home = server.stop();
        cut_off(&home).await;
        clock.advance(Duration::from_mins(1));
        let server = changing().directory(home).start();
        for ((path, body), first) in asked.iter().zip(&first) {
            for is_repeated in [false, true] {
                let again = send(&server.root(), path, "key", body).await.expect(200);
                assert_eq!((is_replayed(&again), &again.json()), (is_repeated, first), "{path}");
            }
        }
        assert_eq!(links_created(&server.root()).await, 3);
        send(&server.root(), "/shorten", "other", &soon).await.expect(422);
    }))
    .await;
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_key_that_was_made_is_told_though_its_creator_may_not_make_it_any_more() {
    Box::pin(StoreKind::Cql.run(async {
        let server = changing().start();
        let body = json!({"name": "creator", "tier": "Pro", "scopes": ["links:read", "usage:read", "keys:manage"]});
        let creator = server.root().new_key(body).await;
        let secret = creator["key"].as_str().unwrap().to_owned();
        let child = json!({"name": "child", "tier": "Pro"});
        let made = send(&server.with_key(&secret), "/api-keys", "key", &child).await.expect(201).json();
        let home = server.stop();
        cut_off(&home).await;
        let server = changing().directory(home).start();
        let path = format!("/api-keys/{}", creator["key_id"].as_str().unwrap());
        let headers = [("Content-Type", "application/json")];
        server.root().send(Method::PATCH, &path, &headers, Some(r#"{"tier":"Free"}"#.into())).await.expect(200);
        let creator = server.with_key(&secret);
        for _ in 0..2 {
            let again = send(&creator, "/api-keys", "key", &child).await.expect(201);
            assert!(is_replayed(&again));
            assert_eq!((&again.json()["key_id"], &again.json()["key"]), (&made["key_id"], &Value::Null));
        }
        send(&creator, "/api-keys", "other", &child).await.expect(403);
    }))
    .await;
}

#[apply(on_each_store)]
async fn an_answer_outlives_a_restart() {
    let server = changing().start();
    let body = json!({"redirect_url": TARGET, "slug": "summer"});
    let first = send(&server.root(), "/shorten", "key", &body).await.expect(200);
    let server = changing().directory(server.stop()).start();
    let again = send(&server.root(), "/shorten", "key", &body).await.expect(200);
    assert!(is_replayed(&again) && again.json()["short_id"] == first.json()["short_id"]);
}

#[tokio::test]
async fn an_answer_is_kept_for_24_hours() {
    let clock = standing();
    let server = changing().clock(clock.clone()).start();
    let body = json!({"redirect_url": TARGET});
    let first = send(&server.root(), "/shorten", "key", &body).await.expect(200).json();
    clock.advance(Duration::from_secs(24 * 60 * 60 - 1));
    let again = send(&server.root(), "/shorten", "key", &body).await.expect(200);
    assert!(is_replayed(&again) && again.json() == first);
    clock.advance(Duration::from_secs(1));
    let another = send(&server.root(), "/shorten", "key", &body).await.expect(200);
    assert!(!is_replayed(&another) && another.json()["short_id"] != first["short_id"]);
    assert!(is_replayed(&send(&server.root(), "/shorten", "key", &body).await));
}

#[tokio::test]
async fn requests_that_are_told_again_count_in_the_rate_window() {
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "2").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let body = json!({"redirect_url": TARGET});
    for status in [200, 200, 429] {
        send(&owner, "/shorten", "key", &body).await.expect(status);
    }
}
