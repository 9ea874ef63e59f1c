//! Failed deliveries in a row, and suspensions.

use std::num::NonZeroU32;
use std::sync::Arc;

use signpost::domain::hit::HitBatch;
use signpost::domain::webhook::DeliveryId;
use signpost::store::SuspensionRule;

use super::run::Run;
use crate::store::samples::{
    MINUTE, batch, delivered, delivery, failed, key_id, link, new_delivery, node, noon, settlement, short_id,
};

/// A delivery of a hit so many hours after noon.
fn delivery_at(run: &Run, hour: u32) -> DeliveryId {
    delivery(run.n, noon().plus(MINUTE * 60 * hour), 0)
}

/// A link with four deliveries. Its URL is suspended after three failures; a store that has a rule keeps it.
async fn prepare(run: &Run) {
    for store in [&run.store, &run.clean] {
        let rule = SuspensionRule { failures: NonZeroU32::new(3).unwrap(), hook: Box::new(drop) };
        store.suspend_failing(rule);
    }
    run.clean.create_link(link(run.n, key_id(run.n)), None).await.unwrap();
    let deliveries = [0, 1, 30, 31].map(|hour| new_delivery(delivery_at(run, hour), key_id(run.n)));
    let hits = HitBatch { writer: node(1_000_000 + run.n), deliveries: deliveries.to_vec(), ..batch(0, 4) };
    run.clean.apply_hits(Arc::new(hits)).await.unwrap();
}

/// A delivery fails so many hours after noon.
async fn fail(run: &Run, hour: u32) {
    let id = delivery_at(run, hour);
    let settled = settlement(id, 1, failed(None), id.hit.at);
    run.done(async || run.clean.settle_deliveries(vec![settled.clone()]).await).await;
}

async fn is_suspended(run: &Run) -> bool {
    !run.done(async || run.clean.suspensions(vec![short_id(run.n)]).await).await.is_empty()
}

pub async fn count_failures(run: &Run) {
    prepare(run).await;
    let first = settlement(delivery_at(run, 0), 1, failed(None), noon());
    run.disturbed_until_done(async || run.store.settle_deliveries(vec![first.clone()]).await).await;
    fail(run, 30).await;
    assert!(!is_suspended(run).await, "counted twice: {}", run.name());
    fail(run, 31).await;
    assert!(is_suspended(run).await, "not counted: {}", run.name());
}

/// Of two outcomes that are written together, the first one is a success.
pub async fn count_failure_behind_success(run: &Run) {
    prepare(run).await;
    let [success, failure] = [0, 1].map(|hour| delivery_at(run, hour));
    let together = [settlement(success, 1, delivered(), noon()), settlement(failure, 1, failed(None), failure.hit.at)];
    run.disturbed_until_done(async || run.store.settle_deliveries(together.to_vec()).await).await;
    fail(run, 30).await;
    assert!(!is_suspended(run).await, "counted twice: {}", run.name());
    fail(run, 31).await;
    assert!(is_suspended(run).await, "not counted: {}", run.name());
}

pub async fn end_suspension(run: &Run) {
    prepare(run).await;
    for hour in [0, 30, 31] {
        fail(run, hour).await;
    }
    assert!(is_suspended(run).await, "{}", run.name());
    run.disturbed_until_done(async || run.store.end_suspension(short_id(run.n), 0).await).await;
    assert!(!is_suspended(run).await, "{}", run.name());
}
