//! API keys: by id, by secret, by the keys that see them.
//!
//! Only the record is authoritative; the other rows help to find it. They are written before it and removed after it,
//! so a crash in between leaves rows that the record does not confirm, and those are skipped.

use std::sync::Arc;

use futures_util::future::{try_join, try_join_all};
use scylla::value::CqlTimestamp;
use tokio::sync::Mutex;
use uuid::Uuid;

use super::cluster::Cluster;
use super::in_use::InUse;
use super::outcome::CqlError;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, Scope, SecretHash};
use crate::store::records::columns::{bigint, timestamp, timestamp_from};
use crate::store::records::{corrupt, keys as records};
use crate::store::{StoreError, UpdateKeyError};

/// Idle makers are dropped once more than this many are in memory.
const MAX_IDLE_MAKERS: usize = 10_000;

/// Rows that help to find a record have its revision as timestamp: writes and removals of a later revision win,
/// independent of clocks. Within a revision, writes win over removals.
fn written_at(revision: u64) -> i64 {
    bigint(2 * revision + 1)
}

fn removed_at(revision: u64) -> i64 {
    bigint(2 * revision)
}

/// The secrets that find a key.
fn secrets(key: &ApiKey) -> impl Iterator<Item = SecretHash> {
    let live = key.revoked_at.is_none();
    let all = std::iter::once(key.secret_hash).chain(key.retiring_secret.as_ref().map(|old| old.secret));
    all.filter(move |_| live)
}

/// API keys.
pub struct CqlKeys {
    pub(super) cluster: Arc<Cluster>,
    /// Held to add a key to the list of its maker: one at a time in this process, because concurrent LWTs would only
    /// conflict.
    pub(super) makers: InUse<KeyId, Mutex<()>, MAX_IDLE_MAKERS>,
}

