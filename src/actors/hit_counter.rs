//! The hit counter reads the hit journal and counts its records in the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, AsyncContext, Context, Handler, Message, ResponseFuture};
use tokio::sync::Mutex;

use super::supervisor::{RestartHook, Supervisor, SupervisorOptions};
use super::wake::DispatcherWake;
use crate::clock::Clock;
use crate::counting::aggregator::HitAggregator;
use crate::domain::hit::{HitBatch, HitCursor, Position};
use crate::journal::notifier::Notifier;
use crate::journal::reader::JournalReader;
use crate::store::{CountStore, StoreError};
use crate::telemetry::metrics::hits::CountingMeters;
use crate::telemetry::outage_log::OutageLog;
use crate::threads::yield_periodically;

/// The largest number of rows and of deliveries in one batch: they bound the memory of the sums and the length of the
/// store's transaction.
const BATCH_ROWS: usize = 50_000;
const BATCH_DELIVERIES: usize = 10_000;
/// The largest number of records in one batch, even if they make few rows: bounds the time to make it.
const BATCH_RECORDS: usize = 500_000;
/// Records read before the counter checks the size of the batch and yields the core.
const PAGE: usize = 100;
/// How long to wait after the journal is read: a hit is counted a fraction of a second after its redirect, and the hits
/// of that time share one write for each row.
const PAUSE: Duration = Duration::from_millis(250);
/// The same if the last batch had at least [`MANY_ROWS`]. The cost of a hit is mostly its share of the write, and three
/// times as many hits share it then. The duration of the last batch is subtracted, so that hits are visible within 2 s
/// even if batches are slow.
const LONG_PAUSE: Duration = Duration::from_millis(750);
const MANY_ROWS: usize = 500;
/// How long to wait after a hit that fires webhooks, so that the hits right behind it share its write. The wait grows
/// with the duration of a batch, up to [`PAUSE`], so that a steady stream of hits does not rewrite the same rows a
/// hundred times a second.
const GATHER: Duration = Duration::from_millis(10);
/// How long to wait before a batch that the store did not take is sent again.
const RETRY: Duration = Duration::from_millis(500);

/// The state of the counting. It survives a panic of the actor.
pub struct CountingState {
    store: Arc<dyn CountStore>,
    reader: JournalReader,
    tally: HitAggregator,
    /// The position up to which the store has counted, and the position up to which an earlier process had started to
    /// count.
    cursor: HitCursor,
    /// A batch that was sent to the store and may or may not be counted. The same batch is sent again before any other.
    offered: Option<Arc<HitBatch>>,
    wakes: CounterWakes,
    /// The number of rows of the last batch, and its duration.
    last: (usize, Duration),
    meters: CountingMeters,
    clock: Clock,
    recovery: Option<Recovery>,
}

/// The counting of hits that earlier processes left in the journal; it is logged once.
struct Recovery {
    /// The last position of those hits.
    upto: Position,
    began: Instant,
    /// How many of those hits are in the current batch.
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

    /// The store has counted the current batch.
    fn batch_counted(&mut self) {
        self.counted += std::mem::take(&mut self.offered);
    }

    /// Logs nothing after a clean end, which leaves no hits.
    fn log(self) {
        if self.counted > 0 {
            let seconds = (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
            tracing::info!(hits = self.counted, seconds, "recovered hits that an earlier process left uncounted");
        }
    }
}

/// What wakes the counter, and what the counter wakes.
#[derive(Clone, Debug)]
pub struct CounterWakes {
    /// Wakes the counter when a hit fires webhooks.
    pub notifier: Notifier,
    /// Is woken after deliveries were put into the queue.
    pub dispatcher: DispatcherWake,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountStep {
    /// The journal may have more records.
    Counted,
    CaughtUp,
}

impl CountingState {
    /// `reader` and `cursor` start at the store's cursor.
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

    /// Reports progress to `meters`, with the time of this clock.
    #[must_use]
    pub fn shown_by(self, meters: CountingMeters, clock: Clock) -> Self {
        meters.counted_upto(clock.now().0);
        Self { meters, clock, ..self }
    }

    /// Returns to what the store has counted, as after a start: after a panic nothing else is certain.
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
                self.gather_started();
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
        // Under constant load the counter may never catch up, but it passes the hits of earlier processes.
        let cursor = self.cursor.counted;
        if let Some(recovery) = self.recovery.take_if(|it| step == CountStep::CaughtUp || cursor > it.upto) {
            recovery.log();
        }
        Ok(step)
    }

    /// How long to wait for further hits, and for further hits that fire webhooks.
    fn pauses(&self) -> (Duration, Duration) {
        let (rows, took) = self.last;
        let pause = if rows < MANY_ROWS { PAUSE } else { LONG_PAUSE.saturating_sub(took).max(PAUSE) };
        (pause, (3 * took).clamp(GATHER, PAUSE))
    }

    /// Makes the next batch; returns whether the journal is read to its end.
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
            yield_periodically();
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

    /// Makes a batch again that an earlier process had started: of the same records, even if there are more behind them
    /// now.
    fn gather_started(&mut self) {
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

/// The actor runs one step after another, and waits when there is nothing to count.
pub struct HitCounter {
    counting: Arc<Mutex<CountingState>>,
}

impl HitCounter {
    /// Starts the counter under a supervisor.
    pub fn start(
        arbiter: &actix::ArbiterHandle,
        counting: CountingState,
        on_restart: &RestartHook,
    ) -> Supervisor<Self> {
        let counting = Arc::new(Mutex::new(counting));
        let options = SupervisorOptions {
            actor: "hit_counter",
            // The actor receives only its own next step and the flush of a drain.
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
                // The lock is free between steps, for a flush.
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
                        if tokio::time::timeout(pause, notifier.notified()).await.is_ok() {
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

/// Counts all hits that are in the journal now; returns whether that succeeded.
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
