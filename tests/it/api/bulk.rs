//! `POST /shorten/bulk`.

use std::sync::Arc;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::{Answer, Client};
use crate::support::links::{TARGET, changing, faults, free_key, path};
use crate::support::server::{Server, count};
use crate::support::stores::{apply, on_each_store};

async fn send(client: &Client, body: impl Into<Vec<u8>>) -> Answer {
    client.send(Method::POST, "/shorten/bulk", &[("Content-Type", "application/json")], Some(body.into())).await
}

async fn bulk(client: &Client, links: &[Value]) -> Answer {
    send(client, json!({"links": links}).to_string()).await
}

fn plain(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"redirect_url": format!("https://example.com/{n}")})).collect()
}

/// The status of each link, after a look at the counts and at what each link has.
#[track_caller]
fn statuses(answer: &Answer) -> Vec<u64> {
    let body = answer.json();
    assert_eq!(answer.status, 200, "{body}");
    let results = body["results"].as_array().unwrap();
    let statuses: Vec<u64> = results.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    let created = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!((&body["created"], &body["failed"]), (&json!(created), &json!(results.len() - created)));
    for result in results {
        let members: Vec<&String> = result.as_object().unwrap().keys().collect();
        if result["status"] == 200 {
            assert_eq!(members, ["status", "link"]);
            assert_eq!(result["link"].as_object().unwrap().len(), 4);
        } else {
            assert_eq!(members, ["status", "problem"]);
            assert_eq!(result["problem"]["status"], result["status"]);
        }
    }
    statuses
}

fn pointers(result: &Value) -> Vec<&str> {
    result["problem"]["errors"].as_array().unwrap().iter().map(|fault| fault["pointer"].as_str().unwrap()).collect()
}

fn usage(answer: &Answer) -> (&str, &str) {
    (answer.header("x-usage-links-created"), answer.header("x-usage-links-limit"))
}

#[apply(on_each_store)]
async fn each_link_is_made_or_refused_by_itself_in_order() {
    let server = changing().set("SIGNPOST_HTTP__BASE_URL", "https://go.example/s").start();
    let (owner, anyone) = (free_key(&server, json!({"name": "owner"})).await, server.anonymous());
    owner.link_named("taken").await;
    let links = [
        json!({"redirect_url": "https://example.com/a"}),
        json!({"redirect_url": "ftp://example.com/", "webhooks": ["https://a.example/", 7], "x": 1}),
        json!({"redirect_url": "https://example.com/b", "slug": "summer", "title": "Summer", "tags": ["a"], "data": {"n": 1.50}}),
        json!({"redirect_url": "https://example.com/c", "slug": "taken"}),
        json!({"redirect_url": "https://example.com/d", "slug": "Winter7", "expires_at": "2027-01-01T00:00:00Z"}),
        json!({"redirect_url": "https://example.com/e", "slug": "summer"}),
        json!({"redirect_url": "https://example.com/f", "slug": "Winter7"}),
        json!(7),
        json!({"redirect_url": "https://example.com/g", "slug": "console"}),
        json!({"redirect_url": "https://example.com/h"}),
    ];
    let answer = bulk(&owner, &links).await;
    assert_eq!(statuses(&answer), [200, 422, 200, 409, 200, 409, 409, 422, 422, 200]);
    assert_eq!(usage(&answer), ("5", "100"));
    let body = answer.json();
    let results = &body["results"];
    assert_eq!(pointers(&results[1]), ["/redirect_url", "/webhooks/1", "/x"]);
    assert_eq!((pointers(&results[7]), pointers(&results[8])), (vec![""], vec!["/slug"]));
    assert_eq!(results[3]["problem"]["type"], "urn:problem-type:signpost:slug-taken");
    for (place, name, target) in [(2, Some("summer"), "b"), (4, Some("Winter7"), "d"), (0, None, "a"), (9, None, "h")] {
        let link = &results[place]["link"];
        let id = link["short_id"].as_str().unwrap();
        assert!(name.is_none_or(|name| name == id));
        assert_eq!(link["short_url"], format!("https://go.example/s/{id}"));
        let target = format!("https://example.com/{target}");
        assert_eq!(link["redirect_url"], target);
        assert_eq!(anyone.get(&format!("/{id}")).await.expect(302).header("location"), target);
        assert_eq!(owner.link_record(id).await["created_at"], link["created_at"]);
    }
    let record = owner.link_record("summer").await;
    assert_eq!(
        (&record["title"], &record["tags"], &record["slug"]),
        (&json!("Summer"), &json!(["a"]), &json!("summer"))
    );
    assert_eq!(owner.get("/usage").await.expect(200).json()["usage"]["links_created"]["current"], 5);
}

