//! Values that may be longer than a row: a short value is one row, a long one is split into several.
//!
//! The first row is at the key of the value. If more follow, it begins with [`IN_PARTS`] and their number. Each of them
//! is at the key followed by a byte that counts from 1. All are written in one transaction.

use fjall::Keyspace;

use super::transaction::{MAX_ROW, RowReader, Transaction};
use crate::store::StoreError;
use crate::store::records::corrupt;

/// Takes the place of the layout version in the first row of a long value.
const IN_PARTS: u8 = 0xff;

/// The content of the row at the key of a value.
pub enum FirstRow<'a> {
    /// The whole value.
    Whole(&'a [u8]),
    /// The beginning of the value, and the number of rows with the rest.
    Begin { begin: &'a [u8], more: u8 },
}

pub fn first_row<'a>(table: &'static str, row: &'a [u8]) -> Result<FirstRow<'a>, StoreError> {
    match row {
        [IN_PARTS, more, begin @ ..] => Ok(FirstRow::Begin { begin, more: *more }),
        [IN_PARTS] => Err(corrupt(table, &"a first row without the number of the others")),
        value => Ok(FirstRow::Whole(value)),
    }
}

/// Writes a value that begins with its layout version.
pub fn insert(
    transaction: &mut Transaction<'_>,
    keyspace: &Keyspace,
    key: &[u8],
    value: &[u8],
) -> Result<(), StoreError> {
    if key.len() + value.len() <= MAX_ROW {
        return transaction.insert(keyspace, key, value);
    }
    let part_bytes = MAX_ROW - key.len() - 2;
    let (first, rest) = value.split_at(part_bytes);
    let more = u8::try_from(rest.len().div_ceil(part_bytes))
        .map_err(|_| corrupt("new rows", &format_args!("a value of {} bytes", value.len())))?;
    transaction.insert(keyspace, key, [&[IN_PARTS, more], first].concat())?;
    for (number, part) in (1..=more).zip(rest.chunks(part_bytes)) {
        transaction.insert(keyspace, [key, &[number]].concat(), part)?;
    }
    Ok(())
}

/// Removes all rows of a value.
pub fn remove(
    table: &'static str,
    transaction: &mut Transaction<'_>,
    keyspace: &Keyspace,
    key: &[u8],
) -> Result<(), StoreError> {
    let Some(row) = transaction.row(keyspace, key)? else { return Ok(()) };
    if let FirstRow::Begin { more, .. } = first_row(table, &row)? {
        (1..=more).for_each(|number| transaction.remove(keyspace, [key, &[number]].concat()));
    }
    transaction.remove(keyspace, key);
    Ok(())
}

/// Reads a whole value. `from` is a snapshot or a transaction, so that all rows are of the same time.
pub fn get(
    table: &'static str,
    from: &impl RowReader,
    keyspace: &Keyspace,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(row) = from.row(keyspace, key)? else { return Ok(None) };
    let (begin, more) = match first_row(table, &row)? {
        FirstRow::Whole(value) => return Ok(Some(value.to_vec())),
        FirstRow::Begin { begin, more } => (begin, more),
    };
    let mut value = begin.to_vec();
    for number in 1..=more {
        let part = from.row(keyspace, [key, &[number]].concat())?;
        let part = part.ok_or_else(|| corrupt(table, &format_args!("row {number} of {more} is missing")))?;
        value.extend_from_slice(&part);
    }
    Ok(Some(value))
}
