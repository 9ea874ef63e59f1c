//! Links and what keys use in a month.

use super::engine::{Engine, engine_error};
use super::transaction::{Rows, Transaction};
use super::{overflow, overflow::Head};
use crate::domain::calendar::Month;
use crate::domain::key::KeyId;
use crate::domain::link::{Destination, Link, ShortId};
use crate::domain::quota::{MonthlyCounts, MonthlyLimit};
use crate::store::records::{counters, links as records, row_keys};
use crate::store::transfer::Metric;
use crate::store::{CreateLinkError, StoreError};

const USAGE: &str = "usage";

pub fn create(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    link: &Link,
    limit: MonthlyLimit,
) -> Result<Result<u64, CreateLinkError>, StoreError> {
    // The id of a new link is one that is known not to be there, nearly always.
    if !engine.known_links.lacks(link.id) && transaction.row(&engine.tables.links, link.id.0)?.is_some() {
        return Ok(Err(CreateLinkError::IdTaken));
    }
    let month = link.created_at.month();
    let current = used(engine, transaction, link.owner, month, Metric::LinksCreated)?;
    if let Some(limit) = limit
        && current >= limit
    {
        return Ok(Err(CreateLinkError::QuotaExceeded { limit, current }));
    }
    insert(engine, transaction, link)?;
    set_used(engine, transaction, link.owner, month, Metric::LinksCreated, current + 1)?;
    Ok(Ok(current + 1))
}

/// Writes a link's row, and has the link known.
pub fn insert(engine: &Engine, transaction: &mut Transaction<'_>, link: &Link) -> Result<(), StoreError> {
    let row = records::encode(link)?;
    transaction.makes_known(engine.known_links.insert(&Destination::from(link)));
    overflow::insert(transaction, &engine.tables.links, &link.id.0, &row)
}

/// What a redirect needs of the link of a row; `None` where that row is not all of it, or can't be read.
pub fn of_one_row(row: &[u8]) -> Option<Destination> {
    match overflow::head(records::TABLE, row) {
        Ok(Head::Inline(value)) => records::decode(value).ok().map(|link| Destination::from(&link)),
        _ => None,
    }
}

/// One look-up for all but the longest links.
pub fn get(engine: &Engine, id: ShortId) -> Result<Option<Link>, StoreError> {
    let Some(row) = engine.tables.links.get(id.0).map_err(|e| engine_error(&e))? else { return Ok(None) };
    match overflow::head(records::TABLE, &row)? {
        Head::Inline(value) => records::decode(value).map(Some),
        Head::First { .. } => {
            // A look-up outside a snapshot may see a link whose other rows are only being added.
            let value = overflow::get(records::TABLE, &engine.database.snapshot(), &engine.tables.links, &id.0)?;
            value.map(|value| records::decode(&value)).transpose()
        }
    }
}

pub fn monthly_counts(engine: &Engine, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError> {
    let snapshot = engine.database.snapshot();
    Ok(MonthlyCounts {
        links_created: used(engine, &snapshot, key, month, Metric::LinksCreated)?,
        hits_served: used(engine, &snapshot, key, month, Metric::HitsServed)?,
        webhook_deliveries: used(engine, &snapshot, key, month, Metric::WebhookDeliveries)?,
    })
}

pub fn used(engine: &Engine, from: &impl Rows, key: KeyId, month: Month, metric: Metric) -> Result<u64, StoreError> {
    let row = from.row(&engine.tables.usage, row_keys::usage(key, month, metric))?;
    counters::decode::<1>(USAGE, row.as_deref()).map(|[count]| count)
}

pub fn set_used(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    key: KeyId,
    month: Month,
    metric: Metric,
    count: u64,
) -> Result<(), StoreError> {
    transaction.insert(&engine.tables.usage, row_keys::usage(key, month, metric), counters::encode([count]))
}
