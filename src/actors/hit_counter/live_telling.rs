//! Live streams are told of hits before these are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::domain::live_hit::LiveEntry;
use crate::feed::HitFeed;
use crate::store::StoreError;

/// How long counting waits for live streams if other nodes can't be told of hits, or asked who listens.
const STREAMS_WAITED_FOR: Duration = Duration::from_secs(5);

/// What live streams are told of hits.
pub struct LiveTelling {
    feed: Arc<HitFeed>,
    pub untold: Vec<LiveEntry>,
    learning: Failing,
    telling: Failing,
}

/// Since when something fails without a success.
#[derive(Default)]
struct Failing(Option<Instant>);

impl Failing {
    /// Whether it is done. After some time of failures its error is passed over: the streams of other nodes are not waited for
    /// any more.
    fn or_given_up(&mut self, done: Result<(), StoreError>) -> Result<bool, StoreError> {
        let Err(error) = done else {
            self.0 = None;
            return Ok(true);
        };
        if self.0.get_or_insert_with(Instant::now).elapsed() < STREAMS_WAITED_FOR {
            return Err(error);
        }
        tracing::debug!(%error, "can't tell the live streams of other nodes of hits");
        Ok(false)
    }
}

impl LiveTelling {
    pub fn new(feed: Arc<HitFeed>) -> Self {
        Self { feed, untold: Vec::new(), learning: Failing::default(), telling: Failing::default() }
    }

    /// Learns who listens, before records are read.
    pub async fn learn_listeners(&mut self) -> Result<(), StoreError> {
        let learned = self.feed.learn_listeners().await;
        self.learning.or_given_up(learned).map(drop)
    }

    /// Tells the hits of a batch, before it is counted.
    pub async fn tell(&mut self) -> Result<(), StoreError> {
        if self.untold.is_empty() {
            return Ok(());
        }
        let told = self.feed.tell(&self.untold).await;
        if !self.telling.or_given_up(told)? {
            self.feed.leave_out(&self.untold);
        }
        self.untold = Vec::new();
        Ok(())
    }
}
