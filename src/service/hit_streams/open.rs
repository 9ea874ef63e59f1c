//! The open streams of each key: how many there may be, on all nodes together, and whether the key is still valid.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::StreamError;
use crate::clock::Clock;
use crate::domain::key::{ApiKey, KeyId, Scope, SecretHash, Tier};
use crate::locks::lock;
use crate::service::striped_locks::StripedLocks;
use crate::store::{HitStreamStore, KeyStore, StoreError};

/// How often keys are read again, and the numbers of their streams published.
const CHECK_EVERY: Duration = Duration::from_millis(1_500);
/// How often to look for streams that are over. One task does that for all streams: a thousand streams that each woke for it
/// took as much CPU as 3,000 redirects a second.
const LOOK_EVERY: Duration = Duration::from_millis(700);
/// A stream whose key could not be read for so long ends: it may be revoked, and streams end within 5 s of that.
const VALID_FOR: Duration = Duration::from_millis(4_200);
/// How long one key's check, and one publication, may take: the other keys wait for it.
const CHECKED_WITHIN: Duration = Duration::from_secs(1);
/// Keys that are read at once.
const AT_ONCE: usize = 32;
/// How often a key's streams are counted again if some began on several nodes at the same time.
const COUNTED_AGAIN: u32 = 3;

/// How many streams a key may have at once, and how long each lasts. The root key may have any number.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    pub free: u32,
    pub pro: u32,
    pub longest: Duration,
}

impl StreamLimits {
    fn of(self, key: &ApiKey) -> Option<u32> {
        match key.tier {
            _ if key.is_root => None,
            Tier::Free => Some(self.free),
            Tier::Pro => Some(self.pro),
        }
    }
}

/// The streams of this node, by key.
pub struct OpenStreams {
    keys: Arc<dyn KeyStore>,
    shared: Arc<dyn HitStreamStore>,
    is_shared: bool,
    limits: StreamLimits,
    clock: Clock,
    of_keys: Mutex<HashMap<KeyId, StreamsOfKey>>,
    /// Whether the process ends. Changes while the lock of `of_keys` is held.
    are_over: AtomicBool,
    /// Publications of one key's number, one after another.
    locks: StripedLocks,
    /// A stream has ended: the number of its key's streams is to be published.
    ended: Notify,
}

struct StreamsOfKey {
    open: u32,
    key: Arc<ApiKey>,
    /// When it was last read.
    read_at: Instant,
    /// Whether other nodes know a higher number of streams.
    is_fewer: bool,
    /// Tells the streams that were opened with a secret when they are over.
    over: HashMap<SecretHash, watch::Sender<bool>>,
}

/// A stream that counts for its key until it is dropped.
pub struct StreamSlot {
    streams: Arc<OpenStreams>,
    key: KeyId,
    over: watch::Receiver<bool>,
}

impl OpenStreams {
    pub fn new(
        keys: Arc<dyn KeyStore>,
        shared: Arc<dyn HitStreamStore>,
        is_shared: bool,
        limits: StreamLimits,
        clock: Clock,
    ) -> Self {
        let (of_keys, are_over, locks, ended) = Default::default();
        Self { keys, shared, is_shared, limits, clock, of_keys, are_over, locks, ended }
    }

    /// Begins a stream of a caller with this secret.
    pub async fn enter(self: &Arc<Self>, caller: &ApiKey, secret: SecretHash) -> Result<StreamSlot, StreamError> {
        // The caller's record may be some seconds old.
        let read_at = Instant::now();
        let key = self.keys.key(caller.id).await?.map(Arc::new).ok_or(StreamError::KeyEnded)?;
        check_listener(&key, secret, &self.clock)?;
        let limit = self.limits.of(&key);
        let slot = self.enter_here(key, read_at, secret, limit).ok_or(StreamError::TooMany)?;
        if let Some(limit) = limit.filter(|_| self.is_shared) {
            self.check_elsewhere(slot.key, limit).await?;
        }
        Ok(slot)
    }

    fn enter_here(
        self: &Arc<Self>,
        key: Arc<ApiKey>,
        read_at: Instant,
        secret: SecretHash,
        limit: Option<u32>,
    ) -> Option<StreamSlot> {
        let id = key.id;
        let mut of_keys = self.of_keys();
        let new =
            || StreamsOfKey { open: 0, key: Arc::clone(&key), read_at, is_fewer: false, over: HashMap::default() };
        let of_key = of_keys.entry(id).or_insert_with(new);
        if limit.is_some_and(|limit| of_key.open >= limit) {
            return None;
        }
        of_key.open += 1;
        (of_key.key, of_key.read_at) = (key, read_at.max(of_key.read_at));
        let over = of_key.over.entry(secret).or_default();
        let are_over = self.are_over.load(Ordering::Relaxed);
        if are_over || *over.borrow() {
            // Earlier ones may be over because the key could not be read for a while.
            *over = watch::Sender::new(are_over);
        }
        Some(StreamSlot { streams: Arc::clone(self), key: id, over: over.subscribe() })
    }

