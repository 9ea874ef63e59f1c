//! `ETag`, `If-Match` and `If-None-Match` of links, and the order in which requests are refused.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::links::{TARGET, changing, faults, free_key, path};
use crate::support::stores::{apply, on_each_store};

async fn change(client: &Client, method: &Method, name: &str, headers: &[(&str, &str)], title: &str) -> Answer {
    let body = match *method {
        Method::PUT => json!({"redirect_url": TARGET, "title": title}),
        _ => json!({"title": title}),
    };
    client.send_link(method.clone(), name, headers, &body).await
}

#[apply(on_each_store)]
async fn a_change_is_refused_if_the_link_has_changed_since_it_was_read() {
    let server = changing().start();
    let root = server.root();
    for method in [Method::PATCH, Method::PUT] {
        let id = root.any_link().await;
        let read = root.get(&path(&id)).await.expect(200).header("etag").to_owned();
        let changed = change(&root, &method, &id, &[("If-Match", &read)], "a").await.expect(200);
        let now = changed.header("etag").to_owned();
        assert_eq!((read.as_str(), now.as_str()), ("\"1\"", "\"2\""));
        let weak = format!("W/{now}");
        for other in [&read, &weak, "2", "\"\"", ""] {
            let refused = change(&root, &method, &id, &[("If-Match", other)], "b").await.expect(412);
            refused.problem("precondition-failed");
            assert_eq!(refused.header("etag"), now, "{other}");
        }
        for same in ["*", &format!("\"7\", {now}"), &now] {
            change(&root, &method, &id, &[("If-Match", same)], "a").await.expect(200);
        }
        // None of these changed anything.
        assert_eq!(root.get(&path(&id)).await.header("etag"), now);
        for lines in
            [[("If-Match", "\"7\""), ("If-None-Match", "\"8\"")], [("If-Match", &*now), ("If-None-Match", "*")]]
        {
            change(&root, &method, &id, &lines, "b").await.expect(412);
        }
    }
}

#[apply(on_each_store)]
async fn a_put_can_be_one_that_only_makes_or_one_that_only_replaces() {
    let server = changing().start();
    let root = server.root();
    let put = async |headers: &[(&str, &str)]| change(&root, &Method::PUT, "summer", headers, "x").await;
    for header in ["*", "\"1\""] {
        let refused = put(&[("If-Match", header)]).await.expect(412);
        refused.problem("precondition-failed");
        assert_eq!(refused.header("etag"), "");
    }
    put(&[("If-None-Match", "*")]).await.expect(201);
    let refused = put(&[("If-None-Match", "*")]).await.expect(412);
    assert_eq!(refused.header("etag"), "\"1\"");
    put(&[("If-None-Match", "W/\"1\"")]).await.expect(412);
    put(&[("If-None-Match", "\"2\"")]).await.expect(200);
    put(&[("If-Match", "*")]).await.expect(200);
}

#[apply(on_each_store)]
async fn a_deletion_may_have_a_condition() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    let delete = async |tag: &str| root.send(Method::DELETE, &path(&id), &[("If-Match", tag)], None).await;
    let refused = delete("\"2\"").await.expect(412);
    assert_eq!(refused.header("etag"), "\"1\"");
    root.get(&path(&id)).await.expect(200);
    delete("\"1\"").await.expect(204);
    delete("\"1\"").await.expect(404).problem("not-found");
    delete("*").await.expect(404);
}

#[apply(on_each_store)]
async fn of_two_changes_of_one_revision_one_is_refused() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    let changes = (0..8).map(|n| {
        let (root, id) = (root.clone(), id.clone());
        async move { change(&root, &Method::PATCH, &id, &[("If-Match", "\"1\"")], &format!("{n}")).await.status }
    });
    let mut statuses = futures_util::future::join_all(changes).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
    assert_eq!(root.link_record(&id).await["revision"], 2);
}

#[apply(on_each_store)]
async fn requests_are_refused_in_the_order_that_is_documented() {
    let server = changing().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "2").start();
    let (owner, other) = (
        free_key(&server, json!({"name": "owner"})).await,
        free_key(&server, json!({"name": "other", "scopes": ["links:write"]})).await,
    );
    let reader = free_key(&server, json!({"name": "reader", "scopes": ["links:read"]})).await;
    let id = owner.any_link().await;
    let stale: &[(&str, &str)] = &[("If-Match", "\"9\"")];
    let wrong = json!({"redirect_url": "", "x": 1});
    for method in [Method::PATCH, Method::PUT, Method::DELETE] {
        let send = async |client: &Client, name: &str, headers, body: &Value| {
            client.send_link(method.clone(), name, headers, body).await
        };
        send(&server.anonymous(), "zzzzzzz", stale, &wrong).await.expect(401);
        send(&reader, "zzzzzzz", stale, &wrong).await.expect(403).problem("scope-missing");
        if method != Method::DELETE {
            owner.send(method.clone(), &path("zzzzzzz"), stale, Some(b"{".to_vec())).await.expect(400);
            let text = [("Content-Type", "text/plain"), ("If-Match", "\"9\"")];
            owner.send(method.clone(), &path("zzzzzzz"), &text, Some(b"{".to_vec())).await.expect(415);
        }
        let absent = if method == Method::PUT { 412 } else { 404 };
        send(&owner, "zzzzzzz", stale, &wrong).await.expect(absent);
        send(&other, &id, stale, &wrong).await.expect(403).problem("not-owner");
        send(&owner, &format!("{id}?x=1"), stale, &wrong).await.expect(412);
    }
    assert_eq!(faults(owner.send(Method::DELETE, &format!("{}?x=1", path(&id)), &[], None).await), ["x"]);
    let places = faults(owner.send_link(Method::PATCH, &format!("{id}?q=1"), &[], &wrong).await);
    assert_eq!(places, ["/redirect_url", "/x", "q"]);
    // Faults before the quota, the quota before a name that is taken.
    owner.any_link().await;
    assert_eq!(faults(owner.put_link("new-name", wrong).await), ["/redirect_url", "/x"]);
    owner.put_link("new-name", json!({"redirect_url": TARGET})).await.expect(403).problem("link-quota-exceeded");
    let body = json!({"redirect_url": TARGET, "slug": id});
    owner.post("/shorten", body).await.expect(403).problem("link-quota-exceeded");
}
