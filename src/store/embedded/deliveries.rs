//! Deliveries of webhooks: their states, the queue by due time, and the removal of old ones.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use fjall::{Guard, Keyspace, Readable, Snapshot};

use super::database::{engine_error, log_removed_unread};
use super::delivery_sums::DeliverySumTable;
use super::engine::Engine;
use super::failure_runs::FailureRunTable;
use super::first_tries::{FirstTry, FirstTryTable};
use super::transaction::{RowReader, Transaction};
use super::usage::UsageTable;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, NewDelivery};
use crate::store::records::{corrupt, deliveries as records, row_keys};
use crate::store::transfer::Metric;
use crate::store::{DueDelivery, DuePlace, QuotaClaim, Settlement, StoreError, Suspension, TestClaim};

/// Rows that one step of the retention removes: keeps its transaction short.
const REMOVAL_STEP: usize = 2_000;
/// So many new deliveries of a link are looked for by one read of a range.
const MANY_OF_A_LINK: usize = 8;

/// Tables of a queue that are not merged: more of them slow down a read of its first rows.
const MOST_TABLES_OF_QUEUE: usize = 16;

/// Deliveries, the queue, and the index of failed ones.
#[derive(Clone)]
pub struct DeliveryTable {
    pub(super) deliveries: Keyspace,
    pub(super) failed: Keyspace,
    due: Keyspace,
    pub sums: DeliverySumTable,
    pub runs: FailureRunTable,
    pub first_tries: FirstTryTable,
    usage: UsageTable,
}

impl DeliveryTable {
    pub fn new(engine: &Engine, usage: &UsageTable) -> Self {
        Self {
            deliveries: engine.keyspaces.deliveries.clone(),
            failed: engine.keyspaces.failed.clone(),
            due: engine.keyspaces.due.clone(),
            sums: DeliverySumTable::new(engine),
            runs: FailureRunTable::new(engine),
            first_tries: FirstTryTable::new(engine),
            usage: usage.clone(),
        }
    }

    /// Adds new deliveries; returns whether they are in the queue, and not kept for their first try.
    pub fn add(&self, transaction: &mut Transaction<'_>, deliveries: &[NewDelivery]) -> Result<bool, StoreError> {
        let (mut sums, mut new) = (self.sums.changes(), Vec::with_capacity(deliveries.len()));
        let without_rows = self.links_without_rows(transaction, deliveries)?;
        for delivery in deliveries {
            let id = delivery.id;
            // One that exists already stays as it is.
            let is_new = self.first_tries.get(transaction, id).is_none()
                && (without_rows.contains(&id.link) || !self.has_row(transaction, id)?);
            if is_new {
                sums.add_pending(transaction, id)?;
                new.push(*delivery);
            }
        }
        sums.write(transaction)?;
        if self.first_tries.add(transaction, &new)? {
            return Ok(false);
        }
        for delivery in new {
            self.write(transaction, delivery.id, &delivery.state())?;
        }
        Ok(true)
    }

    /// The links that have many of these deliveries, and no rows of deliveries of that time.
    fn links_without_rows(
        &self,
        transaction: &Transaction<'_>,
        deliveries: &[NewDelivery],
    ) -> Result<HashSet<ShortId>, StoreError> {
        let mut of_links: HashMap<ShortId, (usize, [u8; 32], [u8; 32])> = HashMap::new();
        for NewDelivery { id, .. } in deliveries {
            let key = id.to_bytes();
            let (count, first, last) = of_links.entry(id.link).or_insert((0, key, key));
            (*count, *first, *last) = (*count + 1, key.min(*first), key.max(*last));
        }
        let mut without_rows = HashSet::new();
        for (link, (_, first, last)) in of_links.into_iter().filter(|(_, (count, ..))| *count >= MANY_OF_A_LINK) {
            if transaction.range(&self.deliveries, first.to_vec()..=last.to_vec(), 1)?.is_empty() {
                without_rows.insert(link);
            }
        }
        Ok(without_rows)
    }

    /// Puts deliveries that are kept for their first try into the queue; returns when the first of them is due.
    pub fn queue_first_tries(
        &self,
        transaction: &mut Transaction<'_>,
        ids: &[DeliveryId],
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut earliest = None;
        for id in ids {
            let Some(first) = self.first_tries.get(transaction, *id) else { continue };
            let state = first.state();
            self.write(transaction, *id, &state)?;
            self.first_tries.end(transaction, first);
            earliest = earliest.into_iter().chain(state.next_attempt_at).min();
        }
        Ok(earliest)
    }

