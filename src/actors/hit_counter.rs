//! Reads the hit journal and counts it in the store: what happens to a hit after its redirect was answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, AsyncContext, Context, Handler, Message, ResponseFuture};
use tokio::sync::Mutex;

use super::supervisor::{KeeperOptions, RestartHook, Supervisor};
use super::wake::DispatcherWake;
use crate::clock::Clock;
use crate::counting::aggregator::HitAggregator;
use crate::domain::hit::{HitBatch, HitCursor, Position};
use crate::journal::notifier::Notifier;
use crate::journal::reader::JournalReader;
use crate::store::{CountStore, StoreError};
use crate::telemetry::metrics::hits::CountingMeters;
use crate::telemetry::outage_log::OutageLog;
use crate::threads::give_way;

/// Rows in one batch, and deliveries: they bound the memory of the sums and the length of the store's transaction.
const BATCH_ROWS: usize = 50_000;
const BATCH_DELIVERIES: usize = 10_000;
/// Records in one batch, however few rows they come to: they bound how long it takes to make it.
const BATCH_RECORDS: usize = 500_000;
/// Records read before the batch is looked at again, and others may have the core.
const PAGE: usize = 100;
/// How long to wait once the journal is read: each hit is counted a fraction of a second after its answer, and hits of
/// that time share one write a row.
const PAUSE: Duration = Duration::from_millis(250);
/// The same where the last batch had at least [`MANY_ROWS`]: what a hit costs is mostly its share of the writing, which three
/// times as many share then. What the last batch took is taken off, so that hits are seen within 2 s also where batches are
/// long.
const LONG_PAUSE: Duration = Duration::from_millis(750);
const MANY_ROWS: usize = 500;
/// How long to wait instead once a hit came that fires webhooks: those that come right behind it share its write. Longer
/// where batches take longer, up to [`PAUSE`], so that hits that come all the time don't have the same rows written anew a
/// hundred times a second.
const GATHER: Duration = Duration::from_millis(10);
/// How long to wait before a batch that the store did not take is offered again.
const RETRY: Duration = Duration::from_millis(500);

/// Where the counting stands. It outlives a panic of the actor.
pub struct Counting {
    store: Arc<dyn CountStore>,
    reader: JournalReader,
    tally: HitAggregator,
    /// Up to where the store has counted, and up to where an earlier life had begun to count.
    cursor: HitCursor,
    /// A batch that was offered and may or may not be counted: it is offered again, the same, before any other.
    offered: Option<Arc<HitBatch>>,
    wakes: CounterWakes,
    /// How many rows the last batch had, and how long it took.
    last: (usize, Duration),
    meters: CountingMeters,
    clock: Clock,
    recovery: Option<Recovery>,
}

/// The counting of what earlier lives left in the journal, which the operator is told of once.
struct Recovery {
    /// The end of it.
    upto: Position,
    began: Instant,
    /// Hits of it in the batch that is made or offered.
    offered: u64,
    counted: u64,
}

impl Recovery {
    fn of(reader: &JournalReader) -> Option<Self> {
        Some(Self { upto: reader.left_upto()?, began: Instant::now(), offered: 0, counted: 0 })
    }

    fn read(recovery: &mut Option<Self>, position: Position) {
        if let Some(recovery) = recovery
            && position <= recovery.upto
        {
            recovery.offered += 1;
        }
    }

    /// The store has the batch that was offered.
    fn batch_counted(&mut self) {
        self.counted += std::mem::take(&mut self.offered);
    }

    /// Nothing after a clean end, which leaves no hits.
    fn tell(self) {
        if self.counted > 0 {
            let seconds = (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
            tracing::info!(hits = self.counted, seconds, "recovered hits that an earlier process left uncounted");
        }
    }
}

/// Who wakes the counter, and whom it wakes.
#[derive(Clone, Debug)]
pub struct CounterWakes {
    /// Hits that fire webhooks.
    pub notifier: Notifier,
    /// Whom to tell of the deliveries that were put into the queue.
    pub dispatcher: DispatcherWake,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountStep {
    /// There is more to read.
    Counted,
    CaughtUp,
}

impl Counting {
    /// `reader` and `cursor` begin where the store's cursor is.
    pub fn new(
        store: Arc<dyn CountStore>,
        reader: JournalReader,
        tally: HitAggregator,
        cursor: HitCursor,
        wakes: CounterWakes,
    ) -> Self {
        let meters = CountingMeters::noop();
        let (clock, last) = (Clock::system(), (0, Duration::ZERO));
        let recovery = Recovery::of(&reader);
        Self { store, reader, tally, cursor, offered: None, wakes, last, meters, clock, recovery }
    }

    /// Has `meters` show how the counting fares, by this clock.
    #[must_use]
    pub fn shown_by(self, meters: CountingMeters, clock: Clock) -> Self {
        meters.counted_upto(clock.now().0);
        Self { meters, clock, ..self }
    }

    /// Goes back to what the store has counted, as if just started: after a panic nothing else is certain.
    fn resume(&mut self) {
        self.tally.clear();
        if let Some(recovery) = self.recovery.as_mut().filter(|_| self.offered.is_none()) {
            recovery.offered = 0;
        }
        let read_upto = self.offered.as_ref().map_or(self.cursor.counted, |batch| batch.upto);
        self.reader.rewind(read_upto);
    }

