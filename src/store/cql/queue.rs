//! Which queues of deliveries this process works on: its own, and those it adopted.
//!
//! A queue belongs to one life of a node. Its holder moves the queue's beat on every few seconds; whoever sees a beat stand
//! still for long enough takes the queue over, by LWT. A holder whose beats do not get through stops working on it well
//! before, so that nobody works on a queue that another one holds. All of that is measured by each process' own monotonic
//! clock: no two clocks are ever compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::watch::{STALE_AFTER, Watch, uptime};
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::webhook::DeliveryId;
use crate::store::records::columns::bigint;
use crate::store::{AdoptionHook, StoreError};

/// How often a holder moves the beat on.
pub const BEAT_EVERY: Duration = Duration::from_secs(3);
/// Work on a queue is begun only so long after the last beat that got through.
const SAFE_FOR: Duration = Duration::from_secs(9);
/// How often a bucket is counted again, once a beat, that has rows whose state may be on its way.
const MOST_RECOUNTS: u8 = 20;
/// Due times are kept in stretches of so many milliseconds.
const BUCKET_MS: u64 = 10_000;

/// Gives every change of a bucket a number of its own.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// The stretch of time that a due time lies in.
pub fn bucket_of(due_at: Timestamp) -> i64 {
    bigint(due_at.0 / BUCKET_MS)
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
    /// Whether it is known to be written down that there is this bucket.
    is_noted: bool,
    /// Another one after every change, so that a count of a bucket that changed meanwhile is noticed.
    version: u64,
    /// Writes under way that will put something there: what is counted meanwhile may miss it.
    writes: usize,
    /// How often it was counted again since rows were found whose state may be on its way; 0 where there are none.
    recounts: u8,
}

impl Bucket {
    fn add(&mut self, day: Day, count: i64) {
        self.version = CHANGES.fetch_add(1, Ordering::Relaxed);
        if let Some(pending) = &mut self.pending {
            *pending.entry(day).or_default() += count;
        }
    }

    fn may_have_pending(&self) -> bool {
        let is_open = self.writes > 0 || (self.recounts > 0 && self.recounts < MOST_RECOUNTS);
        is_open || self.pending.as_ref().is_none_or(|days| days.values().any(|pending| *pending > 0))
    }
}

/// Where a queue stands when this process takes it.
#[derive(Clone, Copy)]
pub struct Hold {
    pub beat: i64,
    /// Where its row says that there is nothing below.
    pub floor: i64,
    /// When the last beat was sent that got through, by [`uptime`].
    pub renewed_at: Duration,
}

/// A bucket of a queue that is held.
#[derive(Clone, Copy)]
pub struct HeldBucket {
    pub number: i64,
    pub queue: Uuid,
    /// Nothing up to here is pending any more.
    pub dead_upto: Option<Place>,
}

/// A queue that this process holds.
struct Queue {
    beat: i64,
    /// Where its row says that there is nothing below.
    floor: i64,
    /// When the last beat was sent that got through, by [`uptime`].
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
    tell: Mutex<Option<AdoptionHook>>,
}

#[derive(Default)]
struct HeldQueue {
    /// Where this process puts what it enqueues.
    own: Option<Uuid>,
    queues: BTreeMap<Uuid, Queue>,
    /// Buckets to count: adopted, or where the answer to a write was lost.
    doubtful: BTreeSet<(Uuid, i64)>,
    /// Those to count again after the next beat.
    doubtful_later: BTreeSet<(Uuid, i64)>,
    /// How often queues came to this process.
    adoptions: u64,
}

/// Deliveries that are about to come into a queue.
pub struct Expected<'a> {
    queues: &'a Queues,
    queue: Uuid,
    buckets: BTreeSet<i64>,
    /// Buckets that are not known to be written down.
    pub unnoted: Vec<i64>,
    /// A lower floor, where the queue's row says too high a one.
    pub floor: Option<i64>,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        let mut held = self.queues.held();
        let Some(queue) = held.queues.get_mut(&self.queue) else { return };
        for number in &self.buckets {
            if let Some(bucket) = queue.buckets.get_mut(number) {
                bucket.writes = bucket.writes.saturating_sub(1);
            }
        }
    }
}

