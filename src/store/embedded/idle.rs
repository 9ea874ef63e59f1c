//! Times in which little is written. Memory is flushed then: otherwise the memory tables of a burst stay until as much is written
//! again, which may be never.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::engine::Engine;
use crate::memory::release_free;

/// If less than [`IDLE_MAX_BYTES`] is written in this time, memory is flushed if it has [`MIN_FLUSH_BYTES`].
pub const IDLE_PERIOD: Duration = Duration::from_secs(1);
/// A continuous load of this is flushed once a minute.
const IDLE_MAX_BYTES: u64 = 16 * 1024;
/// Memory tables take about twice as many bytes as were written.
pub const MIN_FLUSH_BYTES: u64 = 1024 * 1024;

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

    /// The next write; `None` once there will be none. Calls `idle` each time none comes for [`IDLE_PERIOD`].
    pub fn next(&mut self, mut idle: impl FnMut()) -> Option<J> {
        let Self { jobs, runtime } = self;
        runtime.block_on(async {
            loop {
                match tokio::time::timeout(IDLE_PERIOD, jobs.recv()).await {
                    Ok(job) => return job,
                    Err(_) => idle(),
                }
            }
        })
    }
}

/// Finds such times.
pub struct IdleDetector {
    since: Instant,
    /// Bytes that were not flushed then.
    unflushed: u64,
    /// Whether memory was flushed by the last check, and is free by now.
    has_flushed: bool,
}

impl Default for IdleDetector {
    fn default() -> Self {
        Self { since: Instant::now(), unflushed: 0, has_flushed: false }
    }
}

impl IdleDetector {
    /// Called after each write, and when none comes for [`IDLE_PERIOD`].
    pub fn check(&mut self, engine: &Engine) {
        if self.since.elapsed() < IDLE_PERIOD {
            return;
        }
        if self.has_flushed {
            // If it fails, so do writes, which log the cause.
            drop(engine.drop_flushed());
            release_free();
        }
        // There is less than before if memory was flushed meanwhile, which is a sign of many writes.
        let written = engine.unflushed().checked_sub(self.unflushed);
        let is_little = written.is_some_and(|written| written < IDLE_MAX_BYTES);
        let has_flushed = is_little && engine.unflushed() >= MIN_FLUSH_BYTES;
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
        for number in 0..(2 * MIN_FLUSH_BYTES / 1000) {
            let row = move |tables: &EmbeddedTables, transaction: &mut Transaction<'_>| {
                let key = number.to_be_bytes();
                transaction.insert(&tables.engine.keyspaces.meta, key, vec![7; 1000]).map(Ok::<_, Infallible>)
            };
            let Ok(()) = writer.run(row).await.unwrap();
        }
        assert!(engine.unflushed() >= MIN_FLUSH_BYTES);
        let flushed = async {
            while engine.unflushed() >= MIN_FLUSH_BYTES || engine.keyspaces.meta.table_count() == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), flushed).await.unwrap();
    }

    #[test]
    fn a_store_whose_memory_was_flushed_meanwhile_is_not_idle() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0;
        engine.wrote(2 * MIN_FLUSH_BYTES);
        for (before, is_idle) in [(60 * MIN_FLUSH_BYTES, false), (0, false), (2 * MIN_FLUSH_BYTES, true)] {
            let since = Instant::now().checked_sub(IDLE_PERIOD).unwrap();
            let mut idle = IdleDetector { since, unflushed: before, has_flushed: false };
            idle.check(&engine);
            assert_eq!(idle.has_flushed, is_idle, "{before}");
        }
    }
}
