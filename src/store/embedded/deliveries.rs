//! Deliveries of webhooks: their states, the queue by due time, sums by day, and how old ones go.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use fjall::{Guard, Readable, Snapshot};

use super::engine::{Engine, engine_error};
use super::links;
use super::transaction::{Rows, Transaction};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, NewDelivery, UrlSummary};
use crate::store::records::{corrupt, counters, deliveries as records, row_keys};
use crate::store::transfer::Metric;
use crate::store::{DeliveryQuery, DueDelivery, QuotaClaim, Settlement, StoreError};

const DUE: &str = "due";
const FAILED: &str = "failed deliveries";
const PENDING: &str = "pending deliveries";

/// Rows that one step of the retention drops: keeps its transaction short.
const DROP_STEP: usize = 2_000;

fn read(engine: &Engine, from: &impl Rows, id: DeliveryId) -> Result<Option<DeliveryState>, StoreError> {
    let row = from.row(&engine.tables.deliveries, id.to_bytes())?;
    row.map(|row| records::decode(&row)).transpose()
}

/// A row that can't be read is as if it were not there: one such must not hold up all other deliveries.
fn read_if_sound(engine: &Engine, from: &impl Rows, id: DeliveryId) -> Result<Option<DeliveryState>, StoreError> {
    read(engine, from, id).or_else(|error| match error {
        StoreError::Corrupt { .. } => {
            tracing::error!(%error, delivery = %id, "skipped an unreadable webhook delivery");
            Ok(None)
        }
        error @ StoreError::Unavailable(_) => Err(error),
    })
}

fn write(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    id: DeliveryId,
    state: &DeliveryState,
) -> Result<(), StoreError> {
    if let Some(due_at) = state.next_attempt_at {
        transaction.insert(&engine.tables.due, row_keys::due(due_at, id), [])?;
    }
    if state.status == DeliveryStatus::Failed {
        transaction.insert(&engine.tables.failed, id.to_bytes(), [])?;
    }
    transaction.insert(&engine.tables.deliveries, id.to_bytes(), records::encode(state)?)
}

/// Changes of sums, gathered so that each row is read and written once for all deliveries of a write.
#[derive(Default)]
struct Sums {
    days: HashMap<Vec<u8>, UrlSummary>,
    /// What is added to the number of pending deliveries.
    pending: i64,
}

impl Sums {
    fn of_day(&mut self, engine: &Engine, from: &impl Rows, id: DeliveryId) -> Result<&mut UrlSummary, StoreError> {
        match self.days.entry(row_keys::delivery_day(id.link, id.url_index, id.hit.at.day())) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unread) => {
                let row = from.row(&engine.tables.delivery_days, unread.key())?;
                Ok(unread.insert(row.map(|row| records::decode_day(&row)).transpose()?.unwrap_or_default()))
            }
        }
    }

    fn write(self, engine: &Engine, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        for (key, sum) in self.days {
            transaction.insert(&engine.tables.delivery_days, key, records::encode_day(&sum)?)?;
        }
        if self.pending != 0 {
            let pending = pending(engine, transaction)?.saturating_add_signed(self.pending);
            transaction.insert(&engine.tables.meta, row_keys::PENDING_DELIVERIES, counters::encode([pending]))?;
        }
        Ok(())
    }
}

pub fn pending(engine: &Engine, from: &impl Rows) -> Result<u64, StoreError> {
    let row = from.row(&engine.tables.meta, row_keys::PENDING_DELIVERIES)?;
    counters::decode::<1>(PENDING, row.as_deref()).map(|[pending]| pending)
}

/// Puts deliveries into the queue; one that is there already stays as it is.
pub fn enqueue(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    deliveries: &[NewDelivery],
) -> Result<(), StoreError> {
    let mut sums = Sums::default();
    for delivery in deliveries {
        let id = delivery.id;
        if transaction.row(&engine.tables.deliveries, id.to_bytes())?.is_some() {
            continue;
        }
        let sum = sums.of_day(engine, transaction, id)?;
        if *sum == UrlSummary::default() {
            // The first of its day.
            transaction.insert(&engine.tables.delivery_days, row_keys::expiry(id.hit.at.day(), id.link), [])?;
        }
        sum.pending += 1;
        sums.pending += 1;
        write(engine, transaction, id, &DeliveryState::new(delivery.owner, id.hit.at))?;
    }
    sums.write(engine, transaction)
}

pub fn due(
    engine: &Engine,
    now: Timestamp,
    after: Option<&DueDelivery>,
    limit: usize,
) -> Result<Vec<DueDelivery>, StoreError> {
    let first = after.map_or_else(Vec::new, |after| [row_keys::due(after.due_at, after.id), vec![0]].concat());
    let end = now.0.saturating_add(1).to_be_bytes().to_vec();
    if first >= end {
        return Ok(Vec::new());
    }
    let snapshot = engine.database.snapshot();
    let parse = |row: Guard| {
        let key = row.key().map_err(|e| engine_error(&e))?;
        let parsed = key.split_first_chunk::<8>().and_then(|(due_at, id)| {
            Some(DueDelivery { due_at: Timestamp(u64::from_be_bytes(*due_at)), id: DeliveryId::from_bytes(id)? })
        });
        parsed.ok_or_else(|| corrupt(DUE, &"not a due time and a delivery"))
    };
    snapshot.range(&engine.tables.due, first..end).take(limit).map(parse).collect()
}

