//! Reads the rows of lists by slug. A name may have several rows, of which at most one counts: they are in one part of
//! the list, whole, because the places in such a list are names.

use futures_util::{StreamExt, stream};
use scylla::value::CqlTimestamp;

use super::link_list_reads::{IndexRow, IndexRows, PARTITIONS_AT_ONCE};
use super::link_lists::LinkListTables;
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{LinkName, ListPlace};
use crate::store::records::columns::{short_id, timestamp_from};
use crate::store::records::corrupt;
use crate::store::{LinkListQuery, StoreError};

const TABLE: &str = "slugs_of";
/// The characters of names, in the order of their bytes.
const NAME_CHARACTERS: &str = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

type SlugRow = (String, String, Option<CqlTimestamp>, Option<i64>);

/// Which rows of a partition are read.
struct SlugRange {
    /// Only rows behind this name and id.
    after: (String, String),
    /// Only rows before this text.
    end: String,
    limit: usize,
}

/// The first rows of a partition.
struct FirstSlugs {
    rows: Vec<SlugRow>,
    /// Whether there may be more. The last name has all of its rows then.
    has_more: bool,
}

impl LinkListTables {
    pub(super) async fn rows_by_slug(
        &self,
        owner: KeyId,
        prefix: &str,
        query: &LinkListQuery,
    ) -> Result<IndexRows, StoreError> {
        let after = match query.after {
            Some(ListPlace::Name(name)) => (name.to_string(), behind("")),
            _ => (prefix.to_owned(), String::new()),
        };
        let range = &SlugRange { after, end: behind(prefix), limit: query.limit };
        let partitions = partitions_of(prefix).into_iter().filter(|first_two| range.after.0 < behind(first_two));
        let read = |first_two: String| async move { self.first_slugs(owner, &first_two, range).await };
        let mut reads = stream::iter(partitions).map(read).buffered(PARTITIONS_AT_ONCE);
        let mut found = IndexRows::default();
        while let Some(first) = reads.next().await {
            let FirstSlugs { rows, has_more } = first?;
            for row in rows {
                let row = index_row(row)?;
                let last = found.rows.last().map(|row| row.place);
                if found.rows.len() >= query.limit && last != Some(row.place) {
                    found.next = last;
                    return Ok(found);
                }
                found.rows.push(row);
            }
            if has_more {
                found.next = found.rows.last().map(|row| row.place);
                return Ok(found);
            }
        }
        Ok(found)
    }

    /// The first rows of a partition, at least `limit` if there are so many names.
    async fn first_slugs(&self, owner: KeyId, first_two: &str, range: &SlugRange) -> Result<FirstSlugs, StoreError> {
        let (cql, statement) = (&self.cluster.cql, &self.cluster.statements.slugs);
        let ((name, link), end) = (&range.after, range.end.as_str());
        let mut most = range.limit.saturating_add(1);
        loop {
            let limit = i32::try_from(most).unwrap_or(i32::MAX);
            let values = (owner.0, first_two, name.as_str(), link.as_str(), end, "", limit);
            let mut rows: Vec<SlugRow> = cql.read(statement, values).await?;
            if rows.len() < most {
                return Ok(FirstSlugs { rows, has_more: false });
            }
            // The last name may have further rows.
            let whole = rows.iter().position(|row| Some(&row.0) == rows.last().map(|last| &last.0)).unwrap_or(0);
            if whole > 0 {
                rows.truncate(whole);
                return Ok(FirstSlugs { rows, has_more: true });
            }
            most = most.saturating_mul(4);
        }
    }
}

fn index_row((name, link, at, revision): SlugRow) -> Result<IndexRow, StoreError> {
    // A later release may have a route of this name.
    let name = LinkName::of_form(&name).ok_or_else(|| corrupt(TABLE, &"not a name"))?;
    let at = at.map_or(Timestamp(0), timestamp_from);
    Ok(IndexRow { id: short_id(TABLE, &link)?, at, revision: revision.unwrap_or(0), place: ListPlace::Name(name) })
}

/// A text behind all names and ids that begin with this one: `~` is behind all of their characters.
fn behind(text: &str) -> String {
    format!("{text}~")
}

/// The partitions with the slugs that begin with a text, in order.
fn partitions_of(prefix: &str) -> Vec<String> {
    match prefix.len() {
        // A slug of one character is in a partition of its own.
        1 => {
            let longer = NAME_CHARACTERS.chars().map(|second| format!("{prefix}{second}"));
            std::iter::once(prefix.to_owned()).chain(longer).collect()
        }
        _ => vec![prefix.get(..2).unwrap_or(prefix).to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_slugs_come_in_the_order_of_their_names() {
        let partitions = partitions_of("a");
        assert_eq!((partitions.len(), partitions.is_sorted()), (65, true));
        assert_eq!(partitions_of("ab"), ["ab"]);
        assert_eq!(partitions_of("abc"), ["ab"]);
    }
}
