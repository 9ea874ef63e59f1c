//! The keys that each key has made, so that no more of them live than its limit says.
//!
//! A list for each key that makes some: what is on it may have been revoked, or have expired, since. That is looked up only where the
//! list is as long as the limit. A key without a list, as those from another store are, gets one from the keys that it sees.

use uuid::Uuid;

use super::engine::Engine;
use super::keys::{key_id, read, tagged, viewed_key};
use super::overflow;
use super::transaction::Transaction;
use crate::domain::key::{ApiKey, KeyId};
use crate::store::records::keys::{self as records, Children};
use crate::store::{CreateKeyError, StoreError};

fn children_key(maker: KeyId) -> Vec<u8> {
    tagged(b'c', maker.0.as_bytes())
}

/// Puts a new key on the list of its maker, or tells why it may not be made; then nothing has changed.
pub fn list(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    key: &ApiKey,
    maker: KeyId,
    limit: u64,
) -> Result<Result<(), CreateKeyError>, StoreError> {
    let is_revoked = read(engine, transaction, maker)?.is_some_and(|maker| maker.revoked_at.is_some());
    let mut children = match stored(engine, transaction, maker)? {
        Some(children) => children,
        None => Children { is_closed: false, keys: made_by(engine, transaction, maker)? },
    };
    if is_revoked || children.is_closed {
        return Ok(Err(CreateKeyError::MakerEnded));
    }
    if children.keys.len() as u64 >= limit {
        let mut live = Vec::new();
        for id in children.keys {
            if read(engine, transaction, id)?.is_some_and(|child| child.is_live(key.created_at)) {
                live.push(id);
            }
        }
        let current = live.len() as u64;
        if current >= limit {
            return Ok(Err(CreateKeyError::QuotaExceeded { limit, current }));
        }
        children.keys = live;
    }
    children.keys.push(key.id);
    put(engine, transaction, maker, &children).map(Ok)
}

/// From now on `maker` makes no more keys.
pub fn close(engine: &Engine, transaction: &mut Transaction<'_>, maker: KeyId) -> Result<(), StoreError> {
    let children = stored(engine, transaction, maker)?.unwrap_or_default();
    put(engine, transaction, maker, &Children { is_closed: true, ..children })
}

fn stored(engine: &Engine, transaction: &Transaction<'_>, maker: KeyId) -> Result<Option<Children>, StoreError> {
    let value = overflow::get(records::CHILDREN_TABLE, transaction, &engine.tables.keys, &children_key(maker))?;
    value.map(|value| records::decode_children(&value)).transpose()
}

fn put(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    maker: KeyId,
    children: &Children,
) -> Result<(), StoreError> {
    overflow::insert(transaction, &engine.tables.keys, &children_key(maker), &records::encode_children(children)?)
}

/// The keys that `maker` has made and that are not revoked, found among all those below it.
fn made_by(engine: &Engine, transaction: &Transaction<'_>, maker: KeyId) -> Result<Vec<KeyId>, StoreError> {
    let seen = viewed_key(maker, KeyId(Uuid::nil()))..=viewed_key(maker, KeyId(Uuid::max()));
    let mut made = Vec::new();
    for (row_key, _) in transaction.range(&engine.tables.keys, seen, usize::MAX)? {
        let id = key_id(row_key.get(17..).unwrap_or_default())?;
        if read(engine, transaction, id)?.is_some_and(|key| key.created_by() == Some(maker)) {
            made.push(id);
        }
    }
    Ok(made)
}
