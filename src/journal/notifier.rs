//! Tells the counter that a hit waits whose webhooks are to be fired.

use std::sync::Arc;

use tokio::sync::Notify;

/// Hits are counted some at a time; one that fires webhooks is counted soon, for its receivers wait. To tell costs an
/// atomic exchange while the counter is at work, and once, when it sleeps, the waking of its thread.
#[derive(Clone, Debug, Default)]
pub struct Notifier(Arc<Notify>);

impl Notifier {
    /// A hit with webhooks is in the journal.
    pub fn tell(&self) {
        self.0.notify_one();
    }

    /// Waits until one was told of since the last call.
    pub async fn told(&self) {
        self.0.notified().await;
    }
}
