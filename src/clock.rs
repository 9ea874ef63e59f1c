//! The current time: the only place that reads the system's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::domain::calendar::Timestamp;

/// The system's clock, or a clock that tests set.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds since the epoch; `None`: the system's clock.
    moved: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands still at `start` until it is moved. Its clones share the time.
    pub fn standing_at(start: Timestamp) -> Self {
        Self { moved: Some(Arc::new(AtomicU64::new(start.0))) }
    }

    pub fn now(&self) -> Timestamp {
        if let Some(millis) = &self.moved {
            return Timestamp(millis.load(Ordering::Relaxed));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Moves a test clock back, as an operator may set back the system's clock.
    pub fn turn_back(&self, by: Duration) {
        if let Some(millis) = &self.moved {
            millis.fetch_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Moves a test clock forward. The system's clock is unaffected.
    pub fn advance(&self, by: Duration) {
        if let Some(millis) = &self.moved {
            millis.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}
