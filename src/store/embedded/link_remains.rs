//! What is left of deleted links: their counts, until they are removed in the background.
//!
//! Hits of a link may be counted after its deletion, from a journal that was not read until then. So its counts are removed
//! twice: soon, and once no hit of it can be in a journal any more.

use fjall::Keyspace;

use super::counts::CountTable;
use super::database::log_removed_unread;
use super::days::DayTable;
use super::engine::Engine;
use super::link_revisions::{KEPT_MILLIS, LinkRevisionTable};
use super::sheets::SheetTable;
use super::transaction::Transaction;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::hit::HitSubject;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::corrupt;
use crate::store::records::row_keys::{self, LINK_DELETIONS};

/// Rows that one call removes.
const ROWS: usize = 1_000;
/// Deleted links that one call looks at.
const LINKS: usize = 100;

/// The content of a deletion's row: whether counts were removed before.
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// Counts of deleted links.
pub struct LinkRemains {
    times: Keyspace,
    counted: [Keyspace; 3],
    sheets: SheetTable,
    revisions: LinkRevisionTable,
}

/// Notes a deletion in `link_times`.
pub fn note_deletion(
    transaction: &mut Transaction<'_>,
    times: &Keyspace,
    id: ShortId,
    at: Timestamp,
) -> Result<(), StoreError> {
    transaction.insert(times, row_keys::link_at(LINK_DELETIONS, at, id), [FIRST])
}

impl LinkRemains {
    pub fn new(engine: &Engine, counts: &CountTable) -> Self {
        let keyspaces = &engine.keyspaces;
        Self {
            times: keyspaces.link_times.clone(),
            counted: [&keyspaces.counts, &keyspaces.days, &keyspaces.labels].map(Keyspace::clone),
            sheets: counts.sheets.clone(),
            revisions: LinkRevisionTable::new(engine),
        }
    }

    /// Notes that a link was deleted in the store that is imported.
    pub fn put(&self, transaction: &mut Transaction<'_>, id: ShortId, at: Timestamp) -> Result<(), StoreError> {
        note_deletion(transaction, &self.times, id, at)
    }

    /// Removes some counts of links that were deleted before `before`, and old revisions; `false` when none is left.
    pub fn remove(&self, transaction: &mut Transaction<'_>, before: Timestamp) -> Result<bool, StoreError> {
        let deleted = row_keys::links_before(LINK_DELETIONS, before);
        let deleted = transaction.range(&self.times, deleted, LINKS)?;
        if deleted.is_empty() {
            return self.revisions.remove_old(transaction, before);
        }
        let mut left = ROWS;
        for (row_key, value) in deleted {
            let (at, id, _) = row_keys::link_at_of(&row_key)?;
            left -= self.remove_rows(transaction, id, left)?;
            if left == 0 {
                break;
            }
            transaction.remove(&self.times, row_key);
            match &value[..] {
                [FIRST] => {
                    let again = Timestamp(at.0.saturating_add(KEPT_MILLIS));
                    transaction.insert(&self.times, row_keys::link_at(LINK_DELETIONS, again, id), [LAST])?;
                }
                [LAST] => {}
                _ => return Err(corrupt("link_times", &"not a deletion")),
            }
        }
        Ok(true)
    }

    /// Removes at most `limit` rows of a link, and the sheets of their days; returns how many it has removed.
    fn remove_rows(&self, transaction: &mut Transaction<'_>, id: ShortId, limit: usize) -> Result<usize, StoreError> {
        let mut removed = 0;
        let of = HitSubject::Link(id);
        for keyspace in &self.counted {
            for (row_key, row) in transaction.range(keyspace, row_keys::of_link(id), limit - removed)? {
                for day in self.days_in(keyspace, of, &row_key, &row) {
                    self.sheets.remove_day(transaction, of, day)?;
                }
                transaction.remove(keyspace, row_key);
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The days of a row of counts.
    fn days_in(&self, keyspace: &Keyspace, of: HitSubject, key: &[u8], row: &[u8]) -> Vec<Day> {
        let [counts, days, _] = &self.counted;
        let in_row = if keyspace == counts {
            CountTable::read(of, row).map(|(counts, ..)| counts.iter().map(|count| count.day).collect())
        } else if keyspace == days {
            DayTable::read(key, row).map(|day| vec![day.day])
        } else {
            Ok(Vec::new())
        };
        // Other rows are to be removed all the same. Sheets of days go by their age, too.
        in_row.inspect_err(log_removed_unread).unwrap_or_default()
    }
}
