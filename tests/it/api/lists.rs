//! `GET /links`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signpost::domain::calendar::Timestamp;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::Client;
use crate::support::keys::{standing, text};
use crate::support::links::{TARGET, changing, faults, free_key, path};
use crate::support::server::{Server, count};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

async fn page(client: &Client, query: &str) -> Value {
    client.get(&format!("/links?{query}")).await.expect(200).json()
}

fn names_in(page: &Value) -> Vec<String> {
    page["links"].as_array().unwrap().iter().map(|link| text(&link["short_id"]).to_owned()).collect()
}

/// The names of all links of a list, from as many pages as it takes.
async fn walk(client: &Client, query: &str) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = page(client, &format!("{query}{cursor}")).await;
        names.extend(names_in(&page));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return names,
        }
    }
}

/// The names, sorted.
async fn all(client: &Client, query: &str) -> Vec<String> {
    let mut names = walk(client, query).await;
    names.sort();
    names
}

async fn named(client: &Client, slug: &str, more: Value) -> String {
    let mut body = json!({"redirect_url": TARGET, "slug": slug});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    client.shorten(body).await
}

#[apply(on_each_store)]
async fn a_list_has_the_records_of_the_links_without_their_data() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    assert_eq!(page(&owner, "").await, json!({"links": [], "next_cursor": null}));
    let options = json!({"title": "Sale", "tags": ["a", "B"], "webhooks": ["https://a.example/"], "data": {"n": 1.50}});
    named(&owner, "summer", options).await;
    let plain = owner.any_link().await;
    for name in ["summer", &plain] {
        let mut record = owner.link_record(name).await;
        record.as_object_mut().unwrap().remove("data");
        let list = page(&owner, "").await;
        let listed = list["links"].as_array().unwrap().iter().find(|link| link["short_id"] == name);
        assert_eq!(listed, Some(&record));
    }
}

#[apply(on_each_store)]
async fn pages_go_on_to_the_end_in_the_order_that_is_asked_for() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let mut created = Vec::new();
    for _ in 0..30 {
        created.push(owner.any_link().await);
    }
    // The clock stands: links of one time are in the order of their names.
    created.sort();
    assert_eq!(walk(&owner, "order=oldest&limit=7").await, created);
    created.reverse();
    assert_eq!(walk(&owner, "limit=7").await, created);
    assert_eq!(walk(&owner, "order=newest&limit=30").await, created);
    let first = page(&owner, "").await;
    assert_eq!(names_in(&first), created[..25]);
    // The limit may change from page to page.
    let next = format!("limit=100&cursor={}", text(&first["next_cursor"]));
    assert_eq!(names_in(&page(&owner, &next).await), created[25..]);
    let metrics = server.metrics().await;
    assert_eq!(count(&metrics, "signpost_listed_links_total{kind=\"returned\"}"), 120);
    assert!(count(&metrics, "signpost_listed_links_total{kind=\"examined\"}") >= 120);
    assert_eq!(count(&metrics, "signpost_link_lists_filled_percent"), 100);
}

