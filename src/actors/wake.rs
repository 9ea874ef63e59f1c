//! How the hit counter wakes the webhook dispatcher. It is here, because the dispatcher uses actors and actors do not use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::domain::calendar::Timestamp;

/// Wakes the dispatcher: there are new deliveries.
#[derive(Clone, Debug, Default)]
pub struct DispatcherWake(Arc<Waking>);

#[derive(Debug)]
struct Waking {
    notify: Notify,
    /// When the earliest of the new deliveries is due, in milliseconds.
    earliest: AtomicU64,
}

impl Default for Waking {
    fn default() -> Self {
        Self { notify: Notify::new(), earliest: AtomicU64::new(u64::MAX) }
    }
}

impl DispatcherWake {
    /// Tells that deliveries were put into the queue, the earliest due at `earliest`.
    pub fn wake(&self, earliest: Timestamp) {
        self.0.earliest.fetch_min(earliest.0, Ordering::AcqRel);
        self.0.notify.notify_one();
    }

    pub async fn woken(&self) {
        self.0.notify.notified().await;
    }

    /// The earliest due time that was told since the last call.
    pub fn take_earliest(&self) -> Option<Timestamp> {
        let earliest = self.0.earliest.swap(u64::MAX, Ordering::AcqRel);
        (earliest != u64::MAX).then_some(Timestamp(earliest))
    }
}