pub fn states(engine: &Engine, ids: &[DeliveryId]) -> Result<Vec<Option<DeliveryState>>, StoreError> {
    let snapshot = engine.database.snapshot();
    ids.iter().map(|id| read_if_sound(engine, &snapshot, *id)).collect()
}

pub fn claim_quota(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    claims: &[QuotaClaim],
) -> Result<Vec<bool>, StoreError> {
    let mut granted = Vec::with_capacity(claims.len());
    let mut counts: HashMap<(KeyId, Month), (u64, bool)> = HashMap::new();
    for claim in claims {
        let Some(mut state) = read_if_sound(engine, transaction, claim.id)? else {
            granted.push(false);
            continue;
        };
        let (used, changed) = match counts.entry((state.owner, claim.month)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unread) => {
                let used = links::used(engine, transaction, state.owner, claim.month, Metric::WebhookDeliveries)?;
                unread.insert((used, false))
            }
        };
        if !state.counted && claim.limit.is_none_or(|limit| *used < limit) {
            state.counted = true;
            (*used, *changed) = (*used + 1, true);
            transaction.insert(&engine.tables.deliveries, claim.id.to_bytes(), records::encode(&state)?)?;
        }
        granted.push(state.counted);
    }
    for ((owner, month), (used, changed)) in counts {
        if changed {
            links::set_used(engine, transaction, owner, month, Metric::WebhookDeliveries, used)?;
        }
    }
    Ok(granted)
}

pub fn settle(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    settlements: &[Settlement],
) -> Result<(), StoreError> {
    let mut sums = Sums::default();
    for settlement in settlements {
        let id = settlement.id;
        let awaited = |state: &DeliveryState| {
            let is_next =
                if settlement.attempt == 0 { !state.counted } else { settlement.attempt == state.attempts + 1 };
            state.status == DeliveryStatus::Pending && is_next
        };
        let Some(mut state) = read_if_sound(engine, transaction, id)?.filter(awaited) else { continue };
        if let Some(due_at) = state.next_attempt_at {
            transaction.remove(&engine.tables.due, row_keys::due(due_at, id));
        }
        let attempts = state.attempts;
        state.settle(&settlement.outcome, settlement.at);
        write(engine, transaction, id, &state)?;
        if state.status != DeliveryStatus::Pending {
            sums.pending -= 1;
        }
        let sum = sums.of_day(engine, transaction, id)?;
        sum.pending = sum.pending.saturating_sub(1);
        *sum.count_mut(state.status) += 1;
        sum.last_error.clone_from(&state.error);
        if state.attempts > attempts {
            sum.last_attempt_at = Some(settlement.at);
            sum.last_status = state.response_status;
        }
    }
    sums.write(engine, transaction)
}

pub fn summaries(engine: &Engine, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
    let snapshot = engine.database.snapshot();
    let mut sums: Vec<(u8, UrlSummary)> = Vec::new();
    for row in snapshot.range(&engine.tables.delivery_days, sums_since(link, since)) {
        let (_, url_index, sum) = day_sum(row)?;
        match sums.iter_mut().find(|(of, _)| *of == url_index) {
            Some((_, total)) => total.merge(sum),
            None => sums.push((url_index, sum)),
        }
    }
    Ok(sums)
}

/// The row keys of a link's hits in `[from, until)`, newest first.
fn key_range(link: ShortId, from: Timestamp, until: Timestamp) -> (Vec<u8>, Vec<u8>) {
    let bound = |time: u64| [link.0.as_slice(), &(!time).to_be_bytes()].concat();
    // Times are stored inverted: the later one is the smaller key.
    (bound(until.0.saturating_sub(1)), [bound(from.0), vec![0xff; 18]].concat())
}

pub fn list(engine: &Engine, query: &DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
    let snapshot = engine.database.snapshot();
    match query.status {
        Some(DeliveryStatus::Failed) => list_failed(engine, &snapshot, query),
        Some(DeliveryStatus::Pending) if query.after.is_none() => {
            // The newest are pending; behind the last one there is no need to look.
            let days = days_with(engine, &snapshot, query.link, query.since, DeliveryStatus::Pending)?;
            let pending = days.iter().map(|(_, pending)| usize::try_from(*pending).unwrap_or(usize::MAX));
            let limit = pending.fold(0, usize::saturating_add).min(query.limit);
            list_all(engine, &snapshot, &DeliveryQuery { limit, ..*query })
        }
        _ => list_all(engine, &snapshot, query),
    }
}

/// The rows of a link that a page may hold, in the order of the list.
fn page_range(query: &DeliveryQuery, from: Timestamp, until: Timestamp) -> (Vec<u8>, Vec<u8>) {
    let (first, last) = key_range(query.link, from, until);
    let after = query.after.map(|after| [after.to_bytes().as_slice(), &[0]].concat());
    (after.map_or(first.clone(), |after| after.max(first)), last)
}

