//! Values that may be longer than a row: a short one is one row, a long one is cut into several.
//!
//! The row at the key itself comes first. Where there is more, it begins with [`IN_PARTS`] and the number of the rows that
//! follow, at the key with a byte counting from 1 behind it. All are written in one transaction.

use fjall::Keyspace;

use super::transaction::{MAX_ROW, Rows, Transaction};
use crate::store::StoreError;
use crate::store::records::corrupt;

/// Stands where a value that is one row has its layout version.
const IN_PARTS: u8 = 0xff;

/// What the row at the key itself holds.
pub enum Head<'a> {
    /// The value.
    Inline(&'a [u8]),
    /// How the value begins, and in how many more rows it goes on.
    First { begin: &'a [u8], more: u8 },
}

pub fn head<'a>(table: &'static str, row: &'a [u8]) -> Result<Head<'a>, StoreError> {
    match row {
        [IN_PARTS, more, begin @ ..] => Ok(Head::First { begin, more: *more }),
        [IN_PARTS] => Err(corrupt(table, &"a first part that says nothing of the others")),
        value => Ok(Head::Inline(value)),
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
    let room = MAX_ROW - key.len() - 2;
    let (first, rest) = value.split_at(room);
    let more = u8::try_from(rest.len().div_ceil(room))
        .map_err(|_| corrupt("new rows", &format_args!("a value of {} bytes", value.len())))?;
    transaction.insert(keyspace, key, [&[IN_PARTS, more], first].concat())?;
    for (number, part) in (1..=more).zip(rest.chunks(room)) {
        transaction.insert(keyspace, [key, &[number]].concat(), part)?;
    }
    Ok(())
}

/// Reads a value, whole; `from` is a snapshot or a transaction, so that all its rows are of one moment.
pub fn get(
    table: &'static str,
    from: &impl Rows,
    keyspace: &Keyspace,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(row) = from.row(keyspace, key)? else { return Ok(None) };
    let (begin, more) = match head(table, &row)? {
        Head::Inline(value) => return Ok(Some(value.to_vec())),
        Head::First { begin, more } => (begin, more),
    };
    let mut value = begin.to_vec();
    for number in 1..=more {
        let part = from.row(keyspace, [key, &[number]].concat())?;
        let part = part.ok_or_else(|| corrupt(table, &format_args!("part {number} of {more} is not there")))?;
        value.extend_from_slice(&part);
    }
    Ok(Some(value))
}
