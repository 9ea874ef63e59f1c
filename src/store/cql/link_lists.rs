//! Writes the indexes of lists. A row is written before its link says the same, and removed after the link does not say
//! it any more; the link's revision is the timestamp, so a removal takes away nothing newer.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use scylla::value::{CqlTimestamp, CqlValue};
use uuid::Uuid;

use super::cluster::Cluster;
use super::link_list_gather::GatheredLinks;
use super::session::RowWrite;
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkName, ShortId};
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::records::columns::{day as day_column, month as month_column, timestamp};
use crate::store::records::link_lists::{EVERYONE, TimeList, TimeListKind};

/// Parts of a bucket with the links of all keys, so that no partition takes all writes.
const PARTS_OF_EVERYONE: i8 = 16;
/// Buckets that are known to be noted.
const KNOWN_BUCKETS: usize = 10_000;

/// Partitions in one request, and rows: nodes warn of more, or of more than 5 KiB.
const PARTITIONS_AT_ONCE: usize = 10;
const ROWS_AT_ONCE: usize = 30;

/// A partition of the tables of lists.
#[derive(PartialEq, Eq, Hash)]
enum Partition {
    Buckets(TimeList),
    Times(TimeList, i32, i8),
    Target([u8; 16], i32),
    Names(KeyId, String),
}

/// The write of a row, and the row's partition.
type ListRow<'a> = (Partition, RowWrite<'a>);

/// A list as the columns of its partition have it.
pub(super) type ListColumns = (i8, Uuid, Vec<u8>);

pub struct LinkListTables {
    pub(super) cluster: Arc<Cluster>,
    /// Buckets are never removed.
    noted: Mutex<HashSet<(TimeList, i32)>>,
    pub(super) gathered: GatheredLinks,
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
        Self { cluster: Arc::clone(cluster), noted: Mutex::default(), gathered: GatheredLinks::default() }
    }

    /// Adds links to their lists.
    pub async fn put(&self, links: &[Link]) -> Result<(), StoreError> {
        let times = links.iter().map(|link| (link, TimeList::all_of(link)));
        self.put_in(times.collect(), links.iter().flat_map(|link| self.slug_rows(link)).collect()).await
    }

    /// Adds a link to the lists that its change puts it in.
    pub async fn put_changed(&self, old: &Link, new: &Link) -> Result<(), StoreError> {
        let before: HashSet<TimeList> = TimeList::all_of(old).into_iter().collect();
        let added = TimeList::all_of(new).into_iter().filter(|list| !before.contains(list));
        self.put_in(vec![(new, added.collect())], Vec::new()).await
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

    /// Adds links to lists by time, and writes these other rows. All in few requests: a request costs the coordinator more
    /// than a row of it, and rows of one partition cost hardly more than one.
    async fn put_in(&self, times: Vec<(&Link, Vec<TimeList>)>, others: Vec<ListRow<'_>>) -> Result<(), StoreError> {
        let unnoted = self.unnoted(&times);
        let mut partitions: HashMap<Partition, Vec<RowWrite<'_>>> = HashMap::new();
        let buckets = unnoted.iter().map(|bucket| self.bucket_row(bucket));
        let times = times.iter().flat_map(|(link, lists)| lists.iter().map(|list| self.time_row(list, link)));
        for (partition, row) in buckets.chain(times).chain(others) {
            partitions.entry(partition).or_default().push(row);
        }
        let requests = requests_of(partitions.into_values());
        self.cluster.all(requests, |rows| async { Ok(self.cluster.cql.write_together(rows).await?) }).await?;
        if !unnoted.is_empty() {
            let mut noted = self.noted();
            if noted.len() >= KNOWN_BUCKETS {
                noted.clear();
            }
            noted.extend(unnoted);
        }
        Ok(())
    }

    /// The buckets of these rows that are not known to be noted.
    fn unnoted(&self, times: &[(&Link, Vec<TimeList>)]) -> HashSet<(TimeList, i32)> {
        let noted = self.noted();
        let bucket = |list: &TimeList, link: &Link| (with_buckets_of(list), bucket_of(list.kind, link.created_at));
        let buckets = times.iter().flat_map(|(link, lists)| lists.iter().map(|list| bucket(list, link)));
        buckets.filter(|bucket| !noted.contains(bucket)).collect()
    }

    fn bucket_row(&self, (list, bucket): &(TimeList, i32)) -> ListRow<'_> {
        let (kind, owner, value) = columns_of(list);
        let row = [CqlValue::TinyInt(kind), CqlValue::Uuid(owner), CqlValue::Blob(value), CqlValue::Int(*bucket)];
        let row = (&self.cluster.statements.put_link_list_bucket, row.map(Some).to_vec());
        (Partition::Buckets(*list), row)
    }

    fn time_row(&self, list: &TimeList, link: &Link) -> ListRow<'_> {
        let statements = &self.cluster.statements;
        let bucket = bucket_of(list.kind, link.created_at);
        let (partition, statement, mut row) = match list.kind {
            TimeListKind::All | TimeListKind::Tag => {
                let ((kind, owner, value), part) = (columns_of(list), part_of(list, link.created_at));
                let row = vec![
                    CqlValue::TinyInt(kind),
                    CqlValue::Uuid(owner),
                    CqlValue::Blob(value),
                    CqlValue::Int(bucket),
                    CqlValue::TinyInt(part),
                ];
                (Partition::Times(*list, bucket, part), &statements.put_listed_link, row)
            }
            TimeListKind::Target => {
                let target = CqlValue::Blob(list.value.to_vec());
                let row = vec![target, CqlValue::Int(bucket), CqlValue::Uuid(list.owner.0)];
                (Partition::Target(list.value, bucket), &statements.put_link_to, row)
            }
        };
        let revision = CqlValue::BigInt(link.revision.0.into());
        row.extend([
            CqlValue::Timestamp(timestamp(link.created_at)),
            CqlValue::Ascii(link.id.as_str().to_owned()),
            revision.clone(),
            revision,
        ]);
        (partition, (statement, row.into_iter().map(Some).collect()))
    }

    /// The rows of a link in lists by name.
    fn slug_rows(&self, link: &Link) -> Vec<ListRow<'_>> {
        let Some(slug) = link.slug else { return Vec::new() };
        let beginning = first_two(slug.as_str());
        let revision = CqlValue::BigInt(link.revision.0.into());
        let row = |owner: KeyId| {
            let row = [
                CqlValue::Uuid(owner.0),
                CqlValue::Ascii(beginning.to_owned()),
                CqlValue::Ascii(slug.as_str().to_owned()),
                CqlValue::Ascii(link.id.as_str().to_owned()),
                CqlValue::Timestamp(timestamp(link.created_at)),
                revision.clone(),
                revision.clone(),
            ];
            let row = (&self.cluster.statements.put_slug, row.map(Some).to_vec());
            (Partition::Names(owner, beginning.to_owned()), row)
        };
        [link.owner, EVERYONE].map(row).into()
    }

    async fn drop_times(&self, link: &Link, lists: Vec<TimeList>) -> Result<(), StoreError> {
        let row = |list| TimeRow { list, at: link.created_at, id: link.id };
        self.cluster.all(lists.into_iter().map(row), |row| self.drop_time(row, i64::from(link.revision.0))).await
    }

    /// Removes a row that was written at this revision or an earlier one.
    pub(super) async fn drop_time(&self, row: TimeRow, revision: i64) -> Result<(), StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let TimeRow { list, at, id } = row;
        let (bucket, place) = (bucket_of(list.kind, at), (timestamp(at), id.as_str()));
        let dropped = match list.kind {
            TimeListKind::All | TimeListKind::Tag => {
                let ((kind, owner, value), part) = (columns_of(&list), part_of(&list, at));
                let values = (revision, kind, owner, value, bucket, part, place.0, place.1);
                cql.write(&statements.drop_listed_link, values).await
            }
            TimeListKind::Target => {
                let values = (revision, list.value.to_vec(), bucket, list.owner.0, place.0, place.1);
                cql.write(&statements.drop_link_to, values).await
            }
        };
        Ok(dropped?)
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
        lock(&self.noted)
    }
}

