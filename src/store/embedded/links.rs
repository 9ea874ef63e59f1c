//! Links by id and by name.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use fjall::{Keyspace, Readable, Snapshot};

use super::database::engine_error;
use super::engine::Engine;
use super::failure_runs::forget_runs;
use super::known_links::KnownLinks;
use super::link_lists::{LinkListTable, ListedIds};
use super::link_names::LinkNameTable;
use super::link_remains::note_deletion;
use super::link_revisions::LinkRevisionTable;
use super::overflow::{self, FirstRow};
use super::snapshots::Snapshots;
use super::transaction::{RowReader, Transaction};
use super::usage::UsageTable;
use crate::domain::calendar::Timestamp;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::records::link_names::NameState;
use crate::store::records::row_keys::{self, LINK_EXPIRIES};
use crate::store::records::{corrupt, links as records};
use crate::store::transfer::Metric;
use crate::store::{
    CreateLinkError, ExpiredLink, LinkListPage, LinkListQuery, MadeLinks, NewLinks, StoreError, UpdateLinkError,
};
use crate::telemetry::log_limit::LogLimit;

/// Links, which are counted in their owner's month when they are created.
pub struct LinkTable {
    snapshots: Arc<Snapshots>,
    links: Keyspace,
    times: Keyspace,
    known: Arc<KnownLinks>,
    pub names: LinkNameTable,
    pub revisions: LinkRevisionTable,
    pub lists: LinkListTable,
    usage: UsageTable,
}

impl LinkTable {
    pub fn new(engine: &Engine, usage: &UsageTable) -> Self {
        Self {
            snapshots: Arc::clone(&engine.snapshots),
            links: engine.keyspaces.links.clone(),
            times: engine.keyspaces.link_times.clone(),
            known: Arc::clone(&engine.known_links),
            names: LinkNameTable::new(engine),
            revisions: LinkRevisionTable::new(engine),
            lists: LinkListTable::new(engine),
            usage: usage.clone(),
        }
    }

    pub fn create(
        &self,
        transaction: &mut Transaction<'_>,
        link: &Link,
        limit: MonthlyLimit,
    ) -> Result<Result<u64, CreateLinkError>, StoreError> {
        let month = link.created_at.month();
        let current = self.usage.used(transaction, link.owner, month, Metric::LinksCreated)?;
        if let Some(limit) = limit
            && current >= limit
        {
            return Ok(Err(CreateLinkError::QuotaExceeded { limit, current }));
        }
        if self.place(transaction, link, false)?.is_none() {
            return Ok(Err(CreateLinkError::NameTaken));
        }
        self.usage.set(transaction, link.owner, month, Metric::LinksCreated, current + 1)?;
        Ok(Ok(current + 1))
    }

    /// Creates links in order. One that is refused changes nothing.
    pub fn create_all(
        &self,
        transaction: &mut Transaction<'_>,
        new: &NewLinks,
        limit: MonthlyLimit,
    ) -> Result<MadeLinks, StoreError> {
        let Some(first) = new.links.first() else { return Ok(MadeLinks::default()) };
        let (owner, month) = (first.owner, first.created_at.month());
        let before = self.usage.used(transaction, owner, month, Metric::LinksCreated)?;
        let mut made = MadeLinks { links: Vec::with_capacity(new.links.len()), used: before };
        for (place, link) in new.links.iter().enumerate() {
            if let Some(limit) = limit
                && made.used >= limit
            {
                made.links.push(Err(CreateLinkError::QuotaExceeded { limit, current: made.used }));
                continue;
            }
            let id = self.place_with_spare(transaction, link, new.spare_ids_of(place), new.takes_kept_names)?;
            made.used += u64::from(id.is_some());
            made.links.push(id.ok_or(CreateLinkError::NameTaken));
        }
        if made.used > before {
            self.usage.set(transaction, owner, month, Metric::LinksCreated, made.used)?;
        }
        Ok(made)
    }

