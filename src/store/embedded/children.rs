//! The keys that each key has created, so that no more of them are live than its limit allows.
//!
//! Each key that creates keys has a list of them. A key on it may have been revoked, or have expired, since. That is
//! looked up only when the list is as long as the limit, and those are taken off it. A key without a list, such as one
//! from another store, gets one from the keys that it sees. A live key that a key with a limit has created is on its
//! list, so a key that lives longer than before keeps its place there, or takes one again.

use fjall::Keyspace;

use super::engine::Engine;
use super::keys::KeyTable;
use super::overflow;
use super::transaction::Transaction;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId};
use crate::domain::quota::KeyLimit;
use crate::store::records::keys::{self as records, Children};
use crate::store::records::row_keys;
use crate::store::{CreateKeyError, ExtendKeyError, StoreError};

/// The lists of created keys.
pub struct ChildTable {
    lists: Keyspace,
    keys: KeyTable,
}

impl ChildTable {
    pub fn new(engine: &Engine, keys: &KeyTable) -> Self {
        Self { lists: engine.keyspaces.keys.clone(), keys: keys.clone() }
    }

    /// Writes a new key if the key that creates it may have one more. One with the same id stays as it is.
    pub fn create_key(
        &self,
        transaction: &mut Transaction<'_>,
        key: &ApiKey,
        limit: KeyLimit,
    ) -> Result<Result<(), CreateKeyError>, StoreError> {
        if self.keys.exists(transaction, key.id)? {
            return Ok(Ok(()));
        }
        if let (Some(limit), Some(maker)) = (limit, key.created_by())
            && let Err(refused) = self.list(transaction, key, maker, limit)?
        {
            return Ok(Err(refused));
        }
        self.keys.put(transaction, key).map(Ok)
    }

    /// Writes a key that lives longer than before, if it is on the list of its maker, or may be added to it.
    pub fn extend_key(
        &self,
        transaction: &mut Transaction<'_>,
        key: &ApiKey,
        limit: KeyLimit,
        now: Timestamp,
    ) -> Result<Result<(), ExtendKeyError>, StoreError> {
        let before = self.keys.get(transaction, key.id)?;
        let Some(before) = before.filter(|before| before.revision + 1 == key.revision) else {
            return Ok(Err(ExtendKeyError::Conflict));
        };
        if let (Some(limit), Some(maker)) = (limit, key.created_by()) {
            let children = self.get(transaction, maker)?.unwrap_or_default();
            // A list that was closed before it had keys does not have them either.
            let is_absent = children.keys.is_empty();
            let keys = if is_absent { self.keys.made_by(transaction, maker)? } else { children.keys };
            let has_place = keys.contains(&key.id) && before.is_live(now);
            if !has_place {
                let others = keys.into_iter().filter(|id| *id != key.id).collect();
                let mut keys = match self.with_room(transaction, others, limit, now)? {
                    Ok(keys) => keys,
                    Err(current) => return Ok(Err(ExtendKeyError::QuotaExceeded { limit, current })),
                };
                keys.push(key.id);
                self.put(transaction, maker, &Children { keys, ..children })?;
            }
        }
        Ok(self.keys.update(transaction, key)?.map_err(ExtendKeyError::from))
    }

    /// From now on `maker` creates no more keys.
    pub fn close(&self, transaction: &mut Transaction<'_>, maker: KeyId) -> Result<(), StoreError> {
        let children = self.get(transaction, maker)?.unwrap_or_default();
        self.put(transaction, maker, &Children { is_closed: true, ..children })
    }

    /// Adds a new key to the list of its maker, or returns why it may not be created; then nothing has changed.
    fn list(
        &self,
        transaction: &mut Transaction<'_>,
        key: &ApiKey,
        maker: KeyId,
        limit: u64,
    ) -> Result<Result<(), CreateKeyError>, StoreError> {
        let is_revoked = self.keys.get(transaction, maker)?.is_some_and(|maker| maker.revoked_at.is_some());
        let mut children = match self.get(transaction, maker)? {
            Some(children) => children,
            None => Children { is_closed: false, keys: self.keys.made_by(transaction, maker)? },
        };
        if is_revoked || children.is_closed {
            return Ok(Err(CreateKeyError::MakerEnded));
        }
        children.keys = match self.with_room(transaction, children.keys, limit, key.created_at)? {
            Ok(keys) => keys,
            Err(current) => return Ok(Err(CreateKeyError::QuotaExceeded { limit, current })),
        };
        children.keys.push(key.id);
        self.put(transaction, maker, &children).map(Ok)
    }

    /// Keys of a list with room for one more: if it is as long as the limit, only those that are live. Otherwise the
    /// number of live keys, which are as many as the limit.
    fn with_room(
        &self,
        transaction: &Transaction<'_>,
        keys: Vec<KeyId>,
        limit: u64,
        now: Timestamp,
    ) -> Result<Result<Vec<KeyId>, u64>, StoreError> {
        if (keys.len() as u64) < limit {
            return Ok(Ok(keys));
        }
        let mut live = Vec::new();
        for id in keys {
            if self.keys.get(transaction, id)?.is_some_and(|child| child.is_live(now)) {
                live.push(id);
            }
        }
        let current = live.len() as u64;
        Ok(if current < limit { Ok(live) } else { Err(current) })
    }

    fn get(&self, transaction: &Transaction<'_>, maker: KeyId) -> Result<Option<Children>, StoreError> {
        let key = row_keys::key_children(maker);
        let value = overflow::get(records::CHILDREN_TABLE, transaction, &self.lists, &key)?;
        value.map(|value| records::decode_children(&value)).transpose()
    }

    fn put(&self, transaction: &mut Transaction<'_>, maker: KeyId, children: &Children) -> Result<(), StoreError> {
        let key = row_keys::key_children(maker);
        overflow::insert(transaction, &self.lists, &key, &records::encode_children(children)?)
    }
}
