//! Publishes hits to live streams before they are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::domain::live_hit::LiveEntry;
use crate::feed::HitFeed;
use crate::store::StoreError;

/// How long counting waits for live streams if hits can't be published to other nodes, or the listeners there can't be read.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes hits to live streams.
pub struct LiveHitPublisher {
    feed: Arc<HitFeed>,
    pub unpublished: Vec<LiveEntry>,
    learning: FailingSince,
    publishing: FailingSince,
}

/// Since when something fails without a success.
#[derive(Default)]
struct FailingSince(Option<Instant>);

impl FailingSince {
    /// Returns whether the call succeeded. After [`PUBLISH_TIMEOUT`] of failures it returns `false` instead of the error, so that counting
    /// no longer waits for the streams of other nodes.
    fn give_up_after_timeout(&mut self, done: Result<(), StoreError>) -> Result<bool, StoreError> {
        let Err(error) = done else {
            self.0 = None;
            return Ok(true);
        };
        if self.0.get_or_insert_with(Instant::now).elapsed() < PUBLISH_TIMEOUT {
            return Err(error);
        }
        tracing::debug!(%error, "can't publish hits to the live streams of other nodes");
        Ok(false)
    }
}

impl LiveHitPublisher {
    pub fn new(feed: Arc<HitFeed>) -> Self {
        Self { feed, unpublished: Vec::new(), learning: FailingSince::default(), publishing: FailingSince::default() }
    }

    /// Reads the listeners of all nodes, before records are read.
    pub async fn learn_listeners(&mut self) -> Result<(), StoreError> {
        let learned = self.feed.learn_listeners().await;
        self.learning.give_up_after_timeout(learned).map(drop)
    }

    /// Publishes the hits of a batch, before it is counted.
    pub async fn publish(&mut self) -> Result<(), StoreError> {
        if self.unpublished.is_empty() {
            return Ok(());
        }
        let published = self.feed.publish(&self.unpublished).await;
        if !self.publishing.give_up_after_timeout(published)? {
            self.feed.publish_locally_only(&self.unpublished);
        }
        self.unpublished = Vec::new();
        Ok(())
    }
}