/// Failed deliveries have an index: few of many are found at once.
fn list_failed(
    engine: &Engine,
    from: &Snapshot,
    query: &DeliveryQuery,
) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
    let (first, last) = page_range(query, query.since.start(), Timestamp(u64::MAX));
    if first > last {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for row in from.range(&engine.tables.failed, first..=last).take(query.limit) {
        let key = row.key().map_err(|e| engine_error(&e))?;
        let id = DeliveryId::from_bytes(&key).ok_or_else(|| corrupt(FAILED, &"not a delivery id"))?;
        let state = read(engine, from, id)?.ok_or_else(|| corrupt(FAILED, &"no such delivery"))?;
        found.push((id, state));
    }
    Ok(found)
}

/// All that have the status that is asked for, by looking at those of the days that have any.
fn list_all(
    engine: &Engine,
    from: &Snapshot,
    query: &DeliveryQuery,
) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
    let ranges = match query.status {
        None => vec![page_range(query, query.since.start(), Timestamp(u64::MAX))],
        Some(status) => {
            let days = days_with(engine, from, query.link, query.since, status)?;
            days.into_iter().rev().map(|(day, _)| page_range(query, day.start(), Day(day.0 + 1).start())).collect()
        }
    };
    let mut found = Vec::new();
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        for row in from.range(&engine.tables.deliveries, first..=last) {
            if found.len() == query.limit {
                return Ok(found);
            }
            let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
            let state = records::decode(&value)?;
            if query.status.is_none_or(|status| status == state.status) {
                let id = DeliveryId::from_bytes(&key).ok_or_else(|| corrupt(records::TABLE, &"not a delivery id"))?;
                found.push((id, state));
            }
        }
    }
    Ok(found)
}

/// The days that have deliveries of a status, oldest first, and how many.
fn days_with(
    engine: &Engine,
    from: &Snapshot,
    link: ShortId,
    since: Day,
    status: DeliveryStatus,
) -> Result<Vec<(Day, u64)>, StoreError> {
    let mut days: Vec<(Day, u64)> = Vec::new();
    for row in from.range(&engine.tables.delivery_days, sums_since(link, since)) {
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

fn sums_since(link: ShortId, since: Day) -> std::ops::RangeInclusive<Vec<u8>> {
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

pub fn drop_before(engine: &Engine, transaction: &mut Transaction<'_>, before: Day) -> Result<bool, StoreError> {
    let expired =
        transaction.range(&engine.tables.delivery_days, vec![0]..before.0.to_be_bytes().to_vec(), DROP_STEP)?;
    let found_some = !expired.is_empty();
    let mut room = DROP_STEP;
    for (expiry, _) in expired {
        let (day, link) = expiry
            .split_first_chunk::<4>()
            .and_then(|(day, link)| {
                Some((Day(u32::from_be_bytes(*day)), ShortId::parse(std::str::from_utf8(link).ok()?)?))
            })
            .ok_or_else(|| corrupt(records::DAYS_TABLE, &"not a day and a link"))?;
        let (dropped, all) = drop_day(engine, transaction, link, day, room)?;
        if !all {
            break;
        }
        transaction.remove(&engine.tables.delivery_days, expiry);
        // A link's day costs something even where little of it is left.
        room = room.saturating_sub(dropped + 1);
        if room == 0 {
            break;
        }
    }
    Ok(found_some)
}

/// Drops up to `limit` deliveries of a link's day, and with the last of them the day's sums. Answers how many, and
/// whether that were all.
fn drop_day(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    link: ShortId,
    day: Day,
    limit: usize,
) -> Result<(usize, bool), StoreError> {
    let (first, last) = key_range(link, day.start(), Day(day.0 + 1).start());
    let rows = transaction.range(&engine.tables.deliveries, first..=last, limit)?;
    let dropped = rows.len();
    let mut sums = Sums::default();
    for (key, value) in rows {
        let state = records::decode(&value)?;
        if let (Some(due_at), Some(id)) = (state.next_attempt_at, DeliveryId::from_bytes(&key)) {
            transaction.remove(&engine.tables.due, row_keys::due(due_at, id));
        }
        match state.status {
            DeliveryStatus::Pending => sums.pending -= 1,
            DeliveryStatus::Failed => transaction.remove(&engine.tables.failed, key.clone()),
            DeliveryStatus::Delivered => {}
        }
        transaction.remove(&engine.tables.deliveries, key);
    }
    sums.write(engine, transaction)?;
    if dropped == limit {
        return Ok((dropped, false));
    }
    let all_of_day = row_keys::delivery_day(link, 0, day)..=row_keys::delivery_day(link, u8::MAX, day);
    for (sum, _) in transaction.range(&engine.tables.delivery_days, all_of_day, usize::MAX)? {
        transaction.remove(&engine.tables.delivery_days, sum);
    }
    Ok((dropped, true))
}
