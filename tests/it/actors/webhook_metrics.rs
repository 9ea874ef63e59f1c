//! The metrics of webhooks.

use serde_json::json;

use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, metric};
use crate::support::{SOON, eventually};

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
    let id = owner.link_with_webhooks(&[receiver.url("/")]).await;
    let expect = async |expected: &[(&str, f64)]| {
        eventually("metrics", SOON, async || {
            let metrics = server.metrics().await;
            expected.iter().all(|(name, number)| metric(&metrics, name) == Some(*number)).then_some(())
        })
        .await;
    };

    // One delivery fails, one succeeds at its second attempt, one at its first, and one is over the quota.
    receiver.reply_with([Reply::Status(500); 4]);
    server.click(&id, 1).await;
    receiver.wait_for(3, SOON).await;
    server.click(&id, 1).await;
    receiver.wait_for(5, SOON).await;
    server.click(&id, 1).await;
    receiver.wait_for(6, SOON).await;
    server.click(&id, 1).await;
    expect(&[
        (r#"signpost_webhook_deliveries_total{outcome="delivered"}"#, 2.0),
        (r#"signpost_webhook_deliveries_total{outcome="failed"}"#, 1.0),
        (r#"signpost_webhook_deliveries_total{outcome="quota_exceeded"}"#, 1.0),
        (r#"signpost_webhook_deliveries_total{outcome="unsendable"}"#, 0.0),
        (r#"signpost_webhook_deliveries_total{outcome="suspended"}"#, 0.0),
        ("signpost_webhook_suspensions_total", 0.0),
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

    // The root key has no quota; its receiver does not answer.
    receiver.reply_with([Reply::Silence]);
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    receiver.wait_for(7, SOON).await;
    expect(&[("signpost_webhook_pending", 1.0), ("signpost_webhook_in_flight", 1.0)]).await;
    // This metric is updated at other times than the number of pending deliveries.
    let overdue = async || metric(&server.metrics().await, "signpost_webhook_overdue_seconds").filter(|it| *it > 0.0);
    eventually("overdue", SOON, overdue).await;
}
