//! The exchange of rate windows between the shards of several nodes.
//!
//! About once a second a shard publishes the windows that had requests since the last exchange, and reads what the
//! other nodes admitted at these and at all other windows that had requests within the last minute: those windows are
//! *tracked*. A request at a window that is not tracked first waits until the shard has read it from the other nodes,
//! for a short time at most; then it is decided by what is known. A window without requests for a minute costs nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::domain::key::KeyId;
use crate::domain::window::{WindowId, WindowLog};
use crate::store::{SharedNode, StoreError};

/// The interval between two exchanges.
///
/// A request admitted here is published within this interval, and other nodes read it within one more interval, plus
/// the time to write and to read. That leaves half a second for writing and reading before a limit is exceeded by more
/// than the requests of two seconds.
const EXCHANGE_EVERY: Duration = Duration::from_millis(750);

/// The timeout of an exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of one key in an exchange: a key whose rows are out of reach delays the other keys no longer than that.
const KEY_TIMEOUT: Duration = Duration::from_secs(2);

/// Keys that an exchange asks for at once.
const KEYS_AT_ONCE: usize = 64;

/// How long a request waits for a window that is not tracked.
///
/// A healthy store answers in milliseconds, even if one of its nodes is down. A slower one delays the request's own
/// work as well. Such a request is decided by what is known here, instead of being refused, and the next exchange reads
/// the rest.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// How many windows are read at once for waiting requests, over all shards of a node.
const READS_AT_ONCE: usize = 256;

/// How long a window stays tracked after its last request, in milliseconds.
const TRACKED_MS: u64 = 60_000;

/// How many tracked windows without requests since the last exchange a shard keeps: those with the latest requests. It
/// bounds the reads for idle windows to this number each [`EXCHANGE_EVERY`]. The others are read again at their next
/// request.
const MOST_IDLE: usize = 512;

/// One of this many failures in a row is logged as a warning: one a minute.
const WARN_ONCE_IN: u32 = 80;

/// Publishes the windows of this node and reads those of the others.
#[async_trait]
pub trait WindowExchange: Send + Sync + 'static {
    /// Publishes the windows of this node, each in place of its last version. Returns the same windows of the other
    /// nodes: one log for each node that has one.
    async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError>;

    /// Returns these windows of the other nodes. Publishes nothing.
    async fn read_others(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError>;
}

#[async_trait]
impl WindowExchange for Arc<dyn SharedNode> {
    async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        self.share_windows(own).await
    }

    async fn read_others(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        self.windows_elsewhere(windows).await
    }
}

/// How windows are shared with other nodes.
pub struct Sharing {
    pub with: Box<dyn WindowExchange>,
    pub clock: Clock,
    /// The interval between two exchanges.
    pub every: Duration,
    /// The timeout of an exchange.
    pub exchange_timeout: Duration,
    /// The timeout of one key in an exchange.
    pub key_timeout: Duration,
    /// How long a request waits for the windows of other nodes.
    pub read_timeout: Duration,
    /// One permit for each window that may be read at once for requests.
    pub read_permits: Semaphore,
}

impl Sharing {
    pub fn new(with: impl WindowExchange, clock: Clock) -> Self {
        Self {
            with: Box::new(with),
            clock,
            every: EXCHANGE_EVERY,
            exchange_timeout: EXCHANGE_TIMEOUT,
            key_timeout: KEY_TIMEOUT,
            read_timeout: READ_TIMEOUT,
            read_permits: Semaphore::new(READS_AT_ONCE),
        }
    }

    /// Shares windows through the store, if other nodes use it too.
    pub fn through(store: Arc<dyn SharedNode>, clock: &Clock) -> Option<Self> {
        store.is_shared().then(|| Self::new(store, clock.clone()))
    }

    /// Runs one exchange within its timeout. A key that fails does not hide the windows of the others.
    pub(super) async fn exchange(&self, request: ExchangeRequest) -> Exchanged {
        let ExchangeRequest { own, idle } = request;
        let published = grouped(own, |log| log.key).map(|own| {
            let windows = own.iter().map(|log| (log.key, log.rate_limit)).collect();
            (windows, self.with.exchange(own))
        });
        let read = grouped(idle, |(key, _)| *key).map(|idle| (idle.clone(), self.with.read_others(idle)));
        let asked = published.chain(read).map(|(windows, answering): (Vec<WindowId>, _)| async move {
            let answer = timeout(self.key_timeout, answering).await;
            (windows, answer.unwrap_or_else(|_| Err(too_late())))
        });
        let mut exchanged = Exchanged::default();
        let all = async {
            let mut answers = stream::iter(asked).buffer_unordered(KEYS_AT_ONCE);
            while let Some((windows, answer)) = answers.next().await {
                match answer {
                    Ok(others) => {
                        exchanged.others.extend(others);
                        exchanged.answered.extend(windows);
                    }
                    Err(error) => exchanged.error = Some(error),
                }
            }
        };
        if timeout(self.exchange_timeout, all).await.is_err() {
            exchanged.error = Some(too_late());
        }
        exchanged
    }

