//! Which queues of deliveries this process works on: its own, and those it adopted.
//!
//! A queue belongs to one life of a node. Its holder moves the queue's beat on every few seconds; whoever sees a beat stand
//! still for long enough takes the queue over, by LWT. A holder whose beats do not get through stops working on it well
//! before, so that nobody works on a queue that another one holds. All of that is measured by each process' own monotonic
//! clock: no two clocks are ever compared.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::domain::calendar::{Day, Timestamp};
use crate::domain::webhook::DeliveryId;
use crate::store::{AdoptionHook, StoreError};

/// How often a holder moves the beat on.
pub const BEAT_EVERY: Duration = Duration::from_secs(3);
/// A beat that stands still for so long belongs to a holder that is gone.
const STALE_AFTER: Duration = Duration::from_secs(15);
/// Work on a queue is begun only so long after the last beat that got through.
const SAFE_FOR: Duration = Duration::from_secs(9);
/// Who watches a beat has to look at least so often: while nobody could look, nobody could beat either.
const LONGEST_GAP: Duration = Duration::from_secs(7);
/// Due times are kept in stretches of so many milliseconds.
const BUCKET_MS: u64 = 10_000;

/// The stretch of time that a due time lies in.
pub fn bucket_of(due_at: Timestamp) -> i64 {
    super::rows::bigint(due_at.0 / BUCKET_MS)
}

/// The earliest due time of a bucket.
pub fn start_of(bucket: i64) -> Timestamp {
    Timestamp(u64::try_from(bucket).unwrap_or(0) * BUCKET_MS)
}

/// A place in a bucket: a due time and a delivery.
pub type Place = (i64, [u8; 32]);

/// What is known of a bucket of a queue that is held.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// Deliveries that are pending there, by the day of the hit; none where they were not counted yet.
    pending: Option<BTreeMap<Day, i64>>,
    /// Nothing up to here is pending any more.
    dead_upto: Option<Place>,
}

impl Bucket {
    fn add(&mut self, day: Day, count: i64) {
        if let Some(pending) = &mut self.pending {
            *pending.entry(day).or_default() += count;
        }
    }

    fn may_have_pending(&self) -> bool {
        self.pending.as_ref().is_none_or(|days| days.values().any(|pending| *pending > 0))
    }
}

/// A queue that this process holds.
struct Queue {
    beat: i64,
    /// Where its row says that there is nothing below.
    floor: i64,
    /// When the last beat was sent that got through.
    renewed_at: Instant,
    buckets: BTreeMap<i64, Bucket>,
    /// The highest bucket there ever was.
    highest: i64,
}

impl Queue {
    fn new(beat: i64, floor: i64, renewed_at: Instant) -> Self {
        Self { beat, floor, renewed_at, buckets: BTreeMap::new(), highest: floor }
    }

    fn is_safe(&self) -> bool {
        self.renewed_at.elapsed() < SAFE_FOR
    }

    /// The lowest bucket that may have anything pending.
    fn lowest(&self) -> i64 {
        self.buckets.keys().next().copied().unwrap_or(self.highest)
    }
}

/// A queue as its row says.
#[derive(Clone, Copy, Debug)]
pub struct QueueRow {
    pub queue: Uuid,
    pub node: Uuid,
    /// The process that works on it; nil where it was handed back.
    pub holder: Uuid,
    pub holder_node: Uuid,
    pub beat: i64,
    pub floor: i64,
}

impl QueueRow {
    /// Whether nobody works on it when this node starts: it was handed back, or its holder was an earlier life of the node.
    pub fn is_left_by(&self, node: Uuid) -> bool {
        self.holder.is_nil() || self.holder_node == node
    }
}

/// A queue of another process, watched for its beat.
struct Watched {
    holder: Uuid,
    beat: i64,
    since: Instant,
    seen_at: Instant,
}

/// The queues that this process holds.
pub struct Queues {
    pub node: Uuid,
    held: Mutex<Held>,
    watched: Mutex<HashMap<Uuid, Watched>>,
    tell: Mutex<Option<AdoptionHook>>,
}

#[derive(Default)]
struct Held {
    /// Where this process puts what it enqueues.
    own: Option<Uuid>,
    queues: BTreeMap<Uuid, Queue>,
    /// Buckets to count: adopted, or where the answer to a write was lost.
    doubtful: BTreeSet<(Uuid, i64)>,
    /// How often queues came to this process.
    adoptions: u64,
}