#[apply(on_each_store)]
async fn the_faults_of_the_body_itself_are_of_the_whole() {
    let server = changing().start();
    let key = server.root().new_key(json!({"name": "owner"})).await;
    let secret = key["key"].as_str().unwrap();
    let owner = server.with_key(secret);
    for (body, places) in [
        (json!({}), vec!["/links"]),
        (json!({"links": null}), vec!["/links"]),
        (json!({"links": []}), vec!["/links"]),
        (json!({"links": {}}), vec!["/links"]),
        (json!({"links": "x", "y": 1}), vec!["/links", "/y"]),
        (json!({"links": plain(501)}), vec!["/links"]),
        (json!({"links": plain(1), "redirect_url": TARGET}), vec!["/redirect_url"]),
        (json!([]), vec![""]),
    ] {
        let answer = send(&owner, body.to_string()).await;
        assert_eq!(usage(&answer), ("", ""));
        assert_eq!(faults(answer), places, "{body}");
    }
    let twice = r#"{"links":[{"redirect_url":"https://a.example/"}],"links":[]}"#;
    assert!(faults(send(&owner, twice).await).contains(&"/links".to_owned()));
    let parameter = owner.post("/shorten/bulk?x=1", json!({"links": plain(1)})).await;
    assert_eq!(faults(parameter), ["x"]);
    // An unpaired surrogate is a fault of the link that has it, or of the body.
    let surrogate = r#"{"links":[{"redirect_url":"https://a.example/","data":{"a":"\ud800"}},{"redirect_url":"https://b.example/"}]}"#;
    let answer = send(&owner, surrogate).await;
    assert_eq!(statuses(&answer), [422, 200]);
    assert_eq!(pointers(&answer.json()["results"][0]), ["/data/a"]);
    assert_eq!(faults(send(&owner, r#"{"links":[{}],"x":"\ud800"}"#).await), ["/x", "/x"]);
    for malformed in ["", "{", r#"{"links":[{]}"#] {
        send(&owner, malformed).await.expect(400).problem("malformed-body");
    }
    assert_eq!(owner.get("/usage").await.expect(200).json()["usage"]["links_created"]["current"], 1);
    // Only faults: what is used is told also where this node does not know it yet.
    let server = changing().directory(server.stop()).start();
    let owner = server.with_key(secret);
    for key in [None, Some("key")] {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(key.map(|key| ("Idempotency-Key", key)));
        let body = json!({"links": [{}, null]}).to_string();
        let answer = owner.send(Method::POST, "/shorten/bulk", &headers, Some(body.into())).await;
        assert_eq!(statuses(&answer), [422, 422]);
        assert_eq!(usage(&answer), ("1", "100"));
    }
}

#[apply(on_each_store)]
async fn a_body_may_have_1_mib_and_a_link_may_nest_as_deep_as_alone() {
    let server = changing().start();
    let root = server.root();
    let body = |bytes: usize| {
        let json = json!({"links": plain(500)}).to_string();
        format!("{json}{}", " ".repeat(bytes - json.len()))
    };
    assert_eq!(statuses(&send(&root, body(1 << 20)).await), [200; 500]);
    let problem = send(&root, body((1 << 20) + 1)).await.expect(413).problem("payload-too-large");
    assert_eq!(problem["detail"], "A body may have at most 1048576 bytes.");
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels - 2), "]".repeat(levels - 2));
        format!(r#"{{"links":[{{"redirect_url":"https://a.example/","data":{{"a":{open}{close}}}}}]}}"#)
    };
    assert_eq!(statuses(&send(&root, nested(64)).await), [200]);
    send(&root, nested(65)).await.expect(400).problem("malformed-body");
    // A link may be as long as the body of its own creation, and longer.
    let long = json!({"redirect_url": TARGET, "data": {"a": "x".repeat(10_000)}, "notes": "n".repeat(2_000)});
    assert_eq!(statuses(&bulk(&root, &vec![long; 80]).await), [200; 80]);
}

#[apply(on_each_store)]
async fn the_quota_is_taken_in_order_and_nothing_is_made_behind_its_end() {
    let server = changing().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "40").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    owner.any_link().await;
    let mut links = plain(100);
    links[5] = json!({"redirect_url": "nonsense"});
    links[50] = json!({"redirect_url": TARGET, "slug": "behind"});
    links[60] = json!({"redirect_url": "nonsense"});
    let answer = bulk(&owner, &links).await;
    let expected = (0..100).map(|n| match n {
        5 | 60 => 422,
        0..40 => 200,
        _ => 403,
    });
    assert_eq!(statuses(&answer), expected.collect::<Vec<_>>());
    assert_eq!(usage(&answer), ("40", "40"));
    let problem = &answer.json()["results"][99]["problem"];
    assert_eq!(problem["type"], "urn:problem-type:signpost:link-quota-exceeded");
    assert_eq!((&problem["limit"], &problem["current"]), (&json!(40), &json!(40)));
    assert_eq!(owner.get("/usage").await.expect(200).json()["usage"]["links_created"]["current"], 40);
    server.root().link_named("behind").await;
    for _ in 0..2 {
        let answer = bulk(&owner, &plain(2)).await;
        assert_eq!((statuses(&answer), usage(&answer)), (vec![403; 2], ("40", "40")));
    }
    let metrics = server.metrics().await;
    assert_eq!(count(&metrics, "signpost_quotas_refused_total{quota=\"links\"}"), 59 + 2 + 2);
    assert_eq!(count(&metrics, "signpost_bulk_links_total{outcome=\"created\"}"), 39);
    assert_eq!(count(&metrics, "signpost_bulk_links_total{outcome=\"refused\"}"), 61 + 4);
    assert_eq!(count(&metrics, "signpost_bulk_creations_total{links=\"200\"}"), 1);
    assert_eq!(count(&metrics, "signpost_bulk_creations_total{links=\"10\"}"), 2);
}

