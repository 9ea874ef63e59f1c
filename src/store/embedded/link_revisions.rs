//! Links as they were before a change, for the deliveries of hits that met them.

use fjall::Keyspace;

use super::engine::Engine;
use super::overflow;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Timestamp;
use crate::domain::link::{Link, Revision, ShortId};
use crate::store::records::{corrupt, links as records, row_keys};
use crate::store::{MAX_REVISIONS, REVISIONS_KEPT_DAYS, StoreError};

const TABLE: &str = "link_revisions";
/// How many revisions one write removes.
const REMOVED_AT_ONCE: usize = 100;

/// For how long revisions are kept, in milliseconds.
pub const KEPT_MILLIS: u64 = REVISIONS_KEPT_DAYS as u64 * 86_400_000;

/// Earlier revisions, by link and revision.
#[derive(Clone)]
pub struct LinkRevisionTable {
    revisions: Keyspace,
    times: Keyspace,
}

impl LinkRevisionTable {
    pub fn new(engine: &Engine) -> Self {
        Self { revisions: engine.keyspaces.link_revisions.clone(), times: engine.keyspaces.link_times.clone() }
    }

    pub fn get(&self, from: &impl RowReader, id: ShortId, revision: Revision) -> Result<Option<Link>, StoreError> {
        let value = overflow::get(TABLE, from, &self.revisions, &row_keys::revision(id, revision))?;
        value.map(|value| records::decode(&value)).transpose()
    }

    /// Whether one more revision of a link may be kept.
    pub fn has_room(&self, transaction: &Transaction<'_>, id: ShortId, now: Timestamp) -> Result<bool, StoreError> {
        let mut recent = 0;
        for (_, value) in transaction.range(&self.times, row_keys::revision_times(id), usize::MAX)? {
            recent += u64::from(read_time(&value)?.0.saturating_add(KEPT_MILLIS) > now.0);
        }
        Ok(recent < MAX_REVISIONS)
    }

    /// Keeps a revision that is replaced at this time.
    pub fn put(
        &self,
        transaction: &mut Transaction<'_>,
        link: &Link,
        replaced_at: Timestamp,
    ) -> Result<(), StoreError> {
        overflow::insert(
            transaction,
            &self.revisions,
            &row_keys::revision(link.id, link.revision),
            &records::encode(link)?,
        )?;
        let time = row_keys::revision_time(link.id, link.revision);
        transaction.insert(&self.times, time, replaced_at.0.to_be_bytes())?;
        transaction.insert(&self.times, row_keys::replacement(replaced_at, link.id, link.revision), [])
    }

    /// When a kept revision was replaced.
    pub fn replaced_at(&self, from: &impl RowReader, link: &Link) -> Result<Option<Timestamp>, StoreError> {
        let row = from.row(&self.times, row_keys::revision_time(link.id, link.revision))?;
        row.map(|row| read_time(&row)).transpose()
    }

    /// Removes revisions that were replaced too long before `now`, some at a time; `false` when there is none.
    pub fn remove_old(&self, transaction: &mut Transaction<'_>, now: Timestamp) -> Result<bool, StoreError> {
        let kept_from = Timestamp(now.0.saturating_sub(KEPT_MILLIS));
        let old = row_keys::links_before(row_keys::REPLACEMENTS, kept_from);
        let old = transaction.range(&self.times, old, REMOVED_AT_ONCE)?;
        for (row_key, _) in &old {
            let (_, id, revision) = row_keys::link_at_of(row_key)?;
            let revision = row_keys::revision_of(revision)?;
            overflow::remove(TABLE, transaction, &self.revisions, &row_keys::revision(id, revision))?;
            transaction.remove(&self.times, row_keys::revision_time(id, revision));
            transaction.remove(&self.times, row_key.clone());
        }
        Ok(!old.is_empty())
    }

    /// The link in a first row of a revision, whose other rows are read from `from`; `None` for another row.
    pub fn read(&self, from: &impl RowReader, row_key: &[u8]) -> Result<Option<(Link, Timestamp)>, StoreError> {
        let Some((id, revision)) = row_key.split_at_checked(ShortId::LENGTH) else { return Ok(None) };
        // A longer key is that of an overflow row.
        let Ok(revision) = row_keys::revision_of(revision) else { return Ok(None) };
        let Some(link) = self.get(from, row_keys::short_id(id)?, revision)? else { return Ok(None) };
        let replaced_at = self.replaced_at(from, &link)?;
        let replaced_at = replaced_at.ok_or_else(|| corrupt(TABLE, &"a revision without a time"))?;
        Ok(Some((link, replaced_at)))
    }
}

fn read_time(value: &[u8]) -> Result<Timestamp, StoreError> {
    let time = value.try_into().map_err(|_| corrupt(TABLE, &"not a time"))?;
    Ok(Timestamp(u64::from_be_bytes(time)))
}
