//! The current time: the only place that reads the system's clock.

pub mod removal;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::domain::calendar::Timestamp;

/// The time since the start of this machine, including suspension. Nobody sets it.
pub fn uptime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    // Below a second, by its definition.
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The system's clock, or a clock that tests set.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// `None`: the system's clock.
    moved: Option<Arc<MovedClock>>,
}

/// A clock that tests move, in milliseconds.
#[derive(Debug)]
struct MovedClock {
    /// Since the epoch.
    now: AtomicU64,
    uptime: AtomicU64,
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands still at `start` until it is moved. Its clones share the time.
    pub fn standing_at(start: Timestamp) -> Self {
        let moved = MovedClock { now: AtomicU64::new(start.0), uptime: AtomicU64::new(0) };
        Self { moved: Some(Arc::new(moved)) }
    }

    pub fn now(&self) -> Timestamp {
        if let Some(moved) = &self.moved {
            return Timestamp(moved.now.load(Ordering::Relaxed));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(millis(since))
    }

    /// See [`uptime`].
    pub fn uptime(&self) -> Duration {
        self.moved.as_ref().map_or_else(uptime, |moved| Duration::from_millis(moved.uptime.load(Ordering::Relaxed)))
    }

    /// Lets time pass on a test clock. The system's clock is unaffected.
    pub fn advance(&self, by: Duration) {
        if let Some(moved) = &self.moved {
            moved.uptime.fetch_add(millis(by), Ordering::Relaxed);
            moved.now.fetch_add(millis(by), Ordering::Relaxed);
        }
    }

    /// Sets a test clock back, as an operator may set the system's clock.
    pub fn set_back(&self, by: Duration) {
        if let Some(moved) = &self.moved {
            moved.now.fetch_sub(millis(by), Ordering::Relaxed);
        }
    }

    /// Sets a test clock forward, as an operator may set the system's clock.
    pub fn set_forward(&self, by: Duration) {
        if let Some(moved) = &self.moved {
            moved.now.fetch_add(millis(by), Ordering::Relaxed);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
