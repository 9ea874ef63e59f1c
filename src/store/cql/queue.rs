//! The queues of deliveries that this process works on: its own, and those it adopted.
//!
//! A queue is created by one process of a node. Its holder increases the queue's beat every few seconds. A process that
//! sees no new beat for long enough takes the queue over, by LWT. A holder whose beats fail stops working on the queue
//! well before that, so that no two processes work on one queue. Each process measures this with its own monotonic
//! clock: clocks are never compared.

mod bucket;
mod counts;
mod guards;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use uuid::Uuid;

use self::bucket::Bucket;
pub use self::counts::CountedBucket;
pub use self::guards::{Expected, Settling};
use super::watch::{QueueRow, STALE_AFTER, Watch};
use crate::clock::uptime;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::webhook::DeliveryId;
use crate::locks::lock;
use crate::store::records::columns::bigint;
use crate::store::{AdoptionHook, StoreError};

/// The interval of beats.
pub const BEAT_EVERY: Duration = Duration::from_secs(3);
/// How long after the last successful beat work on a queue may begin.
const SAFE_FOR: Duration = Duration::from_secs(9);
/// The length of a bucket of due times, in milliseconds.
const BUCKET_MS: u64 = 10_000;

/// The bucket of a due time.
pub fn bucket_of(due_at: Timestamp) -> i64 {
    bigint(due_at.0 / BUCKET_MS)
}

/// The earliest due time of a bucket.
pub fn start_of(bucket: i64) -> Timestamp {
    Timestamp(u64::try_from(bucket).unwrap_or(0) * BUCKET_MS)
}

/// The first time behind a bucket.
pub fn end_of(bucket: i64) -> Timestamp {
    start_of(bucket.saturating_add(1))
}

/// A place in a bucket: a due time and a delivery.
pub type BucketPlace = (i64, [u8; 32]);

/// A due time of a delivery, for a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueuedDelivery {
    pub due_at: Timestamp,
    pub id: DeliveryId,
    /// The round of the delivery.
    pub round: u32,
}

/// A queue when this process takes it.
#[derive(Clone, Copy)]
pub struct Hold {
    pub beat: i64,
    /// The floor in its row: buckets below it are empty.
    pub floor: i64,
    /// When the last successful beat was sent, by [`uptime`].
    pub renewed_at: Duration,
}

/// A bucket of a queue that is held.
#[derive(Clone, Copy)]
pub struct HeldBucket {
    pub number: i64,
    pub queue: Uuid,
    /// All deliveries up to this place are settled.
    pub settled_upto: Option<BucketPlace>,
    written: u64,
    version: u64,
}

/// A queue that this process holds.
struct Queue {
    beat: i64,
    /// The floor in its row: buckets below it are empty.
    floor: i64,
    /// When the last successful beat was sent, by [`uptime`].
    renewed_at: Duration,
    buckets: BTreeMap<i64, Bucket>,
    /// The highest bucket there ever was.
    highest: i64,
}

impl Queue {
    fn new(Hold { beat, floor, renewed_at }: Hold) -> Self {
        Self { beat, floor, renewed_at, buckets: BTreeMap::new(), highest: floor }
    }

    fn is_safe(&self) -> bool {
        uptime().saturating_sub(self.renewed_at) < SAFE_FOR
    }

    /// The lowest bucket that may have anything pending.
    fn lowest(&self) -> i64 {
        self.buckets.keys().next().copied().unwrap_or(self.highest)
    }
}

/// The queues that this process holds.
pub struct Queues {
    pub node: Uuid,
    held: Mutex<HeldQueue>,
    pub watch: Watch,
    adoption_hook: Mutex<Option<AdoptionHook>>,
}

