//! Links with names of their own.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::links::{TARGET, changing, faults, free_key, path};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

async fn redirects_to(client: &Client, name: &str) -> String {
    client.get(&format!("/{name}")).await.expect(302).header("location").to_owned()
}

#[apply(on_each_store)]
async fn a_link_is_reached_by_its_slug() {
    let server = changing().set("SIGNPOST_HTTP__BASE_URL", "https://go.example/s").start();
    let (owner, anyone) = (free_key(&server, json!({"name": "owner"})).await, server.anonymous());
    let longest = "x".repeat(64);
    for slug in ["a", "_", "Summer_sale-2026", "aB3xYz9", "12345678", &longest] {
        anyone.get(&format!("/{slug}")).await.expect(404);
        let created = owner.post("/shorten", json!({"redirect_url": TARGET, "slug": slug})).await.expect(200).json();
        assert_eq!(created["short_id"], slug);
        assert_eq!(created["short_url"], format!("https://go.example/s/{slug}"));
        assert_eq!(redirects_to(&anyone, slug).await, TARGET);
        let record = owner.link_record(slug).await;
        assert_eq!(
            (&record["slug"], &record["short_id"], &record["revision"]),
            (&json!(slug), &json!(slug), &json!(1))
        );
        // Everything that takes the id of a link takes its name.
        anyone.get(&format!("/{slug}/qr")).await.expect(200);
        let summary = format!("/links/{slug}/analytics/summary");
        eventually("the hit in the analytics", SOON, async || {
            let summary = owner.get(&summary).await.expect(200).json();
            assert_eq!(summary["short_id"], slug);
            (summary["total_hits"] == 1).then_some(())
        })
        .await;
        owner.get(&format!("/links/{slug}/analytics")).await.expect(200);
        let status = owner.get(&format!("/{slug}/webhooks/status")).await.expect(200).json();
        assert_eq!(status["short_id"], slug);
    }
    // Case matters.
    anyone.get("/summer_sale-2026").await.expect(404);
}

#[apply(on_each_store)]
async fn names_that_no_link_can_have_are_faults() {
    let server = changing().start();
    let root = server.root();
    let longer = "x".repeat(65);
    for slug in ["", "-a", "a-", "a b", "a.b", "ä", "console", "Console", "SHORTEN", "api-keys", &longer] {
        let body = json!({"redirect_url": TARGET, "slug": slug});
        assert_eq!(faults(root.post("/shorten", body).await), ["/slug"], "{slug}");
    }
    assert_eq!(faults(root.post("/shorten", json!({"redirect_url": 1, "slug": 1})).await), ["/redirect_url", "/slug"]);
    for name in ["-a", "a-", "a%20b", "a.b", "%C3%A4", "console", "Console", "SHORTEN", "api-keys", &longer] {
        assert_eq!(faults(root.put_link(name, json!({"redirect_url": TARGET})).await), ["short_id"], "{name}");
        let places = faults(root.put_link(name, json!({"redirect_url": "", "x": 1})).await);
        assert_eq!(places, ["/redirect_url", "/x", "short_id"], "{name}");
        root.patch_link(name, json!({})).await.expect(404).problem("not-found");
        root.delete(&path(name)).await.expect(404).problem("not-found");
    }
}

#[apply(on_each_store)]
async fn a_name_belongs_to_one_link() {
    let server = changing().start();
    let (owner, other) =
        (free_key(&server, json!({"name": "owner"})).await, free_key(&server, json!({"name": "other"})).await);
    let generated = owner.any_link().await;
    owner.link_named("summer").await;
    for client in [&owner, &other, &server.root()] {
        for taken in ["summer", &generated] {
            let body = json!({"redirect_url": "https://example.org/", "slug": taken});
            let refused = client.post("/shorten", body).await.expect(409);
            let problem = refused.problem("slug-taken");
            assert!(!problem.to_string().contains(taken), "{problem}");
        }
    }
    // A name that is taken uses no quota.
    for client in [&owner, &other] {
        let usage = client.get("/usage").await.expect(200).json();
        let expected = if std::ptr::eq(client, &owner) { 2 } else { 0 };
        assert_eq!(usage["usage"]["links_created"]["current"], expected);
    }
    assert_eq!(redirects_to(&server.anonymous(), "summer").await, TARGET);
}

