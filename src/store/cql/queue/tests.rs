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
    queues.set_settled_upto(&scan, place(&due(5)));
    assert_eq!(found(&queues).settled_upto, None);
}

#[test]
fn what_is_being_enqueued_is_not_passed_over() {
    let (queues, id) = opened();
    drop(queues.expect(id, &[due(5)]));
    let writing = queues.expect(id, &[due(1)]);
    let scan = found(&queues);
    queues.set_settled_upto(&scan, place(&due(5)));
    assert_eq!(found(&queues).settled_upto, None);
    // The scan may have read the bucket before the end of the write.
    drop(writing);
    queues.set_settled_upto(&scan, place(&due(5)));
    assert_eq!(found(&queues).settled_upto, None);

    let scan = found(&queues);
    queues.settled(id, due(1).due_at, due(1).id);
    queues.set_settled_upto(&scan, place(&due(5)));
    assert_eq!(found(&queues).settled_upto, Some(place(&due(5))));
    // What comes later and is due earlier is found.
    drop(queues.expect(id, &[due(2)]));
    assert_eq!(found(&queues).settled_upto, None);
}

#[test]
fn a_bucket_is_not_counted_while_deliveries_of_it_are_settled() {
    let (queues, id) = opened();
    drop(queues.expect(id, &[due(1), due(5)]));
    let bucket = bucket_of(due(1).due_at);
    let counted = |settled: bool| {
        let version = queues.version(id, bucket).unwrap();
        let found = BTreeMap::from([(AT.day(), if settled { 1 } else { 2 })]);
        let counted = CountedBucket { queue: id, number: bucket, found, is_open: false };
        queues.recounted(counted, version, Duration::ZERO)
    };
    assert!(counted(false));
    let settling = queues.settling([(id, due(1).due_at)]);
    // Its state is written already, and it is counted off afterwards.
    assert!(!counted(true));
    queues.settled(id, due(1).due_at, due(1).id);
    drop(settling);
    assert_eq!(queues.pending(Day(0)), Some(1));
    assert!(counted(true));
    assert_eq!(queues.pending(Day(0)), Some(1));
}

#[test]
fn deliveries_of_a_queue_are_looked_for_again_once_it_may_be_worked_on() {
    let (queues, id) = (Queues::new(Uuid::nil()), Uuid::from_u128(7));
    let told = std::sync::Arc::new(Mutex::new(Vec::new()));
    let tells = std::sync::Arc::clone(&told);
    queues.on_adoption(Box::new(move |earliest| tells.lock().unwrap().push(earliest)));
    let bucket = bucket_of(AT);
    // It was adopted by a request whose answer was lost.
    queues.adopt(id, Hold { beat: 0, floor: bucket, renewed_at: Duration::ZERO }, &[bucket]);
    let now = uptime().max(SAFE_FOR * 2);
    if uptime() < now {
        // The machine has just started.
        return;
    }
    assert!(queues.buckets(i64::MIN, i64::MAX).is_empty());
    queues.record_beat(id, 1, bucket, now);
    queues.record_beat(id, 2, bucket, now);
    assert_eq!(*told.lock().unwrap(), [start_of(bucket)]);
    assert_eq!(queues.buckets(i64::MIN, i64::MAX).len(), 1);
}

#[test]
fn a_delivery_is_looked_for_where_its_bucket_is_in_memory_or_not_below_the_floor() {
    let (queues, own) = opened();
    let (other, gone) = (Uuid::from_u128(8), Uuid::from_u128(9));
    let bucket = bucket_of(due(1).due_at);
    assert!(!queues.is_looked_at(own, due(1).due_at));
    drop(queues.expect(own, &[due(1)]));
    assert!(queues.is_looked_at(own, due(1).due_at));
    let nil = Uuid::nil();
    queues.note_table(&[QueueRow { queue: other, node: nil, holder: nil, holder_node: nil, beat: 1, floor: bucket }]);
    assert!(queues.is_looked_at(other, due(1).due_at) && !queues.is_looked_at(gone, due(1).due_at));
    assert!(!queues.is_looked_at(other, start_of(bucket - 1)));
}

#[test]
fn what_a_count_finds_is_found_by_scans_from_the_beginning() {
    let (queues, id) = opened();
    drop(queues.expect(id, &[due(1), due(5)]));
    let scan = found(&queues);
    queues.settled(id, due(1).due_at, due(1).id);
    queues.set_settled_upto(&scan, place(&due(1)));
    assert_eq!(found(&queues).settled_upto, Some(place(&due(1))));
    let version = queues.version(id, scan.number).unwrap();
    let pending = BTreeMap::from([(AT.day(), 2)]);
    let counted = CountedBucket { queue: id, number: scan.number, found: pending, is_open: false };
    assert!(queues.recounted(counted, version, Duration::ZERO));
    assert_eq!(found(&queues).settled_upto, None);
}

#[test]
fn a_bucket_that_a_scan_found_empty_is_counted_unless_it_changes() {
    let (queues, id) = opened();
    drop(queues.expect(id, &[due(1)]));
    let scan = found(&queues);
    let settling = queues.settling([(id, due(1).due_at)]);
    queues.found_empty(&scan);
    assert_eq!(queues.next_doubtful(), None);
    drop(settling);
    queues.found_empty(&scan);
    assert_eq!(queues.next_doubtful(), Some((id, scan.number)));
    queues.settled(id, due(1).due_at, due(1).id);
    queues.found_empty(&scan);
    assert_eq!(queues.next_doubtful(), None);
}