    /// As [`place`](Self::place), with one of `spare_ids` if the generated id was used before.
    fn place_with_spare(
        &self,
        transaction: &mut Transaction<'_>,
        link: &Link,
        spare_ids: &[ShortId],
        takes_kept_names: bool,
    ) -> Result<Option<ShortId>, StoreError> {
        if self.is_free(transaction, link.id)? {
            return self.place(transaction, link, takes_kept_names);
        }
        for id in spare_ids {
            if self.is_free(transaction, *id)? {
                return self.place(transaction, &Link { id: *id, ..link.clone() }, takes_kept_names);
            }
        }
        Ok(None)
    }

    /// Writes a new link if its name and its id are free. Returns the id that it has then.
    fn place(
        &self,
        transaction: &mut Transaction<'_>,
        link: &Link,
        takes_kept_names: bool,
    ) -> Result<Option<ShortId>, StoreError> {
        let Some((id, revision)) = self.settle(transaction, link, takes_kept_names)? else { return Ok(None) };
        if (id, revision) == (link.id, link.revision) {
            self.insert(transaction, link)?;
        } else {
            self.insert(transaction, &Link { id, revision, ..link.clone() })?;
        }
        Ok(Some(id))
    }

    /// The id and the first revision of a new link; `None` if its name or its generated id is taken.
    fn settle(
        &self,
        transaction: &Transaction<'_>,
        link: &Link,
        takes_kept_names: bool,
    ) -> Result<Option<(ShortId, Revision)>, StoreError> {
        let generated = |revision| Ok(self.is_free(transaction, link.id)?.then_some((link.id, revision)));
        let Some(slug) = link.slug else { return generated(Revision::FIRST) };
        if let Some(id) = slug.as_id()
            && self.is_free(transaction, id)?
        {
            return Ok(Some((id, Revision::FIRST)));
        }
        let state = if self.known.lacks(&slug) { None } else { self.names.get(transaction, &slug)? };
        match state {
            Some(NameState::Kept { owner, revision }) if owner == link.owner || takes_kept_names => {
                generated(revision.next())
            }
            // It is the id of a link.
            None if slug.as_id().is_some() => Ok(None),
            None => generated(Revision::FIRST),
            Some(NameState::Kept { .. } | NameState::Live(_) | NameState::Used) => Ok(None),
        }
    }

    /// Whether an id was never used, neither as an id nor as a name. The index of known links shows it for nearly every
    /// new id.
    fn is_free(&self, transaction: &Transaction<'_>, id: ShortId) -> Result<bool, StoreError> {
        let name = LinkName::from(id);
        Ok(self.known.lacks(&name)
            || transaction.row(&self.links, id.0)?.is_none() && self.names.get(transaction, &name)?.is_none())
    }

    /// Writes a new link, and adds it to the known links.
    pub fn insert(&self, transaction: &mut Transaction<'_>, link: &Link) -> Result<(), StoreError> {
        let (row, name) = (records::encode(link)?, link.name());
        if name != LinkName::from(link.id) {
            self.names.put(transaction, &name, NameState::Live(link.id))?;
        }
        self.put_expiry(transaction, link)?;
        self.lists.put(transaction, link)?;
        transaction.makes_known(self.known.insert(link));
        overflow::insert(transaction, &self.links, &link.id.0, &row)
    }

    fn put_expiry(&self, transaction: &mut Transaction<'_>, link: &Link) -> Result<(), StoreError> {
        let Some(expires_at) = link.options.expires_at else { return Ok(()) };
        let row_key = row_keys::link_at(LINK_EXPIRIES, expires_at, link.id);
        transaction.insert(&self.times, row_key, link.name().as_bytes())
    }

    /// Removes the rows of a link as it was before a change.
    fn remove(&self, transaction: &mut Transaction<'_>, link: &Link) -> Result<(), StoreError> {
        self.known.look_up(link);
        transaction.forgets(link.id);
        if let Some(expires_at) = link.options.expires_at {
            transaction.remove(&self.times, row_keys::link_at(LINK_EXPIRIES, expires_at, link.id));
        }
        overflow::remove(records::TABLE, transaction, &self.links, &link.id.0)
    }