#[apply(on_each_store)]
async fn filters_narrow_what_is_listed() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    named(&owner, "plain", json!({})).await;
    named(&owner, "tagged", json!({"tags": ["Mail", "Ä b"], "title": "Big Sale"})).await;
    named(&owner, "tagged2", json!({"tags": ["mail"], "webhooks": ["https://a.example/"]})).await;
    named(&owner, "other", json!({"redirect_url": "https://example.com/other?a=b"})).await;
    named(&owner, "old", json!({"archived": true, "tags": ["mail"]})).await;
    named(&owner, "later", json!({"not_before": "2099-01-01T00:00:00Z"})).await;
    let now = owner.link_record("plain").await["created_at"].as_str().unwrap().to_owned();
    let later = Timestamp(Timestamp::parse(&now).unwrap().0 + 1).to_string();
    let shown = ["later", "other", "plain", "tagged", "tagged2"];
    for (query, expected) in [
        ("", &shown[..]),
        ("archived=false", &shown),
        ("archived=true", &["old"]),
        ("archived=any", &["later", "old", "other", "plain", "tagged", "tagged2"]),
        ("tag=MAIL", &["tagged", "tagged2"]),
        ("tag=mail&archived=any", &["old", "tagged", "tagged2"]),
        ("tag=%C3%A4%20B", &["tagged"]),
        ("tag=mai", &[]),
        ("slug_prefix=tag", &["tagged", "tagged2"]),
        ("slug_prefix=o", &["other"]),
        ("slug_prefix=Tag", &[]),
        ("target=https://example.com/other?a%3Db", &["other"]),
        ("target=https://example.com/nowhere", &[]),
        ("slug_prefix=-", &[]),
        ("q=SALE", &["tagged"]),
        ("q=tagged", &["tagged", "tagged2"]),
        ("q=tagged%20mail%202", &["tagged2"]),
        ("q=other%3F", &["other"]),
        ("state=scheduled", &["later"]),
        ("state=active&has_webhooks=true", &["tagged2"]),
        ("has_webhooks=false&tag=mail", &["tagged"]),
        (&format!("created_from={now}"), &shown),
        (&format!("created_from={later}"), &[]),
        (&format!("created_until={later}"), &shown),
        (&format!("created_until={now}"), &[]),
        (&format!("slug_prefix=p&created_until={now}"), &[]),
    ] {
        assert_eq!(all(&owner, query).await, expected, "{query}");
        assert_eq!(all(&owner, &format!("{query}&limit=1")).await, expected, "{query}");
    }
    assert_eq!(walk(&owner, "slug_prefix=t&limit=1").await, ["tagged", "tagged2"]);
    owner.patch_link("tagged", json!({"tags": ["post"]})).await.expect(200);
    owner.delete(&path("tagged2")).await.expect(204);
    assert!(all(&owner, "tag=mail").await.is_empty());
    assert_eq!(all(&owner, "tag=post").await, ["tagged"]);
    server.root().post("/links/plain/block", json!({"reason": "x"})).await.expect(200);
    assert_eq!(all(&owner, "state=blocked").await, ["plain"]);
}

/// Where the service was elsewhere before, a link may lead to what is the service now.
#[apply(on_each_store)]
async fn a_target_at_the_service_itself_can_be_looked_for() {
    let server = changing().start();
    let root = server.root();
    let at_itself = format!("http://{}/somewhere", server.address);
    root.post("/shorten", json!({"redirect_url": at_itself})).await.expect(422);
    assert!(all(&root, &format!("target={at_itself}")).await.is_empty());
}

#[apply(on_each_store)]
async fn words_of_nothing_but_spaces_are_told_so() {
    let server = changing().start();
    let problem = server.root().get("/links?q=%20").await.expect(422).problem("validation");
    assert_eq!(problem["errors"][0]["detail"], "must have 1 to 100 characters, not only spaces");
}

#[apply(on_each_store)]
async fn a_query_has_all_of_its_faults_at_once() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    for (query, expected) in [
        ("limit=0&order=old&x=1", vec!["limit", "order", "x"]),
        ("limit=101&archived=yes&state=new&has_webhooks=1", vec!["archived", "has_webhooks", "limit", "state"]),
        ("created_from=today&created_until=2026-01-01&key_id=7", vec!["created_from", "created_until", "key_id"]),
        ("include=data&q=%20&tag=a,b", vec!["include", "q", "tag"]),
        (&format!("q={}", "x".repeat(101)), vec!["q"]),
        ("tag=a&slug_prefix=b&target=https://example.com/", vec!["slug_prefix", "target"]),
        ("slug_prefix=a&order=newest", vec!["order"]),
        ("slug_prefix=", vec!["slug_prefix"]),
        ("slug_prefix=a.b", vec!["slug_prefix"]),
        ("target=nonsense", vec!["target"]),
        ("cursor=nonsense&limit=0", vec!["cursor", "limit"]),
        ("cursor=", vec!["cursor"]),
        ("tag=a&tag=a", vec!["tag"]),
    ] {
        assert_eq!(faults(owner.get(&format!("/links?{query}")).await), expected, "{query}");
    }
}

