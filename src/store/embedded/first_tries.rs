//! New deliveries that are kept in memory for their first try, and so have no rows in the queue.
//!
//! Nearly all deliveries succeed at their first try, soon after their hit. Such a one is written once, with its outcome.
//! Until then it is in a row with others of its batch, so that it outlives the process; what the quota has counted of
//! them is in rows beside it. Whoever opens the store puts those that are left into the queue. A row goes with the last
//! of its deliveries that ends here: it is settled, or put into the queue.
//!
//! What is in memory changes with the commit of the transaction that changes the rows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use fjall::{Keyspace, Slice};
use foldhash::quality::RandomState;

use super::engine::Engine;
use super::transaction::Transaction;
use crate::domain::calendar::Day;
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryState, NewDelivery};
use crate::locks::lock;
use crate::store::records::{first_tries as records, row_keys};
use crate::store::{DueDelivery, FirstTriesToQueue, StoreError};

/// Rows that are read at once when the store opens.
const ROWS_AT_ONCE: usize = 4_096;

/// A delivery in memory.
#[derive(Clone, Copy, Debug)]
pub struct FirstTry {
    delivery: NewDelivery,
    row: u64,
    /// Its place in the row.
    place: u8,
    is_counted: bool,
}

impl FirstTry {
    pub fn state(&self) -> DeliveryState {
        DeliveryState { counted: self.is_counted, ..self.delivery.state() }
    }
}

/// The deliveries in memory.
#[derive(Default)]
pub struct FirstTries(Mutex<KeptTries>);

#[derive(Default)]
struct KeptTries {
    /// How many may be kept; 0 while nobody takes them.
    room: usize,
    next_row: u64,
    rows: BTreeMap<u64, KeptRow>,
    tries: HashMap<DeliveryId, FirstTry, RandomState>,
    /// Those that nobody has taken yet.
    new: Vec<DueDelivery>,
}

/// A row, and the rows that tell what of it is counted.
#[derive(Clone, Copy)]
struct KeptRow {
    since: Instant,
    /// Its deliveries that are in memory.
    left: usize,
    claims: u16,
    /// The first day of the hits of all its deliveries.
    first_day: Day,
}

/// What a transaction changes.
#[derive(Default)]
pub struct FirstTryChanges {
    added: Vec<(u64, Vec<NewDelivery>)>,
    counted: HashSet<DeliveryId, RandomState>,
    ended: HashSet<DeliveryId, RandomState>,
    rows: HashMap<u64, KeptRow, RandomState>,
}

impl FirstTries {
    /// Keeps up to so many from now on.
    pub fn keep(&self, room: usize) {
        self.kept().room = room;
    }

    /// Those that came since the last call.
    pub fn take_new(&self) -> Vec<DueDelivery> {
        std::mem::take(&mut self.kept().new)
    }

    pub fn state(&self, id: DeliveryId) -> Option<DeliveryState> {
        self.kept().tries.get(&id).map(FirstTry::state)
    }

    pub fn of_link(&self, link: ShortId) -> Vec<(DeliveryId, DeliveryState)> {
        let of_link = |(id, first): (&DeliveryId, &FirstTry)| (id.link == link).then(|| (*id, first.state()));
        self.kept().tries.iter().filter_map(of_link).collect()
    }

    pub fn ids(&self, which: FirstTriesToQueue) -> Vec<DeliveryId> {
        let kept = self.kept();
        match which {
            FirstTriesToQueue::These(ids) => ids.into_iter().filter(|id| kept.tries.contains_key(id)).collect(),
            FirstTriesToQueue::All => kept.tries.keys().copied().collect(),
            FirstTriesToQueue::OlderThan(age) => {
                let old = kept.rows.iter().take_while(|(_, row)| row.since.elapsed() >= age).last();
                let Some((last, _)) = old else { return Vec::new() };
                kept.tries.iter().filter(|(_, first)| first.row <= *last).map(|(id, _)| *id).collect()
            }
        }
    }

    /// Those whose rows tell of hits before a day.
    pub fn ids_of_rows_before(&self, day: Day) -> Vec<DeliveryId> {
        let kept = self.kept();
        let is_before = |row: &u64| kept.rows.get(row).is_some_and(|row| row.first_day < day);
        kept.tries.iter().filter(|(_, first)| is_before(&first.row)).map(|(id, _)| *id).collect()
    }

