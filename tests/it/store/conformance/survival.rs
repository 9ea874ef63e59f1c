//! What was answered outlives the store's closing.

use std::sync::Arc;

use signpost::domain::breakdown::Dimension;
use signpost::domain::calendar::Day;
use signpost::domain::hit::{HitBatch, ServedCount};
use signpost::domain::key::{ApiKey, Tier};
use signpost::domain::tally::BotFilter;
use signpost::store::{DeliveryQuery, QuotaClaim, Store};

use super::{Ground, reopened};
use crate::store::samples::{
    MINUTE, batch, counted, day, delivered, delivery, failed, key, key_id, label, link, longest_link, new_delivery,
    node, noon, secret, settlement, short_id,
};

/// Whatever the store says of the rows below, as text.
async fn everything(store: &Arc<dyn Store>) -> String {
    let ids = [0, 1, 2].map(|url| delivery(1, noon(), url)).to_vec();
    let query = DeliveryQuery { link: short_id(1), status: None, after: None, since: Day(0), limit: 10 };
    format!(
        "{:?}",
        (
            (store.link(short_id(1).into()).await.unwrap(), store.link(short_id(2).into()).await.unwrap()),
            (store.key(key_id(2)).await.unwrap(), store.key_by_secret(secret("secret 2")).await.unwrap()),
            store.keys_seen_by(key_id(1), None, 10).await.unwrap(),
            store.last_uses(vec![key_id(1), key_id(2)]).await.unwrap(),
            store.hit_cursor(node(1)).await.unwrap(),
            store.link_hits(short_id(1), Some(BotFilter::Include)).await.unwrap(),
            store.monthly_counts(key_id(1), noon().month()).await.unwrap(),
            store.due_deliveries(noon().plus(MINUTE * 60), None, 10).await.unwrap(),
            (store.delivery_states(ids).await.unwrap(), store.deliveries(query).await.unwrap()),
            store.delivery_summaries(short_id(1), Day(0)).await.unwrap(),
        )
    )
}

pub async fn all_that_was_answered_is_there_after_opening_again(ground: &impl Ground) {
    let store = ground.open().await;
    store.create_link(link(1, key_id(1)), Some(5)).await.unwrap();
    store.create_link(longest_link(2), Some(5)).await.unwrap();
    store.create_key(key(1, &[]), None).await.unwrap();
    store.create_key(key(2, &[key_id(1)]), None).await.unwrap();
    store.update_key(ApiKey { tier: Tier::Pro, revision: 1, ..key(2, &[key_id(1)]) }).await.unwrap();
    store.note_key_use(vec![(key_id(2), noon())]).await.unwrap();
    let ids = [0, 1, 2].map(|url| delivery(1, noon(), url));
    let hits = HitBatch {
        days: counted([day(1, noon(), [1, 2, 3])], [label(1, noon(), Dimension::City, "Jena, Thuringia, DE", 6)]),
        served: vec![ServedCount { key: key_id(1), month: noon().month(), count: 6 }],
        deliveries: ids.map(|id| new_delivery(id, key_id(1))).to_vec(),
        ..batch(0, 10)
    };
    store.apply_hits(Arc::new(hits)).await.unwrap();
    let claims = ids.map(|id| QuotaClaim { id, round: 0, month: noon().month(), limit: Some(2) });
    assert_eq!(store.claim_delivery_quota(claims.to_vec()).await.unwrap(), [true, true, false]);
    let settlements =
        vec![settlement(ids[0], 1, delivered(), noon()), settlement(ids[1], 1, failed(Some(MINUTE)), noon())];
    store.settle_deliveries(settlements).await.unwrap();

    let before = everything(&store).await;
    let store = reopened(ground, store).await;
    assert_eq!(everything(&store).await, before);
    store.ready().await.unwrap();
}