#[apply(on_each_store)]
async fn a_cursor_is_bound_to_its_filters_and_to_its_key() {
    let server = changing().start();
    let (one, other) =
        (free_key(&server, json!({"name": "one"})).await, free_key(&server, json!({"name": "other"})).await);
    for client in [&one, &other] {
        for _ in 0..3 {
            client.shorten(json!({"redirect_url": TARGET, "tags": ["a"]})).await;
        }
    }
    let first = page(&one, "limit=1&tag=a").await;
    let cursor = text(&first["next_cursor"]);
    for query in ["", "tag=b&", "tag=a&order=newest&", "tag=a&archived=any&", "tag=A&"] {
        assert_eq!(faults(one.get(&format!("/links?{query}cursor={cursor}")).await), ["cursor"], "{query}");
    }
    assert_eq!(faults(other.get(&format!("/links?tag=a&cursor={cursor}")).await), ["cursor"]);
    assert_eq!(faults(one.get(&format!("/links?tag=a&cursor={}", &cursor[1..])).await), ["cursor"]);
    assert_eq!(names_in(&page(&one, &format!("tag=a&cursor={cursor}")).await).len(), 2);
}

#[apply(on_each_store)]
async fn a_cursor_is_good_for_a_day() {
    let clock = standing();
    let server = changing().clock(clock.clone()).start();
    let root = server.root();
    root.any_link().await;
    root.any_link().await;
    let first = page(&root, "limit=1").await;
    let query = format!("limit=1&cursor={}", text(&first["next_cursor"]));
    clock.advance(Duration::from_hours(24));
    assert_eq!(page(&root, &query).await["links"].as_array().unwrap().len(), 1);
    clock.advance(Duration::from_millis(1));
    assert_eq!(faults(root.get(&format!("/links?{query}")).await), ["cursor"]);
}

#[apply(on_each_store)]
async fn keys_list_the_links_of_the_keys_that_they_see() {
    let server = changing().start();
    let root = server.root();
    let scopes = json!(["links:read", "links:write", "keys:manage"]);
    let manager_key = root.new_key(json!({"name": "manager", "scopes": scopes})).await;
    let manager = server.with_key(text(&manager_key["key"]));
    let child_key = manager.new_key(json!({"name": "child", "scopes": ["links:read", "links:write"]})).await;
    let child = server.with_key(text(&child_key["key"]));
    let (of_root, of_manager, of_child) = ("of-root", "of-manager", "of-child");
    for (client, slug) in [(&root, of_root), (&manager, of_manager), (&child, of_child)] {
        client.link_named(slug).await;
    }
    let of = |key: &Value| format!("key_id={}", text(&key["key_id"]));
    assert_eq!(all(&root, "").await, [of_child, of_manager, of_root]);
    assert_eq!(all(&root, "limit=1").await, [of_child, of_manager, of_root]);
    assert_eq!(all(&root, "slug_prefix=of&limit=1").await, [of_child, of_manager, of_root]);
    assert_eq!(all(&root, &of(&child_key)).await, [of_child]);
    assert!(all(&root, "key_id=019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57").await.is_empty());
    assert_eq!(all(&manager, "").await, [of_manager]);
    assert_eq!(all(&manager, &of(&child_key)).await, [of_child]);
    assert_eq!(all(&child, "").await, [of_child]);
    assert_eq!(all(&child, &of(&child_key)).await, [of_child]);
    child.get(&format!("/links?{}", of(&manager_key))).await.expect(404).problem("not-found");
    manager.get("/links?key_id=019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57").await.expect(404).problem("not-found");
    // Why a link is blocked is for its owner and the root key.
    root.post(&format!("/links/{of_child}/block"), json!({"reason": "spam"})).await.expect(200);
    for (client, reason) in [(&root, json!("spam")), (&child, json!("spam")), (&manager, Value::Null)] {
        let query = of(&child_key);
        assert_eq!(page(client, &query).await["links"][0]["block_reason"], reason);
        let exported = client.get(&format!("/exports/links?{query}")).await.expect(200).json();
        assert_eq!(exported["block_reason"], reason);
    }
    // The links of a revoked key stay.
    root.delete(&format!("/api-keys/{}", text(&child_key["key_id"]))).await.expect(204);
    assert_eq!(all(&manager, &of(&child_key)).await, [of_child]);
    let blind = free_key(&server, json!({"name": "blind", "scopes": ["links:write"]})).await;
    blind.get("/links").await.expect(403).problem("scope-missing");
}