    /// Puts the deliveries that an earlier process has kept for their first try into the queue.
    pub fn queue_left(&self, engine: &Engine) -> Result<(), StoreError> {
        loop {
            let mut transaction = Transaction::begin(engine);
            let Some(left) = self.first_tries.left(&transaction)? else { return Ok(()) };
            for (delivery, counted) in &left.deliveries {
                // One that has a row was settled, or put into the queue.
                if !self.has_row(&transaction, delivery.id)? {
                    let state = DeliveryState { counted: *counted, ..delivery.state() };
                    self.write(&mut transaction, delivery.id, &state)?;
                }
            }
            self.first_tries.remove(&mut transaction, left);
            transaction.commit()?;
        }
    }

    /// The states of those deliveries that are kept for their first try.
    pub fn states_in_memory(&self, ids: &[DeliveryId]) -> Vec<Option<DeliveryState>> {
        ids.iter().map(|id| self.first_tries.kept.state(*id)).collect()
    }

    /// Merges the tables of the queues if there are many. Keys of queues only grow, so a table of removed rows overlaps no other, and
    /// the engine never merges it by itself. Other merges of a queue wait meanwhile: it has few rows besides the removed ones.
    pub fn merge_queues(&self) {
        let has_many = |queue: &&Keyspace| queue.table_count() > MOST_TABLES_OF_QUEUE;
        for queue in [&self.due, &self.first_tries.rows].into_iter().filter(has_many) {
            if let Err(error) = queue.major_compact() {
                tracing::warn!(%error, "store: can't merge the tables of a queue of deliveries");
            }
        }
    }

    /// Pending deliveries due at `now` or before, by due time, after `after`.
    pub fn due(
        &self,
        from: &Snapshot,
        now: Timestamp,
        after: Option<&DuePlace>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        let first = after.map_or_else(Vec::new, |after| [row_keys::due(after.due_at, after.id), vec![0]].concat());
        let end = now.0.saturating_add(1).to_be_bytes().to_vec();
        if first >= end {
            return Ok(Vec::new());
        }
        let parse = |row: Guard| {
            let (key, row) = row.into_inner().map_err(|e| engine_error(&e))?;
            let place = key
                .split_first_chunk::<8>()
                .and_then(|(due_at, id)| Some((Timestamp(u64::from_be_bytes(*due_at)), DeliveryId::from_bytes(id)?)));
            let (due_at, id) = place.ok_or_else(|| corrupt(records::DUE_TABLE, &"not a due time and a delivery"))?;
            let (revision, round) = records::decode_due(&row)?;
            Ok(DueDelivery { due_at, id, revision, round })
        };
        from.range(&self.due, first..end).take(limit).map(parse).collect()
    }

    /// The states of deliveries, of which some were in memory before `from` was taken.
    pub fn states(
        &self,
        from: &Snapshot,
        ids: &[DeliveryId],
        in_memory: Vec<Option<DeliveryState>>,
    ) -> Result<Vec<Option<DeliveryState>>, StoreError> {
        let state = |(id, in_memory): (&DeliveryId, Option<DeliveryState>)| match in_memory {
            Some(state) => Ok(Some(state)),
            None => self.read_if_sound(from, *id),
        };
        ids.iter().zip(in_memory).map(state).collect()
    }

