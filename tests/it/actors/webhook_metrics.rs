//! What the metrics tell of webhooks.

use std::time::Duration;

use serde_json::json;

use crate::support::eventually;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::Server;

const SOON: Duration = Duration::from_secs(5);

/// The value of the one line that begins with `name`; none where there is no such line.
fn value(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn metrics_tell_what_became_of_deliveries_and_what_waits() {
    let server = Server::builder()
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "0s,0s")
        .set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", "3")
        .start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let made = root.new_key(json!({"name": "three deliveries"})).await;
    let owner = server.with_key(made["key"].as_str().unwrap());
    let link = json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/")]});
    let id = owner.shorten(link.clone()).await;
    let visitor = server.anonymous();
    let click = async || drop(visitor.get(&format!("/{id}")).await.expect(302));
    let expect = async |expected: &[(&str, f64)]| {
        eventually("metrics", SOON, async || {
            let metrics = server.operator().get("/metrics").await.expect(200).text();
            let told: Vec<_> = expected.iter().map(|(name, _)| (*name, value(&metrics, name))).collect();
            let wanted: Vec<_> = expected.iter().map(|(name, number)| (*name, Some(*number))).collect();
            (told == wanted).then_some(())
        })
        .await;
    };

    // One fails for good, one succeeds at its second try, one at its first, and one is past the quota.
    receiver.reply_with([Reply::Status(500); 4]);
    click().await;
    receiver.wait_for(3, SOON).await;
    click().await;
    receiver.wait_for(5, SOON).await;
    click().await;
    receiver.wait_for(6, SOON).await;
    click().await;
    expect(&[
        (r#"signpost_webhook_deliveries_total{outcome="delivered"}"#, 2.0),
        (r#"signpost_webhook_deliveries_total{outcome="failed"}"#, 1.0),
        (r#"signpost_webhook_deliveries_total{outcome="quota_exceeded"}"#, 1.0),
        (r#"signpost_webhook_deliveries_total{outcome="unsendable"}"#, 0.0),
        (r#"signpost_webhook_attempts_total{result="success"}"#, 2.0),
        (r#"signpost_webhook_attempts_total{result="failure"}"#, 4.0),
        ("signpost_webhook_first_attempt_delay_seconds_count", 3.0),
        ("signpost_webhook_delivery_delay_seconds_count", 2.0),
        (r#"signpost_webhook_delivery_delay_seconds_bucket{le="+Inf"}"#, 2.0),
        ("signpost_webhook_pending", 0.0),
        ("signpost_webhook_in_flight", 0.0),
        ("signpost_webhook_overdue_seconds", 0.0),
    ])
    .await;

    // Root has no quota; its receiver says nothing.
    receiver.reply_with([Reply::Silence]);
    let id = root.shorten(link).await;
    visitor.get(&format!("/{id}")).await.expect(302);
    receiver.wait_for(7, SOON).await;
    expect(&[("signpost_webhook_pending", 1.0), ("signpost_webhook_in_flight", 1.0)]).await;
    let metrics = server.operator().get("/metrics").await.expect(200).text();
    assert!(value(&metrics, "signpost_webhook_overdue_seconds").is_some_and(|seconds| seconds > 0.0), "{metrics}");
}
