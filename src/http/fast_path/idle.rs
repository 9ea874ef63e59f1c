//! The idle connections of a worker: which of them are over, by one timer for all.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

/// Connections are ended at their time, or at most so much later: they are looked through that often.
const LOOKED_THROUGH_EVERY: Duration = Duration::from_millis(250);

/// The connections of a worker that wait for their client.
///
/// A connection that makes progress writes down a time, and nothing else. A timer for each of them, set anew for each request,
/// costs as much as to parse it.
pub struct IdleConnections {
    /// The shortest time that a connection may be idle.
    shortest: Duration,
    entries: RefCell<Entries>,
    have_ended: Cell<bool>,
}

#[derive(Default)]
struct Entries {
    all: Vec<Entry>,
    free: Vec<usize>,
    /// Woken when there is an entry where there was none.
    timer: Option<Waker>,
}

struct Entry {
    over_at: Instant,
    is_over: bool,
    /// `None` in a free entry.
    waker: Option<Waker>,
}

impl IdleConnections {
    pub fn new(shortest: Duration) -> Self {
        Self { shortest, entries: RefCell::default(), have_ended: Cell::new(false) }
    }

    /// Ends all that are idle now or later: the process stops.
    pub fn end_all(&self) {
        self.have_ended.set(true);
        for entry in &self.entries.borrow().all {
            if let Some(waker) = &entry.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// Whether all have ended.
    pub fn have_ended(&self) -> bool {
        self.have_ended.get()
    }

    /// Wakes connections whose time is over, for as long as it is awaited.
    pub async fn watch(&self) {
        let lag = LOOKED_THROUGH_EVERY.min(self.shortest / 8);
        loop {
            poll_fn(|context| self.poll_any(context)).await;
            let now = tokio::time::Instant::now().into_std();
            let next = self.wake_those_over(now).unwrap_or(now);
            // A connection that comes meanwhile is over at the earliest after the shortest time.
            sleep_until(next.min(now + self.shortest).max(now + lag).into()).await;
        }
    }

    /// Ready when there are idle connections.
    fn poll_any(&self, context: &Context<'_>) -> Poll<()> {
        let entries = &mut *self.entries.borrow_mut();
        if entries.all.len() > entries.free.len() {
            return Poll::Ready(());
        }
        entries.timer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns when the next one is over.
    fn wake_those_over(&self, now: Instant) -> Option<Instant> {
        let mut next = None;
        for entry in &mut self.entries.borrow_mut().all {
            let Some(waker) = &entry.waker else { continue };
            if entry.is_over {
                continue;
            }
            if entry.over_at <= now {
                entry.is_over = true;
                waker.wake_by_ref();
            } else if next.is_none_or(|next| entry.over_at < next) {
                next = Some(entry.over_at);
            }
        }
        next
    }
}

/// The place of one connection among the idle ones, once it has waited.
pub struct IdleEntry {
    connections: Rc<IdleConnections>,
    index: Option<usize>,
}

impl IdleEntry {
    pub fn new(connections: Rc<IdleConnections>) -> Self {
        Self { connections, index: None }
    }

    /// Ready when `over_at` has come, or when all have ended. Until then it may be asked again with a later time.
    pub fn poll_over(&mut self, over_at: Instant, context: &Context<'_>) -> Poll<()> {
        if self.connections.have_ended() {
            return Poll::Ready(());
        }
        let entries = &mut *self.connections.entries.borrow_mut();
        let Some(index) = self.index else {
            self.index = Some(entries.insert(over_at, context.waker()));
            return Poll::Pending;
        };
        let entry = &mut entries.all[index];
        if entry.over_at != over_at {
            (entry.over_at, entry.is_over) = (over_at, false);
        }
        if !entry.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            entry.waker = Some(context.waker().clone());
        }
        if entry.is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Entries {
    fn insert(&mut self, over_at: Instant, waker: &Waker) -> usize {
        if let Some(timer) = self.timer.take() {
            timer.wake();
        }
        let entry = Entry { over_at, is_over: false, waker: Some(waker.clone()) };
        if let Some(index) = self.free.pop() {
            self.all[index] = entry;
            return index;
        }
        self.all.push(entry);
        self.all.len() - 1
    }

    fn remove(&mut self, index: usize) {
        self.all[index].waker = None;
        self.free.push(index);
        // After a peak, its memory is given back.
        if self.free.len() == self.all.len() {
            (self.all, self.free) = (Vec::new(), Vec::new());
        }
    }
}

impl Drop for IdleEntry {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.connections.entries.borrow_mut().remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// With the timer at work.
    fn idle_connections() -> Rc<IdleConnections> {
        let idle = Rc::new(IdleConnections::new(10 * SECOND));
        tokio::task::spawn_local({
            let idle = Rc::clone(&idle);
            async move { idle.watch().await }
        });
        idle
    }

    async fn over(entry: &mut IdleEntry, over_at: Instant) {
        poll_fn(|context| entry.poll_over(over_at, context)).await;
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_connection_is_ended_at_its_time_or_a_moment_later() {
        let idle = idle_connections();
        let began = now();
        for seconds in [10, 75, 11] {
            let mut entry = IdleEntry::new(Rc::clone(&idle));
            let over_at = now() + seconds * SECOND;
            over(&mut entry, over_at).await;
            assert!(now() >= over_at && now() - over_at <= LOOKED_THROUGH_EVERY, "{seconds} {:?}", now() - began);
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn one_that_makes_progress_goes_on() {
        let idle = idle_connections();
        let mut entry = IdleEntry::new(Rc::clone(&idle));
        for _ in 0..20 {
            let over_at = now() + 10 * SECOND;
            assert!(timeout(9 * SECOND, over(&mut entry, over_at)).await.is_err(), "before its time");
        }
        timeout(11 * SECOND, over(&mut entry, now() + 10 * SECOND)).await.unwrap();
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn one_that_comes_after_a_long_quiet_time_is_ended_in_time() {
        let idle = idle_connections();
        let mut first = IdleEntry::new(Rc::clone(&idle));
        let long = over(&mut first, now() + 3600 * SECOND);
        assert!(timeout(SECOND, long).await.is_err());
        advance(100 * SECOND).await;
        let mut second = IdleEntry::new(Rc::clone(&idle));
        timeout(11 * SECOND, over(&mut second, now() + 10 * SECOND)).await.unwrap();
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn all_end_at_once_when_the_process_stops() {
        let idle = idle_connections();
        let mut waiting: Vec<_> = (0..100).map(|_| IdleEntry::new(Rc::clone(&idle))).collect();
        let hour = now() + 3600 * SECOND;
        let all = poll_fn(|context| {
            let pending =
                waiting.iter_mut().filter_map(|entry| entry.poll_over(hour, context).is_pending().then_some(()));
            if pending.count() == 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        let stops = async {
            tokio::time::sleep(SECOND).await;
            idle.end_all();
        };
        timeout(2 * SECOND, async { tokio::join!(all, stops) }).await.unwrap();
    }

    #[tokio::test(flavor = "local")]
    async fn a_place_that_is_free_is_used_again_and_all_are_given_back() {
        let idle = Rc::new(IdleConnections::new(SECOND));
        let wait = || async {
            let mut entry = IdleEntry::new(Rc::clone(&idle));
            poll_fn(|context| Poll::Ready(entry.poll_over(now() + SECOND, context))).await.is_pending().then_some(entry)
        };
        let (first, second) = (wait().await, wait().await);
        drop(first);
        let third = wait().await;
        assert_eq!(idle.entries.borrow().all.len(), 2);
        drop((second, third));
        assert_eq!(idle.entries.borrow().all.capacity(), 0);
    }
}
