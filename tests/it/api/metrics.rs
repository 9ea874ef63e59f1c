//! What the metrics tell of requests, redirects, hits and the store.

use std::time::Duration;

use serde_json::json;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use signpost::telemetry::metrics::catalogue;

use crate::support::eventually;
use crate::support::server::{Server, metric};

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);

/// What each series has grown by, in turn.
async fn growth(server: &Server, names: &[&str], act: impl AsyncFnOnce()) -> Vec<f64> {
    let read = async || {
        let metrics = server.metrics().await;
        names.iter().map(|name| metric(&metrics, name).unwrap_or_else(|| panic!("no {name} in\n{metrics}"))).collect()
    };
    let before: Vec<f64> = read().await;
    act().await;
    let after: Vec<f64> = read().await;
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn the_documents_table_is_made_from_the_definitions() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let table = catalogue::table();
    if std::env::var_os("SIGNPOST_TEST_WRITE_DOCS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == table, "docs/metrics.md is of other definitions: SIGNPOST_TEST_WRITE_DOCS=1 cargo test metrics");
}

#[tokio::test]
async fn every_metric_is_defined_and_every_definition_is_shown() {
    let server = Server::start();
    let link = server.root().any_link().await;
    server.anonymous().get(&format!("/{link}")).await.expect(302);
    let metrics = server.metrics().await;
    let shown: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let own = || shown.iter().filter(|name| name.starts_with("signpost_"));
    for definition in catalogue::ALL {
        let is_shown = own().any(|name| *name == definition.name);
        // Nothing was observed of it, and Prometheus shows no empty histogram.
        let is_empty = definition.kind == catalogue::Kind::Histogram && definition.name.contains("webhook");
        assert!(is_shown || is_empty, "{} is not shown", definition.name);
    }
    for name in own() {
        assert!(catalogue::ALL.iter().any(|definition| definition.name == *name), "{name} is not defined");
    }
    assert!(shown.contains(&"process_resident_memory_bytes"), "{shown:?}");
}

#[tokio::test]
async fn redirects_are_counted_by_outcome_and_by_where_their_links_were_found() {
    let home = Server::start();
    let link = home.root().any_link().await;
    let home = home.stop();
    // A new process: nothing is in its memory.
    let server = Server::builder().set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "6").directory(home).start();
    let anonymous = server.anonymous();
    let names = [
        "signpost_redirects_total{outcome=\"found\"}",
        "signpost_redirects_total{outcome=\"not_found\"}",
        "signpost_redirects_total{outcome=\"limited\"}",
        "signpost_link_lookups_total{result=\"miss\"}",
        "signpost_link_lookups_total{result=\"hit\"}",
        "signpost_link_lookups_total{result=\"negative\"}",
        "signpost_redirect_duration_seconds_count",
        "signpost_http_requests_total{route=\"/{short_id}\",status=\"3xx\"}",
        "signpost_http_requests_total{route=\"/{short_id}\",status=\"4xx\"}",
        "signpost_requests_limited_total{limit=\"redirect\"}",
        "signpost_journal_hits_appended_total",
    ];
    let grown = growth(&server, &names, async || {
        for status in [302, 302, 302] {
            anonymous.get(&format!("/{link}")).await.expect(status);
        }
        anonymous.head(&format!("/{link}")).await.expect(302);
        // Through the dispatcher, and no short id at all.
        anonymous.get("/zzzzzzz").await.expect(404);
        anonymous.get("/not-a-short-id").await.expect(404);
        anonymous.get(&format!("/{link}")).await.expect(429);
    });
    assert_eq!(grown.await, [4.0, 1.0, 1.0, 1.0, 3.0, 1.0, 6.0, 4.0, 3.0, 1.0, 3.0]);
    eventually("hits are counted", SOON, async || {
        let metrics = server.metrics().await;
        let of = |name| metric(&metrics, name);
        let counted = (of("signpost_hits_counted_total"), of("signpost_journal_hits_consumed_total"));
        (counted == (Some(3.0), Some(3.0)) && of("signpost_journal_oldest_hit_age_seconds") == Some(0.0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_are_counted_by_route_whatever_becomes_of_them() {
    let server = Server::start();
    let root = server.root();
    let link = root.any_link().await;
    let names = [
        "signpost_http_requests_total{route=\"/shorten\",status=\"2xx\"}",
        "signpost_http_requests_total{route=\"/shorten\",status=\"4xx\"}",
        "signpost_http_requests_total{route=\"/links/{short_id}\",status=\"4xx\"}",
        "signpost_http_requests_total{route=\"/{short_id}/qr\",status=\"2xx\"}",
        "signpost_http_requests_total{route=\"none\",status=\"4xx\"}",
        "signpost_http_request_duration_seconds_count{route=\"/shorten\"}",
    ];
    let grown = growth(&server, &names, async || {
        root.post("/shorten", json!({"redirect_url": "https://example.com/"})).await.expect(200);
        root.post("/shorten", json!({})).await.expect(422);
        server.with_key("no such key").get(&format!("/links/{link}")).await.expect(401);
        server.anonymous().get(&format!("/{link}/qr")).await.expect(200);
        server.anonymous().get("/a/b/c/d/e").await.expect(404);
    });
    assert_eq!(grown.await, [1.0, 1.0, 1.0, 1.0, 1.0, 2.0]);
}

#[tokio::test]
async fn refusals_for_limits_and_quotas_are_counted() {
    let server = Server::builder()
        .set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "1")
        .set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "1")
        .set("SIGNPOST_LIMITS__QR_PER_MINUTE", "1")
        .start();
    let key = server.root().new_key(json!({"name": "free", "tier": "Free"})).await;
    let free = server.with_key(key["key"].as_str().unwrap());
    let names = [
        "signpost_quotas_refused_total{quota=\"links\"}",
        "signpost_requests_limited_total{limit=\"key\"}",
        "signpost_requests_limited_total{limit=\"qr\"}",
        "signpost_store_operations_total{operation=\"create_link\",outcome=\"ok\"}",
    ];
    let grown = growth(&server, &names, async || {
        let link = free.any_link().await;
        free.post("/shorten", json!({"redirect_url": "https://example.com/"})).await.expect(403);
        free.get("/usage").await.expect(200);
        free.get("/usage").await.expect(429);
        server.anonymous().get(&format!("/{link}/qr")).await.expect(200);
        server.anonymous().get(&format!("/{link}/qr")).await.expect(429);
    });
    assert_eq!(grown.await, [1.0, 1.0, 1.0, 1.0]);
}

#[tokio::test]
async fn a_store_out_of_reach_shows_in_its_calls_in_the_redirects_and_in_the_age_of_the_oldest_hit() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = Server::builder().wrap_store(|store| std::sync::Arc::new(FaultyStore::new(store, faults))).start();
    let link = server.root().any_link().await;
    switch.out_of_reach(true);
    let names = [
        "signpost_redirects_total{outcome=\"unavailable\"}",
        "signpost_store_operations_total{operation=\"link\",outcome=\"unavailable\"}",
        "signpost_http_requests_total{route=\"/{short_id}\",status=\"5xx\"}",
    ];
    let grown = growth(&server, &names, async || {
        server.anonymous().get("/zzzzzzz").await.expect(503);
        server.anonymous().get(&format!("/{link}")).await.expect(302);
    });
    assert_eq!(grown.await, [1.0, 1.0, 1.0]);
    let oldest = async || metric(&server.metrics().await, "signpost_journal_oldest_hit_age_seconds").unwrap();
    eventually("the hit ages", SOON, async || (oldest().await > 1.0).then_some(())).await;
    switch.out_of_reach(false);
    eventually("it is counted", SOON, async || (oldest().await == 0.0).then_some(())).await;
}
