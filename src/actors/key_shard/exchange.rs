//! How the shards of several nodes tell each other what they have let in.
//!
//! About once a second a shard tells of the windows that were asked since the last time, and hears
//! what the other nodes have let in at these and at all others that were asked in the last minute:
//! those are at hand. A request for one that is not at hand waits until the shard has heard of it,
//! for a short time at most; then it is answered by what is known. Windows that nobody has asked for
//! a minute cost nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::domain::window::{WindowId, WindowLog};
use crate::store::{SharedNode, StoreError};

/// How long a shard waits from one exchange to the next.
///
/// What is let in here is told within this time, and heard elsewhere within this time after that, and
/// what it takes to write and to read comes on top. Half a second is left for those before more
/// than what comes in during two seconds is let in past a limit.
const EXCHANGE_EVERY: Duration = Duration::from_millis(750);

/// How long an exchange may take before it is given up and begun anew.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a request waits for what the others have let in at a window that is not at hand.
///
/// A store that is well answers in milliseconds, also where one of its nodes is dead. One that takes
/// longer holds up the request's own work as well; that request is let in by what is known here,
/// rather than refused for something that nobody knows, and the next exchange hears of the rest.
const HEARD_WITHIN: Duration = Duration::from_millis(500);

/// How many windows are read at once for requests that wait for them, over all shards of a node.
const HEARINGS_AT_ONCE: usize = 256;

/// How long a window stays at hand after it was asked last, in milliseconds.
const AT_HAND_MS: u64 = 60_000;

/// How many windows a shard keeps at hand that were not asked since the last exchange: those asked
/// last. It bounds what windows cost the store that nobody asks: at most so many reads each
/// [`EXCHANGE_EVERY`]. The others are heard of again when they are asked.
const MOST_IDLE: usize = 512;

/// Of how many failures in a row one is logged as a warning. One a minute.
const WARN_ONCE_IN: u32 = 80;

/// Where shards meet those of other nodes.
#[async_trait]
pub trait WindowExchange: Send + Sync + 'static {
    /// Publishes what this node has let in, for each window in the place of what it published of that
    /// one before, and answers what the other nodes have of the same windows: a log for each node that
    /// has something.
    async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError>;

    /// What the other nodes have of these windows, likewise. Publishes nothing.
    async fn hear(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError>;
}

#[async_trait]
impl WindowExchange for Arc<dyn SharedNode> {
    async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        self.share_windows(own).await
    }

    async fn hear(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        self.windows_elsewhere(windows).await
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
    /// After so long a request no longer waits for what the others have let in.
    pub heard_within: Duration,
    /// Has a permit for each window that may be read at once for requests.
    pub hearings: Semaphore,
}

impl Sharing {
    pub fn new(with: impl WindowExchange, clock: Clock) -> Self {
        Self {
            with: Box::new(with),
            clock,
            every: EXCHANGE_EVERY,
            patience: PATIENCE,
            heard_within: HEARD_WITHIN,
            hearings: Semaphore::new(HEARINGS_AT_ONCE),
        }
    }

    /// Through the store, where other nodes serve from it too.
    pub fn through(store: Arc<dyn SharedNode>, clock: &Clock) -> Option<Self> {
        store.is_shared().then(|| Self::new(store, clock.clone()))
    }

    /// One exchange, in no more time than there is patience for.
    pub(super) async fn exchange(&self, telling: Telling) -> Result<Vec<WindowLog>, StoreError> {
        let Telling { own, idle } = telling;
        // A look-up of nothing is spared.
        let told = async { if own.is_empty() { Ok(Vec::new()) } else { self.with.exchange(own).await } };
        let heard = async { if idle.is_empty() { Ok(Vec::new()) } else { self.with.hear(idle).await } };
        let both = tokio::time::timeout(self.patience, try_join(told, heard)).await;
        let (mut others, of_idle) = both.unwrap_or_else(|_| Err(too_late()))?;
        others.extend(of_idle);
        Ok(others)
    }

    /// What the other nodes have of one window, in the time that a request waits for it.
    pub(super) async fn hear(&self, window: WindowId) -> Result<Vec<WindowLog>, StoreError> {
        let heard = async {
            // Nobody closes it.
            let _permit = self.hearings.acquire().await;
            self.with.hear(vec![window]).await
        };
        // In parts: if the whole process stands still, as with its machine, that takes up one of them.
        let patience = async {
            for _ in 0..4 {
                sleep(self.heard_within / 4).await;
            }
        };
        tokio::select! {
            biased;
            heard = heard => heard,
            () = patience => Err(too_late()),
        }
    }
}

fn too_late() -> StoreError {
    StoreError::Unavailable("no answer in time".into())
}

/// What an exchange is about.
#[derive(Debug, Default)]
pub struct Telling {
    /// Of the windows that were asked since the exchange before.
    pub own: Vec<WindowLog>,
    /// The others that are at hand: to be heard of.
    pub idle: Vec<WindowId>,
}

/// A window that is at hand.
struct AtHand {
    /// When it was asked last, in milliseconds.
    asked_ms: u64,
    /// Whether it was asked since the last exchange began, or in one that failed.
    is_to_tell: bool,
}