    /// Reads one window of the other nodes within the time that a request waits for it.
    pub(super) async fn read_others(&self, window: WindowId) -> Result<Vec<WindowLog>, StoreError> {
        let found = async {
            // The semaphore is never closed.
            let _permit = self.read_permits.acquire().await;
            self.with.read_others(vec![window]).await
        };
        // Four short waits: if the whole process is suspended, for example with its machine, that uses up one of them.
        let timeout = async {
            for _ in 0..4 {
                sleep(self.read_timeout / 4).await;
            }
        };
        tokio::select! {
            biased;
            found = found => found,
            () = timeout => Err(too_late()),
        }
    }
}

/// Items by their keys.
fn grouped<T>(items: Vec<T>, key: impl Fn(&T) -> KeyId) -> impl Iterator<Item = Vec<T>> {
    let mut groups: HashMap<KeyId, Vec<T>> = HashMap::new();
    for item in items {
        groups.entry(key(&item)).or_default().push(item);
    }
    groups.into_values()
}

fn too_late() -> StoreError {
    StoreError::Unavailable("no answer in time".into())
}

/// The windows of an exchange.
#[derive(Debug, Default)]
pub struct ExchangeRequest {
    /// Windows that had requests since the last exchange: they are published and read.
    pub own: Vec<WindowLog>,
    /// The other tracked windows: they are only read.
    pub idle: Vec<WindowId>,
}

/// What an exchange has found.
#[derive(Debug, Default)]
pub struct Exchanged {
    /// A log for each node that has one of an answered window.
    pub others: Vec<WindowLog>,
    pub answered: HashSet<WindowId>,
    /// Why the other windows have no answer.
    pub error: Option<StoreError>,
}

/// A tracked window.
struct TrackedWindow {
    /// The time of the last request, in milliseconds.
    requested_ms: u64,
    /// Whether it had requests since the last exchange began, or in one that failed.
    is_unpublished: bool,
}

/// Which windows to publish and to read, and the exchange in progress.
#[derive(Default)]
pub struct ExchangeSchedule {
    tracked: HashMap<WindowId, TrackedWindow>,
    /// The windows of the exchange in progress.
    under_way: Option<Vec<WindowId>>,
    /// The number of failures since the last success.
    failures: u32,
}

impl ExchangeSchedule {
    /// Notes a request: its window is tracked from now on, and published by the next exchange.
    pub fn note(&mut self, window: WindowId, now_ms: u64) {
        self.tracked.insert(window, TrackedWindow { requested_ms: now_ms, is_unpublished: true });
    }

    pub fn is_tracked(&self, window: &WindowId) -> bool {
        self.tracked.contains_key(window)
    }

    /// Begins an exchange of the tracked windows that are `still_known`. Returns those with new requests, and the
    /// others. `None` if there are none, or an exchange is in progress.
    pub fn begin(
        &mut self,
        now_ms: u64,
        still_known: impl Fn(&WindowId) -> bool,
    ) -> Option<(Vec<WindowId>, Vec<WindowId>)> {
        if self.under_way.is_some() {
            return None;
        }
        // A request more than a minute ahead came before the clock was set back.
        let is_recent =
            |window: &TrackedWindow| window.is_unpublished || now_ms.abs_diff(window.requested_ms) < TRACKED_MS;
        self.tracked.retain(|id, window| is_recent(window) && still_known(id));
        let (mut asked, mut idle) = (Vec::new(), Vec::new());
        for (id, window) in &mut self.tracked {
            if std::mem::take(&mut window.is_unpublished) {
                asked.push(*id);
            } else {
                idle.push((window.requested_ms, *id));
            }
        }
        if idle.len() > MOST_IDLE {
            idle.select_nth_unstable_by(MOST_IDLE, |(one, _), (other, _)| other.cmp(one));
            for (_, id) in idle.drain(MOST_IDLE..) {
                self.tracked.remove(&id);
            }
        }
        let idle: Vec<_> = idle.into_iter().map(|(_, id)| id).collect();
        if asked.is_empty() && idle.is_empty() {
            return None;
        }
        self.under_way = Some([&*asked, &*idle].concat());
        Some((asked, idle))
    }