#[apply(on_each_store)]
async fn hits_are_shown_if_they_are_asked_for() {
    let server = changing().start();
    let root = server.root();
    named(&root, "tracked", json!({})).await;
    named(&root, "untracked", json!({"tracked": false})).await;
    server.click("tracked", 3).await;
    server.click("untracked", 1).await;
    let with_hits = eventually("hits", SOON, async || {
        let page = page(&root, "include=hits&slug_prefix=t").await;
        (page["links"][0]["hits"]["total"] == 3).then_some(page)
    })
    .await;
    let hits = &with_hits["links"][0]["hits"];
    assert_eq!(hits["last_7_days"], 3);
    let daily = hits["daily"].as_array().unwrap();
    assert_eq!((daily.len(), &daily[29], &daily[28]), (30, &json!(3), &json!(0)));
    let untracked = &page(&root, "include=hits&slug_prefix=u").await["links"][0];
    assert_eq!(untracked.get("hits"), Some(&Value::Null));
    assert_eq!(page(&root, "slug_prefix=t").await["links"][0].get("hits"), None);
}

/// A page is short where a filter finds little; the walk finds all.
#[apply(on_each_store)]
async fn a_request_looks_at_a_thousand_links_at_the_most() {
    let server = changing().start();
    let root = server.root();
    root.link_named("needle").await;
    for _ in 0..3 {
        let links = vec![json!({"redirect_url": TARGET}); 500];
        root.post("/shorten/bulk", json!({"links": links})).await.expect(200);
    }
    let before = count(&server.metrics().await, "signpost_listed_links_total{kind=\"examined\"}");
    let first = page(&root, "q=needle&limit=100").await;
    let examined = count(&server.metrics().await, "signpost_listed_links_total{kind=\"examined\"}") - before;
    assert!((900..=1_000).contains(&examined), "{examined}");
    assert!(first["next_cursor"].is_string());
    assert_eq!(all(&root, "q=needle&limit=100").await, ["needle"]);
}

#[apply(on_each_store)]
async fn lists_have_a_rate_limit_of_their_own() {
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__LINK_LIST_PER_MINUTE", "2").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    for _ in 0..2 {
        let answer = owner.get("/links").await.expect(200);
        assert!(answer.header("ratelimit").starts_with("\"link_list\";"), "{:?}", answer.headers);
    }
    owner.get("/links").await.expect(429).problem("rate-limited");
}

#[apply(on_each_store)]
async fn a_list_that_the_store_does_not_give_is_answered_503() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = changing().wrap_store(move |store| Arc::new(FaultyStore::new(store, faults))).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    owner.get("/links").await.expect(200);
    switch.out_of_reach(true);
    owner.get("/links").await.expect(503).problem("unavailable");
    owner.get("/exports/links").await.expect(503).problem("unavailable");
}
