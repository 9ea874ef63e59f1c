//! The fields that a link may have beside its target: in creations and in answers.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::keys::standing;
use crate::support::links::{TARGET, changing, faults};
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

fn all_options() -> Value {
    json!({
        "title": "Summer \u{1f31e}",
        "tags": ["summer", "Mail", "ä ö"],
        "notes": "two\nlines",
        "archived": true,
        "expires_at": "2027-01-31T13:00:00+01:00",
        "not_before": "2020-01-01T00:00:00Z",
        "fallback_url": "https://bücher.example/over",
        "redirect_status": 307,
        "cache_seconds": 60.0,
        "preview": false,
        "skip_bots": true,
    })
}

#[apply(on_each_store)]
async fn a_link_has_the_fields_that_it_was_created_with() {
    let server = Server::builder().clock(standing()).start();
    let root = server.root();
    let mut body = all_options();
    body["redirect_url"] = TARGET.into();
    let created = root.post("/shorten", body).await.expect(200);
    assert_eq!(created.json().as_object().unwrap().len(), 4);
    let id = created.json()["short_id"].as_str().unwrap().to_owned();
    let answer = root.get(&format!("/links/{id}")).await.expect(200);
    let expected = json!({
        "short_id": id,
        "short_url": format!("http://{}/{id}", server.address),
        "redirect_url": TARGET,
        "created_at": "2026-11-21T12:00:00.000Z",
        "slug": null,
        "data": {},
        "webhooks": [],
        "tracked": true,
        "title": "Summer \u{1f31e}",
        "tags": ["summer", "Mail", "ä ö"],
        "notes": "two\nlines",
        "archived": true,
        "expires_at": "2027-01-31T12:00:00.000Z",
        "not_before": "2020-01-01T00:00:00.000Z",
        "fallback_url": "https://xn--bcher-kva.example/over",
        "redirect_status": 307,
        "cache_seconds": 60,
        "preview": false,
        "skip_bots": true,
        "block_reason": null,
        "updated_at": "2026-11-21T12:00:00.000Z",
        "revision": 1,
        "state": "active",
    });
    assert_eq!(answer.json(), expected);
    assert_eq!((answer.header("etag"), answer.header("cache-control")), ("\"1\"", "no-store"));
    // Also after a start.
    let server = Server::builder().clock(standing()).directory(server.stop()).start();
    let mut again = server.root().link_record(&id).await;
    again["short_url"] = expected["short_url"].clone();
    assert_eq!(again, expected);
}

#[apply(on_each_store)]
async fn fields_that_are_not_set_or_null_have_their_defaults() {
    let server = changing().start();
    let root = server.root();
    let mut nulls = all_options();
    nulls.as_object_mut().unwrap().values_mut().for_each(|value| *value = Value::Null);
    nulls["slug"] = Value::Null;
    nulls["redirect_url"] = TARGET.into();
    for body in [json!({"redirect_url": TARGET}), nulls] {
        let id = root.shorten(body).await;
        let record = root.link_record(&id).await;
        for (name, value) in [
            ("slug", Value::Null),
            ("title", Value::Null),
            ("tags", json!([])),
            ("notes", Value::Null),
            ("archived", json!(false)),
            ("expires_at", Value::Null),
            ("not_before", Value::Null),
            ("fallback_url", Value::Null),
            ("redirect_status", json!(302)),
            ("cache_seconds", json!(0)),
            ("preview", json!(true)),
            ("skip_bots", json!(false)),
            ("block_reason", Value::Null),
        ] {
            assert_eq!(record[name], value, "{name}");
        }
    }
}

