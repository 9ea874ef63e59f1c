use super::*;
use crate::domain::hit::{HitId, HitStamp};
use crate::domain::link::ShortId;

const AT: Timestamp = Timestamp(1_795_000_000_000);

fn due(ms: u64) -> QueuedDelivery {
    let hit = HitStamp { id: HitId(Uuid::nil()), at: AT };
    let id = DeliveryId { link: ShortId::parse("aB3xYz9").unwrap(), hit, url_index: 0 };
    QueuedDelivery { due_at: Timestamp(AT.0 + ms), id, round: 0 }
}

fn place(due: &QueuedDelivery) -> BucketPlace {
    (bigint(due.due_at.0), due.id.to_bytes())
}

fn opened() -> (Queues, Uuid) {
    let (queues, id) = (Queues::new(Uuid::nil()), Uuid::from_u128(7));
    queues.open(id, Hold { beat: 0, floor: 0, renewed_at: uptime() });
    (queues, id)
}

/// The bucket of the tests, as a scan finds it.
fn found(queues: &Queues) -> HeldBucket {
    queues.buckets(i64::MIN, i64::MAX).remove(0)
}

#[test]
fn what_is_enqueued_during_a_scan_is_not_passed_over() {
    let (queues, id) = opened();
    drop(queues.expect(id, &[due(5)]));
    let scan = found(&queues);
    // It begins and ends while the scan reads the states of what it has read.
    drop(queues.expect(id, &[due(1)]));
    queues.is_dead(&scan, place(&due(5)));
    assert_eq!(found(&queues).dead_upto, None);
}

#[test]
fn what_is_being_enqueued_is_not_passed_over() {
    let (queues, id) = opened();
    drop(queues.expect(id, &[due(5)]));
    let writing = queues.expect(id, &[due(1)]);
    let scan = found(&queues);
    queues.is_dead(&scan, place(&due(5)));
    assert_eq!(found(&queues).dead_upto, None);
    // The scan may have read the bucket before the end of the write.
    drop(writing);
    queues.is_dead(&scan, place(&due(5)));
    assert_eq!(found(&queues).dead_upto, None);

    let scan = found(&queues);
    queues.settled(id, due(1).due_at, due(1).id);
    queues.is_dead(&scan, place(&due(5)));
    assert_eq!(found(&queues).dead_upto, Some(place(&due(5))));
    // What comes later and is due earlier is found.
    drop(queues.expect(id, &[due(2)]));
    assert_eq!(found(&queues).dead_upto, None);
}
