//! Writes the indexes of lists. A row is written before its link says the same, and removed after the link does not say
//! it any more; the link's revision is the timestamp, so a removal takes away nothing newer.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::cluster::Cluster;
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::store::StoreError;
use crate::store::records::columns::{day as day_column, month as month_column, timestamp};
use crate::store::records::link_lists::{EVERYONE, TimeList, TimeListKind};

/// Parts of a bucket with the links of all keys, so that no partition takes all writes.
const PARTS_OF_EVERYONE: i8 = 16;
/// Buckets that are known to be noted.
const KNOWN_BUCKETS: usize = 10_000;

/// A list as the columns of its partition have it.
pub(super) type ListColumns = (i8, Uuid, Vec<u8>);

pub struct LinkListTables {
    pub(super) cluster: Arc<Cluster>,
    /// Buckets are never removed.
    noted: Mutex<HashSet<(TimeList, i32)>>,
}

/// A row of a list by time.
#[derive(Clone, Copy)]
pub(super) struct TimeRow {
    pub list: TimeList,
    pub at: Timestamp,
    pub id: ShortId,
}

impl LinkListTables {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), noted: Mutex::default() }
    }

    /// Adds a link to its lists.
    pub async fn put(&self, link: &Link) -> Result<(), StoreError> {
        self.put_times(link, TimeList::all_of(link)).await?;
        let Some(slug) = link.slug else { return Ok(()) };
        self.cluster.all([link.owner, EVERYONE], |owner| self.put_slug(owner, slug, link)).await
    }

    /// Adds a link to the lists that its change puts it in.
    pub async fn put_changed(&self, old: &Link, new: &Link) -> Result<(), StoreError> {
        let before: HashSet<TimeList> = TimeList::all_of(old).into_iter().collect();
        let added = TimeList::all_of(new).into_iter().filter(|list| !before.contains(list));
        self.put_times(new, added.collect()).await
    }

    /// Removes a link from the lists that it has left by a change.
    pub async fn drop_changed(&self, old: &Link, new: &Link) -> Result<(), StoreError> {
        let after: HashSet<TimeList> = TimeList::all_of(new).into_iter().collect();
        let left: Vec<TimeList> = TimeList::all_of(old).into_iter().filter(|list| !after.contains(list)).collect();
        self.drop_times(old, left).await
    }

    /// Removes a link that was deleted at this revision.
    pub async fn drop_all(&self, link: &Link) -> Result<(), StoreError> {
        self.drop_times(link, TimeList::all_of(link)).await?;
        let Some(slug) = link.slug else { return Ok(()) };
        let revision = i64::from(link.revision.0);
        self.cluster.all([link.owner, EVERYONE], |owner| self.drop_slug(owner, slug, link.id, revision)).await
    }

    async fn put_times(&self, link: &Link, lists: Vec<TimeList>) -> Result<(), StoreError> {
        let row = |list| TimeRow { list, at: link.created_at, id: link.id };
        self.cluster.all(lists.into_iter().map(row), |row| self.put_time(row, link.revision)).await
    }

    async fn put_time(&self, row: TimeRow, revision: Revision) -> Result<(), StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let (kind, owner, value) = columns_of(&row.list);
        let bucket = bucket_of(row.list.kind, row.at);
        if !self.noted().contains(&(row.list, bucket)) {
            cql.write(&statements.put_link_list_bucket, (kind, owner, &value, bucket)).await?;
            let mut noted = self.noted();
            if noted.len() >= KNOWN_BUCKETS {
                noted.clear();
            }
            noted.insert((row.list, bucket));
        }
        let revision = i64::from(revision.0);
        let part = part_of(&row.list, row.id);
        let values = (kind, owner, &value, bucket, part, timestamp(row.at), row.id.as_str(), revision, revision);
        Ok(cql.write(&statements.put_listed_link, values).await?)
    }

    async fn drop_times(&self, link: &Link, lists: Vec<TimeList>) -> Result<(), StoreError> {
        let row = |list| TimeRow { list, at: link.created_at, id: link.id };
        self.cluster.all(lists.into_iter().map(row), |row| self.drop_time(row, i64::from(link.revision.0))).await
    }

    /// Removes a row that was written at this revision or an earlier one.
    pub(super) async fn drop_time(&self, row: TimeRow, revision: i64) -> Result<(), StoreError> {
        let (kind, owner, value) = columns_of(&row.list);
        let (bucket, part) = (bucket_of(row.list.kind, row.at), part_of(&row.list, row.id));
        let values = (revision, kind, owner, value, bucket, part, timestamp(row.at), row.id.as_str());
        Ok(self.cluster.cql.write(&self.cluster.statements.drop_listed_link, values).await?)
    }

    async fn put_slug(&self, owner: KeyId, slug: LinkName, link: &Link) -> Result<(), StoreError> {
        let revision = i64::from(link.revision.0);
        let (name, id, at) = (slug.as_str(), link.id.as_str(), timestamp(link.created_at));
        let values = (owner.0, first_two(name), name, id, at, revision, revision);
        Ok(self.cluster.cql.write(&self.cluster.statements.put_slug, values).await?)
    }

    /// Removes a row that was written at this revision or an earlier one.
    pub(super) async fn drop_slug(
        &self,
        owner: KeyId,
        slug: LinkName,
        id: ShortId,
        revision: i64,
    ) -> Result<(), StoreError> {
        let values = (revision, owner.0, first_two(slug.as_str()), slug.as_str(), id.as_str());
        Ok(self.cluster.cql.write(&self.cluster.statements.drop_slug, values).await?)
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, HashSet<(TimeList, i32)>> {
        // Nothing panics while this lock is held.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn columns_of(list: &TimeList) -> ListColumns {
    let kind = match list.kind {
        TimeListKind::All => 0,
        TimeListKind::Tag => 1,
        TimeListKind::Target => 2,
    };
    (kind, list.owner.0, list.value.to_vec())
}

/// The bucket with the links of a time.
pub(super) fn bucket_of(kind: TimeListKind, at: Timestamp) -> i32 {
    match kind {
        TimeListKind::All | TimeListKind::Tag => day_column(at.day()),
        TimeListKind::Target => month_column(at.month()),
    }
}

/// How many parts the buckets of a list have.
pub(super) fn parts(list: &TimeList) -> i8 {
    if list.owner == EVERYONE { PARTS_OF_EVERYONE } else { 1 }
}

fn part_of(list: &TimeList, id: ShortId) -> i8 {
    let sum = id.0.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    i8::try_from(sum % 16).unwrap_or(0) % parts(list)
}

fn first_two(name: &str) -> &str {
    name.get(..2).unwrap_or(name)
}

/// The end of a range of places of links: before all ids of that time.
pub(super) fn before_ids_of(at: Timestamp) -> (CqlTimestamp, String) {
    (timestamp(at), String::new())
}