/// What is to be told and heard, and where that stands.
#[derive(Default)]
pub struct Turn {
    at_hand: HashMap<WindowId, AtHand>,
    /// What the exchange under way is about.
    under_way: Option<Vec<WindowId>>,
    /// How many have failed since one went well.
    failures: u32,
}

impl Turn {
    /// A window is asked: it is at hand from now on, and told of by the next exchange.
    pub fn note(&mut self, window: WindowId, now_ms: u64) {
        self.at_hand.insert(window, AtHand { asked_ms: now_ms, is_to_tell: true });
    }

    pub fn is_at_hand(&self, window: &WindowId) -> bool {
        self.at_hand.contains_key(window)
    }

    /// Begins an exchange of the windows that are at hand and `still_there`: those that were asked,
    /// and the others. `None` where there are none, or one is under way.
    pub fn begin(
        &mut self,
        now_ms: u64,
        still_there: impl Fn(&WindowId) -> bool,
    ) -> Option<(Vec<WindowId>, Vec<WindowId>)> {
        if self.under_way.is_some() {
            return None;
        }
        // One asked further ahead than a minute was asked before the clock was set back.
        let is_recent = |window: &AtHand| window.is_to_tell || now_ms.abs_diff(window.asked_ms) < AT_HAND_MS;
        self.at_hand.retain(|id, window| is_recent(window) && still_there(id));
        let (mut asked, mut idle) = (Vec::new(), Vec::new());
        for (id, window) in &mut self.at_hand {
            if std::mem::take(&mut window.is_to_tell) {
                asked.push(*id);
            } else {
                idle.push((window.asked_ms, *id));
            }
        }
        if idle.len() > MOST_IDLE {
            idle.select_nth_unstable_by(MOST_IDLE, |(one, _), (other, _)| other.cmp(one));
            for (_, id) in idle.drain(MOST_IDLE..) {
                self.at_hand.remove(&id);
            }
        }
        let idle: Vec<_> = idle.into_iter().map(|(_, id)| id).collect();
        if asked.is_empty() && idle.is_empty() {
            return None;
        }
        self.under_way = Some([&*asked, &*idle].concat());
        Some((asked, idle))
    }

    /// Ends the exchange under way, which went well, and answers what it was about.
    pub fn succeed(&mut self) -> Vec<WindowId> {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "rate windows are shared with other nodes again");
            self.failures = 0;
        }
        self.under_way.take().unwrap_or_default()
    }

    /// Ends the exchange under way, if there is one; the next one makes up for it.
    pub fn give_up(&mut self) {
        for id in self.under_way.take().into_iter().flatten() {
            if let Some(window) = self.at_hand.get_mut(&id) {
                window.is_to_tell = true;
            }
        }
    }

    /// Ends the exchange under way, which failed.
    pub fn fail(&mut self, error: &StoreError) {
        self.give_up();
        if self.failures.is_multiple_of(WARN_ONCE_IN) {
            tracing::warn!(%error, "can't share rate windows with other nodes: each node applies the limits alone until it can");
        } else {
            tracing::debug!(%error, "can't share rate windows");
        }
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::key::KeyId;
    use crate::domain::rate_limit::RateLimitId;

    fn window(number: u128) -> WindowId {
        (KeyId(Uuid::from_u128(number)), RateLimitId::new(4))
    }

    #[test]
    fn a_window_stays_at_hand_for_a_minute_after_it_was_asked_last() {
        let mut turn = Turn::default();
        turn.note(window(1), 1_000);
        assert_eq!(turn.begin(1_000, |_| true), Some((vec![window(1)], vec![])));
        assert_eq!(turn.begin(1_500, |_| true), None, "one is under way");
        turn.succeed();
        assert_eq!(turn.begin(60_999, |_| true), Some((vec![], vec![window(1)])));
        turn.succeed();
        assert_eq!(turn.begin(61_000, |_| true), None);
        assert!(!turn.is_at_hand(&window(1)));
    }

    #[test]
    fn of_the_windows_that_nobody_asks_those_asked_last_are_kept() {
        let mut turn = Turn::default();
        let all = 3 * MOST_IDLE;
        (0..all).for_each(|number| turn.note(window(number as u128), number as u64));
        assert_eq!(turn.begin(2_000, |_| true).map(|(asked, idle)| (asked.len(), idle.len())), Some((all, 0)));
        turn.succeed();
        turn.note(window(0), 2_000);
        let (asked, idle) = turn.begin(2_000, |_| true).unwrap();
        assert_eq!((asked, idle.len()), (vec![window(0)], MOST_IDLE));
        assert!(turn.is_at_hand(&window(all as u128 - 1)) && !turn.is_at_hand(&window(1)));
        assert_eq!(turn.at_hand.len(), MOST_IDLE + 1);
    }

    #[test]
    fn windows_of_a_time_before_the_clock_was_set_back_are_told_once_more_and_forgotten() {
        let mut turn = Turn::default();
        turn.note(window(1), 10_000_000);
        assert_eq!(turn.begin(1_000, |_| true), Some((vec![window(1)], vec![])));
        turn.succeed();
        assert_eq!(turn.begin(1_000, |_| true), None);
    }
}