    pub fn claim_quota(
        &self,
        transaction: &mut Transaction<'_>,
        claims: &[QuotaClaim],
    ) -> Result<Vec<bool>, StoreError> {
        let (mut granted, mut counted) = (Vec::with_capacity(claims.len()), Vec::new());
        let mut counts: HashMap<(KeyId, Month), (u64, bool)> = HashMap::new();
        for claim in claims {
            let (first, state) = self.current(transaction, claim.id)?;
            let Some(mut state) = state.filter(|state| state.round == claim.round) else {
                granted.push(false);
                continue;
            };
            let (used, changed) = match counts.entry((state.owner, claim.month)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unread) => {
                    let used = self.usage.used(transaction, state.owner, claim.month, Metric::WebhookDeliveries)?;
                    unread.insert((used, false))
                }
            };
            if !state.counted && claim.limit.is_none_or(|limit| *used < limit) {
                state.counted = true;
                (*used, *changed) = (*used + 1, true);
                if let Some(first) = first {
                    FirstTryTable::count(transaction, first);
                    counted.push(first);
                } else {
                    transaction.insert(&self.deliveries, claim.id.to_bytes(), records::encode(&state)?)?;
                }
            }
            granted.push(state.counted);
        }
        for ((owner, month), (used, changed)) in counts {
            if changed {
                self.usage.set(transaction, owner, month, Metric::WebhookDeliveries, used)?;
            }
        }
        self.first_tries.write_counted(transaction, &counted)?;
        Ok(granted)
    }

    /// Counts tests of webhooks; returns how many the quota admits.
    pub fn claim_tests(&self, transaction: &mut Transaction<'_>, claim: &TestClaim) -> Result<u64, StoreError> {
        let TestClaim { owner, month, limit, count } = *claim;
        let used = self.usage.used(transaction, owner, month, Metric::WebhookDeliveries)?;
        let granted = limit.map_or(count, |limit| count.min(limit.saturating_sub(used)));
        if granted > 0 {
            self.usage.set(transaction, owner, month, Metric::WebhookDeliveries, used + granted)?;
        }
        Ok(granted)
    }

    /// Writes outcomes of attempts; returns the suspensions that begin with them.
    pub fn settle(
        &self,
        transaction: &mut Transaction<'_>,
        settlements: &[Settlement],
    ) -> Result<Vec<Suspension>, StoreError> {
        let (mut sums, mut begun) = (self.sums.changes(), Vec::new());
        for settlement in settlements {
            let id = settlement.id;
            let awaited = |state: &DeliveryState| {
                let is_next =
                    if settlement.attempt == 0 { !state.counted } else { settlement.attempt == state.attempts + 1 };
                state.status == DeliveryStatus::Pending && settlement.round == state.round && is_next
            };
            let (first, state) = self.current(transaction, id)?;
            let Some(mut state) = state.filter(awaited) else { continue };
            if let Some(first) = first {
                self.first_tries.end(transaction, first);
            } else if let Some(due_at) = state.next_attempt_at {
                transaction.remove(&self.due, row_keys::due(due_at, id));
            }
            let attempts = state.attempts;
            state.settle(&settlement.outcome, settlement.at);
            self.write(transaction, id, &state)?;
            begun.extend(self.runs.note(transaction, settlement)?);
            if state.status != DeliveryStatus::Pending {
                sums.pending -= 1;
            }
            let sum = sums.of_day(transaction, id)?;
            sum.pending = sum.pending.saturating_sub(1);
            *sum.count_mut(state.status) += 1;
            sum.last_error.clone_from(&state.error);
            if state.attempts > attempts {
                sum.last_attempt_at = Some(settlement.at);
                sum.last_status = state.response_status;
            }
        }
        sums.write(transaction).map(|()| begun)
    }

    /// Removes deliveries of hits before a day, some at a time; `false` when none is left.
    pub fn remove_before(&self, transaction: &mut Transaction<'_>, before: Day) -> Result<bool, StoreError> {
        // Deliveries that are kept for their first try have no row of their own yet: they get one, to be removed with it.
        let of_row = self.first_tries.kept.ids_of_rows_before(before);
        self.queue_first_tries(transaction, &of_row)?;
        let expired = self.sums.days_before(transaction, before, REMOVAL_STEP)?;
        let found_some = !expired.is_empty();
        let mut left = REMOVAL_STEP;
        for day in expired {
            let removed = self.remove_day(transaction, day.link, day.day, left)?;
            if removed == left {
                break;
            }
            self.runs.forget_until(transaction, day.link, day.day)?;
            self.sums.remove_day(transaction, day)?;
            // A day with few deliveries has a cost, too.
            left = left.saturating_sub(removed + 1);
            if left == 0 {
                break;
            }
        }
        Ok(found_some)
    }

    /// Removes up to `limit` deliveries of a link's day; returns how many. Fewer than `limit` were all of them.
    fn remove_day(
        &self,
        transaction: &mut Transaction<'_>,
        link: ShortId,
        day: Day,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let (first, last) = row_keys::deliveries_between(link, day.start(), Day(day.0 + 1).start());
        let rows = transaction.range(&self.deliveries, first..=last, limit)?;
        let removed = rows.len();
        let mut sums = self.sums.changes();
        for (key, value) in rows {
            let state = records::decode(&value).inspect_err(log_removed_unread).ok();
            let due_at = state.as_ref().and_then(|state| state.next_attempt_at);
            if let (Some(due_at), Some(id)) = (due_at, DeliveryId::from_bytes(&key)) {
                transaction.remove(&self.due, row_keys::due(due_at, id));
            }
            match state.map(|state| state.status) {
                Some(DeliveryStatus::Pending) => sums.pending -= 1,
                // One that can't be read may have failed.
                Some(DeliveryStatus::Failed) | None => transaction.remove(&self.failed, key.clone()),
                Some(DeliveryStatus::Delivered) => {}
            }
            transaction.remove(&self.deliveries, key);
        }
        sums.write(transaction)?;
        Ok(removed)
    }

    /// A delivery as this transaction has changed it, and what is kept of it if it waits for its first try.
    fn current(
        &self,
        transaction: &Transaction<'_>,
        id: DeliveryId,
    ) -> Result<(Option<FirstTry>, Option<DeliveryState>), StoreError> {
        match self.first_tries.get(transaction, id) {
            Some(first) => Ok((Some(first), Some(first.state()))),
            None => Ok((None, self.read_if_sound(transaction, id)?)),
        }
    }

    /// Whether a delivery has a row, readable or not.
    pub fn has_row(&self, from: &impl RowReader, id: DeliveryId) -> Result<bool, StoreError> {
        from.row(&self.deliveries, id.to_bytes()).map(|row| row.is_some())
    }

    pub fn read(&self, from: &impl RowReader, id: DeliveryId) -> Result<Option<DeliveryState>, StoreError> {
        let row = from.row(&self.deliveries, id.to_bytes())?;
        row.map(|row| records::decode(&row)).transpose()
    }

    /// Treats an unreadable row as missing: one such row must not block all other deliveries.
    pub(super) fn read_if_sound(
        &self,
        from: &impl RowReader,
        id: DeliveryId,
    ) -> Result<Option<DeliveryState>, StoreError> {
        self.read(from, id).or_else(|error| match error {
            StoreError::Corrupt { .. } => {
                tracing::error!(%error, delivery = %id, "skipped an unreadable webhook delivery");
                Ok(None)
            }
            error @ StoreError::Unavailable(_) => Err(error),
        })
    }

    pub(super) fn write(
        &self,
        transaction: &mut Transaction<'_>,
        id: DeliveryId,
        state: &DeliveryState,
    ) -> Result<(), StoreError> {
        if let Some(due_at) = state.next_attempt_at {
            transaction.insert(
                &self.due,
                row_keys::due(due_at, id),
                records::encode_due(state.revision, state.round),
            )?;
        }
        if state.status == DeliveryStatus::Failed {
            transaction.insert(&self.failed, id.to_bytes(), [])?;
        }
        transaction.insert(&self.deliveries, id.to_bytes(), records::encode(state)?)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::tables::EmbeddedTables;
    use super::*;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::link::Revision;

    #[test]
    fn removed_rows_of_a_queue_are_merged_away() {
        let directory = tempfile::tempdir().unwrap();
        let tables = EmbeddedTables::open(&directory.path().join("store")).0;
        let (table, due) = (&tables.deliveries, &tables.deliveries.due);
        for at in 0..=MOST_TABLES_OF_QUEUE as u64 {
            for row in [Some("row"), None] {
                let mut transaction = Transaction::begin(&tables.engine);
                match row {
                    Some(row) => transaction.insert(due, at.to_be_bytes(), row).unwrap(),
                    None => transaction.remove(due, at.to_be_bytes()),
                }
                transaction.commit().unwrap();
            }
            due.rotate_memtable_and_wait().unwrap();
        }
        assert!(due.table_count() > MOST_TABLES_OF_QUEUE);
        table.merge_queues();
        assert!(due.table_count() <= 1, "{} tables", due.table_count());
    }

    #[test]
    fn a_delivery_that_cannot_be_read_is_removed_with_the_others_of_its_day() {
        let directory = tempfile::tempdir().unwrap();
        let tables = EmbeddedTables::open(&directory.path().join("store")).0;
        let table = &tables.deliveries;
        let (link, day) = (ShortId::parse("aB3xYz9").unwrap(), Day(20_000));
        let hit = |n| HitStamp { id: HitId(Uuid::from_u128(n)), at: day.start() };
        let id = |n| DeliveryId { link, hit: hit(n), url_index: 0 };
        let mut transaction = Transaction::begin(&tables.engine);
        let state = DeliveryState::new(KeyId(Uuid::nil()), Revision::FIRST, day.start());
        table.write(&mut transaction, id(1), &state).unwrap();
        transaction.insert(&table.deliveries, id(2).to_bytes(), [u8::MAX; 9]).unwrap();
        transaction.insert(&table.failed, id(2).to_bytes(), []).unwrap();
        assert_eq!(table.remove_day(&mut transaction, link, day, 10).unwrap(), 2);
        transaction.commit().unwrap();
        assert!([&table.deliveries, &table.failed, &table.due].iter().all(|rows| rows.is_empty().unwrap()));
    }
}
