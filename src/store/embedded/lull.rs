//! Times in which little is written. Memory is flushed then: otherwise the memory tables of a burst stay until as much is written
//! again, which may be never.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::engine::Engine;
use crate::memory::release_free;

/// If less than [`LITTLE`] is written in this time, memory is flushed if it has [`WORTH_FLUSHING`].
pub const LULL: Duration = Duration::from_secs(1);
/// A continuous load of this is flushed once a minute.
const LITTLE: u64 = 16 * 1024;
/// Memory tables take about twice as many bytes as were written.
pub const WORTH_FLUSHING: u64 = 1024 * 1024;

/// The queue of the writing thread.
pub struct WriteQueue<J> {
    pub jobs: mpsc::Receiver<J>,
    /// For its timer.
    runtime: Runtime,
}

impl<J> WriteQueue<J> {
    /// # Errors
    /// When the timer cannot be started.
    pub fn new(jobs: mpsc::Receiver<J>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { jobs, runtime })
    }

    /// The next write; `None` once there will be none. Calls `idle` each time none comes for [`LULL`].
    pub fn next(&mut self, mut idle: impl FnMut()) -> Option<J> {
        let Self { jobs, runtime } = self;
        runtime.block_on(async {
            loop {
                match tokio::time::timeout(LULL, jobs.recv()).await {
                    Ok(job) => return job,
                    Err(_) => idle(),
                }
            }
        })
    }
}

/// Finds such times.
pub struct Lull {
    since: Instant,
    /// Bytes that were not flushed then.
    unflushed: u64,
    /// Whether memory was flushed by the last check, and is free by now.
    has_flushed: bool,
}

impl Default for Lull {
    fn default() -> Self {
        Self { since: Instant::now(), unflushed: 0, has_flushed: false }
    }
}

impl Lull {
    /// Called after each write, and when none comes for [`LULL`].
    pub fn check(&mut self, engine: &Engine) {
        if self.since.elapsed() < LULL {
            return;
        }
        if self.has_flushed {
            // If it fails, so do writes, which log the cause.
            drop(engine.drop_flushed());
            release_free();
        }
        // Less than before if memory was flushed meanwhile.
        let written = engine.unflushed().saturating_sub(self.unflushed);
        let has_flushed = written < LITTLE && engine.unflushed() >= WORTH_FLUSHING;
        if has_flushed {
            engine.flush_in_background();
        }
        *self = Self { since: Instant::now(), unflushed: engine.unflushed(), has_flushed };
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use super::super::tables::EmbeddedTables;
    use super::super::transaction::Transaction;
    use super::super::writer::Writer;
    use super::*;

    #[tokio::test]
    async fn memory_is_flushed_when_writes_cease() {
        let directory = tempfile::tempdir().unwrap();
        let tables = Arc::new(EmbeddedTables::open(&directory.path().join("store")).0);
        let writer = Writer::start(Arc::clone(&tables)).unwrap();
        let engine = &tables.engine;
        for number in 0..(2 * WORTH_FLUSHING / 1000) {
            let row = move |tables: &EmbeddedTables, transaction: &mut Transaction<'_>| {
                let key = number.to_be_bytes();
                transaction.insert(&tables.engine.keyspaces.meta, key, vec![7; 1000]).map(Ok::<_, Infallible>)
            };
            let Ok(()) = writer.run(row).await.unwrap();
        }
        assert!(engine.unflushed() >= WORTH_FLUSHING);
        let flushed = async {
            while engine.unflushed() >= WORTH_FLUSHING || engine.keyspaces.meta.table_count() == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), flushed).await.unwrap();
    }
}
