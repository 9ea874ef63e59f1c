//! How the shards of several nodes tell each other what they have let in.
//!
//! About once a second a shard tells of the windows that were asked since the last time, and hears
//! what the other nodes have let in at the same. Windows that nobody asks cost nothing, and one that
//! is asked for the first time answers by what this node knows.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::domain::endpoint::Endpoint;
use crate::domain::key::KeyId;
use crate::domain::window::WindowLog;
use crate::store::{Store, StoreError};

/// How long a shard waits from one exchange to the next.
///
/// What is let in here is told within this time, and heard elsewhere within this time after that, and
/// what it takes to write and to read comes on top. Half a second is left for those before more
/// than what comes in during two seconds is let in past a limit.
const EXCHANGE_EVERY: Duration = Duration::from_millis(750);

/// How long an exchange may take before it is given up and begun anew.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of how many failures in a row one is logged as a warning. One a minute.
const WARN_ONCE_IN: u32 = 80;

/// Where shards meet those of other nodes.
#[async_trait]
pub trait WindowExchange: Send + Sync + 'static {
    /// Publishes what this node has let in, for each window in the place of what it published of that
    /// one before, and answers what the other nodes have of the same windows: a log for each node that
    /// has something.
    async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError>;
}

#[async_trait]
impl WindowExchange for Arc<dyn Store> {
    async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        self.share_windows(own).await
    }
}

/// How windows are shared with other nodes.
pub struct Sharing {
    pub with: Box<dyn WindowExchange>,
    pub clock: Clock,
    /// From one exchange to the next.
    pub every: Duration,
    /// After so long an exchange is given up.
    pub patience: Duration,
}

impl Sharing {
    pub fn new(with: impl WindowExchange, clock: Clock) -> Self {
        Self { with: Box::new(with), clock, every: EXCHANGE_EVERY, patience: PATIENCE }
    }

    /// Through the store, where other nodes serve from it too.
    pub fn through(store: &Arc<dyn Store>, clock: &Clock) -> Option<Self> {
        store.is_shared().then(|| Self::new(Arc::clone(store), clock.clone()))
    }

    /// One exchange, in no more time than there is patience for.
    pub(super) async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        let too_late = |_| Err(StoreError::Unavailable("no answer in time".into()));
        tokio::time::timeout(self.patience, self.with.exchange(own)).await.unwrap_or_else(too_late)
    }
}

/// A window: that of a key at an endpoint.
pub type WindowId = (KeyId, Endpoint);

/// What is to be told, and where the telling stands.
#[derive(Default)]
pub struct Turn {
    /// Asked since the last exchange began, or left from one that failed.
    asked: HashSet<WindowId>,
    /// What the exchange under way is about.
    under_way: Option<Vec<WindowId>>,
    /// How many have failed since one went well.
    failures: u32,
}

impl Turn {
    pub fn note(&mut self, window: WindowId) {
        self.asked.insert(window);
    }

    /// Begins an exchange of the windows that were asked and are `still_there`; `None` where there are
    /// none, or one is under way.
    pub fn begin(&mut self, still_there: impl Fn(&WindowId) -> bool) -> Option<&[WindowId]> {
        if self.under_way.is_some() {
            return None;
        }
        let asked: Vec<_> = self.asked.drain().filter(still_there).collect();
        if asked.is_empty() {
            return None;
        }
        Some(self.under_way.insert(asked))
    }

    /// Ends the exchange under way, which went well, and answers what it was about.
    pub fn succeed(&mut self) -> Vec<WindowId> {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "windows are shared with the other nodes again");
            self.failures = 0;
        }
        self.under_way.take().unwrap_or_default()
    }

    /// Ends the exchange under way, if there is one; the next one makes up for it.
    pub fn give_up(&mut self) {
        self.asked.extend(self.under_way.take().into_iter().flatten());
    }

    /// Ends the exchange under way, which failed.
    pub fn fail(&mut self, error: &StoreError) {
        self.give_up();
        if self.failures.is_multiple_of(WARN_ONCE_IN) {
            tracing::warn!(%error, "windows are not shared: limits hold for each node alone until they are");
        } else {
            tracing::debug!(%error, "windows are not shared");
        }
        self.failures = self.failures.saturating_add(1);
    }
}