#[derive(Default)]
struct HeldQueue {
    /// The queue for new deliveries.
    own: Option<Uuid>,
    queues: BTreeMap<Uuid, Queue>,
    /// Buckets to count: adopted, or after a write with an unknown outcome.
    doubtful: BTreeSet<(Uuid, i64)>,
    /// The floors of all queues in the cluster's table, of any process.
    floors: HashMap<Uuid, i64>,
    /// How many queues this process has adopted.
    adoptions: u64,
}

impl HeldQueue {
    /// `floor`: that of the queue if it is in the table.
    fn is_looked_at(&self, queue: Uuid, due_at: Timestamp, floor: Option<i64>) -> bool {
        let bucket = bucket_of(due_at);
        let here = self.queues.get(&queue).map(|queue| queue.buckets.contains_key(&bucket));
        here.unwrap_or_else(|| floor.is_some_and(|floor| floor <= bucket))
    }
}

impl Queues {
    pub fn new(node: Uuid) -> Self {
        Self { node, held: Mutex::default(), watch: Watch::default(), adoption_hook: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HeldQueue> {
        lock(&self.held)
    }

    pub fn on_adoption(&self, hook: AdoptionHook) {
        *lock(&self.adoption_hook) = Some(hook);
    }

    /// Reports that adopted deliveries are due from `earliest` on.
    pub fn notify_due(&self, earliest: Timestamp) {
        if let Some(hook) = &*lock(&self.adoption_hook) {
            hook(earliest);
        }
    }

    /// How many queues this process has adopted: claims in memory are outdated after an adoption.
    pub fn adoptions(&self) -> u64 {
        self.held().adoptions
    }

    /// The queue for new deliveries.
    ///
    /// # Errors
    /// If the last successful beat is too old to begin anything.
    pub fn own(&self) -> Result<Uuid, StoreError> {
        let held = self.held();
        let own = held.own.filter(|own| held.queues.get(own).is_some_and(Queue::is_safe));
        own.ok_or_else(|| StoreError::Unavailable("the cluster does not confirm this node's queue".into()))
    }

    /// Whether no other process can have taken a queue over by now.
    pub fn is_held(&self, queue: Uuid) -> bool {
        self.held().queues.get(&queue).is_some_and(|queue| uptime().saturating_sub(queue.renewed_at) < STALE_AFTER)
    }

    /// Whether this process holds a queue, as far as it knows.
    pub fn has(&self, queue: Uuid) -> bool {
        self.held().queues.contains_key(&queue)
    }

    /// Whether the holder of a queue looks for what is due in it at this time. Of other processes it is known as far as the
    /// table says it, when it was read last.
    pub fn is_looked_at(&self, queue: Uuid, due_at: Timestamp) -> bool {
        let held = self.held();
        held.is_looked_at(queue, due_at, held.floors.get(&queue).copied())
    }

    /// As [`is_looked_at`](Self::is_looked_at), where these are the rows of the table.
    pub fn is_looked_at_in(&self, table: &[QueueRow], queue: Uuid, due_at: Timestamp) -> bool {
        let floor = table.iter().find(|row| row.queue == queue).map(|row| row.floor);
        self.held().is_looked_at(queue, due_at, floor)
    }

    /// Notes which queues are in the table, and where they begin.
    pub fn note_table(&self, rows: &[QueueRow]) {
        self.held().floors = rows.iter().map(|row| (row.queue, row.floor)).collect();
    }

    /// Counts deliveries as pending in a queue, before their rows are written. Until the returned value is dropped,
    /// they count as being written.
    pub fn expect(&self, id: Uuid, due: &[QueuedDelivery]) -> Expected<'_> {
        let mut expected =
            Expected { queues: self, queue: id, buckets: BTreeSet::new(), unnoted: Vec::new(), floor: None };
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&id) else { return expected };
        for QueuedDelivery { due_at, id, round: _ } in due {
            let number = bucket_of(*due_at);
            let new = || Bucket { pending: Some(BTreeMap::new()), ..Bucket::default() };
            let bucket = queue.buckets.entry(number).or_insert_with(new);
            if expected.buckets.insert(number) {
                bucket.writes += 1;
                bucket.note_write();
                expected.unnoted.extend((!bucket.is_noted).then_some(number));
            }
            bucket.add(id.hit.at.day(), 1);
            let place = (bigint(due_at.0), id.to_bytes());
            bucket.settled_upto = bucket.settled_upto.filter(|settled| *settled < place);
            queue.highest = queue.highest.max(number);
        }
        let lowest = expected.unnoted.iter().min().copied();
        expected.floor = lowest.filter(|lowest| *lowest < queue.floor);
        expected
    }

