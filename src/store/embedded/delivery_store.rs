//! The embedded store's deliveries of webhooks.

use async_trait::async_trait;

use super::EmbeddedStore;
use super::delivery_lists::DeliveryListPage;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};
use crate::store::{
    DeliveryQuery, DeliveryStore, DueDelivery, DuePlace, FirstTriesToQueue, QuotaClaim, Replay, SettledPage,
    SettledQuery, Settlement, StoreError, TestClaim,
};

/// Deliveries that one transaction queues again.
const REPLAYED_AT_ONCE: usize = 250;
/// Deliveries in memory that one transaction puts into the queue.
const QUEUED_AT_ONCE: usize = 1_000;

#[async_trait]
impl DeliveryStore for EmbeddedStore {
    async fn due_deliveries(
        &self,
        now: Timestamp,
        after: Option<DuePlace>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        self.read(move |tables, snapshot| tables.deliveries.due(snapshot, now, after.as_ref(), limit)).await
    }

    async fn pending_deliveries(&self) -> Result<u64, StoreError> {
        self.read(|tables, snapshot| tables.deliveries.sums.pending(snapshot)).await
    }

    async fn delivery_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError> {
        // Before the snapshot: what is in memory no more then has a row.
        let in_memory = self.with_open(|open| open.tables.deliveries.states_in_memory(&ids))?;
        if in_memory.iter().all(Option::is_some) {
            return Ok(in_memory);
        }
        self.read(move |tables, snapshot| tables.deliveries.states(snapshot, &ids, in_memory)).await
    }

    async fn claim_delivery_quota(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError> {
        self.put(move |tables, transaction| tables.deliveries.claim_quota(transaction, &claims)).await
    }

    async fn claim_test_quota(&self, claim: TestClaim) -> Result<u64, StoreError> {
        self.put(move |tables, transaction| tables.deliveries.claim_tests(transaction, &claim)).await
    }

    async fn settle_deliveries(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        let begun = self.put(move |tables, transaction| tables.deliveries.settle(transaction, &settlements)).await?;
        self.with_open(|open| open.tables.deliveries.runs.report(begun))
    }

    async fn delivery_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
        self.read(move |tables, snapshot| tables.deliveries.sums.summaries(snapshot, link, since)).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        self.read_with(
            // Before the snapshot: what is in memory no more then has a row.
            move |tables| tables.deliveries.first_tries.kept.of_link(query.link),
            move |tables, snapshot, in_memory| {
                DeliveryListPage { table: &tables.deliveries, from: snapshot, query }.read(in_memory)
            },
        )
        .await
    }

    async fn settled_deliveries(&self, query: SettledQuery) -> Result<SettledPage, StoreError> {
        self.read(move |tables, snapshot| tables.deliveries.settled(snapshot, &query)).await
    }

    async fn replay_deliveries(&self, replay: Replay) -> Result<u64, StoreError> {
        let due_times: Vec<_> = replay.due_times().collect();
        let mut queued = 0;
        // Several short transactions, so that other writes do not wait for all of them.
        for due_times in due_times.chunks(REPLAYED_AT_ONCE) {
            let (due_times, at) = (due_times.to_vec(), replay.at);
            queued +=
                self.put(move |tables, transaction| tables.deliveries.replay(transaction, &due_times, at)).await?;
        }
        Ok(queued)
    }

    fn keep_first_tries(&self, room: usize) {
        // A closed store keeps none.
        let _ = self.with_open(|open| open.tables.deliveries.first_tries.kept.keep(room));
    }

    fn take_first_tries(&self) -> Vec<DueDelivery> {
        self.with_open(|open| open.tables.deliveries.first_tries.kept.take_new()).unwrap_or_default()
    }

    async fn queue_first_tries(&self, which: FirstTriesToQueue) -> Result<Option<Timestamp>, StoreError> {
        let ids = self.with_open(|open| open.tables.deliveries.first_tries.kept.ids(which))?;
        let mut earliest = None;
        for ids in ids.chunks(QUEUED_AT_ONCE) {
            let ids = ids.to_vec();
            let queued =
                self.put(move |tables, transaction| tables.deliveries.queue_first_tries(transaction, &ids)).await?;
            earliest = earliest.into_iter().chain(queued).min();
        }
        Ok(earliest)
    }

    async fn drop_deliveries(&self, before: Day) -> Result<bool, StoreError> {
        let found_some =
            self.put(move |tables, transaction| tables.deliveries.remove_before(transaction, before)).await?;
        if !found_some {
            self.read(|tables, _| {
                tables.deliveries.merge_queues();
                Ok(())
            })
            .await?;
        }
        Ok(found_some)
    }
}
