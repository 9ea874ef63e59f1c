//! Wakes the hit counter when a hit has webhooks.

use std::sync::Arc;

use tokio::sync::Notify;

/// The hit counter waits between batches. This ends its wait early, because receivers of webhooks wait for a hit that
/// has them. A notification costs one atomic exchange while the counter works, and a wake-up of its thread once while
/// it waits.
#[derive(Clone, Debug, Default)]
pub struct Notifier(Arc<Notify>);

impl Notifier {
    /// Call this when a hit with webhooks is in the journal.
    pub fn notify(&self) {
        self.0.notify_one();
    }

    /// Waits for a call of [`Self::notify`]; returns at once if there was one since the last wait.
    pub async fn notified(&self) {
        self.0.notified().await;
    }
}