    /// Counts the streams of a key on all nodes. Each node publishes its number before it reads the others': of two that
    /// begin at once, at least one is seen. If both are, both count again after times of their own.
    async fn check_elsewhere(&self, key: KeyId, limit: u32) -> Result<(), StreamError> {
        for attempt in 0..=COUNTED_AGAIN {
            self.publish(key).await?;
            let elsewhere = self.shared.streams_elsewhere(key).await?;
            let here = self.of_keys().get(&key).map_or(0, |of_key| of_key.open);
            if here.saturating_add(elsewhere) <= limit {
                return Ok(());
            }
            // Streams that have ended a moment ago may still be counted.
            if attempt < COUNTED_AGAIN {
                sleep(Duration::from_millis(60 + u64::from(uuid::Uuid::new_v4().as_bytes()[0]))).await;
            }
        }
        Err(StreamError::TooMany)
    }

    /// Tells other nodes how many streams of a key are open here.
    async fn publish(&self, key: KeyId) -> Result<(), StoreError> {
        if !self.is_shared {
            return Ok(());
        }
        let _lock = self.locks.lock(key).await?;
        let open = {
            let mut of_keys = self.of_keys();
            let of_key = of_keys.get_mut(&key);
            of_key.map_or(0, |of_key| {
                of_key.is_fewer = false;
                of_key.open
            })
        };
        self.shared.share_open_streams(key, open).await
    }

    /// Reads keys again, ends streams and publishes numbers, for as long as the process runs.
    pub async fn run(&self) {
        tokio::join!(self.check_and_publish(), self.end_invalid());
    }

    async fn end_invalid(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            for of_key in self.of_keys().values_mut() {
                of_key.end_invalid(&self.clock);
            }
        }
    }

    /// Ends all streams, and each that begins later.
    pub fn end_all(&self) {
        let of_keys = self.of_keys();
        self.are_over.store(true, Ordering::Relaxed);
        for over in of_keys.values().flat_map(|of_key| of_key.over.values()) {
            over.send_replace(true);
        }
    }

    async fn check_and_publish(&self) {
        loop {
            let next_check = Instant::now() + CHECK_EVERY;
            self.check_all().await;
            while let Some(left) = next_check.checked_duration_since(Instant::now())
                && timeout(left, self.ended.notified()).await.is_ok()
            {
                self.publish_all(|of_key| of_key.is_fewer).await;
                self.forget_closed();
            }
        }
    }

    async fn check_all(&self) {
        let keys: Vec<KeyId> = self.of_keys().keys().copied().collect();
        let checks = keys.into_iter().map(|id| async move {
            let read_at = Instant::now();
            match in_time(self.keys.key(id)).await {
                Ok(key) => self.note_key(id, key, read_at),
                Err(error) => tracing::debug!(%error, "can't read the key of a live stream"),
            }
        });
        stream::iter(checks).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        self.publish_all(|_| true).await;
        self.forget_closed();
    }

    fn note_key(&self, id: KeyId, key: Option<ApiKey>, read_at: Instant) {
        let mut of_keys = self.of_keys();
        // A key that is not there is never valid again.
        if let (Some(of_key), Some(key)) = (of_keys.get_mut(&id), key)
            && key.revision >= of_key.key.revision
        {
            of_key.key = Arc::new(key);
            of_key.read_at = read_at;
        }
    }

    async fn publish_all(&self, which: impl Fn(&StreamsOfKey) -> bool) {
        let keys: Vec<KeyId> = self.of_keys().iter().filter(|(_, of)| which(of)).map(|(id, _)| *id).collect();
        let publications = keys.into_iter().map(|key| async move {
            if let Err(error) = in_time(self.publish(key)).await {
                tracing::debug!(%error, "can't publish the number of open live streams");
            }
        });
        stream::iter(publications).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }

    fn forget_closed(&self) {
        self.of_keys().retain(|_, of_key| of_key.open > 0 || of_key.is_fewer);
    }

    fn of_keys(&self) -> MutexGuard<'_, HashMap<KeyId, StreamsOfKey>> {
        lock(&self.of_keys)
    }
}

impl StreamsOfKey {
    /// Ends the streams that may not go on, as far as is known, and forgets secrets that have no stream.
    fn end_invalid(&mut self, clock: &Clock) {
        let is_known = self.read_at.elapsed() < VALID_FOR;
        self.over.retain(|secret, over| {
            if !(is_known && check_listener(&self.key, *secret, clock).is_ok()) {
                over.send_replace(true);
            }
            over.receiver_count() > 0
        });
    }
}

/// The result of a call of the store, which fails if it takes too long.
async fn in_time<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| StoreError::Unavailable("no answer within a second".into());
    timeout(CHECKED_WITHIN, call).await.map_err(late).flatten()
}

/// Whether a key with this secret may listen.
fn check_listener(key: &ApiKey, secret: SecretHash, clock: &Clock) -> Result<(), StreamError> {
    if !key.accepts(&secret, clock.now()) {
        return Err(StreamError::KeyEnded);
    }
    if key.scopes.contains(Scope::AnalyticsRead) { Ok(()) } else { Err(StreamError::ScopeMissing) }
}

impl StreamSlot {
    /// Whether the stream is over: its key may not go on listening, as far as is known, or the process ends.
    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits until the stream is over.
    pub async fn until_over(&mut self) {
        // Who has a slot is known to the sender.
        let _ = self.over.wait_for(|is_over| *is_over).await;
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut of_keys = self.streams.of_keys();
        if let Entry::Occupied(mut of_key) = of_keys.entry(self.key) {
            let of_key = of_key.get_mut();
            of_key.open -= 1;
            // Nobody is to be told of it on a store that no other node has.
            of_key.is_fewer = self.streams.is_shared;
        }
        drop(of_keys);
        self.streams.ended.notify_one();
    }
}
