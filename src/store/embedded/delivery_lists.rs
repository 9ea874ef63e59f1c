//! Lists of a link's deliveries.

use fjall::{Readable, Snapshot};

use super::database::engine_error;
use super::deliveries::DeliveryTable;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus};
use crate::store::records::{corrupt, deliveries as records, row_keys};
use crate::store::{DeliveryQuery, StoreError};

const FAILED: &str = "failed deliveries";

/// One page of a list.
pub struct DeliveryListPage<'a> {
    pub table: &'a DeliveryTable,
    pub from: &'a Snapshot,
    pub query: DeliveryQuery,
}

impl DeliveryListPage<'_> {
    /// `in_memory` are those of the link that were kept for their first try before the rows are read.
    pub fn read(
        self,
        mut in_memory: Vec<(DeliveryId, DeliveryState)>,
    ) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        let DeliveryQuery { status, since, after, limit, .. } = self.query;
        if status.is_some_and(|status| status != DeliveryStatus::Pending) {
            in_memory.clear();
        }
        // `rows` reads the sums of the days from `since` on.
        in_memory.retain(|(id, _)| id.hit.at.day() >= since);
        let mut first_tries = Vec::new();
        for (id, state) in in_memory {
            if !self.table.has_row(self.from, id)? {
                first_tries.push((id, state));
            }
        }
        let mut found = self.rows(first_tries.len())?;
        first_tries.retain(|(id, _)| after.is_none_or(|after| id.to_bytes() > after.to_bytes()));
        if !first_tries.is_empty() {
            found.append(&mut first_tries);
            found.sort_unstable_by_key(|(id, _)| id.to_bytes());
            found.truncate(limit);
        }
        Ok(found)
    }

    /// Those that have rows; so many of the pending ones have none.
    fn rows(mut self, pending_in_memory: usize) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        match self.query.status {
            Some(DeliveryStatus::Failed) => self.failed(),
            Some(DeliveryStatus::Pending) if self.query.after.is_none() => {
                // The newest are pending: rows after the last pending one need not be read.
                let days = self.days_with(DeliveryStatus::Pending)?;
                let pending = days.iter().map(|(_, pending)| usize::try_from(*pending).unwrap_or(usize::MAX));
                let pending = pending.fold(0, usize::saturating_add).saturating_sub(pending_in_memory);
                self.query.limit = pending.min(self.query.limit);
                self.scanned()
            }
            _ => self.scanned(),
        }
    }

    /// Failed deliveries have an index, so that a few of many are found at once.
    fn failed(&self) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        let (first, last) = self.range(self.query.since.start(), Timestamp(u64::MAX));
        if first > last {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for row in self.from.range(&self.table.failed, first..=last).take(self.query.limit) {
            let key = row.key().map_err(|e| engine_error(&e))?;
            let id = DeliveryId::from_bytes(&key).ok_or_else(|| corrupt(FAILED, &"not a delivery id"))?;
            let state = self.table.read(self.from, id)?.ok_or_else(|| corrupt(FAILED, &"no such delivery"))?;
            found.push((id, state));
        }
        Ok(found)
    }

    /// All deliveries of the status, found by reading the days that have any.
    fn scanned(&self) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        let ranges = match self.query.status {
            None => vec![self.range(self.query.since.start(), Timestamp(u64::MAX))],
            Some(status) => {
                let days = self.days_with(status)?.into_iter().rev();
                days.map(|(day, _)| self.range(day.start(), Day(day.0 + 1).start())).collect()
            }
        };
        let mut found = Vec::new();
        for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
            for row in self.from.range(&self.table.deliveries, first..=last) {
                if found.len() == self.query.limit {
                    return Ok(found);
                }
                let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
                let state = records::decode(&value)?;
                if self.query.status.is_none_or(|status| status == state.status) {
                    let id = DeliveryId::from_bytes(&key);
                    found.push((id.ok_or_else(|| corrupt(records::TABLE, &"not a delivery id"))?, state));
                }
            }
        }
        Ok(found)
    }

    fn days_with(&self, status: DeliveryStatus) -> Result<Vec<(Day, u64)>, StoreError> {
        self.table.sums.days_with(self.from, self.query.link, self.query.since, status)
    }

    /// The first and last row keys of hits in `[from, until)` that the page may have.
    fn range(&self, from: Timestamp, until: Timestamp) -> (Vec<u8>, Vec<u8>) {
        let (first, last) = row_keys::deliveries_between(self.query.link, from, until);
        let after = self.query.after.map(|after| [after.to_bytes().as_slice(), &[0]].concat());
        (after.map_or(first.clone(), |after| after.max(first)), last)
    }
}
