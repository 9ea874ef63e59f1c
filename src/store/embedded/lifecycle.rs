//! Readiness and closing.

use std::time::Duration;

use async_trait::async_trait;

use super::{EmbeddedStore, OpenStore};
use crate::locks::lock;
use crate::store::{Lifecycle, StoreError};

/// How long the readiness probe waits in the queue of writes.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// How long closing waits for running reads and writes.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

#[async_trait]
impl Lifecycle for EmbeddedStore {
    async fn ready(&self) -> Result<(), StoreError> {
        // On the writing thread: its success shows that writes succeed, and a blocked probe costs no thread.
        let probed = self.put(|tables, _| tables.engine.probe());
        let late = |_| Err(StoreError::Unavailable("writes time out".into()));
        tokio::time::timeout(PROBE_PATIENCE, probed).await.unwrap_or_else(late)
    }

    async fn close(&self) {
        let open = lock(&self.open).take();
        let Some(OpenStore { tables, writer, gone }) = open else { return };
        // The writing thread has the tables too, and finishes the queued writes: nothing is closed here.
        drop((tables, writer));
        let ended = async {
            drop(gone.await);
            self.readers.end().await;
        };
        if tokio::time::timeout(CLOSE_PATIENCE, ended).await.is_err() {
            tracing::error!("store: not closed within the shutdown timeout; all answered writes are durable");
        }
    }
}