    /// The rows of these buckets are written, and a floor that is not above them.
    pub fn noted(&self, queue: Uuid, buckets: &[i64]) {
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&queue) else { return };
        for number in buckets {
            if let Some(bucket) = queue.buckets.get_mut(number) {
                bucket.is_noted = true;
            }
        }
    }

    /// Notes that deliveries that were due at these times are about to be settled. Until the returned value is dropped, their
    /// buckets are not counted.
    pub fn settling(&self, due: impl IntoIterator<Item = (Uuid, Timestamp)>) -> Settling<'_> {
        let mut buckets: BTreeSet<_> = due.into_iter().map(|(queue, due_at)| (queue, bucket_of(due_at))).collect();
        let mut held = self.held();
        buckets.retain(|(id, number)| {
            let bucket = held.queues.get_mut(id).and_then(|queue| queue.buckets.get_mut(number));
            bucket.map(|bucket| bucket.settling += 1).is_some()
        });
        drop(held);
        Settling { queues: self, buckets }
    }

    /// A delivery is no longer due at this time.
    pub fn settled(&self, queue: Uuid, due_at: Timestamp, id: DeliveryId) {
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&queue) else { return };
        if let Some(bucket) = queue.buckets.get_mut(&bucket_of(due_at)) {
            bucket.add(id.hit.at.day(), -1);
        }
    }

    /// Pending deliveries of hits from a day on; `None` while some buckets are not counted.
    pub fn pending(&self, since: Day) -> Option<u64> {
        let held = self.held();
        let mut sum = 0;
        for bucket in held.queues.values().flat_map(|queue| queue.buckets.values()) {
            sum += bucket.pending.as_ref()?.range(since..).map(|(_, pending)| *pending).sum::<i64>();
        }
        Some(u64::try_from(sum).unwrap_or(0))
    }

    /// The buckets of all held queues between two numbers that may have pending deliveries, in order.
    pub fn buckets(&self, from: i64, upto: i64) -> Vec<HeldBucket> {
        let held = self.held();
        let mut buckets: Vec<_> = held
            .queues
            .iter()
            .filter(|(_, queue)| queue.is_safe() && from <= upto)
            .flat_map(|(id, queue)| {
                queue.buckets.range(from..=upto).map(move |(number, bucket)| (*number, *id, bucket))
            })
            .filter(|(_, _, bucket)| bucket.may_have_pending())
            .map(|(number, queue, it)| {
                let Bucket { settled_upto, written, version, .. } = *it;
                HeldBucket { number, queue, settled_upto, written, version }
            })
            .collect();
        buckets.sort_by_key(|bucket| (bucket.number, bucket.queue));
        buckets
    }

    /// All deliveries of a bucket up to a place are settled, unless some were enqueued since it was `known`, or are
    /// now.
    pub fn set_settled_upto(&self, known: &HeldBucket, upto: BucketPlace) {
        let mut held = self.held();
        let bucket = held.queues.get_mut(&known.queue).and_then(|queue| queue.buckets.get_mut(&known.number));
        if let Some(bucket) = bucket.filter(|bucket| bucket.writes == 0 && bucket.written == known.written) {
            bucket.settled_upto = Some(upto);
        }
    }

    /// This process has opened a queue and holds it from now on.
    pub fn open(&self, id: Uuid, begin: Hold) {
        let mut held = self.held();
        held.queues.insert(id, Queue::new(begin));
        held.own = Some(id);
    }

    /// This process holds the queue of another process from now on, with `buckets` that are not counted yet.
    pub fn adopt(&self, id: Uuid, begin: Hold, buckets: &[i64]) {
        let mut held = self.held();
        let mut queue = Queue::new(begin);
        for number in buckets {
            queue.buckets.insert(*number, Bucket { is_noted: true, ..Bucket::default() });
            queue.highest = queue.highest.max(*number);
            held.doubtful.insert((id, *number));
        }
        held.queues.insert(id, queue);
        held.adoptions += 1;
    }

    /// Another process has taken a queue over.
    pub fn lose(&self, queue: Uuid) {
        let mut held = self.held();
        held.queues.remove(&queue);
        if held.own == Some(queue) {
            held.own = None;
        }
    }

    /// This process has removed a queue.
    pub fn closed(&self, queue: Uuid) {
        self.lose(queue);
        self.held().floors.remove(&queue);
    }

    /// Whether there is a queue for new deliveries, safe or not.
    pub fn has_own(&self) -> bool {
        self.held().own.is_some()
    }

    pub fn held_queues(&self) -> Vec<Uuid> {
        self.held().queues.keys().copied().collect()
    }

    /// The current beat of a queue, and the floor to write with the next one; removes empty buckets from memory, and counts open ones
    /// again. From then on, deliveries below the floor lower it first.
    pub fn next_beat(&self, queue: Uuid) -> Option<(i64, i64)> {
        let mut held = self.held();
        let HeldQueue { queues, doubtful, .. } = &mut *held;
        let (id, queue, now) = (queue, queues.get_mut(&queue)?, uptime());
        queue.buckets.retain(|_, bucket| bucket.is_kept(now));
        let open = queue.buckets.iter().filter(|(_, bucket)| bucket.open.is_some_and(|open| open.is_due(now)));
        doubtful.extend(open.map(|(number, _)| (id, *number)));
        let lowest = queue.lowest();
        queue.floor = queue.floor.max(lowest);
        Some((queue.beat, lowest))
    }

    /// A beat with this floor that was sent at `sent_at` succeeded.
    pub fn record_beat(&self, queue: Uuid, beat: i64, floor: i64, sent_at: Duration) {
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&queue) else { return };
        let was_safe = queue.is_safe();
        (queue.beat, queue.floor) = (beat, floor);
        queue.renewed_at = queue.renewed_at.max(sent_at);
        let lowest = queue.lowest();
        drop(held);
        if !was_safe {
            // Meanwhile its buckets were left out, and nobody looks at earlier times again by itself.
            self.notify_due(start_of(lowest));
        }
    }

    /// The beat in a queue's row, after the answer to one was lost.
    pub fn set_beat(&self, queue: Uuid, beat: i64) {
        if let Some(queue) = self.held().queues.get_mut(&queue) {
            queue.beat = beat;
        }
    }

    /// Whether a queue has pending deliveries, as far as this process knows.
    pub fn has_pending(&self, queue: Uuid) -> bool {
        self.held().queues.get(&queue).is_some_and(|queue| queue.buckets.values().any(Bucket::may_have_pending))
    }

    /// Whether a queue has no pending deliveries, as far as this process knows, and none whose state may still be
    /// written.
    pub fn is_drained(&self, queue: Uuid) -> bool {
        let now = uptime();
        self.held().queues.get(&queue).is_some_and(|queue| !queue.buckets.values().any(|bucket| bucket.is_kept(now)))
    }

    /// Whether an adopted queue is empty, so that its row can be removed.
    pub fn is_done(&self, queue: Uuid) -> bool {
        self.held().own != Some(queue) && self.is_drained(queue)
    }
}

#[cfg(test)]
mod tests;
