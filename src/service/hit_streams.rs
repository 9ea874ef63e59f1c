//! Live streams of hits, of a link or of a key: who may open how many, and when they end.

mod open;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use moka::sync::Cache;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};

use self::open::OpenStreams;
pub use self::open::StreamLimits;
use self::open::StreamSlot;
use self::pace::Pace;
use super::{AccessError, owned_link};
use crate::clock::Clock;
use crate::domain::hit::HitSubject;
use crate::domain::key::{ApiKey, SecretHash};
use crate::domain::link::{Link, LinkName, ShortId};
use crate::domain::live_hit::LiveHit;
use crate::feed::{FeedStream, HitFeed, StreamEvent, StreamPlace};
use crate::store::{KeyStore, LinkStore, Store, StoreError};

/// How often a client gets a comment.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Names of links that are kept in memory.
const NAMES: u64 = 20_000;
/// Names that are read at once, for each stream.
const NAMES_AT_ONCE: usize = 16;
/// Hits whose links' names can't be read in time are sent with the id.
const NAMES_READ_WITHIN: Duration = Duration::from_secs(1);

/// Why a stream does not begin.
#[derive(Debug, Error)]
pub enum StreamError {
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The link is untracked: its hits are no analytics.
    #[error("the link is untracked")]
    Untracked,
    #[error("the key has as many streams as it may have")]
    TooMany,
    /// The key has just been revoked.
    #[error("the key is not valid any more")]
    KeyEnded,
    /// The key has just lost the scope.
    #[error("the key may not read analytics any more")]
    ScopeMissing,
}

impl From<StoreError> for StreamError {
    fn from(error: StoreError) -> Self {
        Self::Access(error.into())
    }
}

/// Whose hits a stream tells.
pub enum StreamOf {
    /// All tracked links of the caller.
    Caller,
    /// `None`: a text that is no name of a link.
    Link(Option<LinkName>),
}

/// Opens live streams.
pub struct HitStreamService {
    feed: Arc<HitFeed>,
    links: Arc<dyn LinkStore>,
    names: Cache<ShortId, LinkName>,
    open: Arc<OpenStreams>,
    longest: Duration,
}

/// What a stream sends next.
pub enum StreamStep {
    Events(Vec<StreamEvent>),
    /// A comment, so that the client sees that the stream is alive, and the service whether the client is there.
    Comment,
    End,
}

/// An open stream.
pub struct HitStream {
    feed: Arc<HitFeed>,
    hits: FeedStream,
    slot: StreamSlot,
    pace: Pace,
    ends_at: Instant,
    comment_at: Instant,
}

impl HitStreamService {
    /// `is_shared`: other nodes may serve from the same store.
    pub fn new(feed: Arc<HitFeed>, store: &Arc<dyn Store>, limits: StreamLimits, clock: Clock) -> Self {
        let is_shared = store.is_shared();
        let keys: Arc<dyn KeyStore> = store.clone();
        let longest = limits.longest;
        let open = OpenStreams::new(keys, store.clone(), is_shared, limits, clock);
        let names = Cache::builder().max_capacity(NAMES).build();
        Self { feed, links: store.clone(), names, open: Arc::new(open), longest }
    }

    /// Opens a stream for a caller with this secret, after the place of an earlier one or with the next hit.
    pub async fn open(
        &self,
        caller: &Arc<ApiKey>,
        secret: SecretHash,
        of: StreamOf,
        after: Option<StreamPlace>,
    ) -> Result<HitStream, StreamError> {
        let of = match of {
            StreamOf::Caller => HitSubject::Key(caller.id),
            StreamOf::Link(name) => HitSubject::Link(self.tracked(caller, name).await?.id),
        };
        let slot = self.open.enter(caller, secret).await?;
        let hits = self.feed.listen(of, after).await?;
        let now = Instant::now();
        let (ends_at, comment_at) = (now + self.longest, now + COMMENT_EVERY);
        Ok(HitStream { feed: Arc::clone(&self.feed), hits, slot, pace: Pace::default(), ends_at, comment_at })
    }

    /// Checks that a caller might open a stream.
    pub async fn check(&self, caller: &ApiKey, of: StreamOf) -> Result<(), StreamError> {
        match of {
            StreamOf::Caller => Ok(()),
            StreamOf::Link(name) => self.tracked(caller, name).await.map(drop),
        }
    }

    async fn tracked(&self, caller: &ApiKey, name: Option<LinkName>) -> Result<Link, StreamError> {
        let link = owned_link(&*self.links, caller, name).await?;
        if link.tracked { Ok(link) } else { Err(StreamError::Untracked) }
    }

    /// Reads the names of the links of hits that are not known yet. It takes a bounded time: a stream ends soon after it has
    /// to.
    pub async fn learn_names(&self, of: impl Iterator<Item = &LiveHit>) {
        let unknown: HashSet<ShortId> = of.map(|hit| hit.link).filter(|id| !self.names.contains_key(id)).collect();
        let reading = stream::iter(unknown).for_each_concurrent(NAMES_AT_ONCE, |id| async move {
            match self.links.link_by_id(id).await {
                // The links of a stream are seldom deleted: these are asked for again.
                Ok(link) => link.into_iter().for_each(|link| self.names.insert(id, link.name())),
                Err(error) => tracing::debug!(%error, "can't read the name of a link"),
            }
        });
        let _ = timeout(NAMES_READ_WITHIN, reading).await;
    }

    /// The name of a hit's link, if it is known.
    pub fn name_of(&self, hit: &LiveHit) -> Option<LinkName> {
        self.names.get(&hit.link)
    }

    /// Ends all streams, and each that begins later.
    pub fn end_all(&self) {
        self.open.end_all();
    }

    /// Keeps the streams in order, for as long as the process runs.
    pub async fn run(&self) {
        tokio::join!(self.feed.run(), self.open.run());
    }
}

impl HitStream {
    /// The place of the client, and so the id of an event before which nothing is sent.
    pub fn place(&self) -> String {
        self.hits.cursor.place().to_text()
    }

    /// Waits for what is to be sent next.
    pub async fn next(&mut self) -> StreamStep {
        loop {
            let now = Instant::now();
            if now >= self.ends_at || self.slot.is_over() {
                return StreamStep::End;
            }
            let events = self.hits.cursor.take(self.pace.allowance(now));
            if !events.is_empty() {
                self.pace.note(now, &events);
                self.feed.counts().sent(&events);
                return StreamStep::Events(events);
            }
            if now >= self.comment_at {
                self.comment_at = now + COMMENT_EVERY;
                return StreamStep::Comment;
            }
            // While hits wait for their turn, further ones change nothing.
            let turn = self.pace.next_turn(now).filter(|_| self.hits.cursor.has_more());
            let wake_at = turn.into_iter().fold(self.comment_at.min(self.ends_at), Instant::min);
            tokio::select! {
                () = self.slot.until_over() => {}
                () = self.hits.cursor.changed(), if turn.is_none() => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }
}
