//! The store that fails on demand does so, and only then.

use std::sync::Arc;
use std::time::Duration;

use signpost::domain::calendar::Timestamp;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use signpost::store::{CreateLinkError, Store, StoreError, UpdateKeyError};

use super::Embedded;
use super::conformance::Ground;
use super::samples::{batch, delivered, delivery, enqueue, key, key_id, link, node, noon, settlement, short_id};

async fn faulty() -> (Embedded, Arc<dyn Store>, FaultSwitch) {
    let ground = Embedded::fresh().await;
    let switch = FaultSwitch::default();
    let store = Arc::new(FaultyStore::new(ground.open().await, switch.clone()));
    (ground, store, switch)
}

#[tokio::test]
async fn out_of_reach_nothing_is_done_and_everything_answers_unavailable() {
    let (_ground, store, switch) = faulty().await;
    store.create_link(link(1, key_id(1)), None).await.unwrap();
    switch.out_of_reach(true);
    assert!(matches!(store.ready().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.link(short_id(1).into()).await, Err(StoreError::Unavailable(_))));
    let created = store.create_link(link(2, key_id(1)), None).await;
    assert!(matches!(created, Err(CreateLinkError::Store(StoreError::Unavailable(_)))));
    let updated = store.update_key(key(1, &[])).await;
    assert!(matches!(updated, Err(UpdateKeyError::Store(StoreError::Unavailable(_)))));
    let refused = ["ready", "link", "create_link", "update_key", "apply_hits"].map(|method| switch.refused(method));
    assert_eq!(refused, [1, 1, 1, 1, 0]);
    switch.out_of_reach(false);
    assert!(store.link(short_id(1).into()).await.unwrap().is_some());
    assert_eq!(store.link(short_id(2).into()).await.unwrap(), None);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_done() {
    let (_ground, store, switch) = faulty().await;
    let id = delivery(1, noon(), 0);
    enqueue(&store, [id]).await;
    switch.loses_answers(true);
    let created = store.create_link(link(1, key_id(1)), None).await;
    assert!(matches!(created, Err(CreateLinkError::Store(StoreError::Unavailable(_)))));
    assert!(store.apply_hits(Arc::new(batch(1, 9))).await.is_err());
    assert!(store.settle_deliveries(vec![settlement(id, 1, delivered(), noon())]).await.is_err());
    assert_eq!(["create_link", "apply_hits", "link"].map(|method| switch.refused(method)), [1, 1, 0]);
    // Reads are answered, and what was done is to be seen.
    assert!(store.link(short_id(1).into()).await.unwrap().is_some());
    assert_eq!(store.hit_cursor(node(1)).await.unwrap().counted.0, 9);
    assert_eq!(store.due_deliveries(Timestamp(u64::MAX / 2), None, 9).await.unwrap(), []);
    switch.loses_answers(false);
    assert_eq!(store.create_link(link(2, key_id(1)), None).await.unwrap(), 2);
}

#[tokio::test]
async fn held_calls_wait_and_then_go_on() {
    let (_ground, store, switch) = faulty().await;
    switch.holds_calls(true);
    let spawn = |n| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.create_link(link(n, key_id(1)), None).await })
    };
    let calls = [spawn(1), spawn(2)];
    switch.held(2).await;
    assert!(calls.iter().all(|call| !call.is_finished()));
    // A caller that gives up is held no more, and nothing is done for it.
    let third = tokio::time::timeout(Duration::ZERO, store.create_link(link(3, key_id(1)), None)).await;
    assert!(third.is_err());
    switch.holds_calls(false);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(store.link(short_id(2).into()).await.unwrap().is_some());
    assert_eq!(store.link(short_id(3).into()).await.unwrap(), None);
    assert!(tokio::time::timeout(Duration::ZERO, switch.held(1)).await.is_err());
}
