//! Replays: settled deliveries are found, oldest first, and queued again.

use std::ops::Bound;

use fjall::{Readable, Snapshot};

use super::database::engine_error;
use super::deliveries::DeliveryTable;
use super::transaction::Transaction;
use crate::domain::calendar::Timestamp;
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::store::records::{corrupt, deliveries as records, row_keys};
use crate::store::{SettledPage, SettledQuery, StoreError};

impl DeliveryTable {
    /// Settled deliveries of a link, oldest first.
    pub fn settled(&self, from: &Snapshot, query: &SettledQuery) -> Result<SettledPage, StoreError> {
        let (first, last) = row_keys::deliveries_between(query.link, query.from, query.until);
        // Later ones have the smaller keys, and the list goes on towards them.
        let after = query.after.map(|after| after.to_bytes().to_vec()).filter(|after| *after <= last);
        if first > last || after.as_ref().is_some_and(|after| first >= *after) {
            return Ok(SettledPage::default());
        }
        let range = (Bound::Included(first), after.map_or(Bound::Included(last), Bound::Excluded));
        // Failed deliveries have an index, so that a few of many are found at once.
        let is_failed = query.status == Some(DeliveryStatus::Failed);
        let keyspace = if is_failed { &self.failed } else { &self.deliveries };
        let rows = from.range(keyspace, range).rev();
        let mut page = SettledPage::default();
        for (number, row) in rows.enumerate() {
            if number == query.limit {
                return Ok(page);
            }
            let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
            let id = DeliveryId::from_bytes(&key).ok_or_else(|| corrupt(records::TABLE, &"not a delivery id"))?;
            page.next = Some(id);
            if is_failed || is_wanted(records::decode(&value)?.status, query.status) {
                page.found.push(id);
            }
        }
        page.next = None;
        Ok(page)
    }

    /// Queues settled deliveries again, each due at its time; returns how many.
    pub fn replay(
        &self,
        transaction: &mut Transaction<'_>,
        due_times: &[(DeliveryId, Timestamp)],
        at: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut sums = self.sums.changes();
        let mut queued = 0;
        for (id, due_at) in due_times {
            let state = self.read_if_sound(transaction, *id)?;
            let Some(mut state) = state.filter(|state| state.status != DeliveryStatus::Pending) else { continue };
            sums.count_replayed(transaction, *id, state.status)?;
            if state.status == DeliveryStatus::Failed {
                transaction.remove(&self.failed, id.to_bytes());
            }
            state.replay(state.round + 1, *due_at, at);
            self.write(transaction, *id, &state)?;
            queued += 1;
        }
        sums.write(transaction)?;
        Ok(queued)
    }
}

fn is_wanted(status: DeliveryStatus, wanted: Option<DeliveryStatus>) -> bool {
    wanted.map_or(status != DeliveryStatus::Pending, |wanted| wanted == status)
}
