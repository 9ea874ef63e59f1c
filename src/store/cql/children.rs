//! The keys that each key has made, so that no more of them live than its limit says.
//!
//! A creation has two steps: the id is put on the list of its maker by an LWT, then the key's record is written (`keys.rs`). Whoever
//! finds a list that is as long as the limit looks which of its keys live, and leaves out those that do not. An id without a
//! record is that of a creation which is under way or was cut off. It counts for a while; then it is barred: a row without a record
//! is put where its record would be written, which only an empty place lets in. So either the record was there first, and the key
//! counts, or it never will be there, however late its creation goes on.
//!
//! The list of a key that is revoked is closed: nothing is put on it any more, and what is on it without a record is barred.
//! A key without a list, as those from another store are, gets one from the keys that it sees.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::cluster::AT_ONCE;
use super::keys::CqlKeys;
use super::outcome::CqlError;
use super::session::Pause;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId};
use crate::store::records::keys as records;
use crate::store::{CreateKeyError, StoreError};

/// How long a creation that is waited for may be under way, at most: then it was cut off. A request for a key is answered within
/// 15 s, and whoever asks for one waits no longer than this for others.
const CUT_OFF_AFTER: Duration = Duration::from_secs(5);

/// The list of one maker.
struct ChildList {
    /// Grows by one with every change; `None` where there is no list.
    turn: Option<i64>,
    keys: Vec<KeyId>,
    is_closed: bool,
}

/// What is in the place of a key's record.
enum ListPlace {
    Empty,
    /// A row without a record: there never will be one.
    Barred,
    Key(Box<ApiKey>),
}

impl CqlKeys {
    /// Keeps a new key that may be made once it is on the list of its maker.
    pub(super) async fn make_key(&self, key: &ApiKey, limit: Option<u64>) -> Result<(), CreateKeyError> {
        if let (Some(limit), Some(maker)) = (limit, key.created_by()) {
            self.list_child(key, maker, limit).await?;
        }
        Ok(self.put_new_key(key).await?)
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
                let room = self.with_room(list.keys, limit, key.created_at).await?;
                list.keys = room.map_err(|current| CreateKeyError::QuotaExceeded { limit, current })?;
            }
            let keys: Vec<Uuid> = list.keys.iter().chain([&key.id]).map(|key| key.0).collect();
            let values = (next(list.turn), keys, maker.0, list.turn);
            match self.cluster.cql.lwt(&self.cluster.statements.list_child, values).await {
                Ok(true) => return Ok(()),
                Err(error @ CqlError::Unusable(_)) => return Err(StoreError::from(error).into()),
                // Another one was first, or it is not known: the list says which.
                Ok(false) | Err(_) => {}
            }
            if pause.wait().await.is_break() {
                let reason = "the cluster did not settle the list of a key's keys in time";
                return Err(StoreError::Unavailable(reason.into()).into());
            }
        }
    }

    /// Those of `keys` that live or are being made, where there is room for one more; else how many live.
    async fn with_room(
        &self,
        mut keys: Vec<KeyId>,
        limit: u64,
        now: Timestamp,
    ) -> Result<Result<Vec<KeyId>, u64>, StoreError> {
        let mut pause = Pause::within(self.cluster.cql.settings.request_timeout.min(CUT_OFF_AFTER));
        loop {
            let places = stream::iter(keys).map(|id| async move { Ok::<_, StoreError>((id, self.place(id).await?)) });
            let places: Vec<(KeyId, ListPlace)> = places.buffered(AT_ONCE).try_collect().await?;
            let (mut live, mut making) = (Vec::new(), Vec::new());
            for (id, place) in places {
                match place {
                    ListPlace::Key(key) if key.is_live(now) => live.push(id),
                    ListPlace::Empty => making.push(id),
                    ListPlace::Key(_) | ListPlace::Barred => {}
                }
            }
            let current = live.len() as u64;
            if current >= limit {
                return Ok(Err(current));
            }
            keys = [live, making.clone()].concat();
            if (keys.len() as u64) < limit {
                return Ok(Ok(keys));
            }
            if pause.wait().await.is_break() {
                self.cluster.all(making, |id| self.bar(id)).await?;
            }
        }
    }

    /// Has a key make no more keys: those that it is making are there now, or never will be.
    pub(super) async fn close_list(&self, maker: KeyId) -> Result<(), StoreError> {
        let mut pause = Pause::within(self.cluster.cql.patience());
        let keys = loop {
            let list = self.stored_list(maker).await?;
            if list.is_closed {
                // Whoever closed it may not have come to what follows.
                break list.keys;
            }
            match self.cluster.cql.lwt(&self.cluster.statements.close_list, (next(list.turn), maker.0, list.turn)).await
            {
                Ok(true) => break list.keys,
                Err(error @ CqlError::Unusable(_)) => return Err(error.into()),
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

    /// Sees to it that the record of a key is there already, or never will be.
    async fn bar(&self, id: KeyId) -> Result<(), StoreError> {
        let attempt = || self.cluster.cql.lwt(&self.cluster.statements.bar_key, (id.0,));
        // Whatever is there, it stays.
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

    /// The keys that `maker` has made and that are not revoked, found among all those below it.
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

fn next(turn: Option<i64>) -> i64 {
    turn.map_or(1, |turn| turn + 1)
}
