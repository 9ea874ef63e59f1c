//! What every file of the store needs of the engine (fjall): its errors, and batches that are durable.

use std::time::Duration;

use fjall::{Database, OwnedWriteBatch, PersistMode};

use crate::store::StoreError;
use crate::telemetry::log_limit::LogLimit;

/// A batch with capacity for this many rows, which are durable once it is committed.
///
/// `fdatasync` is enough for that: it leaves out only what is not needed to read the data back (times, owner, mode),
/// and a file's size and blocks are needed. The engine allocates a new journal at its full size and syncs that file and
/// its directory before the first use (`fsync`), so nothing else is pending when a batch is written.
pub fn durable_batch(database: &Database, rows: usize) -> OwnedWriteBatch {
    OwnedWriteBatch::with_capacity(database.clone(), rows).durability(Some(PersistMode::SyncData))
}

pub fn engine_error(error: &fjall::Error) -> StoreError {
    StoreError::Unavailable(match error {
        fjall::Error::Locked => "another process has it open".into(),
        fjall::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    })
}

/// The error of every call after the store is closed.
pub fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

/// Logs that a row can't be read and is removed all the same, because its time is over: it must not keep others from being removed.
pub fn log_removed_unread(error: &StoreError) {
    static LINES: LogLimit = LogLimit::new(Duration::from_mins(1));
    if let Some(rows) = LINES.admit() {
        tracing::error!(%error, rows, "store: removed an old row that can't be read");
    }
}
