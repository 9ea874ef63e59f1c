//! Lists of links: indexes by owner and time, tag, target and slug. Each row changes in one transaction with its link.

use std::collections::HashSet;
use std::ops::Bound;

use fjall::{Keyspace, Readable, Slice, Snapshot};

use super::database::engine_error;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Link, ListIndex, ListOrder, ListPlace, ShortId};
use crate::store::records::link_lists::{EVERYONE, TABLE, TimeList, owner_of_list};
use crate::store::records::{corrupt, row_keys};
use crate::store::{LinkListQuery, StoreError};

/// The first byte of the row that says how far links of an earlier release are in the lists: the id of the last one
/// follows, or nothing.
const FILLING: u8 = 0;
const COMPLETE: u8 = 1;

/// How far links of an earlier release are in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedUpto {
    Nothing,
    Link(ShortId),
    Complete,
}

/// The indexes.
#[derive(Clone)]
pub struct LinkListTable {
    rows: Keyspace,
    meta: Keyspace,
}

/// A part of a list: the ids of its links in order.
#[derive(Debug, Default)]
pub struct ListedIds {
    pub ids: Vec<ShortId>,
    /// The place of the last one, if there are more.
    pub next: Option<ListPlace>,
}

impl LinkListTable {
    pub fn new(engine: &Engine) -> Self {
        Self { rows: engine.keyspaces.link_lists.clone(), meta: engine.keyspaces.meta.clone() }
    }

    /// Adds a link to its lists.
    pub fn put(&self, transaction: &mut Transaction<'_>, link: &Link) -> Result<(), StoreError> {
        for row_key in time_rows(link) {
            transaction.insert(&self.rows, row_key, [])?;
        }
        for row_key in slug_rows(link) {
            transaction.insert(&self.rows, row_key, link.id.0)?;
        }
        Ok(())
    }

    /// Removes a link from its lists.
    pub fn remove(&self, transaction: &mut Transaction<'_>, link: &Link) {
        time_rows(link).for_each(|row_key| transaction.remove(&self.rows, row_key));
        slug_rows(link).for_each(|row_key| transaction.remove(&self.rows, row_key));
    }

    /// Moves a link that changes. Its slug, its owner and the time of its creation stay as they are.
    pub fn change(&self, transaction: &mut Transaction<'_>, before: &Link, after: &Link) -> Result<(), StoreError> {
        let (old, new): (HashSet<_>, HashSet<_>) = (time_rows(before).collect(), time_rows(after).collect());
        for row_key in old.difference(&new) {
            transaction.remove(&self.rows, *row_key);
        }
        for row_key in new.difference(&old) {
            transaction.insert(&self.rows, *row_key, [])?;
        }
        Ok(())
    }

    /// A part of a list.
    pub fn ids(&self, from: &Snapshot, query: &LinkListQuery) -> Result<ListedIds, StoreError> {
        if self.listed_upto(from)? != ListedUpto::Complete {
            return Err(StoreError::Unavailable("links of an earlier release are being added to the lists".into()));
        }
        let Some(owner) = owner_of_list(query.owner) else { return Ok(ListedIds::default()) };
        match (&query.index, TimeList::of_index(owner, &query.index)) {
            (_, Some(list)) => self.ids_by_time(from, &list, query),
            (ListIndex::SlugPrefix(prefix), None) => self.ids_by_slug(from, owner, prefix, query),
            (_, None) => Err(corrupt(TABLE, &"a list without an index")),
        }
    }

    fn ids_by_time(&self, from: &Snapshot, list: &TimeList, query: &LinkListQuery) -> Result<ListedIds, StoreError> {
        let mut first = Bound::Included(row_keys::time_list_from(list, query.created_from.unwrap_or_default()));
        let until = query.created_until.unwrap_or(Timestamp(u64::MAX));
        let mut end = Bound::Excluded(row_keys::time_list_from(list, until));
        if let Some(ListPlace::Time(at, id)) = query.after {
            let after = row_keys::time_list_place(list, at, id).to_vec();
            match query.order {
                ListOrder::Newest => end = earlier(end, Bound::Excluded(after)),
                ListOrder::Oldest => first = later(first, Bound::Excluded(after)),
            }
        }
        if is_empty(&first, &end) {
            return Ok(ListedIds::default());
        }
        let rows = from.range(&self.rows, (first, end)).map(|row| row.key().map_err(|e| engine_error(&e)));
        let place = |row_key: Result<Slice, StoreError>| {
            let (at, id) = row_keys::time_list_place_of(&row_key?)?;
            Ok((id, ListPlace::Time(at, id)))
        };
        match query.order {
            ListOrder::Newest => part_of(rows.rev().map(place), query.limit),
            ListOrder::Oldest => part_of(rows.map(place), query.limit),
        }
    }