    /// Ends the exchange in progress; returns the windows that were answered. The next one publishes the others again.
    pub fn end(&mut self, answered: &HashSet<WindowId>, error: Option<&StoreError>) -> Vec<WindowId> {
        let (ended, failed): (Vec<_>, Vec<_>) =
            self.under_way.take().into_iter().flatten().partition(|id| answered.contains(id));
        self.publish_again(&failed);
        match error {
            Some(error) => self.note_failure(error, failed.len()),
            None if self.failures > 0 => {
                tracing::info!(failures = self.failures, "rate windows are shared with other nodes again");
                self.failures = 0;
            }
            None => {}
        }
        ended
    }

    /// Ends the exchange in progress, if there is one; the next one publishes its windows again.
    pub fn give_up(&mut self) {
        let windows = self.under_way.take().unwrap_or_default();
        self.publish_again(&windows);
    }

    fn publish_again(&mut self, windows: &[WindowId]) {
        for id in windows {
            if let Some(window) = self.tracked.get_mut(id) {
                window.is_unpublished = true;
            }
        }
    }

    fn note_failure(&mut self, error: &StoreError, windows: usize) {
        if self.failures.is_multiple_of(WARN_ONCE_IN) {
            tracing::warn!(%error, windows, "can't share rate windows with other nodes: each node applies these limits alone until it can");
        } else {
            tracing::debug!(%error, windows, "can't share rate windows");
        }
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::rate_limit::RateLimitId;

    fn window(number: u128) -> WindowId {
        (KeyId(Uuid::from_u128(number)), RateLimitId::new(4))
    }

    fn end(schedule: &mut ExchangeSchedule) {
        let all = schedule.under_way.clone().unwrap_or_default().into_iter().collect();
        schedule.end(&all, None);
    }

    #[test]
    fn windows_without_an_answer_are_published_again() {
        let mut schedule = ExchangeSchedule::default();
        (1..4).for_each(|number| schedule.note(window(number), 1_000));
        assert!(schedule.begin(1_000, |_| true).is_some());
        let error = StoreError::Unavailable("out of reach".into());
        assert_eq!(schedule.end(&HashSet::from([window(2)]), Some(&error)), [window(2)]);
        let (mut asked, idle) = schedule.begin(1_500, |_| true).unwrap();
        asked.sort_unstable_by_key(|(key, _)| key.0);
        assert_eq!((asked, idle), (vec![window(1), window(3)], vec![window(2)]));
    }

    #[test]
    fn a_window_stays_tracked_for_a_minute_after_it_was_asked_last() {
        let mut schedule = ExchangeSchedule::default();
        schedule.note(window(1), 1_000);
        assert_eq!(schedule.begin(1_000, |_| true), Some((vec![window(1)], vec![])));
        assert_eq!(schedule.begin(1_500, |_| true), None, "one is under way");
        end(&mut schedule);
        assert_eq!(schedule.begin(60_999, |_| true), Some((vec![], vec![window(1)])));
        end(&mut schedule);
        assert_eq!(schedule.begin(61_000, |_| true), None);
        assert!(!schedule.is_tracked(&window(1)));
    }

    #[test]
    fn of_the_windows_without_requests_those_with_the_latest_are_kept() {
        let mut schedule = ExchangeSchedule::default();
        let all = 3 * MOST_IDLE;
        (0..all).for_each(|number| schedule.note(window(number as u128), number as u64));
        assert_eq!(schedule.begin(2_000, |_| true).map(|(asked, idle)| (asked.len(), idle.len())), Some((all, 0)));
        end(&mut schedule);
        schedule.note(window(0), 2_000);
        let (asked, idle) = schedule.begin(2_000, |_| true).unwrap();
        assert_eq!((asked, idle.len()), (vec![window(0)], MOST_IDLE));
        assert!(schedule.is_tracked(&window(all as u128 - 1)) && !schedule.is_tracked(&window(1)));
        assert_eq!(schedule.tracked.len(), MOST_IDLE + 1);
    }

    #[test]
    fn windows_from_before_the_clock_was_set_back_are_published_once_more_and_forgotten() {
        let mut schedule = ExchangeSchedule::default();
        schedule.note(window(1), 10_000_000);
        assert_eq!(schedule.begin(1_000, |_| true), Some((vec![window(1)], vec![])));
        end(&mut schedule);
        assert_eq!(schedule.begin(1_000, |_| true), None);
    }
}
