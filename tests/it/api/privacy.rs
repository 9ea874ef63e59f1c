//! Visitors who ask not to be tracked.

use serde_json::json;

use crate::support::collector::Collector;
use crate::support::receiver::Receiver;
use crate::support::server::{Server, metric};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const AGENT: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                     SeenAgent/17.0 Mobile/15E148 Safari/604.1";

/// Headers of a visitor, with texts that can be found again. The bytes of the address are readable.
const VISITOR: [(&str, &str); 4] = [
    ("X-Forwarded-For", "6e6f:7462:6568:6572:6573:6565:6e61:6464"),
    ("User-Agent", AGENT),
    ("Referer", "https://seen-site.example/"),
    ("Accept-Language", "qx-ZQ"),
];
/// Such texts.
const OF_VISITOR: [&str; 6] = ["notbeherese", "6e6f:7462", "SeenAgent", "seen-site", "qx-zq", "seen-campaign"];

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[apply(on_each_store)]
async fn nothing_of_a_visitor_who_asks_for_it_is_written_or_told() {
    let (collector, receiver) = (Collector::start().await, Receiver::start().await);
    let server = Server::builder()
        .set("SIGNPOST_PRIVACY__RESPECT", "gpc+dnt")
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
        .set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "3")
        .set("SIGNPOST_TELEMETRY__OTLP_ENDPOINT", &collector.endpoint())
        .set("SIGNPOST_TELEMETRY__TRACE_SAMPLE_RATIO", "1")
        .start();
    let root = server.root();
    let body = json!({"redirect_url": "https://example.com/?utm_term=seen-campaign", "webhooks": [receiver.url("/")]});
    let link = root.shorten(body).await;
    let path = format!("/{link}?utm_source=seen-campaign");
    for signal in [("Sec-GPC", "1"), ("DNT", "1"), ("Sec-GPC", "1")] {
        let headers = [&VISITOR[..], &[signal]].concat();
        server.anonymous().get_with(&path, &headers).await.expect(302);
    }
    // The limit of its client counts as for everybody.
    let headers = [&VISITOR[..], &[("Sec-GPC", "1")]].concat();
    server.anonymous().get_with(&path, &headers).await.expect(429);
    let requests = receiver.wait_for(3, SOON).await;
    for request in &requests {
        assert!(OF_VISITOR.iter().filter(|text| **text != "seen-campaign").all(|text| !has(&request.body, text)));
        assert_eq!(request.header("signpost-bot"), "");
    }
    let record = eventually("hits are counted", SOON, async || {
        let record = root.get(&format!("/links/{link}/analytics")).await.expect(200).json();
        (record["total_hits"] == 3).then_some(record)
    })
    .await;
    assert_eq!(record["devices"][0], json!({"label": "mobile", "count": 3}));
    assert_eq!((&record["referrers"], &record["countries"]), (&json!([]), &json!([])));
    let home = tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    let contents = home.contents().await;
    // The target of the link has this one.
    for text in OF_VISITOR.iter().filter(|text| **text != "seen-campaign") {
        let place = contents.iter().find(|(_, bytes)| has(bytes, text) || has(bytes, &hex_of(text)));
        assert!(place.is_none(), "{text} is in {:?}", place.map(|(place, _)| place));
    }
    let traces = collector.bytes();
    assert!(has(&traces, "GET /{short_id}"));
    assert!(OF_VISITOR.iter().all(|text| !has(&traces, text)));
}

/// As rows of a cluster show bytes.
fn hex_of(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Without the setting the same texts are found: the test above would see them.
#[tokio::test]
async fn without_the_setting_signals_change_nothing() {
    let server = Server::builder().set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8").start();
    let link = server.root().any_link().await;
    let headers = [&VISITOR[..], &[("Sec-GPC", "1"), ("DNT", "1")]].concat();
    server.anonymous().get_with(&format!("/{link}?utm_source=seen-campaign"), &headers).await.expect(302);
    eventually("the hit is counted", SOON, async || {
        (metric(&server.metrics().await, "signpost_hits_counted_total") == Some(1.0)).then_some(())
    })
    .await;
    let contents = server.stop().contents().await;
    for text in OF_VISITOR.iter().filter(|text| **text != "6e6f:7462") {
        assert!(contents.iter().any(|(_, bytes)| has(bytes, text)), "{text}");
    }
}
