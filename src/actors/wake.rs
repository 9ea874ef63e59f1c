//! Lets the hit counter wake the webhook dispatcher. It belongs to this part because `webhooks` uses `actors`, and not
//! the other way round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::domain::calendar::Timestamp;

/// Wakes the dispatcher when there are new deliveries.
#[derive(Clone, Debug, Default)]
pub struct DispatcherWake(Arc<Waking>);

#[derive(Debug)]
struct Waking {
    notify: Notify,
    /// The earliest due time of the new deliveries, in milliseconds.
    earliest: AtomicU64,
}

impl Default for Waking {
    fn default() -> Self {
        Self { notify: Notify::new(), earliest: AtomicU64::new(u64::MAX) }
    }
}

impl DispatcherWake {
    /// Notifies the dispatcher of new deliveries in the queue, the first due at `earliest`.
    pub fn wake(&self, earliest: Timestamp) {
        self.0.earliest.fetch_min(earliest.0, Ordering::AcqRel);
        self.0.notify.notify_one();
    }

    /// Notifies the dispatcher of new deliveries that are kept for their first try.
    pub fn wake_for_first_tries(&self) {
        self.0.notify.notify_one();
    }

    pub async fn woken(&self) {
        self.0.notify.notified().await;
    }

    /// The earliest due time of all notifications since the last call.
    pub fn take_earliest(&self) -> Option<Timestamp> {
        let earliest = self.0.earliest.swap(u64::MAX, Ordering::AcqRel);
        (earliest != u64::MAX).then_some(Timestamp(earliest))
    }
}