    /// A transaction was committed.
    pub fn apply(&self, changes: FirstTryChanges) {
        let FirstTryChanges { added, counted, ended, rows } = changes;
        if added.is_empty() && counted.is_empty() && ended.is_empty() {
            return;
        }
        let kept = &mut *self.kept();
        for (row, deliveries) in added {
            let first_day = deliveries.iter().map(|delivery| delivery.id.hit.at.day()).min().unwrap_or(Day(0));
            kept.rows.insert(row, KeptRow { since: Instant::now(), left: deliveries.len(), claims: 0, first_day });
            for (place, delivery) in (0..).zip(deliveries) {
                kept.new.push(DueDelivery::first_of(&delivery));
                kept.tries.insert(delivery.id, FirstTry { delivery, row, place, is_counted: false });
            }
        }
        for id in counted {
            kept.tries.entry(id).and_modify(|first| first.is_counted = true);
        }
        for id in ended {
            kept.tries.remove(&id);
        }
        for (row, changed) in rows {
            if changed.left == 0 {
                kept.rows.remove(&row);
            } else {
                kept.rows.insert(row, changed);
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeptTries> {
        lock(&self.0)
    }
}

/// The rows of the deliveries in memory.
#[derive(Clone)]
pub struct FirstTryTable {
    pub(super) rows: Keyspace,
    pub kept: Arc<FirstTries>,
}

/// Deliveries that an earlier process left, and which of them the quota has counted.
pub struct LeftTries {
    pub deliveries: Vec<(NewDelivery, bool)>,
    row_keys: Vec<Slice>,
}

impl FirstTryTable {
    pub fn new(engine: &Engine) -> Self {
        Self { rows: engine.keyspaces.first_tries.clone(), kept: Arc::clone(&engine.first_tries) }
    }

    /// Keeps new deliveries, unless there is no room for all of them; returns whether it does.
    pub fn add(&self, transaction: &mut Transaction<'_>, deliveries: &[NewDelivery]) -> Result<bool, StoreError> {
        let chunks = deliveries.chunks(records::IN_ROW);
        let first_row = {
            let kept = &mut *self.kept.kept();
            if kept.tries.len() + deliveries.len() > kept.room {
                return Ok(false);
            }
            let first_row = kept.next_row;
            kept.next_row += chunks.len() as u64;
            first_row
        };
        for (row, chunk) in (first_row..).zip(chunks) {
            transaction.insert(&self.rows, row_keys::first_tries(row), records::encode(chunk)?)?;
            transaction.first_tries.added.push((row, chunk.to_vec()));
        }
        Ok(true)
    }

    /// A delivery in memory, as this transaction has changed it.
    pub fn get(&self, transaction: &Transaction<'_>, id: DeliveryId) -> Option<FirstTry> {
        let changes = &transaction.first_tries;
        let first = self.kept.kept().tries.get(&id).filter(|_| !changes.ended.contains(&id)).copied()?;
        Some(FirstTry { is_counted: first.is_counted || changes.counted.contains(&id), ..first })
    }

    /// The quota has counted a delivery; [`write_counted`](Self::write_counted) must follow.
    pub fn count(transaction: &mut Transaction<'_>, first: FirstTry) {
        transaction.first_tries.counted.insert(first.delivery.id);
    }

    /// Writes that the quota has counted these deliveries.
    pub fn write_counted(&self, transaction: &mut Transaction<'_>, counted: &[FirstTry]) -> Result<(), StoreError> {
        let mut places: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for first in counted {
            places.entry(first.row).or_default().push(first.place);
        }
        for (number, places) in places {
            let Some(mut row) = self.row(transaction, number) else { continue };
            let row_key = row_keys::counted_first_tries(number, row.claims);
            row.claims += 1;
            transaction.first_tries.rows.insert(number, row);
            transaction.insert(&self.rows, row_key, records::encode_counted(&places))?;
        }
        Ok(())
    }

    /// A delivery has a row of its own from now on.
    pub fn end(&self, transaction: &mut Transaction<'_>, first: FirstTry) {
        let Some(mut row) = self.row(transaction, first.row) else { return };
        row.left = row.left.saturating_sub(1);
        let changes = &mut transaction.first_tries;
        changes.ended.insert(first.delivery.id);
        changes.rows.insert(first.row, row);
        if row.left == 0 {
            transaction.remove(&self.rows, row_keys::first_tries(first.row));
            for claim in 0..row.claims {
                transaction.remove(&self.rows, row_keys::counted_first_tries(first.row, claim));
            }
        }
    }

    fn row(&self, transaction: &Transaction<'_>, number: u64) -> Option<KeptRow> {
        let changed = transaction.first_tries.rows.get(&number).copied();
        changed.or_else(|| self.kept.kept().rows.get(&number).copied())
    }

    /// Some of the deliveries that an earlier process left; `None` if there are none.
    pub fn left(&self, transaction: &Transaction<'_>) -> Result<Option<LeftTries>, StoreError> {
        let rows = transaction.range(&self.rows, .., ROWS_AT_ONCE)?;
        let number_of = |row_key: &Slice| row_key.first_chunk::<8>().copied();
        // The last ones may have more that were not read.
        let last = rows.last().and_then(|(row_key, _)| number_of(row_key)).filter(|_| rows.len() == ROWS_AT_ONCE);
        let mut left = LeftTries { deliveries: Vec::new(), row_keys: Vec::new() };
        for rows in rows.chunk_by(|(a, _), (b, _)| number_of(a) == number_of(b)) {
            if last.is_some() && number_of(&rows[0].0) == last {
                break;
            }
            left.row_keys.extend(rows.iter().map(|(row_key, _)| row_key.clone()));
            // An unreadable row must not stop all others.
            match read(rows) {
                Ok(deliveries) => left.deliveries.extend(deliveries),
                Err(error) => tracing::error!(%error, "skipped unreadable webhook deliveries"),
            }
        }
        Ok((!left.row_keys.is_empty()).then_some(left))
    }

    /// Removes the rows of deliveries that have rows of their own now.
    pub fn remove(&self, transaction: &mut Transaction<'_>, left: LeftTries) {
        for row_key in left.row_keys {
            transaction.remove(&self.rows, row_key);
        }
    }
}

/// Reads a row and those that tell what of it is counted.
fn read(rows: &[(Slice, Slice)]) -> Result<Vec<(NewDelivery, bool)>, StoreError> {
    let Some(((_, row), claims)) = rows.split_first() else { return Ok(Vec::new()) };
    let mut counted = HashSet::new();
    for (_, claim) in claims {
        counted.extend(records::decode_counted(claim)?);
    }
    let deliveries = records::decode(row)?.into_iter().zip(0..);
    Ok(deliveries.map(|(delivery, place)| (delivery, counted.contains(&place))).collect())
}