impl Queues {
    pub fn new(node: Uuid) -> Self {
        Self { node, held: Mutex::default(), watch: Watch::default(), tell: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HeldQueue> {
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
        self.held().queues.get(&queue).is_some_and(|queue| uptime().saturating_sub(queue.renewed_at) < STALE_AFTER)
    }

    /// Whether this process works on a queue, as far as it knows.
    pub fn has(&self, queue: Uuid) -> bool {
        self.held().queues.contains_key(&queue)
    }

    /// Counts deliveries as pending in a queue, before their rows are written; until what this answers is dropped, that may
    /// be under way.
    pub fn expect(&self, id: Uuid, due: &[(Timestamp, DeliveryId)]) -> Expected<'_> {
        let mut expected =
            Expected { queues: self, queue: id, buckets: BTreeSet::new(), unnoted: Vec::new(), floor: None };
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&id) else { return expected };
        for (due_at, id) in due {
            let number = bucket_of(*due_at);
            let new = || Bucket { pending: Some(BTreeMap::new()), ..Bucket::default() };
            let bucket = queue.buckets.entry(number).or_insert_with(new);
            if expected.buckets.insert(number) {
                bucket.writes += 1;
                expected.unnoted.extend((!bucket.is_noted).then_some(number));
            }
            bucket.add(id.hit.at.day(), 1);
            let place = (bigint(due_at.0), id.to_bytes());
            bucket.dead_upto = bucket.dead_upto.filter(|dead| *dead < place);
            queue.highest = queue.highest.max(number);
        }
        let lowest = expected.unnoted.iter().min().copied();
        expected.floor = lowest.filter(|lowest| *lowest < queue.floor);
        expected
    }

    /// It is written down that there are these buckets, and a floor that is not above them.
    pub fn noted(&self, queue: Uuid, buckets: &[i64]) {
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&queue) else { return };
        for number in buckets {
            if let Some(bucket) = queue.buckets.get_mut(number) {
                bucket.is_noted = true;
            }
        }
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
        let HeldQueue { queues, doubtful, .. } = &mut *held;
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
            .map(|(number, queue, bucket)| HeldBucket { number, queue, dead_upto: bucket.dead_upto })
            .collect();
        buckets.sort_by_key(|bucket| (bucket.number, bucket.queue));
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
        let HeldQueue { queues, doubtful, .. } = &mut *held;
        doubtful.retain(|(queue, _)| queues.contains_key(queue));
        doubtful.pop_first()
    }

    /// The version of a bucket before it is counted; none where nobody asks for it any more.
    pub fn version(&self, queue: Uuid, number: i64) -> Option<u64> {
        Some(self.held().queues.get_mut(&queue)?.buckets.entry(number).or_default().version)
    }

    /// Puts what was found in a bucket in the place of what was thought, unless it changed since `version`; answers whether
    /// it did. `is_open`: there are rows whose state may be on its way, so it is counted once more later.
    pub fn recounted(&self, id: Uuid, number: i64, version: u64, found: BTreeMap<Day, i64>, is_open: bool) -> bool {
        let mut held = self.held();
        let HeldQueue { queues, doubtful_later, .. } = &mut *held;
        let Some(queue) = queues.get_mut(&id) else { return true };
        let bucket = queue.buckets.entry(number).or_default();
        if bucket.version != version || bucket.writes > 0 {
            return false;
        }
        bucket.pending = Some(found);
        bucket.recounts = if is_open { (bucket.recounts + 1).min(MOST_RECOUNTS) } else { 0 };
        if is_open && bucket.recounts < MOST_RECOUNTS {
            doubtful_later.insert((id, number));
        }
        true
    }

    /// A queue that this process has opened is held from now on.
    pub fn open(&self, id: Uuid, begin: Hold) {
        let mut held = self.held();
        held.queues.insert(id, Queue::new(begin));
        held.own = Some(id);
    }

    /// A queue of another process is held from now on, with `buckets` that nobody here has counted.
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
        let later = std::mem::take(&mut held.doubtful_later);
        held.doubtful.extend(later);
        let queue = held.queues.get_mut(&queue)?;
        queue.buckets.retain(|_, bucket| bucket.may_have_pending());
        let lowest = queue.lowest();
        queue.floor = queue.floor.max(lowest);
        Some((queue.beat, lowest))
    }

    /// A beat got through that was sent at `sent_at`, with this floor.
    pub fn has_beaten(&self, queue: Uuid, beat: i64, floor: i64, sent_at: Duration) {
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
}
