//! API keys: by id, by secret, by the keys that see them.

use fjall::{Guard, Keyspace, Readable, Snapshot};
use uuid::Uuid;

use super::database::engine_error;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::store::records::{corrupt, keys as records, row_keys};
use crate::store::{StoreError, UpdateKeyError};

/// Keys, and the rows that find them.
#[derive(Clone)]
pub struct KeyTable {
    keys: Keyspace,
}

impl KeyTable {
    pub fn new(engine: &Engine) -> Self {
        Self { keys: engine.keyspaces.keys.clone() }
    }

    pub fn put(&self, transaction: &mut Transaction<'_>, key: &ApiKey) -> Result<(), StoreError> {
        transaction.insert(&self.keys, row_keys::key(key.id), records::encode(key)?)?;
        for hash in secrets(key) {
            transaction.insert(&self.keys, row_keys::key_secret(hash), key.id.0.as_bytes())?;
        }
        for viewer in key.ancestors_of_child() {
            if key.revoked_at.is_none() {
                transaction.insert(&self.keys, row_keys::key_view(viewer, key.id), [])?;
            } else {
                transaction.remove(&self.keys, row_keys::key_view(viewer, key.id));
            }
        }
        Ok(())
    }

    /// Writes a key unless there is one with its id; returns that one then.
    pub fn put_if_absent(&self, transaction: &mut Transaction<'_>, key: &ApiKey) -> Result<Option<ApiKey>, StoreError> {
        let existing = self.get(transaction, key.id)?;
        if existing.is_none() {
            self.put(transaction, key)?;
        }
        Ok(existing)
    }

    pub fn exists(&self, transaction: &Transaction<'_>, id: KeyId) -> Result<bool, StoreError> {
        Ok(transaction.row(&self.keys, row_keys::key(id))?.is_some())
    }

    pub fn update(
        &self,
        transaction: &mut Transaction<'_>,
        key: &ApiKey,
    ) -> Result<Result<(), UpdateKeyError>, StoreError> {
        let Some(before) = self.get(transaction, key.id)? else {
            return Ok(Err(UpdateKeyError::Conflict));
        };
        if before.revision + 1 != key.revision {
            return Ok(Err(UpdateKeyError::Conflict));
        }
        for hash in secrets(&before) {
            transaction.remove(&self.keys, row_keys::key_secret(hash));
        }
        self.put(transaction, key).map(Ok)
    }

    pub fn get(&self, from: &impl RowReader, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let row = from.row(&self.keys, row_keys::key(id))?;
        row.map(|row| records::decode(&row)).transpose()
    }

    pub fn by_secret(&self, from: &impl RowReader, hash: &SecretHash) -> Result<Option<ApiKey>, StoreError> {
        match from.row(&self.keys, row_keys::key_secret(hash))? {
            Some(id) => self.get(from, key_id(&id)?),
            None => Ok(None),
        }
    }

    /// The keys that `viewer` sees, newest first, after `after`.
    pub fn seen_by(
        &self,
        from: &Snapshot,
        viewer: KeyId,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let prefix = row_keys::key_views(viewer);
        let rows = match after {
            Some(after) => from.range(&self.keys, prefix..row_keys::key_view(viewer, after)),
            None => from.prefix(&self.keys, prefix),
        };
        rows.rev()
            .take(limit)
            .map(|row| {
                let row_key = Guard::key(row).map_err(|e| engine_error(&e))?;
                let key = self.get(from, viewed_id(&row_key)?)?;
                key.ok_or_else(|| corrupt(records::TABLE, &"a view names a key that does not exist"))
            })
            .collect()
    }

    /// The keys that `maker` has created and that are not revoked, found among all those below it.
    pub fn made_by(&self, transaction: &Transaction<'_>, maker: KeyId) -> Result<Vec<KeyId>, StoreError> {
        let seen = row_keys::key_view(maker, KeyId(Uuid::nil()))..=row_keys::key_view(maker, KeyId(Uuid::max()));
        let mut made = Vec::new();
        for (row_key, _) in transaction.range(&self.keys, seen, usize::MAX)? {
            let id = viewed_id(&row_key)?;
            if self.get(transaction, id)?.is_some_and(|key| key.created_by() == Some(maker)) {
                made.push(id);
            }
        }
        Ok(made)
    }
}

fn secrets(key: &ApiKey) -> impl Iterator<Item = &SecretHash> {
    let live = key.revoked_at.is_none();
    std::iter::once(&key.secret_hash).chain(key.retiring_secret.as_ref().map(|old| &old.secret)).filter(move |_| live)
}

/// The key that is seen, of the row key of a view.
fn viewed_id(row_key: &[u8]) -> Result<KeyId, StoreError> {
    key_id(row_key.get(row_keys::KEY_VIEW_PREFIX..).unwrap_or_default())
}

fn key_id(bytes: &[u8]) -> Result<KeyId, StoreError> {
    Uuid::from_slice(bytes).map(KeyId).map_err(|_| corrupt(records::TABLE, &"not a key id"))
}
