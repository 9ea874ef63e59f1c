//! Replays whose states come very late, and whose turns end with lost answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use signpost::domain::webhook::{DeliveryId, DeliveryStatus, UrlSummary};
use signpost::store::cql::ScyllaStore;
use signpost::store::cql::session::ScyllaSettings;
use signpost::store::{Replay, Store, StoreError};

use super::wire::Wire;
use crate::store::samples::{MINUTE, delivery, enqueue, failed, node, noon, settlement, short_id};
use crate::support::keyspaces::Keyspace;
use crate::support::{SOON, eventually};

/// How long the disturbed store waits for an answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// Longer than two beats of a queue: after each of them, its holder drops empty buckets.
const LATE: Duration = Duration::from_secs(8);

/// A failed delivery, and two stores that may replay it.
struct Ground {
    _keyspace: Keyspace,
    wire: Wire,
    /// The store behind the wire. The delivery is in none of its queues any more.
    store: Arc<dyn Store>,
    other: Arc<dyn Store>,
    id: DeliveryId,
}

impl Ground {
    async fn new() -> Self {
        let keyspace = Keyspace::empty().await;
        let node_address: SocketAddr = keyspace.contact_points[0].parse().unwrap();
        let wire = Wire::to(node_address, LATE).await;
        let settings = ScyllaSettings {
            request_timeout: PATIENCE,
            ..ScyllaSettings::new(vec![wire.address.to_string()], keyspace.name.clone())
        };
        let other: Arc<dyn Store> = Arc::new(keyspace.open_store(node(1)).await);
        let id = delivery(1, noon(), 0);
        enqueue(&other, [id]).await;
        other.settle_deliveries(vec![settlement(id, 1, failed(None), noon())]).await.unwrap();
        // Its patience may be too short for the first connection.
        let open = async || Box::pin(ScyllaStore::open(&settings, node(2))).await.ok();
        let store: Arc<dyn Store> = Arc::new(eventually("a store", SOON, open).await);
        Self { _keyspace: keyspace, wire, store, other, id }
    }

    fn replay(&self) -> Replay {
        Replay { link: self.id.link, ids: vec![self.id], at: noon().plus(MINUTE) }
    }

    /// The states of a replay are written when its store has long given them up, and lost its way to write them again.
    async fn replay_late(&mut self) {
        // Due times are the first batch.
        self.wire.delay_batch(2, true);
        let replayed = self.store.replay_deliveries(self.replay()).await;
        assert!(matches!(replayed, Err(StoreError::Unavailable(_))), "{replayed:?}");
        assert_eq!(self.status().await, DeliveryStatus::Failed);
    }

    async fn status(&self) -> DeliveryStatus {
        self.other.delivery_states(vec![self.id]).await.unwrap().remove(0).unwrap().status
    }

    async fn summary(&self) -> UrlSummary {
        self.other.delivery_summaries(short_id(1), noon().day()).await.unwrap().remove(0).1
    }

    /// Reads what is due from the head of the queue, again and again, until it is the delivery.
    async fn is_due_at(&self, store: &Arc<dyn Store>) {
        let (id, hour) = (self.id, noon().plus(MINUTE * 60));
        eventually("the replayed delivery is due", SOON, async || {
            let due = store.due_deliveries(hour, None, 10).await.ok()?;
            (due.len() == 1 && due[0].id == id).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_replay_whose_state_is_late_is_found_by_its_own_store() {
    let mut ground = Ground::new().await;
    ground.replay_late().await;
    ground.is_due_at(&ground.store).await;
    assert_eq!(ground.status().await, DeliveryStatus::Pending);
    ground.store.close().await;
    ground.other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_replay_whose_state_is_late_is_found_by_the_store_that_takes_the_queue_over() {
    let mut ground = Ground::new().await;
    ground.replay_late().await;
    ground.store.close().await;
    ground.is_due_at(&ground.other).await;
    assert_eq!(ground.status().await, DeliveryStatus::Pending);
    ground.other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_replay_that_another_store_repeats_is_counted_once() {
    let mut ground = Ground::new().await;
    ground.wire.delay_batch(2, false);
    let replayed = ground.store.replay_deliveries(ground.replay()).await;
    assert!(matches!(replayed, Err(StoreError::Unavailable(_))), "{replayed:?}");
    let again = Replay { at: noon().plus(MINUTE * 2), ..ground.replay() };
    let repeat = async || ground.other.replay_deliveries(again.clone()).await.ok();
    let queued = eventually("an answer", SOON, repeat).await;
    ground.wire.late_has_arrived().await;
    eventually("it is pending", SOON, async || (ground.status().await == DeliveryStatus::Pending).then_some(())).await;
    let UrlSummary { pending, failed, delivered, .. } = ground.summary().await;
    assert_eq!([pending, failed, delivered], [1, 0, 0], "{queued} queued by the other");
    ground.store.close().await;
    ground.other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_turn_whose_answers_are_lost_holds_up_no_other_store_for_long() {
    let mut ground = Ground::new().await;
    // The first is that of the turn before.
    ground.wire.lose_answers_from(2);
    let replayed = ground.store.replay_deliveries(ground.replay()).await;
    assert!(matches!(replayed, Err(StoreError::Unavailable(_))), "{replayed:?}");
    ground.wire.mend().await;
    let again = Replay { at: noon().plus(MINUTE * 2), ..ground.replay() };
    eventually("an answer", SOON, async || ground.other.replay_deliveries(again.clone()).await.ok()).await;
    assert_eq!(ground.status().await, DeliveryStatus::Pending);
    ground.store.close().await;
    ground.other.close().await;
}