/// Wrong values of single fields, with the places of their faults. The clock stands at noon of 2026-11-21.
fn wrong_options() -> Vec<(Value, Vec<&'static str>)> {
    let many: Vec<String> = (0..21).map(|n| n.to_string()).collect();
    vec![
        (json!({"title": ""}), vec!["/title"]),
        (json!({"title": "x".repeat(201)}), vec!["/title"]),
        (json!({"title": 1}), vec!["/title"]),
        (json!({"tags": "x"}), vec!["/tags"]),
        (json!({"tags": many}), vec!["/tags"]),
        (
            json!({"tags": ["a", 1, null, "", "x,y", "A", "b\n"]}),
            vec!["/tags/1", "/tags/2", "/tags/3", "/tags/4", "/tags/5", "/tags/6"],
        ),
        (json!({"notes": "x".repeat(2001)}), vec!["/notes"]),
        (json!({"archived": "yes"}), vec!["/archived"]),
        (json!({"preview": 0}), vec!["/preview"]),
        (json!({"skip_bots": "true"}), vec!["/skip_bots"]),
        (json!({"expires_at": "2026-11-21T12:00:00Z"}), vec!["/expires_at"]),
        (json!({"expires_at": "2020-01-01T00:00:00Z"}), vec!["/expires_at"]),
        (json!({"expires_at": "tomorrow"}), vec!["/expires_at"]),
        // In the past, and before the other.
        (
            json!({"expires_at": "2020-01-01T00:00:00Z", "not_before": "2028-01-01T00:00:00Z"}),
            vec!["/expires_at", "/expires_at", "/not_before"],
        ),
        (json!({"expires_at": "tomorrow", "not_before": "2099-01-01T00:00:00Z"}), vec!["/expires_at"]),
        (json!({"expires_at": 1}), vec!["/expires_at"]),
        (json!({"not_before": "x"}), vec!["/not_before"]),
        (
            json!({"expires_at": "2027-01-01T00:00:00Z", "not_before": "2027-01-01T01:00:00+01:00"}),
            vec!["/expires_at", "/not_before"],
        ),
        (json!({"fallback_url": "ftp://a.example"}), vec!["/fallback_url"]),
        (json!({"fallback_url": []}), vec!["/fallback_url"]),
        (json!({"redirect_status": 303}), vec!["/redirect_status"]),
        (json!({"redirect_status": "302"}), vec!["/redirect_status"]),
        (json!({"redirect_status": 302.5}), vec!["/redirect_status"]),
        (json!({"cache_seconds": -1}), vec!["/cache_seconds"]),
        (json!({"cache_seconds": 86_401}), vec!["/cache_seconds"]),
        (json!({"cache_seconds": 1.5}), vec!["/cache_seconds"]),
        (json!({"max_clicks": 1, "rules": [], "forward_query": true}), vec!["/forward_query", "/max_clicks", "/rules"]),
        (
            json!({"title": "", "tags": [""], "notes": 1, "archived": 1, "expires_at": "", "not_before": "", "fallback_url": "",
                   "redirect_status": 1, "cache_seconds": "", "preview": "", "skip_bots": 0}),
            vec![
                "/archived",
                "/cache_seconds",
                "/expires_at",
                "/fallback_url",
                "/not_before",
                "/notes",
                "/preview",
                "/redirect_status",
                "/skip_bots",
                "/tags/0",
                "/title",
            ],
        ),
    ]
}

#[apply(on_each_store)]
async fn wrong_fields_are_told_at_their_places_in_creations_replacements_and_changes() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    let before = root.link_record(&id).await;
    for (body, places) in wrong_options() {
        assert_eq!(faults(root.patch_link(&id, body.clone()).await), places, "{body}");
        let mut whole = body.clone();
        whole["redirect_url"] = TARGET.into();
        assert_eq!(faults(root.post("/shorten", whole.clone()).await), places, "{body}");
        assert_eq!(faults(root.put_link(&id, whole.clone()).await), places, "{body}");
        assert_eq!(faults(root.put_link("new-name", whole).await), places, "{body}");
    }
    for (name, base) in [("redirect_url", 7), ("data", 7), ("webhooks", 7), ("short_id", 7), ("revision", 1)] {
        let body = json!({"redirect_url": TARGET, name: base});
        assert_eq!(faults(root.post("/shorten", body.clone()).await), [format!("/{name}")]);
        assert_eq!(faults(root.put_link(&id, body).await), [format!("/{name}")]);
    }
    assert_eq!(root.link_record(&id).await, before);
    root.get("/links/new-name").await.expect(404);
}

#[apply(on_each_store)]
async fn the_state_of_a_link_is_that_of_the_moment() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).start();
    let root = server.root();
    let body = json!({
        "redirect_url": TARGET, "not_before": "2026-11-21T12:00:10Z", "expires_at": "2026-11-21T12:00:20Z",
    });
    let id = root.shorten(body).await;
    for (seconds, state) in [(0, "scheduled"), (10, "active"), (10, "expired")] {
        clock.advance(Duration::from_secs(seconds));
        let answer = root.get(&format!("/links/{id}")).await.expect(200);
        assert_eq!((&answer.json()["state"], answer.header("etag")), (&json!(state), "\"1\""));
    }
    root.send(Method::POST, &format!("/links/{id}/block"), &[], Some(br#"{"reason":"x"}"#.to_vec())).await.expect(200);
    assert_eq!(root.link_record(&id).await["state"], "blocked");
}
