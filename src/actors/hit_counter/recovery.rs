//! Progress of counting the hits that earlier processes left in the journal.

use std::time::Instant;

use crate::domain::hit::Position;
use crate::journal::reader::JournalReader;

/// The progress. It is logged once.
pub struct Recovery {
    /// The last position of those hits.
    pub end: Position,
    began: Instant,
    /// How many of those hits are in the current batch.
    in_batch: u64,
    counted: u64,
}

impl Recovery {
    pub fn of(reader: &JournalReader) -> Option<Self> {
        Some(Self { end: reader.left_upto()?, began: Instant::now(), in_batch: 0, counted: 0 })
    }

    pub fn record_read(recovery: &mut Option<Self>, position: Position) {
        if let Some(recovery) = recovery
            && position <= recovery.end
        {
            recovery.in_batch += 1;
        }
    }

    /// The records of the current batch are to be read again.
    pub fn batch_dropped(&mut self) {
        self.in_batch = 0;
    }

    /// The store has counted the current batch.
    pub fn batch_counted(&mut self) {
        self.counted += std::mem::take(&mut self.in_batch);
    }

    /// Logs nothing if there were no hits, as after a clean end.
    pub fn log(self) {
        if self.counted > 0 {
            let seconds = (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
            tracing::info!(hits = self.counted, seconds, "recovered hits that an earlier process left uncounted");
        }
    }
}