    pub fn update(
        &self,
        transaction: &mut Transaction<'_>,
        link: &Link,
    ) -> Result<Result<(), UpdateLinkError>, StoreError> {
        let before = self.read(transaction, &link.id.0)?;
        let is_next = |before: &Link| (before.revision.next(), before.name()) == (link.revision, link.name());
        let Some(before) = before.filter(is_next) else { return Ok(Err(UpdateLinkError::Conflict)) };
        // For its time, also if the clock was set back since.
        let (has_webhooks, now) = (!before.webhooks.is_empty(), link.updated_at.max(before.updated_at));
        // The operator can always block a link.
        let has_limit = has_webhooks && before.block_reason == link.block_reason;
        if has_limit && !self.revisions.has_room(transaction, link.id, now)? {
            return Ok(Err(UpdateLinkError::TooManyRevisions));
        }
        let row = records::encode(link)?;
        if has_webhooks {
            self.revisions.put(transaction, &before, now)?;
        }
        self.remove(transaction, &before)?;
        forget_runs(transaction, &self.times, link.id)?;
        self.put_expiry(transaction, link)?;
        self.lists.change(transaction, &before, link)?;
        transaction.makes_known(self.known.insert(link));
        overflow::insert(transaction, &self.links, &link.id.0, &row).map(Ok)
    }

    /// Deletes a link at the time of its `updated_at`.
    pub fn delete(
        &self,
        transaction: &mut Transaction<'_>,
        link: &Link,
    ) -> Result<Result<(), UpdateLinkError>, StoreError> {
        let before = self.read(transaction, &link.id.0)?;
        let Some(before) = before.filter(|before| before.revision == link.revision) else {
            return Ok(Err(UpdateLinkError::Conflict));
        };
        let (name, owner, revision) = (before.name(), before.owner, before.revision);
        if !before.webhooks.is_empty() {
            self.revisions.put(transaction, &before, link.updated_at.max(before.updated_at))?;
        }
        self.remove(transaction, &before)?;
        forget_runs(transaction, &self.times, link.id)?;
        self.lists.remove(transaction, &before);
        self.names.put(transaction, &name, NameState::Kept { owner, revision })?;
        if name != LinkName::from(link.id) {
            self.names.put(transaction, &link.id.into(), NameState::Used)?;
        }
        note_deletion(transaction, &self.times, link.id, link.updated_at).map(Ok)
    }

    /// Writes a link of an import unless it is there. Returns `false` if another one has its id or its name.
    pub fn import(&self, transaction: &mut Transaction<'_>, link: &Link) -> Result<bool, StoreError> {
        let name = link.name();
        // Nearly all are new, and the index of known links shows it.
        let is_free = |name| self.known.lacks(name);
        if !is_free(&name) || !is_free(&link.id.into()) {
            if let Some(existing) = self.read(transaction, &link.id.0)? {
                return Ok(existing == *link);
            }
            let is_link = |name: &LinkName| name.as_id().is_some_and(|id| id != link.id);
            let names = [name, link.id.into()].map(|name| self.names.get(transaction, &name));
            for state in names {
                if state?.is_some() {
                    return Ok(false);
                }
            }
            if is_link(&name) && self.read(transaction, name.as_bytes())?.is_some() {
                return Ok(false);
            }
        }
        self.insert(transaction, link).map(|()| true)
    }

    /// Writes the state of a name of an import unless it is there. Returns `false` if it has another one.
    pub fn import_name(
        &self,
        transaction: &mut Transaction<'_>,
        name: &LinkName,
        state: NameState,
    ) -> Result<bool, StoreError> {
        if let Some(existing) = self.names.get(transaction, name)? {
            return Ok(existing == state);
        }
        if let Some(id) = name.as_id()
            && transaction.row(&self.links, id.0)?.is_some()
        {
            return Ok(false);
        }
        self.known.insert_name(name);
        self.names.put(transaction, name, state).map(|()| true)
    }

    /// One read of the file of links for all but the longest and those that are just being changed.
    pub fn get(&self, name: &LinkName) -> Result<Option<Link>, StoreError> {
        if let Some(link) = self.known.link(name) {
            return Ok(Some(link));
        }
        if let Some(id) = name.as_id()
            && let Some(link) = self.get_by_id(id)?
        {
            // A path that is the id of a link with another name leads nowhere.
            return Ok(Some(link).filter(|link| link.name() == *name));
        }
        match self.names.get_now(name)? {
            // It may have been deleted meanwhile.
            Some(NameState::Live(id)) => Ok(self.get_by_id(id)?.filter(|link| link.name() == *name)),
            _ => Ok(None),
        }
    }

