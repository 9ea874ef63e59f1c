//! Detects by their beats which queues' holders are gone, by the uptime of this machine only. That includes suspension: a holder that
//! was suspended has lost its queues.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use uuid::Uuid;

use crate::locks::lock;

/// A holder whose beat does not change for so long is gone.
pub const STALE_AFTER: Duration = Duration::from_secs(15);
/// The longest time between two reads of a beat: while this process could not read, the holder may not have been able
/// to beat either.
const LONGEST_GAP: Duration = Duration::from_secs(7);

/// The row of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueRow {
    pub queue: Uuid,
    pub node: Uuid,
    /// The process that works on it; nil after it was released.
    pub holder: Uuid,
    pub holder_node: Uuid,
    pub beat: i64,
    pub floor: i64,
}

/// Queue, node, holder, the holder's node, beat and floor.
pub type QueueColumns = (Uuid, Uuid, Uuid, Uuid, i64, i64);

impl QueueRow {
    pub fn from_columns((queue, node, holder, holder_node, beat, floor): QueueColumns) -> Self {
        Self { queue, node, holder, holder_node, beat, floor }
    }

    /// Whether no process works on it when this node starts: it was released, or its holder was an earlier process of
    /// the node.
    pub fn is_left_by(&self, node: Uuid) -> bool {
        self.holder.is_nil() || self.holder_node == node
    }
}

/// A queue of another process.
struct Watched {
    holder: Uuid,
    beat: i64,
    /// Since when its beat is unchanged.
    since: Duration,
    seen_at: Duration,
}

/// The queues of other processes.
#[derive(Default)]
pub struct Watch(Mutex<HashMap<Uuid, Watched>>);

impl Watch {
    /// Notes the row of a queue that was read at `now`; returns whether its holder is gone.
    pub fn look(&self, row: &QueueRow, now: Duration) -> bool {
        if row.holder.is_nil() {
            // Released.
            return true;
        }
        let mut watched = lock(&self.0);
        let new = || Watched { holder: row.holder, beat: row.beat, since: now, seen_at: now };
        let seen = watched.entry(row.queue).or_insert_with(new);
        let moved = (seen.holder, seen.beat) != (row.holder, row.beat);
        if moved || now.saturating_sub(seen.seen_at) > LONGEST_GAP {
            *seen = new();
        }
        seen.seen_at = now;
        let is_gone = now.saturating_sub(seen.since) >= STALE_AFTER;
        // Queues without a row any more are dropped.
        watched.retain(|_, watched| now.saturating_sub(watched.seen_at) <= LONGEST_GAP);
        is_gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(beat: i64) -> QueueRow {
        let (queue, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        QueueRow { queue, node: other, holder: other, holder_node: other, beat, floor: 0 }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    #[test]
    fn a_holder_is_gone_once_its_beat_is_unchanged_for_long_enough() {
        let watch = Watch::default();
        assert!((0..15).step_by(3).all(|second| !watch.look(&row(7), at(second))));
        assert!(watch.look(&row(7), at(15)));
    }

    #[test]
    fn a_holder_that_beats_is_never_gone() {
        let watch = Watch::default();
        assert!((0..100).all(|step| !watch.look(&row(step / 4), at(u64::try_from(step).unwrap() * 3))));
    }

    #[test]
    fn no_beat_is_missed_while_this_process_could_not_read() {
        let watch = Watch::default();
        assert!(!watch.look(&row(7), at(0)));
        assert!(!watch.look(&row(7), at(60)), "the cluster was away");
        assert!(!watch.look(&row(7), at(66)));
        assert!(!watch.look(&row(8), at(69)), "it was alive");
    }

    #[test]
    fn a_released_queue_is_free_at_once() {
        assert!(Watch::default().look(&QueueRow { holder: Uuid::nil(), ..row(7) }, at(0)));
    }
}
