//! The keys that each key has created, so that no more of them are live than its limit allows.
//!
//! A creation has two steps: an LWT adds the id to the list of its maker, then the key's record is written (`keys.rs`).
//! If a list is as long as the limit, the next creation reads which of its keys are live, and removes the others. An id
//! without a record belongs to a creation that is under way or was interrupted. It counts for a while; then it is
//! barred: a row without a record is inserted in the place of the record, by an LWT that needs an empty place. So
//! either the record was there first, and the key counts, or it never will be, however late its creation continues.
//!
//! A key that lives longer than before keeps its place on the list, or takes one again. Two steps here, too: an LWT
//! writes the list, also if the key is on it already, then an LWT replaces the key's record. Who takes an expired key off
//! a list raises its revision by an LWT first. So if a key expires while it is extended, either its extension finds
//! another revision and begins anew, or the key is seen to be live, or the list is seen to have changed.
//!
//! The list of a revoked key is closed: nothing is added any more, and ids on it without a record are barred. A key
//! without a list, such as an imported one, gets one from the keys that it sees.

use std::future::ready;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::cluster::AT_ONCE;
use super::keys::CqlKeys;
use super::outcome::CqlError;
use super::pause::Pause;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId};
use crate::store::records::keys as records;
use crate::store::{CreateKeyError, ExtendKeyError, StoreError};

/// How long a creation waits for others that are under way; then they count as interrupted. A request for a key is
/// answered within 15 s.
const CUT_OFF_AFTER: Duration = Duration::from_secs(5);

/// The list of one maker.
struct ChildList {
    /// Grows by one with every change; `None` where there is no list.
    turn: Option<i64>,
    keys: Vec<KeyId>,
    is_closed: bool,
}

/// The place of a key's record.
enum ListPlace {
    Empty,
    /// A row without a record: it never gets one.
    Barred,
    Key(Box<ApiKey>),
}

impl CqlKeys {
    /// Writes a new key, after it is added to the list of its maker.
    pub(super) async fn make_key(&self, key: &ApiKey, limit: Option<u64>) -> Result<(), CreateKeyError> {
        if let (Some(limit), Some(maker)) = (limit, key.created_by()) {
            self.list_child(key, maker, limit).await?;
        }
        Ok(self.put_new_key(key).await?)
    }

    /// Writes a key that lives longer than before, after its place on the list of its maker is certain.
    pub(super) async fn put_extended_key(
        &self,
        key: &ApiKey,
        limit: Option<u64>,
        now: Timestamp,
    ) -> Result<(), ExtendKeyError> {
        if let (Some(limit), Some(maker)) = (limit, key.created_by()) {
            // Read before the list: who takes it off the list afterwards raises this revision.
            let before = self.read_key(key.id).await?.ok_or(ExtendKeyError::Conflict)?;
            if before.revision + 1 != key.revision {
                return Err(ExtendKeyError::Conflict);
            }
            self.keep_place(&before, maker, limit, now).await?;
        }
        Ok(self.put_changed_key(key).await?)
    }

    /// Writes the list of `maker` with `key` on it.
    async fn keep_place(&self, key: &ApiKey, maker: KeyId, limit: u64, now: Timestamp) -> Result<(), ExtendKeyError> {
        let turn = self.makers.of(maker, |_| Mutex::default());
        let _alone = turn.lock().await;
        let mut pause = Pause::within(self.cluster.cql.patience());
        loop {
            let mut list = self.stored_list(maker).await.map_err(StoreError::from)?;
            // A list that was closed before it had keys does not have them either.
            if list.keys.is_empty() {
                list.keys = self.made_by(maker).await?;
            }
            let has_place = list.keys.contains(&key.id) && key.is_live(now);
            if !has_place {
                list.keys.retain(|id| *id != key.id);
                if list.keys.len() as u64 >= limit {
                    let live = self.live_below(list.keys, limit, now).await?;
                    list.keys = live.map_err(|current| ExtendKeyError::QuotaExceeded { limit, current })?;
                }
                list.keys.push(key.id);
            }
            if self.put_list(maker, &list).await? {
                return Ok(());
            }
            if pause.wait().await.is_break() {
                return Err(unsettled_list().into());
            }
        }
    }

    /// Writes a list, if it has not changed since it was read. `false`: it has, or the outcome is unknown.
    async fn put_list(&self, maker: KeyId, list: &ChildList) -> Result<bool, StoreError> {
        let keys: Vec<Uuid> = list.keys.iter().map(|key| key.0).collect();
        let values = (next(list.turn), keys, maker.0, list.turn);
        match self.cluster.cql.lwt(&self.cluster.statements.list_child, values).await {
            Err(error) if error.is_final() => Err(error.into()),
            outcome => Ok(outcome == Ok(true)),
        }
    }

    async fn list_child(&self, key: &ApiKey, maker: KeyId, limit: u64) -> Result<(), CreateKeyError> {
        let turn = self.makers.of(maker, |_| Mutex::default());
        let _alone = turn.lock().await;
        let mut pause = Pause::within(self.cluster.cql.patience());
        loop {
            let mut list = self.stored_list(maker).await.map_err(StoreError::from)?;
            if list.keys.contains(&key.id) {
                return Ok(());
            }
            if list.is_closed {
                return Err(CreateKeyError::MakerEnded);
            }
            if list.turn.is_none() {
                list.keys = self.made_by(maker).await?;
            }
            if list.keys.len() as u64 >= limit {
                let live = self.live_below(list.keys, limit, key.created_at).await?;
                list.keys = live.map_err(|current| CreateKeyError::QuotaExceeded { limit, current })?;
            }
            list.keys.push(key.id);
            // Otherwise the list shows whether it was written.
            if self.put_list(maker, &list).await? {
                return Ok(());
            }
            if pause.wait().await.is_break() {
                return Err(unsettled_list().into());
            }
        }
    }

