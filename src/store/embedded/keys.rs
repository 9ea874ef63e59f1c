//! API keys: by id, by secret, by who sees them.

use fjall::{Guard, Readable};

use super::children;
use super::engine::{Engine, engine_error};
use super::transaction::{Rows, Transaction};
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::quota::KeyLimit;
use crate::store::records::{corrupt, counters, keys as records, row_keys};
use crate::store::{CreateKeyError, StoreError, UpdateKeyError};

const USES: &str = "key uses";

pub fn tagged(tag: u8, rest: &[u8]) -> Vec<u8> {
    [&[tag], rest].concat()
}

pub fn id_key(id: KeyId) -> Vec<u8> {
    tagged(b'k', id.0.as_bytes())
}

fn secret_key(hash: &SecretHash) -> Vec<u8> {
    tagged(b's', &hash.0)
}

pub fn viewed_key(viewer: KeyId, id: KeyId) -> Vec<u8> {
    tagged(b'v', &row_keys::view(viewer, id))
}

fn use_key(id: KeyId) -> Vec<u8> {
    tagged(b'u', id.0.as_bytes())
}

fn secrets(key: &ApiKey) -> impl Iterator<Item = &SecretHash> {
    let live = key.revoked_at.is_none();
    std::iter::once(&key.secret_hash).chain(key.retiring_secret.as_ref().map(|old| &old.secret)).filter(move |_| live)
}

fn put(engine: &Engine, transaction: &mut Transaction<'_>, key: &ApiKey) -> Result<(), StoreError> {
    transaction.insert(&engine.tables.keys, id_key(key.id), records::encode(key)?)?;
    for hash in secrets(key) {
        transaction.insert(&engine.tables.keys, secret_key(hash), key.id.0.as_bytes())?;
    }
    for viewer in key.lineage() {
        if key.revoked_at.is_none() {
            transaction.insert(&engine.tables.keys, viewed_key(viewer, key.id), [])?;
        } else {
            transaction.remove(&engine.tables.keys, viewed_key(viewer, key.id));
        }
    }
    Ok(())
}

/// Writes a key; one that is there already stays as it is.
pub fn put_if_absent(engine: &Engine, transaction: &mut Transaction<'_>, key: &ApiKey) -> Result<(), StoreError> {
    if is_there(engine, transaction, key.id)? { Ok(()) } else { put(engine, transaction, key) }
}

fn is_there(engine: &Engine, transaction: &Transaction<'_>, id: KeyId) -> Result<bool, StoreError> {
    Ok(transaction.row(&engine.tables.keys, id_key(id))?.is_some())
}

pub fn create(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    key: &ApiKey,
    limit: KeyLimit,
) -> Result<Result<(), CreateKeyError>, StoreError> {
    if is_there(engine, transaction, key.id)? {
        return Ok(Ok(()));
    }
    if let (Some(limit), Some(maker)) = (limit, key.created_by())
        && let Err(refused) = children::list(engine, transaction, key, maker, limit)?
    {
        return Ok(Err(refused));
    }
    put(engine, transaction, key).map(Ok)
}

pub fn update(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    key: &ApiKey,
) -> Result<Result<(), UpdateKeyError>, StoreError> {
    let Some(before) = read(engine, transaction, key.id)? else {
        return Ok(Err(UpdateKeyError::Conflict));
    };
    if before.revision + 1 != key.revision {
        return Ok(Err(UpdateKeyError::Conflict));
    }
    for hash in secrets(&before) {
        transaction.remove(&engine.tables.keys, secret_key(hash));
    }
    put(engine, transaction, key).map(Ok)
}

pub fn read(engine: &Engine, from: &impl Rows, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
    let row = from.row(&engine.tables.keys, id_key(id))?;
    row.map(|row| records::decode(&row)).transpose()
}

pub fn get(engine: &Engine, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
    read(engine, &engine.database.snapshot(), id)
}

pub fn by_secret(engine: &Engine, hash: &SecretHash) -> Result<Option<ApiKey>, StoreError> {
    let snapshot = engine.database.snapshot();
    match snapshot.row(&engine.tables.keys, secret_key(hash))? {
        Some(id) => read(engine, &snapshot, key_id(&id)?),
        None => Ok(None),
    }
}

pub fn seen_by(engine: &Engine, viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
    let snapshot = engine.database.snapshot();
    let prefix = tagged(b'v', viewer.0.as_bytes());
    let rows = match after {
        Some(after) => snapshot.range(&engine.tables.keys, prefix..viewed_key(viewer, after)),
        None => snapshot.prefix(&engine.tables.keys, prefix),
    };
    rows.rev()
        .take(limit)
        .map(|row| {
            let row_key = Guard::key(row).map_err(|e| engine_error(&e))?;
            let id = key_id(row_key.get(17..).unwrap_or_default())?;
            read(engine, &snapshot, id)?.ok_or_else(|| corrupt(records::TABLE, &"a view names a key that is not there"))
        })
        .collect()
}

pub fn note_uses(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    uses: &[(KeyId, Timestamp)],
) -> Result<(), StoreError> {
    for (id, at) in uses {
        let known = transaction.row(&engine.tables.meta, use_key(*id))?;
        let known = known.map(|row| counters::decode_time(USES, &row)).transpose()?;
        if known.is_none_or(|known| known < *at) {
            transaction.insert(&engine.tables.meta, use_key(*id), counters::encode_time(*at))?;
        }
    }
    Ok(())
}

pub fn last_uses(engine: &Engine, ids: &[KeyId]) -> Result<Vec<Option<Timestamp>>, StoreError> {
    let read = |id: &KeyId| {
        let row = engine.tables.meta.get(use_key(*id)).map_err(|e| engine_error(&e))?;
        row.map(|row| counters::decode_time(USES, &row)).transpose()
    };
    ids.iter().map(read).collect()
}

pub fn key_id(bytes: &[u8]) -> Result<KeyId, StoreError> {
    uuid::Uuid::from_slice(bytes).map(KeyId).map_err(|_| corrupt(records::TABLE, &"not a key id"))
}
