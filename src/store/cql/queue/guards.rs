//! Writes under way: counts of their buckets wait for them.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::Queues;

/// Deliveries that are about to be written into a queue.
pub struct Expected<'a> {
    pub(super) queues: &'a Queues,
    pub(super) queue: Uuid,
    pub(super) buckets: BTreeSet<i64>,
    /// Buckets whose rows are not known to be written.
    pub unnoted: Vec<i64>,
    /// The new floor, if that in the queue's row is too high.
    pub floor: Option<i64>,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        let mut held = self.queues.held();
        let Some(queue) = held.queues.get_mut(&self.queue) else { return };
        for number in &self.buckets {
            if let Some(bucket) = queue.buckets.get_mut(number) {
                bucket.writes = bucket.writes.saturating_sub(1);
                bucket.note_write();
            }
        }
    }
}

/// Deliveries whose states are being written, until they are [settled](Queues::settled).
pub struct Settling<'a> {
    pub(super) queues: &'a Queues,
    pub(super) buckets: BTreeSet<(Uuid, i64)>,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut held = self.queues.held();
        for (id, number) in &self.buckets {
            if let Some(bucket) = held.queues.get_mut(id).and_then(|queue| queue.buckets.get_mut(number)) {
                bucket.settling = bucket.settling.saturating_sub(1);
            }
        }
    }
}