    /// The link with this id, as it is now.
    pub fn get_by_id(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        let Some(row) = self.links.get(id.0).map_err(|e| engine_error(&e))? else { return Ok(None) };
        match overflow::first_row(records::TABLE, &row)? {
            FirstRow::Whole(value) => records::decode(value).map(Some),
            // Without a snapshot, a read could see a link whose other rows are still being written.
            FirstRow::Begin { .. } => self.read(&self.snapshots.take(), &id.0),
        }
    }

    /// The link as it was at a revision, if that is kept or current. One look-up for all but the longest links, if it is
    /// current.
    pub fn get_at(&self, id: ShortId, revision: Revision) -> Result<Option<Link>, StoreError> {
        if let Some(current) = self.get_by_id(id)?.filter(|link| link.revision == revision) {
            return Ok(Some(current));
        }
        // From one snapshot, in which a change is there with the revision before, or neither is: the look-up above may see rows of a commit
        // that no snapshot sees yet.
        let snapshot = self.snapshots.take();
        match self.read(&snapshot, &id.0)?.filter(|link| link.revision == revision) {
            Some(current) => Ok(Some(current)),
            None => self.revisions.get(&snapshot, id, revision),
        }
    }

    /// Reads the link at a row key.
    pub fn read(&self, from: &impl RowReader, key: &[u8]) -> Result<Option<Link>, StoreError> {
        let value = overflow::get(records::TABLE, from, &self.links, key)?;
        value.map(|value| records::decode(&value)).transpose()
    }

    /// A part of a list.
    pub fn list(&self, from: &Snapshot, query: &LinkListQuery) -> Result<LinkListPage, StoreError> {
        static UNREADABLE: LogLimit = LogLimit::new(Duration::from_mins(1));
        let ListedIds { ids, next } = self.lists.ids(from, query)?;
        let examined = ids.len();
        let mut links = Vec::with_capacity(examined);
        // A link may be newer than the snapshot, as a look-up by its name may be. A page has no one time: the next page is newer, too.
        let records = self.known.links(&ids);
        for (id, record) in ids.into_iter().zip(records) {
            match record.map_or_else(|| self.get_by_id(id), |link| Ok(Some(link))) {
                // Of tags and targets the index has only the hash.
                Ok(link) => links.extend(link.filter(|link| query.index.has(link))),
                // The other links are to be listed all the same.
                Err(error @ StoreError::Corrupt { .. }) => {
                    if let Some(rows) = UNREADABLE.admit() {
                        tracing::error!(%error, row = %id, rows, "store: a link can't be read, and is left out of lists");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(LinkListPage { links, examined, buckets: 0, next })
    }

    /// Links that expired before `before`, after `after`.
    pub fn expired(
        &self,
        from: &Snapshot,
        before: Timestamp,
        after: Option<ExpiredLink>,
        limit: usize,
    ) -> Result<Vec<ExpiredLink>, StoreError> {
        let all = row_keys::links_before(LINK_EXPIRIES, before);
        let first = after.map_or(Bound::Included(all.start), |after| {
            Bound::Excluded(row_keys::link_at(LINK_EXPIRIES, after.expires_at, after.id))
        });
        if matches!(&first, Bound::Excluded(first) if *first >= all.end) {
            return Ok(Vec::new());
        }
        let rows = from.range(&self.times, (first, Bound::Excluded(all.end))).take(limit);
        let expired = rows.map(|row| {
            let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
            let (expires_at, id, _) = row_keys::link_at_of(&key)?;
            let name = std::str::from_utf8(&value).ok().and_then(LinkName::of_form);
            Ok(ExpiredLink { expires_at, id, name: name.ok_or_else(|| corrupt("link_times", &"not a name"))? })
        });
        expired.collect()
    }

    /// The link in a row; `None` if it takes several rows or can't be read.
    pub fn link_in(row: &[u8]) -> Option<Link> {
        match overflow::first_row(records::TABLE, row) {
            Ok(FirstRow::Whole(value)) => records::decode(value).ok(),
            _ => None,
        }
    }
}