#[apply(on_each_store)]
async fn a_deleted_name_is_kept_for_its_key_and_the_root() {
    let server = changing().start();
    let (owner, other) =
        (free_key(&server, json!({"name": "owner"})).await, free_key(&server, json!({"name": "other"})).await);
    let anyone = server.anonymous();
    for slug in ["summer", "aB3xYz9"] {
        owner.link_named(slug).await;
        owner.patch_link(slug, json!({"title": "first"})).await.expect(200);
        anyone.get(&format!("/{slug}")).await.expect(302);
        owner.delete(&path(slug)).await.expect(204);
        anyone.get(&format!("/{slug}")).await.expect(404);
        let body = json!({"redirect_url": "https://example.org/", "slug": slug});
        other.post("/shorten", body.clone()).await.expect(409).problem("slug-taken");
        other.put_link(slug, json!({"redirect_url": TARGET})).await.expect(409).problem("slug-taken");
        // Another link, with a later revision: no old If-Match passes.
        owner.post("/shorten", body.clone()).await.expect(200);
        assert_eq!(redirects_to(&anyone, slug).await, "https://example.org/");
        let record = owner.link_record(slug).await;
        assert_eq!(record["title"], Value::Null);
        assert!(record["revision"].as_u64().unwrap() > 2, "{record}");
        let hits = owner.get(&format!("/links/{slug}/analytics/summary")).await.expect(200).json();
        assert!(hits["total_hits"].as_u64().unwrap() <= 1, "{hits}");
        // The root key takes it over.
        owner.delete(&path(slug)).await.expect(204);
        server.root().post("/shorten", body.clone()).await.expect(200);
        owner.get(&path(slug)).await.expect(403).problem("not-owner");
        owner.post("/shorten", body).await.expect(409).problem("slug-taken");
    }
}

#[apply(on_each_store)]
async fn a_put_makes_a_link_under_its_name_and_then_replaces_it() {
    let server = changing().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "2").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let body = json!({"redirect_url": TARGET, "title": "one", "tags": ["a"], "webhooks": ["https://hooks.example/a"]});
    let made = owner.put_link("summer", body.clone()).await.expect(201);
    assert_eq!((made.header("etag"), made.header("x-usage-links-created")), ("\"1\"", "1"));
    assert_eq!(made.header("x-usage-links-limit"), "2");
    assert_eq!(made.header("location"), format!("http://{}/links/summer", server.address));
    assert_eq!(made.json(), owner.link_record("summer").await);
    assert_eq!((&made.json()["title"], &made.json()["slug"]), (&json!("one"), &json!("summer")));
    // Again: nothing changes.
    let again = owner.put_link("summer", body).await.expect(200);
    assert_eq!((again.json(), again.header("etag"), again.header("x-usage-links-created")), (made.json(), "\"1\"", ""));
    // What is not sent gets its default.
    let replaced = owner.put_link("summer", json!({"redirect_url": "https://example.org/", "tracked": true})).await;
    let replaced = replaced.expect(200);
    assert_eq!(replaced.header("etag"), "\"2\"");
    let record = replaced.json();
    assert_eq!((&record["title"], &record["tags"], &record["webhooks"]), (&Value::Null, &json!([]), &json!([])));
    assert_eq!(redirects_to(&server.anonymous(), "summer").await, "https://example.org/");
    assert_eq!(faults(owner.put_link("summer", json!({"redirect_url": TARGET, "tracked": false})).await), ["/tracked"]);
    assert_eq!(faults(owner.put_link("summer", json!({"redirect_url": TARGET, "slug": "summer"})).await), ["/slug"]);
    assert_eq!(faults(owner.put_link("summer", json!({})).await), ["/redirect_url"]);

    // A generated id is a name, too.
    let id = owner.any_link().await;
    owner.put_link(&id, json!({"redirect_url": "https://example.org/"})).await.expect(200);
    assert_eq!(owner.link_record(&id).await["slug"], Value::Null);
    // The quota is used up, which a replacement does not ask for.
    let refused = owner.put_link("autumn", json!({"redirect_url": TARGET})).await.expect(403);
    refused.problem("link-quota-exceeded");
    assert_eq!((refused.header("x-usage-links-created"), refused.header("x-usage-links-limit")), ("2", "2"));
    owner.put_link("summer", json!({"redirect_url": TARGET, "title": "x"})).await.expect(200);
    let other = free_key(&server, json!({"name": "other"})).await;
    other.put_link("summer", json!({"redirect_url": TARGET})).await.expect(403).problem("not-owner");
    let root = server.root().put_link("root-name", json!({"redirect_url": TARGET})).await.expect(201);
    assert_eq!(root.header("x-usage-links-created"), "");
}

#[apply(on_each_store)]
async fn of_many_that_want_a_name_at_once_one_gets_it() {
    let server = changing().start();
    let keys =
        futures_util::future::join_all((0..4).map(|n| free_key(&server, json!({"name": format!("key {n}")})))).await;
    let wanted = keys.iter().flat_map(|key| {
        let body = |n: i32| json!({"redirect_url": format!("https://example.com/{n}"), "slug": "wanted"});
        (0..4).map(move |n| key.post("/shorten", body(n)))
    });
    let mut statuses: Vec<u16> =
        futures_util::future::join_all(wanted).await.into_iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses[0], statuses[1..].to_vec()), (200, vec![409; 15]));
    let puts = (0..6).map(|_| keys[0].put_link("put-at-once", json!({"redirect_url": TARGET})));
    let mut statuses: Vec<u16> =
        futures_util::future::join_all(puts).await.into_iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 201]);
    let method = Method::PUT;
    keys[1].send_link(method, "put-at-once", &[], &json!({"redirect_url": TARGET})).await.expect(403);
}