    /// Those of `keys` that are live or being created, if the limit allows one more; otherwise the number of live keys.
    /// No extension of the others that has begun before can succeed then.
    async fn live_below(
        &self,
        mut keys: Vec<KeyId>,
        limit: u64,
        now: Timestamp,
    ) -> Result<Result<Vec<KeyId>, u64>, StoreError> {
        let mut pause = Pause::within(self.cluster.cql.settings.request_timeout.min(CUT_OFF_AFTER));
        loop {
            let places = stream::iter(keys).map(|id| async move { Ok::<_, StoreError>((id, self.place(id).await?)) });
            let places: Vec<(KeyId, ListPlace)> = places.buffered(AT_ONCE).try_collect().await?;
            let (mut live, mut making, mut expired) = (Vec::new(), Vec::new(), Vec::new());
            for (id, place) in places {
                match place {
                    ListPlace::Key(key) if key.is_live(now) => live.push(id),
                    ListPlace::Key(key) if key.revoked_at.is_none() => expired.push(key),
                    ListPlace::Empty => making.push(id),
                    ListPlace::Key(_) | ListPlace::Barred => {}
                }
            }
            let current = live.len() as u64;
            if current >= limit {
                return Ok(Err(current));
            }
            let counted = [live, making.clone()].concat();
            let expired_ids: Vec<KeyId> = expired.iter().map(|key| key.id).collect();
            if (counted.len() as u64) < limit {
                let raised = stream::iter(expired).map(|key| self.raise_revision(key)).buffer_unordered(AT_ONCE);
                if raised.try_all(ready).await? {
                    return Ok(Ok(counted));
                }
                // A key has changed since it was read, and may be live.
                keys = [counted, expired_ids].concat();
                continue;
            }
            keys = [counted, expired_ids].concat();
            if pause.wait().await.is_break() {
                self.cluster.all(making, |id| self.bar(id)).await?;
            }
        }
    }

    /// Refuses changes of a key that have begun before; nothing else changes. `false` if the key has changed meanwhile.
    async fn raise_revision(&self, key: Box<ApiKey>) -> Result<bool, StoreError> {
        self.replace_record(&ApiKey { revision: key.revision + 1, ..*key }).await
    }

    /// Stops a key from creating keys: those that it is creating exist now, or never will.
    pub(super) async fn close_list(&self, maker: KeyId) -> Result<(), StoreError> {
        let mut pause = Pause::within(self.cluster.cql.patience());
        let keys = loop {
            let list = self.stored_list(maker).await?;
            if list.is_closed {
                // The process that closed it may have stopped before the next step.
                break list.keys;
            }
            match self.cluster.cql.lwt(&self.cluster.statements.close_list, (next(list.turn), maker.0, list.turn)).await
            {
                Ok(true) => break list.keys,
                Err(error) if error.is_final() => return Err(error.into()),
                Ok(false) | Err(_) => {}
            }
            if pause.wait().await.is_break() {
                return Err(StoreError::Unavailable(
                    "the cluster did not close the list of a key's keys in time".into(),
                ));
            }
        };
        self.cluster
            .all(keys, |id| async move {
                match self.place(id).await? {
                    ListPlace::Empty => self.bar(id).await,
                    ListPlace::Barred | ListPlace::Key(_) => Ok(()),
                }
            })
            .await
    }

    /// Ensures that the record of a key exists already, or never will.
    async fn bar(&self, id: KeyId) -> Result<(), StoreError> {
        let attempt = || self.cluster.cql.lwt(&self.cluster.statements.bar_key, (id.0,));
        // An existing row stays as it is.
        let settle = || async { Ok(self.settled_row(id).await?.map(|_| true)) };
        Ok(self.cluster.cql.settled(attempt, settle).await.map(drop)?)
    }

    async fn place(&self, id: KeyId) -> Result<ListPlace, StoreError> {
        let row = self.cluster.cql.read_one::<(Option<String>,)>(&self.cluster.statements.key, (id.0,)).await?;
        Ok(match row {
            None => ListPlace::Empty,
            Some((None,)) => ListPlace::Barred,
            Some((Some(record),)) => ListPlace::Key(Box::new(records::from_json(&record)?)),
        })
    }

    async fn stored_list(&self, maker: KeyId) -> Result<ChildList, CqlError> {
        type ListColumns = (Option<i64>, Option<Vec<Uuid>>, Option<bool>);
        let row = self.cluster.cql.read_one::<ListColumns>(&self.cluster.statements.child_list, (maker.0,)).await?;
        let (turn, keys, is_closed) = row.unwrap_or_default();
        let keys = keys.unwrap_or_default().into_iter().map(KeyId).collect();
        Ok(ChildList { turn, keys, is_closed: is_closed.unwrap_or(false) })
    }

    /// The keys that `maker` has created and that are not revoked, found among all those below it.
    async fn made_by(&self, maker: KeyId) -> Result<Vec<KeyId>, StoreError> {
        let (mut made, mut after) = (Vec::new(), None);
        loop {
            let keys = self.read_keys_seen_by(maker, after, AT_ONCE).await?;
            let Some(last) = keys.last() else { return Ok(made) };
            after = Some(last.id);
            made.extend(keys.iter().filter(|key| key.created_by() == Some(maker)).map(|key| key.id));
        }
    }
}

fn unsettled_list() -> StoreError {
    StoreError::Unavailable("the cluster did not settle the list of a key's keys in time".into())
}

fn next(turn: Option<i64>) -> i64 {
    turn.map_or(1, |turn| turn + 1)
}
