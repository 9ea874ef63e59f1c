//! What the metrics tell of requests, redirects, hits and the store.

use serde_json::json;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use signpost::telemetry::metrics::catalogue;

use crate::support::server::{Server, metric};
use crate::support::{SOON, eventually};

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
        assert!(own().any(|name| *name == definition.name), "{} is not shown", definition.name);
    }
    for line in metrics.lines().filter(|line| line.starts_with("signpost_")) {
        let (name, rest) = line.split_once(['{', ' ']).unwrap();
        let definition = catalogue::ALL.iter().rfind(|definition| name.starts_with(definition.name)).unwrap();
        let labels =
            rest.split_once('}').map_or("", |(labels, _)| labels).split("\",").filter(|label| !label.is_empty());
        for (label, value) in labels.map(|label| label.split_once("=\"").unwrap()) {
            assert!(label == "le" || definition.labels.contains(&label), "{line}");
            assert!(!value.contains(&*link), "{line}");
        }
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
    let server = Server::builder().set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "7").directory(home).start();
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
        "signpost_http_request_duration_seconds_count{route=\"/{short_id}\"}",
    ];
    let grown = growth(&server, &names, async || {
        for status in [302, 302, 302] {
            anonymous.get(&format!("/{link}")).await.expect(status);
        }
        anonymous.head(&format!("/{link}")).await.expect(302);
        // The second is no name of a link, and goes through the dispatcher.
        anonymous.get("/zzzzzzz").await.expect(404);
        anonymous.get("/not.a.name").await.expect(404);
        // An escaped id is found by the routes.
        anonymous.get(&format!("/%{:02x}{}", link.as_bytes()[0], &link[1..])).await.expect(302);
        anonymous.get(&format!("/{link}")).await.expect(429);
        anonymous.get("/not.a.name").await.expect(429);
    });
    assert_eq!(grown.await, [5.0, 1.0, 2.0, 1.0, 4.0, 1.0, 8.0, 5.0, 4.0, 2.0, 4.0, 1.0]);
    eventually("hits are counted", SOON, async || {
        let metrics = server.metrics().await;
        let of = |name| metric(&metrics, name);
        let counted = (of("signpost_hits_counted_total"), of("signpost_journal_hits_consumed_total"));
        (counted == (Some(4.0), Some(4.0)) && of("signpost_journal_oldest_hit_age_seconds") == Some(0.0)).then_some(())
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
        .set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "0")
        .set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "1")
        .set("SIGNPOST_LIMITS__QR_PER_MINUTE", "1")
        .start();
    let key = server.root().new_key(json!({"name": "free", "tier": "Free"})).await;
    let free = server.with_key(key["key"].as_str().unwrap());
    let manager = server.root().new_key(json!({"name": "manager", "scopes": ["keys:manage"]})).await;
    let manager = server.with_key(manager["key"].as_str().unwrap());
    let names = [
        "signpost_quotas_refused_total{quota=\"keys\"}",
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
        manager.post("/api-keys", json!({"name": "child"})).await.expect(403);
        server.anonymous().get(&format!("/{link}/qr")).await.expect(200);
        server.anonymous().get(&format!("/{link}/qr")).await.expect(429);
    });
    assert_eq!(grown.await, [1.0, 1.0, 1.0, 1.0, 1.0]);
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

#[tokio::test]
async fn no_address_of_a_visitor_is_in_the_store() {
    let server = Server::builder().set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8").start();
    let link = server.root().any_link().await;
    // An address whose bytes are readable.
    let visitor =
        [("X-Forwarded-For", "6e6f:7462:6568:6572:6573:6565:6e61:6464"), ("Referer", "https://seen-here.example/")];
    server.anonymous().get_with(&format!("/{link}"), &visitor).await.expect(302);
    eventually("the hit is counted", SOON, async || {
        (metric(&server.metrics().await, "signpost_hits_counted_total") == Some(1.0)).then_some(())
    })
    .await;
    let home = server.stop();
    let files = |part: &str| -> Vec<u8> { all_files(&home.data_dir().join(part)) };
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let store = files("store");
    assert!(has(&store, "seen-here.example"), "the hit is in the store");
    assert!(!has(&store, "notbeherese") && !has(&store, "6e6f:7462"));
}

fn all_files(path: &std::path::Path) -> Vec<u8> {
    if path.is_file() {
        return std::fs::read(path).unwrap();
    }
    std::fs::read_dir(path).unwrap().flat_map(|entry| all_files(&entry.unwrap().path())).collect()
}
