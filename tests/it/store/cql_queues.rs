//! Deliveries in queues of processes that have ended, on a CQL cluster.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use signpost::domain::calendar::Day;
use signpost::domain::hit::HitBatch;
use signpost::domain::webhook::DeliveryId;
use signpost::store::{DueDelivery, Store};
use uuid::Uuid;

use super::samples::{
    MINUTE, batch, delivered, delivery, enqueue, key_id, new_delivery, node, noon, settlement, short_id,
};
use crate::support::keyspaces::Keyspace;
use crate::support::{SOON, eventually};

async fn due(store: &Arc<dyn Store>) -> Vec<DeliveryId> {
    let due = store.due_deliveries(noon().plus(MINUTE * 60), None, 10).await.unwrap();
    due.into_iter().map(|DueDelivery { id, .. }| id).collect()
}

/// The queue that a delivery's row names.
async fn queue_of(session: &Session, id: DeliveryId) -> Uuid {
    let values = (id.link.as_str(), i32::try_from(id.hit.at.day().0).unwrap(), id.to_bytes().to_vec());
    let text = "SELECT queue FROM deliveries WHERE link = ? AND day = ? AND delivery = ?";
    let rows = session.query_unpaged(text, values).await.unwrap().into_rows_result().unwrap();
    rows.single_row::<(Uuid,)>().unwrap().0
}

/// Settles the only delivery there is.
async fn settle(store: &Arc<dyn Store>, id: DeliveryId) {
    store.settle_deliveries(vec![settlement(id, 1, delivered(), noon().plus(MINUTE))]).await.unwrap();
    let summary = store.delivery_summaries(short_id(1), Day(0)).await.unwrap().remove(0).1;
    assert_eq!([summary.pending, summary.delivered], [0, 1]);
    // Which bucket had it is not in its row, so the buckets are counted again.
    let none = async || (store.pending_deliveries().await.unwrap() == 0).then_some(());
    eventually("none is pending", SOON, none).await;
    assert_eq!(due(store).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_delivery_in_a_queue_that_is_gone_is_queued_again_once_its_hit_is_counted_again() {
    is_queued_again(async |session, queue| {
        session.query_unpaged("DELETE FROM queues WHERE part = 0 AND queue = ?", (queue,)).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_delivery_in_a_queue_that_begins_behind_it_is_queued_again_once_its_hit_is_counted_again() {
    is_queued_again(async |session, queue| {
        let floor = i64::try_from(noon().0 / 10_000).unwrap() + 1;
        let holder = Uuid::new_v4();
        let text = "UPDATE queues SET holder = ?, holder_node = ?, floor = ? WHERE part = 0 AND queue = ?";
        session.query_unpaged(text, (holder, holder, floor, queue)).await.unwrap();
    })
    .await;
}

/// `forget`: the holder of the queue with a delivery took it for empty. The state was not visible to it for hours.
async fn is_queued_again(forget: impl AsyncFnOnce(&Session, Uuid)) {
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let session = keyspace.session().await;
    let (gone, id): (Arc<dyn Store>, _) = (Arc::new(keyspace.open_store(node(1)).await), delivery(1, noon(), 0));
    enqueue(&gone, [id]).await;
    gone.close().await;
    forget(&session, queue_of(&session, id).await).await;
    // As by a process of node 2 that was killed within a batch.
    let begun = "INSERT INTO hit_cursors (writer, begun) VALUES (?, 1) USING TIMESTAMP 1";
    session.query_unpaged(begun, (node(2).0,)).await.unwrap();

    let store: Arc<dyn Store> = Arc::new(keyspace.open_store(node(2)).await);
    assert_eq!(due(&store).await, []);
    let again = HitBatch { writer: node(2), deliveries: vec![new_delivery(id, key_id(1))], ..batch(0, 1) };
    store.apply_hits(Arc::new(again)).await.unwrap();
    assert_eq!((due(&store).await, store.pending_deliveries().await.unwrap()), (vec![id], 1));
    settle(&store, id).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_delivery_that_two_queues_have_is_due_in_the_one_that_its_row_names() {
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let session = keyspace.session().await;
    let adopter: Arc<dyn Store> = Arc::new(keyspace.open_store(node(2)).await);
    // As by a process of node 1 that was killed before it wrote the states: the adopter takes its queue.
    let (left, ids) = (Uuid::new_v4(), [delivery(1, noon(), 0), delivery(1, noon(), 1)]);
    let bucket = i64::try_from(noon().0 / 10_000).unwrap();
    for id in ids {
        let values = (left, bucket, i64::try_from(noon().0).unwrap(), id.to_bytes().to_vec());
        session
            .query_unpaged("INSERT INTO due (queue, bucket, due_at, delivery) VALUES (?, ?, ?, ?)", values)
            .await
            .unwrap();
    }
    session.query_unpaged("INSERT INTO queue_buckets (queue, bucket) VALUES (?, ?)", (left, bucket)).await.unwrap();
    let released = "INSERT INTO queues (part, queue, node, holder, holder_node, beat, floor) \
                    VALUES (0, ?, ?, ?, ?, 1, 0) IF NOT EXISTS";
    session.query_unpaged(released, (left, node(1).0, Uuid::nil(), Uuid::nil())).await.unwrap();
    let taken = async || {
        let text = "SELECT holder FROM queues WHERE part = 0 AND queue = ?";
        let rows = session.query_unpaged(text, (left,)).await.unwrap().into_rows_result().unwrap();
        (!rows.single_row::<(Uuid,)>().unwrap().0.is_nil()).then_some(())
    };
    eventually("the adopter takes the queue", SOON, taken).await;
    // Its next process counts the hits again.
    let next: Arc<dyn Store> = Arc::new(keyspace.open_store(node(1)).await);
    enqueue(&next, ids).await;
    // The adopter counts its queue with each beat, every 3 s, and finds the states in the other queue.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(due(&adopter).await, []);
    // One of the first process's states comes very late.
    let late = "UPDATE deliveries SET queue = ? WHERE link = ? AND day = ? AND delivery = ?";
    let day = i32::try_from(noon().day().0).unwrap();
    session.query_unpaged(late, (left, ids[1].link.as_str(), day, ids[1].to_bytes().to_vec())).await.unwrap();

    let found = |due: Vec<DeliveryId>| (!due.is_empty()).then_some(due);
    let of_adopter = eventually("the adopter looks", SOON, async || found(due(&adopter).await)).await;
    assert_eq!(of_adopter, [ids[1]]);
    assert_eq!(adopter.pending_deliveries().await.unwrap(), 1);
    let one = async || (due(&next).await == [ids[0]]).then_some(());
    eventually("the next process leaves the other to the adopter", SOON, one).await;
    for (store, id) in [(&adopter, ids[1]), (&next, ids[0])] {
        store.settle_deliveries(vec![settlement(id, 1, delivered(), noon().plus(MINUTE))]).await.unwrap();
    }
    // The next process has counted both as pending. It counts again once it finds nothing.
    let none = async || {
        assert_eq!(due(&next).await, []);
        let pending = [adopter.pending_deliveries().await.unwrap(), next.pending_deliveries().await.unwrap()];
        (pending == [0, 0]).then_some(())
    };
    eventually("none is pending", SOON, none).await;
    adopter.close().await;
    next.close().await;
}
