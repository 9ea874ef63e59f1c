//! Links by short id.

use std::sync::Arc;

use fjall::{Database, Keyspace};

use super::database::engine_error;
use super::engine::Engine;
use super::known_links::KnownLinks;
use super::overflow::{self, FirstRow};
use super::transaction::{RowReader, Transaction};
use super::usage::UsageTable;
use crate::domain::link::{Destination, Link, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::records::links as records;
use crate::store::transfer::Metric;
use crate::store::{CreateLinkError, StoreError};

/// Links, which are counted in their owner's month when they are created.
pub struct LinkTable {
    database: Database,
    links: Keyspace,
    known: Arc<KnownLinks>,
    usage: UsageTable,
}

impl LinkTable {
    pub fn new(engine: &Engine, usage: &UsageTable) -> Self {
        Self {
            database: engine.database.clone(),
            links: engine.keyspaces.links.clone(),
            known: Arc::clone(&engine.known_links),
            usage: usage.clone(),
        }
    }

    pub fn create(
        &self,
        transaction: &mut Transaction<'_>,
        link: &Link,
        limit: MonthlyLimit,
    ) -> Result<Result<u64, CreateLinkError>, StoreError> {
        // The index of known links shows for nearly every new id that it is free.
        if !self.known.lacks(&link.name()) && transaction.row(&self.links, link.id.0)?.is_some() {
            return Ok(Err(CreateLinkError::NameTaken));
        }
        let month = link.created_at.month();
        let current = self.usage.used(transaction, link.owner, month, Metric::LinksCreated)?;
        if let Some(limit) = limit
            && current >= limit
        {
            return Ok(Err(CreateLinkError::QuotaExceeded { limit, current }));
        }
        self.insert(transaction, link)?;
        self.usage.set(transaction, link.owner, month, Metric::LinksCreated, current + 1)?;
        Ok(Ok(current + 1))
    }

    /// Writes a link, and adds it to the known links.
    pub fn insert(&self, transaction: &mut Transaction<'_>, link: &Link) -> Result<(), StoreError> {
        let row = records::encode(link)?;
        transaction.makes_known(self.known.insert(&Destination::from(link)));
        overflow::insert(transaction, &self.links, &link.id.0, &row)
    }

    /// Writes a link unless there is one with its id; returns that one then.
    pub fn insert_if_absent(&self, transaction: &mut Transaction<'_>, link: &Link) -> Result<Option<Link>, StoreError> {
        // Nearly all are new, and the index of known links shows it.
        let existing = if self.known.lacks(&link.name()) { None } else { self.read(transaction, &link.id.0)? };
        if existing.is_none() {
            self.insert(transaction, link)?;
        }
        Ok(existing)
    }

    /// One look-up for all but the longest links.
    pub fn get(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        let Some(row) = self.links.get(id.0).map_err(|e| engine_error(&e))? else { return Ok(None) };
        match overflow::first_row(records::TABLE, &row)? {
            FirstRow::Whole(value) => records::decode(value).map(Some),
            // Without a snapshot, a read could see a link whose other rows are still being written.
            FirstRow::Begin { .. } => self.read(&self.database.snapshot(), &id.0),
        }
    }

    /// Reads the link at a row key.
    pub fn read(&self, from: &impl RowReader, key: &[u8]) -> Result<Option<Link>, StoreError> {
        let value = overflow::get(records::TABLE, from, &self.links, key)?;
        value.map(|value| records::decode(&value)).transpose()
    }

    /// What a redirect needs of the link in a row; `None` if the link takes several rows or can't be read.
    pub fn destination_in(row: &[u8]) -> Option<Destination> {
        match overflow::first_row(records::TABLE, row) {
            Ok(FirstRow::Whole(value)) => records::decode(value).ok().map(|link| Destination::from(&link)),
            _ => None,
        }
    }
}