impl Queues {
    pub fn new(node: Uuid) -> Self {
        Self { node, held: Mutex::default(), watched: Mutex::default(), tell: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing panics while this lock is held.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn on_adoption(&self, tell: AdoptionHook) {
        *self.tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    }

    /// Tells whoever works on the queues that there is something due from `earliest` on.
    pub fn tell(&self, earliest: Timestamp) {
        if let Some(tell) = &*self.tell.lock().unwrap_or_else(PoisonError::into_inner) {
            tell(earliest);
        }
    }

    /// How often queues came to this process: what it knows of claims is outdated when one has.
    pub fn adoptions(&self) -> u64 {
        self.held().adoptions
    }

    /// The queue for what is enqueued now.
    ///
    /// # Errors
    /// Where the last beat that got through is too old to begin anything.
    pub fn own(&self) -> Result<Uuid, StoreError> {
        let held = self.held();
        let own = held.own.filter(|own| held.queues.get(own).is_some_and(Queue::is_safe));
        own.ok_or_else(|| StoreError::Unavailable("the cluster does not confirm this node's queue".into()))
    }

    /// Whether nobody can have taken a queue over by now.
    pub fn is_held(&self, queue: Uuid) -> bool {
        self.held().queues.get(&queue).is_some_and(|queue| queue.renewed_at.elapsed() < STALE_AFTER)
    }

    /// Whether this process works on a queue, as far as it knows.
    pub fn has(&self, queue: Uuid) -> bool {
        self.held().queues.contains_key(&queue)
    }

    /// Counts deliveries as pending in a queue, before their rows are written. Answers the buckets that were not known, and
    /// a lower floor where the queue's row says too high a one.
    pub fn expect(&self, queue: Uuid, due: &[(Timestamp, DeliveryId)]) -> (Vec<i64>, Option<i64>) {
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&queue) else { return (Vec::new(), None) };
        let mut new = BTreeSet::new();
        for (due_at, id) in due {
            let number = bucket_of(*due_at);
            let bucket = queue.buckets.entry(number).or_insert_with(|| {
                new.insert(number);
                Bucket { pending: Some(BTreeMap::new()), dead_upto: None }
            });
            bucket.add(id.hit.at.day(), 1);
            let place = (super::rows::bigint(due_at.0), id.to_bytes());
            bucket.dead_upto = bucket.dead_upto.filter(|dead| *dead < place);
            queue.highest = queue.highest.max(number);
        }
        let lowest = new.first().copied().filter(|lowest| *lowest < queue.floor);
        (new.into_iter().collect(), lowest)
    }

    /// A delivery is no longer due when it was.
    pub fn settled(&self, queue: Uuid, due_at: Timestamp, id: DeliveryId) {
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&queue) else { return };
        if let Some(bucket) = queue.buckets.get_mut(&bucket_of(due_at)) {
            bucket.add(id.hit.at.day(), -1);
        }
    }

    /// What a bucket holds is not certain.
    pub fn doubt_bucket(&self, queue: Uuid, bucket: i64) {
        self.held().doubtful.insert((queue, bucket));
    }

    /// What these buckets hold is not certain: they are counted again soon.
    pub fn doubt(&self, queue: Uuid, due: impl IntoIterator<Item = Timestamp>) {
        let mut held = self.held();
        held.doubtful.extend(due.into_iter().map(|due_at| (queue, bucket_of(due_at))));
    }

    /// Deliveries of hits before a day are gone: counts what is left where there were some.
    pub fn dropped_before(&self, day: Day) {
        let mut held = self.held();
        let Held { queues, doubtful, .. } = &mut *held;
        for (id, queue) in queues {
            let has_dropped = |bucket: &Bucket| {
                bucket.pending.as_ref().is_some_and(|days| days.range(..day).any(|(_, pending)| *pending > 0))
            };
            let buckets = queue.buckets.iter().filter(|(_, bucket)| has_dropped(bucket));
            doubtful.extend(buckets.map(|(number, _)| (*id, *number)));
        }
    }

    /// What is pending, of hits from a day on; none where some buckets are still to be counted.
    pub fn pending(&self, since: Day) -> Option<u64> {
        let held = self.held();
        let mut sum = 0;
        for bucket in held.queues.values().flat_map(|queue| queue.buckets.values()) {
            sum += bucket.pending.as_ref()?.range(since..).map(|(_, pending)| *pending).sum::<i64>();
        }
        Some(u64::try_from(sum).unwrap_or(0))
    }

    /// The buckets of all queues that are held, from one on up to another, in order, that may have anything pending.
    pub fn buckets(&self, from: i64, upto: i64) -> Vec<(i64, Uuid, Option<Place>)> {
        let held = self.held();
        let mut buckets: Vec<_> = held
            .queues
            .iter()
            .filter(|(_, queue)| queue.is_safe() && from <= upto)
            .flat_map(|(id, queue)| {
                queue.buckets.range(from..=upto).map(move |(number, bucket)| (*number, *id, bucket))
            })
            .filter(|(_, _, bucket)| bucket.may_have_pending())
            .map(|(number, id, bucket)| (number, id, bucket.dead_upto))
            .collect();
        buckets.sort_by_key(|(number, id, _)| (*number, *id));
        buckets
    }