#[apply(on_each_store)]
async fn calls_at_once_make_exactly_the_quota() {
    let server = changing().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "70").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let answers = join_all((0..6).map(async |_| bulk(&owner, &plain(25)).await)).await;
    let made = answers.iter().map(|answer| statuses(answer).iter().filter(|status| **status == 200).count());
    assert_eq!(made.sum::<usize>(), 70);
    for answer in &answers {
        let statuses = statuses(answer);
        assert!(statuses.is_sorted() && statuses.iter().all(|status| [200, 403].contains(status)), "{statuses:?}");
    }
    assert_eq!(owner.get("/usage").await.expect(200).json()["usage"]["links_created"]["current"], 70);
}

#[apply(on_each_store)]
async fn calls_count_in_a_limit_of_their_own_and_links_in_none() {
    let server = Server::start();
    let key = server.root().new_key(json!({"name": "owner"})).await;
    let owner = server.with_key(key["key"].as_str().unwrap());
    for remaining in ["r=1", "r=0"] {
        let answer = bulk(&owner, &plain(20)).await;
        assert_eq!(statuses(&answer), [200; 20]);
        assert!(answer.header("ratelimit").starts_with(&format!("\"bulk\";{remaining}")), "{:?}", answer.headers);
    }
    bulk(&owner, &plain(1)).await.expect(429).problem("rate-limited");
    let answer = owner.post("/shorten", json!({"redirect_url": TARGET})).await.expect(200);
    assert!(answer.header("ratelimit").starts_with("\"shorten\";r=9"), "{:?}", answer.headers);
    assert_eq!(usage(&answer).0, "41");
    let reader = server.root().new_key(json!({"name": "reader", "scopes": ["links:read"]})).await;
    let reader = server.with_key(reader["key"].as_str().unwrap());
    bulk(&reader, &plain(1)).await.expect(403).problem("scope-missing");
    bulk(&server.anonymous(), &plain(1)).await.expect(401).problem("unauthorized");
    // The root key has no quota to be told of.
    assert_eq!(usage(&bulk(&server.root(), &plain(1)).await), ("", ""));
}

#[apply(on_each_store)]
async fn the_root_key_gets_names_that_are_kept_for_other_keys() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let other = free_key(&server, json!({"name": "other"})).await;
    let anyone = server.anonymous();
    for slug in ["summer", "Summer7"] {
        owner.link_named(slug).await;
        anyone.get(&format!("/{slug}")).await.expect(302);
        owner.delete(&path(slug)).await.expect(204);
    }
    let links = ["summer", "free", "Summer7", "summer"].map(|slug| json!({"redirect_url": TARGET, "slug": slug}));
    assert_eq!(statuses(&bulk(&other, &links).await), [409, 200, 409, 409]);
    assert_eq!(statuses(&bulk(&server.root(), &links).await), [200, 409, 200, 409]);
    for slug in ["summer", "Summer7"] {
        anyone.get(&format!("/{slug}")).await.expect(302);
        assert_eq!(server.root().link_record(slug).await["revision"], 2);
    }
}

#[apply(on_each_store)]
async fn without_the_store_the_whole_call_is_answered_503_and_takes_nothing() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = changing().wrap_store(move |store| Arc::new(FaultyStore::new(store, faults))).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    owner.get("/usage").await.expect(200);
    switch.out_of_reach(true);
    let answer = bulk(&owner, &plain(3)).await.expect(503);
    answer.problem("unavailable");
    assert_ne!(answer.header("retry-after"), "");
    switch.out_of_reach(false);
    assert_eq!(owner.get("/usage").await.expect(200).json()["usage"]["links_created"]["current"], 0);
    assert_eq!(usage(&bulk(&owner, &plain(3)).await), ("3", "100"));
}

#[apply(on_each_store)]
async fn an_answer_is_not_much_larger_than_its_request() {
    let server = changing().start();
    let unknown: serde_json::Map<String, Value> = (0..150).map(|n| (format!("x{n}"), Value::Null)).collect();
    let links = vec![Value::Object(unknown); 500];
    let answer = bulk(&server.root(), &links).await;
    assert_eq!(statuses(&answer), [422; 500]);
    let results = answer.json()["results"].clone();
    assert_eq!(pointers(&results[0]).len(), 100);
    assert_eq!(pointers(&results[499]), ["/redirect_url"]);
    assert!(answer.body.len() < 3 << 19, "{}", answer.body.len());
}
