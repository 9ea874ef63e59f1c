//! The timestamps of deliveries' rows.

use std::time::Duration;

use crate::domain::calendar::Day;
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::store::records::columns::bigint;

/// Clusters refuse timestamps that are some days ahead of their own clock. Those of deliveries are so far behind the
/// times of their hits that a node whose clock was wrong for a while can still write.
const TIMESTAMPS_BEHIND: Duration = Duration::from_hours(30 * 24);

/// The timestamp of a state: the time of the hit, the number of the attempt, and the rank of the status. If two writers
/// write the same attempt, the one that knows its outcome wins.
pub fn written_at(id: DeliveryId, attempt: u32, status: DeliveryStatus) -> i64 {
    let rank = match status {
        DeliveryStatus::Pending => 0,
        DeliveryStatus::Failed => 1,
        DeliveryStatus::Delivered => 2,
    };
    let hit_micros = id.hit.at.minus(TIMESTAMPS_BEHIND).0.saturating_mul(1_000);
    bigint(hit_micros.saturating_add(u64::from(attempt) * 10 + rank))
}

/// A timestamp before those of all states of a day.
pub fn day_timestamp(day: Day) -> i64 {
    bigint(day.start().minus(TIMESTAMPS_BEHIND).0.saturating_mul(1_000))
}