    /// Counts one batch.
    async fn step(&mut self) -> Result<CountStep, StoreError> {
        let mut step = CountStep::Counted;
        let (began, now) = (Instant::now(), self.clock.now());
        if self.offered.is_none() {
            if self.cursor.begun > self.cursor.counted {
                self.gather_begun();
            } else if self.gather() {
                step = CountStep::CaughtUp;
            }
        }
        if let Some(batch) = &self.offered {
            self.store.apply_hits(Arc::clone(batch)).await?;
            self.cursor = batch.upto.into();
            self.last = (batch.days.len() + batch.labels.len() + batch.served.len(), began.elapsed());
            if let Some(earliest) = batch.deliveries.iter().map(|delivery| delivery.id.hit.at).min() {
                self.wakes.dispatcher.wake(earliest);
            }
            self.meters.counted(began.elapsed());
            self.offered = None;
            self.recovery.iter_mut().for_each(Recovery::batch_counted);
            self.reader.release(self.cursor.counted);
        } else {
            self.last = (0, Duration::ZERO);
        }
        if step == CountStep::CaughtUp {
            self.meters.counted_upto(now.0);
        }
        // Under load it may never be caught up, but is past what was left.
        let cursor = self.cursor.counted;
        if let Some(recovery) = self.recovery.take_if(|it| step == CountStep::CaughtUp || cursor > it.upto) {
            recovery.tell();
        }
        Ok(step)
    }

    /// How long to wait for more hits, and how long for more of those that fire webhooks.
    fn pauses(&self) -> (Duration, Duration) {
        let (rows, took) = self.last;
        let pause = if rows < MANY_ROWS { PAUSE } else { LONG_PAUSE.saturating_sub(took).max(PAUSE) };
        (pause, (3 * took).clamp(GATHER, PAUSE))
    }

    /// Makes the next batch of what there is; answers whether that is all there is.
    fn gather(&mut self) -> bool {
        let (tally, meters, recovery) = (&mut self.tally, &self.meters, &mut self.recovery);
        let mut read = self.reader.read(PAGE, &mut |position, hit| {
            if tally.records() == 0 {
                meters.began_at(hit.at_ms);
            }
            Recovery::read(recovery, position);
            tally.add(position, &hit);
        });
        for _ in 1..BATCH_RECORDS / PAGE {
            if read.caught_up || tally.rows() >= BATCH_ROWS || tally.deliveries() >= BATCH_DELIVERIES {
                break;
            }
            give_way();
            read = self.reader.read(PAGE, &mut |position, hit| {
                Recovery::read(recovery, position);
                tally.add(position, &hit);
            });
        }
        if read.upto > self.cursor.counted {
            self.meters.consumed(tally.records());
            self.offered = Some(Arc::new(tally.take(self.cursor.counted, read.upto)));
        }
        read.caught_up
    }

    /// Makes the batch again that an earlier life had begun: the same records, whatever came behind them since.
    fn gather_begun(&mut self) {
        let (tally, meters, HitCursor { counted, begun }) = (&mut self.tally, &self.meters, self.cursor);
        let recovery = &mut self.recovery;
        loop {
            let read = self.reader.read(PAGE, &mut |position, hit| {
                if position <= begun {
                    if tally.records() == 0 {
                        meters.began_at(hit.at_ms);
                    }
                    Recovery::read(recovery, position);
                    tally.add(position, &hit);
                }
            });
            if read.caught_up || read.upto >= begun {
                break;
            }
        }
        self.reader.rewind(begun);
        self.meters.consumed(tally.records());
        self.offered = Some(Arc::new(tally.take(counted, begun)));
    }
}

/// The actor: one step after another, with a pause when there is nothing to do.
pub struct HitCounter {
    counting: Arc<Mutex<Counting>>,
}

impl HitCounter {
    /// Starts the counter under a supervisor.
    pub fn start(arbiter: &actix::ArbiterHandle, counting: Counting, on_restart: &RestartHook) -> Supervisor<Self> {
        let counting = Arc::new(Mutex::new(counting));
        let options = KeeperOptions {
            actor: "hit_counter",
            // Only its own next step and the flush of a drain are ever sent to it.
            mailbox_capacity: std::num::NonZeroUsize::MIN.saturating_add(15),
            on_restart: Arc::clone(on_restart),
        };
        Supervisor::start(arbiter, options, move |_| Self { counting: Arc::clone(&counting) })
    }
}

impl Actor for HitCounter {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let counting = Arc::clone(&self.counting);
        context.spawn(actix::fut::wrap_future::<_, Self>(async move {
            let notifier = {
                let mut counting = counting.lock().await;
                counting.resume();
                counting.wakes.notifier.clone()
            };
            let mut outage =
                OutageLog::new("the store did not take hits: they wait in the journal", "the store takes hits again");
            loop {
                // The lock is free in between, for a flush.
                let (step, (pause, gather)) = {
                    let mut counting = counting.lock().await;
                    (counting.step().await, counting.pauses())
                };
                if step.is_ok() {
                    outage.succeeded();
                }
                match step {
                    Ok(CountStep::Counted) => {}
                    Ok(CountStep::CaughtUp) => {
                        if tokio::time::timeout(pause, notifier.told()).await.is_ok() {
                            tokio::time::sleep(gather).await;
                        }
                    }
                    Err(error) => {
                        outage.failed(&error);
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }));
    }
}

/// Counts all that is in the journal now; answers whether that succeeded.
pub struct CountAll;

impl Message for CountAll {
    type Result = bool;
}

impl Handler<CountAll> for HitCounter {
    type Result = ResponseFuture<bool>;

    fn handle(&mut self, _: CountAll, _: &mut Context<Self>) -> ResponseFuture<bool> {
        let counting = Arc::clone(&self.counting);
        Box::pin(async move {
            loop {
                match counting.lock().await.step().await {
                    Ok(CountStep::Counted) => {}
                    Ok(CountStep::CaughtUp) => return true,
                    Err(error) => {
                        tracing::warn!(%error, "hits stay in the journal for the next start");
                        return false;
                    }
                }
            }
        })
    }
}