/// Rows by their partitions, in requests.
fn requests_of<R>(partitions: impl Iterator<Item = Vec<R>>) -> Vec<Vec<R>> {
    let (mut requests, mut rows, mut count) = (Vec::new(), Vec::new(), 0);
    for partition in partitions {
        if count == PARTITIONS_AT_ONCE || (count > 0 && rows.len() + partition.len() > ROWS_AT_ONCE) {
            requests.push(std::mem::take(&mut rows));
            count = 0;
        }
        rows.extend(partition);
        count += 1;
    }
    if count > 0 {
        requests.push(rows);
    }
    requests
}

/// The list whose buckets are noted for this one: all targets share theirs, so that a new target costs no row more.
pub(super) fn with_buckets_of(list: &TimeList) -> TimeList {
    match list.kind {
        TimeListKind::All | TimeListKind::Tag => *list,
        TimeListKind::Target => TimeList { owner: EVERYONE, value: [0; 16], ..*list },
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

/// How many parts the buckets of a list have. Those of a target have one.
pub(super) fn parts(list: &TimeList) -> i8 {
    if list.owner == EVERYONE && list.kind != TimeListKind::Target { PARTS_OF_EVERYONE } else { 1 }
}

/// By the second of the creation: links that are created together share a partition.
fn part_of(list: &TimeList, created_at: Timestamp) -> i8 {
    i8::try_from(created_at.seconds() % 16).unwrap_or(0) % parts(list)
}

fn first_two(name: &str) -> &str {
    name.get(..2).unwrap_or(name)
}

/// The end of a range of places of links: before all ids of that time.
pub(super) fn before_ids_of(at: Timestamp) -> (CqlTimestamp, String) {
    (timestamp(at), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_whole_partitions_and_no_more_of_them_than_nodes_take_without_a_warning() {
        let sizes = |partitions: &[usize]| {
            let rows = partitions.iter().enumerate().map(|(partition, rows)| vec![partition; *rows]);
            let requests = requests_of(rows);
            assert!(requests.concat().is_sorted(), "each partition is in one request");
            requests.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1; 10]), [10]);
        assert_eq!(sizes(&[1; 25]), [10, 10, 5]);
        assert_eq!(sizes(&[32, 1, 28, 2, 40]), [32, 29, 2, 40]);
    }
}