    /// Nothing in a bucket up to a place is pending any more, unless it was enqueued since `known`.
    pub fn is_dead(&self, queue: Uuid, number: i64, known: Option<Place>, upto: Place) {
        let mut held = self.held();
        let bucket = held.queues.get_mut(&queue).and_then(|queue| queue.buckets.get_mut(&number));
        if let Some(bucket) = bucket.filter(|bucket| bucket.dead_upto == known) {
            bucket.dead_upto = Some(upto);
        }
    }

    /// The next bucket to count again, unless that was done already.
    pub fn next_doubtful(&self) -> Option<(Uuid, i64)> {
        let mut held = self.held();
        let Held { queues, doubtful, .. } = &mut *held;
        doubtful.retain(|(queue, _)| queues.contains_key(queue));
        doubtful.pop_first()
    }

    /// Puts what was found in a bucket in the place of what was thought.
    pub fn recounted(&self, queue: Uuid, number: i64, found: BTreeMap<Day, i64>) {
        if let Some(queue) = self.held().queues.get_mut(&queue) {
            queue.buckets.entry(number).or_default().pending = Some(found);
        }
    }

    /// A queue is held from now on: its own where `is_own`, else one that has `buckets` which nobody here has counted.
    pub fn take(&self, id: Uuid, row: (i64, i64), renewed_at: Instant, buckets: &[i64], is_own: bool) {
        let mut held = self.held();
        let (beat, floor) = row;
        let mut queue = Queue::new(beat, floor, renewed_at);
        for number in buckets {
            queue.buckets.insert(*number, Bucket::default());
            queue.highest = queue.highest.max(*number);
            held.doubtful.insert((id, *number));
        }
        held.queues.insert(id, queue);
        if is_own {
            held.own = Some(id);
        } else {
            held.adoptions += 1;
        }
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Another process has taken a queue over.
    pub fn lose(&self, queue: Uuid) {
        let mut held = self.held();
        held.queues.remove(&queue);
        if held.own == Some(queue) {
            held.own = None;
        }
    }

    /// Whether there is a queue for what is enqueued, safe or not.
    pub fn has_own(&self) -> bool {
        self.held().own.is_some()
    }

    pub fn held_queues(&self) -> Vec<Uuid> {
        self.held().queues.keys().copied().collect()
    }

    /// The beat that a queue has now, and the floor to write down with the next one; forgets buckets in which nothing is
    /// left. From then on, what comes below the floor lowers it first.
    pub fn next_beat(&self, queue: Uuid) -> Option<(i64, i64)> {
        let mut held = self.held();
        let queue = held.queues.get_mut(&queue)?;
        queue.buckets.retain(|_, bucket| bucket.may_have_pending());
        let lowest = queue.lowest();
        queue.floor = queue.floor.max(lowest);
        Some((queue.beat, lowest))
    }

    /// A beat got through that was sent at `sent_at`, with this floor.
    pub fn has_beaten(&self, queue: Uuid, beat: i64, floor: i64, sent_at: Instant) {
        if let Some(queue) = self.held().queues.get_mut(&queue) {
            queue.beat = beat;
            queue.floor = floor;
            queue.renewed_at = queue.renewed_at.max(sent_at);
        }
    }

    /// What a queue's row says of its beat, where the answer to one was lost.
    pub fn beat_is(&self, queue: Uuid, beat: i64) {
        if let Some(queue) = self.held().queues.get_mut(&queue) {
            queue.beat = beat;
        }
    }

    /// Whether nothing in a queue is pending, as far as it is known.
    pub fn is_drained(&self, queue: Uuid) -> bool {
        self.held().queues.get(&queue).is_some_and(|queue| !queue.buckets.values().any(Bucket::may_have_pending))
    }

    /// Whether an adopted queue has nothing left, so that its row can go.
    pub fn is_done(&self, queue: Uuid) -> bool {
        self.held().own != Some(queue) && self.is_drained(queue)
    }

    /// Looks at another process' queue; answers whether its holder is gone.
    pub fn watch(&self, row: &QueueRow, now: Instant) -> bool {
        if row.holder.is_nil() {
            // Handed back.
            return true;
        }
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let anew = Watched { holder: row.holder, beat: row.beat, since: now, seen_at: now };
        let seen = watched.entry(row.queue).or_insert(anew);
        let moved = (seen.holder, seen.beat) != (row.holder, row.beat);
        if moved || now.duration_since(seen.seen_at) > LONGEST_GAP {
            *seen = Watched { holder: row.holder, beat: row.beat, since: now, seen_at: now };
        }
        seen.seen_at = now;
        let is_gone = now.duration_since(seen.since) >= STALE_AFTER;
        watched.retain(|_, watched| now.duration_since(watched.seen_at) <= LONGEST_GAP);
        is_gone
    }
}