    fn ids_by_slug(
        &self,
        from: &Snapshot,
        owner: KeyId,
        prefix: &str,
        query: &LinkListQuery,
    ) -> Result<ListedIds, StoreError> {
        let begin = row_keys::slug_list(owner, prefix.as_bytes());
        // Names are ASCII: the highest of all bytes is behind all names with this prefix.
        let end = Bound::Excluded([begin.as_slice(), &[u8::MAX]].concat());
        let mut first = Bound::Included(begin);
        if let Some(ListPlace::Name(name)) = query.after {
            first = later(first, Bound::Excluded(row_keys::slug_list(owner, name.as_bytes())));
        }
        if is_empty(&first, &end) {
            return Ok(ListedIds::default());
        }
        let rows = from.range(&self.rows, (first, end)).map(|row| {
            let (row_key, id) = row.into_inner().map_err(|e| engine_error(&e))?;
            let name = row_keys::slug_list_name(&row_key).ok_or_else(|| corrupt(TABLE, &"not a name"))?;
            Ok((row_keys::short_id(&id)?, ListPlace::Name(name)))
        });
        part_of(rows, query.limit)
    }

    pub fn listed_upto(&self, from: &impl RowReader) -> Result<ListedUpto, StoreError> {
        match from.row(&self.meta, row_keys::LISTED_UPTO)?.as_deref() {
            None => Ok(ListedUpto::Nothing),
            Some([COMPLETE]) => Ok(ListedUpto::Complete),
            Some([FILLING, id @ ..]) => Ok(ListedUpto::Link(row_keys::short_id(id)?)),
            Some(_) => Err(corrupt(TABLE, &"not a place in the links")),
        }
    }

    pub fn set_listed_upto(&self, transaction: &mut Transaction<'_>, upto: ListedUpto) -> Result<(), StoreError> {
        let row = match upto {
            ListedUpto::Nothing => return Ok(()),
            ListedUpto::Link(id) => [&[FILLING], id.0.as_slice()].concat(),
            ListedUpto::Complete => vec![COMPLETE],
        };
        transaction.insert(&self.meta, row_keys::LISTED_UPTO, row)
    }
}

fn time_rows(link: &Link) -> impl Iterator<Item = [u8; row_keys::TIME_LIST_ROW]> {
    let (at, id) = (link.created_at, link.id);
    TimeList::all_of(link).into_iter().map(move |list| row_keys::time_list_place(&list, at, id))
}

fn slug_rows(link: &Link) -> impl Iterator<Item = Vec<u8>> {
    let owners = [link.owner, EVERYONE];
    link.slug.into_iter().flat_map(move |slug| owners.map(|owner| row_keys::slug_list(owner, slug.as_bytes())))
}

fn part_of(
    mut rows: impl Iterator<Item = Result<(ShortId, ListPlace), StoreError>>,
    limit: usize,
) -> Result<ListedIds, StoreError> {
    let mut part = ListedIds::default();
    let mut last = None;
    for row in rows.by_ref().take(limit) {
        let (id, place) = row?;
        part.ids.push(id);
        last = Some(place);
    }
    part.next = last.filter(|_| rows.next().is_some());
    Ok(part)
}

/// The row key of a bound.
fn key_of(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

fn later(a: Bound<Vec<u8>>, b: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    if key_of(&a) > key_of(&b) { a } else { b }
}

fn earlier(a: Bound<Vec<u8>>, b: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    if key_of(&a) < key_of(&b) { a } else { b }
}

/// Whether there is certainly nothing between two bounds.
fn is_empty(first: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    key_of(first) >= key_of(end)
}
