//! Sums of deliveries by link, day and URL, the number of pending deliveries, and which links have deliveries on a day.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::RangeInclusive;

use fjall::{Guard, Keyspace, Readable, Slice, Snapshot};
use foldhash::quality::RandomState;

use super::database::engine_error;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Day;
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryStatus, UrlSummary};
use crate::store::StoreError;
use crate::store::records::{corrupt, counters, deliveries as records, row_keys};

const PENDING: &str = "pending deliveries";

/// The sums, and which links have deliveries on a day.
#[derive(Clone)]
pub struct DeliverySumTable {
    days: Keyspace,
    meta: Keyspace,
}

/// That a link has deliveries on a day.
pub struct DeliveryDay {
    row_key: Slice,
    pub link: ShortId,
    pub day: Day,
}

impl DeliverySumTable {
    pub fn new(engine: &Engine) -> Self {
        Self { days: engine.keyspaces.delivery_days.clone(), meta: engine.keyspaces.meta.clone() }
    }

    /// The number of pending deliveries.
    pub fn pending(&self, from: &impl RowReader) -> Result<u64, StoreError> {
        let row = from.row(&self.meta, row_keys::PENDING_DELIVERIES)?;
        counters::decode::<1>(PENDING, row.as_deref()).map(|[pending]| pending)
    }

    /// Begins to collect changes.
    pub fn changes(&self) -> SumChanges<'_> {
        SumChanges { table: self, days: HashMap::default(), pending: 0 }
    }

    pub fn summaries(&self, from: &Snapshot, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
        let mut sums: Vec<(u8, UrlSummary)> = Vec::new();
        for row in from.range(&self.days, sums_since(link, since)) {
            let (_, url_index, sum) = day_sum(row)?;
            match sums.iter_mut().find(|(of, _)| *of == url_index) {
                Some((_, total)) => total.merge(sum),
                None => sums.push((url_index, sum)),
            }
        }
        Ok(sums)
    }

    /// The days that have deliveries of a status, oldest first, and their number.
    pub fn days_with(
        &self,
        from: &Snapshot,
        link: ShortId,
        since: Day,
        status: DeliveryStatus,
    ) -> Result<Vec<(Day, u64)>, StoreError> {
        let mut days: Vec<(Day, u64)> = Vec::new();
        for row in from.range(&self.days, sums_since(link, since)) {
            let (day, _, mut sum) = day_sum(row)?;
            let count = *sum.count_mut(status);
            match days.last_mut() {
                Some((last, of_day)) if *last == day => *of_day += count,
                _ if count > 0 => days.push((day, count)),
                _ => {}
            }
        }
        Ok(days)
    }

    /// Days before `before` on which links have deliveries, oldest first.
    pub fn days_before(
        &self,
        transaction: &Transaction<'_>,
        before: Day,
        limit: usize,
    ) -> Result<Vec<DeliveryDay>, StoreError> {
        // A row of a sum begins with a short id, whose first byte is higher than that of any day.
        let rows = transaction.range(&self.days, vec![0]..before.0.to_be_bytes().to_vec(), limit)?;
        let parse = |(row_key, _): (Slice, Slice)| {
            let parts = row_key.split_first_chunk::<4>().and_then(|(day, link)| {
                Some((Day(u32::from_be_bytes(*day)), ShortId::parse(std::str::from_utf8(link).ok()?)?))
            });
            let (day, link) = parts.ok_or_else(|| corrupt(records::DAYS_TABLE, &"not a day and a link"))?;
            Ok(DeliveryDay { row_key, link, day })
        };
        rows.into_iter().map(parse).collect()
    }

    /// Removes the sums of a day whose deliveries are removed.
    pub fn remove_day(&self, transaction: &mut Transaction<'_>, day: DeliveryDay) -> Result<(), StoreError> {
        let DeliveryDay { row_key, link, day } = day;
        let all_of_day = row_keys::delivery_day(link, 0, day)..=row_keys::delivery_day(link, u8::MAX, day);
        for (sum, _) in transaction.range(&self.days, all_of_day, usize::MAX)? {
            transaction.remove(&self.days, sum);
        }
        transaction.remove(&self.days, row_key);
        Ok(())
    }
}

/// Changes of sums, collected so that each row is read and written once for all deliveries of a write.
pub struct SumChanges<'a> {
    table: &'a DeliverySumTable,
    days: HashMap<(ShortId, u8, Day), UrlSummary, RandomState>,
    /// What is added to the number of pending deliveries.
    pub pending: i64,
}

impl SumChanges<'_> {
    /// The sums that a delivery is in.
    pub fn of_day(&mut self, from: &impl RowReader, id: DeliveryId) -> Result<&mut UrlSummary, StoreError> {
        let of = (id.link, id.url_index, id.hit.at.day());
        match self.days.entry(of) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unread) => {
                let row = from.row(&self.table.days, row_keys::delivery_day(of.0, of.1, of.2))?;
                Ok(unread.insert(row.map(|row| records::decode_day(&row)).transpose()?.unwrap_or_default()))
            }
        }
    }

    /// Adds a new delivery.
    pub fn add_pending(&mut self, transaction: &mut Transaction<'_>, id: DeliveryId) -> Result<(), StoreError> {
        let days = &self.table.days;
        let sum = self.of_day(transaction, id)?;
        if *sum == UrlSummary::default() {
            // The first of its day.
            transaction.insert(days, row_keys::expiry(id.hit.at.day(), id.link), [])?;
        }
        sum.pending += 1;
        self.pending += 1;
        Ok(())
    }

    /// Counts a settled delivery as pending again.
    pub fn count_replayed(
        &mut self,
        from: &impl RowReader,
        id: DeliveryId,
        before: DeliveryStatus,
    ) -> Result<(), StoreError> {
        let sum = self.of_day(from, id)?;
        let settled = sum.count_mut(before);
        *settled = settled.saturating_sub(1);
        sum.pending += 1;
        self.pending += 1;
        Ok(())
    }

    pub fn write(self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        for ((link, url_index, day), sum) in self.days {
            let row_key = row_keys::delivery_day(link, url_index, day);
            transaction.insert(&self.table.days, row_key, records::encode_day(&sum)?)?;
        }
        if self.pending != 0 {
            let pending = self.table.pending(transaction)?.saturating_add_signed(self.pending);
            transaction.insert(&self.table.meta, row_keys::PENDING_DELIVERIES, counters::encode([pending]))?;
        }
        Ok(())
    }
}

fn sums_since(link: ShortId, since: Day) -> RangeInclusive<Vec<u8>> {
    row_keys::delivery_day(link, 0, since)..=row_keys::delivery_day(link, u8::MAX, Day(u32::MAX))
}

fn day_sum(row: Guard) -> Result<(Day, u8, UrlSummary), StoreError> {
    let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
    let parts = key.get(ShortId::LENGTH..).and_then(|rest| rest.split_first_chunk::<4>());
    let Some((day, &[url_index])) = parts else {
        return Err(corrupt(records::DAYS_TABLE, &"not a link, a day and a URL"));
    };
    Ok((Day(u32::from_be_bytes(*day)), url_index, records::decode_day(&value)?))
}