impl CqlKeys {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), makers: InUse::default() }
    }

    pub(super) async fn put_new_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        let statements = &self.cluster.statements;
        self.put_index_rows(key).await?;
        let record = records::to_json(key)?;
        let attempt =
            || async { self.cluster.cql.lwt(&statements.create_key, (key.id.0, bigint(key.revision), &record)).await };
        let settle = || async { Ok(self.settled_row(key.id).await?.map(|there| there.as_ref() == Some(&record))) };
        if self.cluster.cql.settled(attempt, settle).await? {
            return Ok(());
        }
        match self.settled_row(key.id).await? {
            // Another key has this id, and stays.
            Some(Some(_)) => Ok(()),
            _ => Err(StoreError::Unavailable("its creation took too long and counts as interrupted".into())),
        }
    }

    pub(super) async fn put_changed_key(&self, key: &ApiKey) -> Result<(), UpdateKeyError> {
        let before = self.read_key(key.id).await?.ok_or(UpdateKeyError::Conflict)?;
        if before.revision + 1 != key.revision {
            return Err(UpdateKeyError::Conflict);
        }
        // A key that was changed may have had the scope before, and may be creating keys with it.
        let may_create = key.scopes.contains(Scope::KeysManage) || before.revision > 1;
        if key.revoked_at.is_some() && may_create {
            self.close_list(key.id).await?;
        }
        self.put_index_rows(key).await?;
        if !self.replace_record(key).await? {
            return Err(UpdateKeyError::Conflict);
        }
        // The change is effective already: rows that are left behind are skipped by reads.
        if let Err(error) = self.remove_index_rows(&before, key).await {
            tracing::debug!(%error, key = %key.id, "can't delete old rows of a changed API key");
        }
        Ok(())
    }

    /// Replaces the record of the previous revision by that of `key`; `false` if the key has another revision.
    pub(super) async fn replace_record(&self, key: &ApiKey) -> Result<bool, StoreError> {
        let before = key.revision.saturating_sub(1);
        let record = records::to_json(key)?;
        let values = (bigint(key.revision), &record, key.id.0, bigint(before));
        let attempt = || async { self.cluster.cql.lwt(&self.cluster.statements.update_key, values).await };
        let settle = || async {
            let Some(Some(there)) = self.settled_row(key.id).await? else { return Ok(Some(false)) };
            // As it was before: nothing is decided.
            let there_is = |revision| records::from_json(&there).is_ok_and(|there| there.revision == revision);
            Ok(if there_is(before) { None } else { Some(there == record) })
        };
        Ok(self.cluster.cql.settled(attempt, settle).await?)
    }

    /// Writes the rows that find a key.
    async fn put_index_rows(&self, key: &ApiKey) -> Result<(), StoreError> {
        let (statements, at, id) = (&self.cluster.statements, written_at(key.revision), key.id.0.as_bytes().as_slice());
        let by_secret = secrets(key).map(|hash| async move {
            self.cluster.cql.write(&statements.put_secret, (hash.0.as_slice(), id, at)).await
        });
        let viewers = if key.revoked_at.is_none() { key.ancestors_of_child() } else { Vec::new() };
        let by_viewer = viewers
            .into_iter()
            .map(|viewer| async move { self.cluster.cql.write(&statements.put_view, (viewer.0, id, at)).await });
        try_join(try_join_all(by_secret), try_join_all(by_viewer)).await?;
        Ok(())
    }

    /// Removes the rows that found the key as it was before, and not as it is now.
    async fn remove_index_rows(&self, before: &ApiKey, now: &ApiKey) -> Result<(), StoreError> {
        let (statements, at, id) = (&self.cluster.statements, removed_at(now.revision), now.id.0.as_bytes().as_slice());
        let kept: Vec<_> = secrets(now).collect();
        let gone = secrets(before).filter(|hash| !kept.contains(hash));
        let by_secret = gone
            .map(|hash| async move { self.cluster.cql.write(&statements.drop_secret, (at, hash.0.as_slice())).await });
        let viewers = if now.revoked_at.is_some() { before.ancestors_of_child() } else { Vec::new() };
        let by_viewer = viewers
            .into_iter()
            .map(|viewer| async move { self.cluster.cql.write(&statements.drop_view, (at, viewer.0, id)).await });
        try_join(try_join_all(by_secret), try_join_all(by_viewer)).await?;
        Ok(())
    }

    /// The record in a key's row, if there is a row: one without a record was barred (`children.rs`).
    pub(super) async fn settled_row(&self, id: KeyId) -> Result<Option<Option<String>>, CqlError> {
        let row = self.cluster.cql.read_one::<(Option<String>,)>(&self.cluster.statements.key_settled, (id.0,)).await?;
        Ok(row.map(|(record,)| record))
    }

    pub(super) async fn read_key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let row = self.cluster.cql.read_one::<(Option<String>,)>(&self.cluster.statements.key, (id.0,)).await?;
        row.and_then(|(record,)| record).map(|record| records::from_json(&record)).transpose()
    }

    pub(super) async fn read_key_by_secret(&self, hash: SecretHash) -> Result<Option<ApiKey>, StoreError> {
        let row = self
            .cluster
            .cql
            .read_one::<(Vec<u8>,)>(&self.cluster.statements.key_of_secret, (hash.0.as_slice(),))
            .await?;
        let Some((id,)) = row else { return Ok(None) };
        let key = self.read_key(key_id(&id)?).await?;
        Ok(key.filter(|key| secrets(key).any(|known| known.matches(&hash))))
    }

    pub(super) async fn read_keys_seen_by(
        &self,
        viewer: KeyId,
        mut after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let mut found = Vec::new();
        while found.len() < limit {
            let page = i32::try_from(limit - found.len()).unwrap_or(i32::MAX);
            let rows: Vec<(Vec<u8>,)> = match after {
                None => self.cluster.cql.read(&self.cluster.statements.views, (viewer.0, page)).await?,
                Some(after) => {
                    let values = (viewer.0, after.0.as_bytes().as_slice(), page);
                    self.cluster.cql.read(&self.cluster.statements.views_after, values).await?
                }
            };
            let ids = rows.iter().map(|(id,)| key_id(id)).collect::<Result<Vec<_>, _>>()?;
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            let keys = try_join_all(ids.iter().map(|id| self.read_key(*id))).await?;
            let is_seen = |key: &ApiKey| key.revoked_at.is_none() && key.ancestors_of_child().contains(&viewer);
            found.extend(keys.into_iter().flatten().filter(is_seen));
        }
        Ok(found)
    }

    pub(super) async fn write_key_uses(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        self.cluster
            .all(uses, |(key, at)| async move {
                let values = (key.0, timestamp(at), bigint(at.0));
                Ok(self.cluster.cql.write(&self.cluster.statements.note_use, values).await?)
            })
            .await
    }

    pub(super) async fn read_last_uses(&self, keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let read = |key: KeyId| async move {
            let row = self
                .cluster
                .cql
                .read_one::<(Option<CqlTimestamp>,)>(&self.cluster.statements.key_use, (key.0,))
                .await?;
            Ok::<_, CqlError>(row.and_then(|(at,)| at).map(timestamp_from))
        };
        Ok(try_join_all(keys.into_iter().map(read)).await?)
    }
}

fn key_id(bytes: &[u8]) -> Result<KeyId, StoreError> {
    Uuid::from_slice(bytes).map(KeyId).map_err(|error| corrupt(records::TABLE, &error))
}
