//! The timestamps of deliveries' rows.

use std::time::Duration;

use crate::domain::calendar::Day;
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::store::records::columns::bigint;

/// Clusters refuse timestamps that are some days ahead of their own clock. Those of deliveries are so far behind the
/// times of their hits that a node whose clock was wrong for a while can still write.
const TIMESTAMPS_BEHIND: Duration = Duration::from_hours(30 * 24);

/// Later than any state of the round before: a round has at most eleven attempts, ten of them retries.
const ROUND: u64 = 1_000;

/// The timestamp of a state: the time of the hit, the round, the number of the attempt in it, and the rank of the
/// status. If two writers write the same attempt, the one that knows its outcome wins. A replayed delivery is pending
/// again, and an outcome or a claim of an earlier round that is written late changes nothing any more.
pub fn written_at(id: DeliveryId, round: u32, attempt: u32, status: DeliveryStatus) -> i64 {
    let rank = match status {
        DeliveryStatus::Pending => 0,
        DeliveryStatus::Failed => 1,
        DeliveryStatus::Delivered => 2,
    };
    let hit_micros = id.hit.at.minus(TIMESTAMPS_BEHIND).0.saturating_mul(1_000);
    let of_round = (u64::from(attempt) * 10 + rank).min(ROUND - 1);
    bigint(hit_micros.saturating_add(u64::from(round) * ROUND + of_round))
}

/// A timestamp before those of all states of a day.
pub fn day_timestamp(day: Day) -> i64 {
    bigint(day.start().minus(TIMESTAMPS_BEHIND).0.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::link::ShortId;

    #[test]
    fn whatever_a_later_round_writes_wins() {
        let hit = HitStamp { id: HitId(uuid::Uuid::nil()), at: Timestamp(1_795_000_000_000) };
        let id = DeliveryId { link: ShortId::parse("aB3xYz9").unwrap(), hit, url_index: 0 };
        let order = [
            (0, 0, DeliveryStatus::Pending),
            (0, 1, DeliveryStatus::Pending),
            (0, 1, DeliveryStatus::Failed),
            (0, 3, DeliveryStatus::Failed),
            (0, 3, DeliveryStatus::Delivered),
            (0, u32::MAX, DeliveryStatus::Delivered),
            (1, 0, DeliveryStatus::Pending),
            (1, 1, DeliveryStatus::Delivered),
            (7, 0, DeliveryStatus::Pending),
        ];
        assert!(
            order.map(|(round, attempt, status)| written_at(id, round, attempt, status)).is_sorted_by(|a, b| a < b)
        );
    }
}
