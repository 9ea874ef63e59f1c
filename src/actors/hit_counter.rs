//! The hit counter reads the hit journal and counts its records in the store.

mod live_hit_publisher;
mod recovery;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, AsyncContext, Context, Handler, Message, ResponseFuture};
use tokio::sync::Mutex;

use live_hit_publisher::LiveHitPublisher;
use recovery::Recovery;

use super::supervisor::{RestartHook, Supervisor, SupervisorOptions};
use super::wake::DispatcherWake;
use crate::clock::Clock;
use crate::counting::aggregator::HitAggregator;
use crate::counting::bot_rules_file::BotRulesFile;
use crate::domain::bots::BotRules;
use crate::domain::hit::{HitBatch, HitCursor, Position};
use crate::feed::HitFeed;
use crate::journal::notifier::Notifier;
use crate::journal::reader::{JournalReader, ReadOutcome};
use crate::memory::release_free;
use crate::store::{CountStore, StoreError};
use crate::telemetry::metrics::hits::CountingMeters;
use crate::telemetry::outage_log::OutageLog;
use crate::threads::yield_periodically;

/// The largest numbers of rows and of deliveries in one batch. They bound the memory of the sums and the duration of
/// the store's transaction.
const BATCH_ROWS: usize = 50_000;
const BATCH_DELIVERIES: usize = 10_000;
/// The largest number of records in one batch, even if they make few rows. It bounds the time to make the batch.
const BATCH_RECORDS: u64 = 500_000;
/// Records read before the counter checks the size of the batch and yields the core.
const PAGE: usize = 100;
/// How long to wait at the journal's end. A hit is thus counted a fraction of a second after its redirect, and the hits
/// of that time share one write for each row.
const PAUSE: Duration = Duration::from_millis(250);
/// The same after a batch of at least [`MANY_ROWS`], less the duration of that batch. The cost of a hit is mostly its share
/// of the write, which five times as many hits then share.
const LONG_PAUSE: Duration = Duration::from_millis(1_250);
/// The longest time from a hit that just missed a batch until the next one is written, if that takes as long as the last
/// one: hits are visible within 2 s.
const VISIBLE_WITHIN: Duration = Duration::from_millis(1_900);
const MANY_ROWS: usize = 500;
/// How often records are read during a [`LONG_PAUSE`]: while they are in a cache of the CPU, and so that reading them holds a core
/// that redirects need for some 0.05 ms at a time, not for the tens of milliseconds that all of them together take.
const READ_PAUSE: Duration = Duration::from_millis(10);
/// The shortest wait after a hit with webhooks, so that the hits shortly after it share its write. The wait grows with
/// the duration of batches, up to [`PAUSE`]. Otherwise a constant load of hits would rewrite the same rows a hundred
/// times a second. The shorter one of the last two counts: after one batch that a busy disk delayed, deliveries must not
/// wait three times as long again.
const WEBHOOK_PAUSE: Duration = Duration::from_millis(10);
/// How long to wait before a batch is sent again after the store failed.
const RETRY: Duration = Duration::from_millis(500);

/// The state of the counting. It survives a panic of the actor.
pub struct CountingState {
    store: Arc<dyn CountStore>,
    reader: JournalReader,
    aggregator: HitAggregator,
    /// The position up to which the store has counted, and the position up to which an earlier process had started to
    /// count.
    cursor: HitCursor,
    /// A batch that was sent to the store, with an unknown outcome. The same batch is sent again before any other.
    pending: Option<Arc<HitBatch>>,
    /// Publishes hits to live streams. Holds those of the pending batch that are not published yet.
    streams: Option<LiveHitPublisher>,
    /// Keeps the rules for bots of the batch that the store has begun to count.
    bot_rules_file: Option<BotRulesFile>,
    /// The rules of the batch that an earlier process had started to count.
    begun_rules: Option<BotRules>,
    wakes: CounterWakes,
    /// The number of rows of the last batch, and its duration.
    last_batch: (usize, Duration),
    /// The duration of the batch before it.
    batch_before: Duration,
    meters: CountingMeters,
    clock: Clock,
    recovery: Option<Recovery>,
}

/// The notifier that wakes the counter, and the actor that the counter wakes.
#[derive(Clone, Debug)]
pub struct CounterWakes {
    /// Wakes the counter when a hit has webhooks.
    pub notifier: Notifier,
    /// Is woken when deliveries were added to the queue.
    pub dispatcher: DispatcherWake,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountStep {
    /// The journal may have more records.
    Counted,
    CaughtUp,
}

/// How long the counter waits at the journal's end.
#[derive(Clone, Copy, Debug)]
struct Pauses {
    /// Until the next batch.
    pause: Duration,
    /// Until it reads records of that batch.
    read: Duration,
    /// Until the next batch after a hit with webhooks.
    webhook: Duration,
}

impl CountingState {
    /// `reader` and `cursor` start at the store's cursor.
    pub fn new(
        store: Arc<dyn CountStore>,
        reader: JournalReader,
        aggregator: HitAggregator,
        cursor: HitCursor,
        wakes: CounterWakes,
    ) -> Self {
        Self {
            recovery: Recovery::of(&reader),
            store,
            reader,
            aggregator,
            cursor,
            pending: None,
            streams: None,
            bot_rules_file: None,
            begun_rules: None,
            wakes,
            last_batch: (0, Duration::ZERO),
            batch_before: Duration::ZERO,
            meters: CountingMeters::noop(),
            clock: Clock::system(),
        }
    }

    /// Keeps the rules for bots in this file, for a store that may have begun a batch when its node dies. A batch that an earlier
    /// life has begun is made with the rules that are in the file.
    #[must_use]
    pub fn with_bot_rules_file(mut self, path: PathBuf) -> Self {
        let (file, rules) = BotRulesFile::open(path);
        self.bot_rules_file = Some(file);
        self.begun_rules = rules.filter(|_| self.cursor.begun > self.cursor.counted);
        self
    }

    /// Tells live streams of hits.
    #[must_use]
    pub fn with_streams(mut self, feed: Arc<HitFeed>) -> Self {
        self.aggregator.note_hits(feed.capture());
        self.streams = Some(LiveHitPublisher::new(feed));
        self
    }

    /// Reports progress to `meters`, with the time of `clock`.
    #[must_use]
    pub fn with_meters(self, meters: CountingMeters, clock: Clock) -> Self {
        meters.counted_upto(clock.now().0);
        Self { meters, clock, ..self }
    }

    /// Continues behind the pending batch, or else behind the store's cursor. After a panic, the aggregator's sums may
    /// be incomplete, so they are made again.
    fn resume(&mut self) {
        self.aggregator.clear();
        if let Some(recovery) = self.recovery.as_mut().filter(|_| self.pending.is_none()) {
            recovery.batch_dropped();
        }
        let read_upto = self.pending.as_ref().map_or(self.cursor.counted, |batch| batch.upto);
        self.reader.rewind(read_upto);
    }

    /// Counts one batch.
    async fn step(&mut self) -> Result<CountStep, StoreError> {
        let mut step = CountStep::Counted;
        let (began, now) = (Instant::now(), self.clock.now());
        if self.pending.is_none() {
            self.learn_listeners().await?;
            if self.cursor.begun > self.cursor.counted {
                self.make_begun_batch()?;
            } else if self.make_batch()? {
                step = CountStep::CaughtUp;
            }
        }
        if let Some(batch) = &self.pending {
            // Published before they are counted: after a crash in between they are published again, with the same positions.
            if let Some(streams) = &mut self.streams {
                streams.publish().await?;
            }
            if let Some(kept) = &mut self.bot_rules_file {
                // The batch before is counted.
                kept.keep(self.aggregator.bot_rules())
                    .map_err(|error| StoreError::Unavailable(format!("can't keep the rules for bots: {error}")))?;
            }
            let queued_from = self.store.apply_hits(Arc::clone(batch)).await?;
            self.cursor = batch.upto.into();
            self.batch_before = self.last_batch.1;
            self.last_batch = (batch.days.len() + batch.served.len(), began.elapsed());
            if let Some(earliest) = queued_from {
                self.wakes.dispatcher.wake(earliest);
            } else if !batch.deliveries.is_empty() {
                self.wakes.dispatcher.wake_for_first_tries();
            }
            self.meters.counted(began.elapsed());
            self.pending = None;
            self.recovery.iter_mut().for_each(Recovery::batch_counted);
            self.reader.release(self.cursor.counted);
        } else {
            self.last_batch = (0, Duration::ZERO);
            if self.aggregator.shrink() {
                release_free();
            }
        }
        if step == CountStep::CaughtUp {
            self.meters.counted_upto(now.0);
        }
        // Under constant load the counter may never catch up, but it gets past the hits of earlier processes.
        let cursor = self.cursor.counted;
        if let Some(recovery) = self.recovery.take_if(|it| step == CountStep::CaughtUp || cursor > it.end) {
            recovery.log();
        }
        Ok(step)
    }

    /// Reads records of the next batch. Returns whether it is to be counted at once.
    async fn read_ahead(&mut self) -> bool {
        if self.pending.is_some() || self.cursor.begun > self.cursor.counted || self.learn_listeners().await.is_err() {
            return true;
        }
        !self.read_records().caught_up
    }

    /// Learns who listens to live streams, before records are read.
    async fn learn_listeners(&mut self) -> Result<(), StoreError> {
        if let Some(streams) = &mut self.streams {
            streams.learn_listeners().await?;
            self.aggregator.refresh_listeners();
        }
        Ok(())
    }

    fn pauses(&self) -> Pauses {
        let (rows, took) = self.last_batch;
        let webhook = (3 * took.min(self.batch_before)).clamp(WEBHOOK_PAUSE, PAUSE);
        if rows < MANY_ROWS {
            return Pauses { pause: PAUSE, read: PAUSE, webhook };
        }
        let longest = LONG_PAUSE.min(VISIBLE_WITHIN.saturating_sub(took));
        Pauses { pause: longest.saturating_sub(took).max(PAUSE), read: READ_PAUSE, webhook }
    }

    /// Makes the next batch. Returns whether the journal was read to its end.
    fn make_batch(&mut self) -> Result<bool, StoreError> {
        let read = self.read_records();
        // What was read before is counted first. The next call meets the error again.
        if read.upto > self.cursor.counted {
            self.take_batch(read.upto);
        } else {
            self.check_readable()?;
        }
        Ok(read.caught_up && self.reader.take_not_opened().is_none())
    }

    fn check_readable(&mut self) -> Result<(), StoreError> {
        let error = self.reader.take_not_opened();
        error.map_or(Ok(()), |error| Err(StoreError::Unavailable(format!("can't open a journal segment: {error}"))))
    }

    /// Reads records until the journal's end or until the batch is full.
    fn read_records(&mut self) -> ReadOutcome {
        loop {
            let read = self.read_page(Position(u64::MAX));
            let aggregator = &self.aggregator;
            let is_full = aggregator.rows() >= BATCH_ROWS
                || aggregator.deliveries() >= BATCH_DELIVERIES
                || aggregator.records() >= BATCH_RECORDS;
            if read.caught_up || is_full {
                return read;
            }
            yield_periodically();
        }
    }

    /// Reads some records, and adds up those that end at or before `upto`.
    fn read_page(&mut self, upto: Position) -> ReadOutcome {
        let (aggregator, meters, recovery) = (&mut self.aggregator, &self.meters, &mut self.recovery);
        self.reader.read(PAGE, &mut |position, hit| {
            if position > upto {
                return;
            }
            if aggregator.records() == 0 {
                meters.began_at(hit.at_ms);
            }
            Recovery::record_read(recovery, position);
            aggregator.add(position, &hit);
        })
    }

    /// Takes the sums of all records up to `upto` as the next batch for the store.
    fn take_batch(&mut self, upto: Position) {
        let Self { aggregator, cursor, .. } = self;
        self.meters.consumed(aggregator.records(), aggregator.bot_hits());
        self.streams.iter_mut().for_each(|streams| streams.unpublished = aggregator.take_live_hits());
        self.pending = Some(Arc::new(aggregator.take(cursor.counted, upto)));
    }

    /// Makes the batch again that an earlier process had started to count, from the same records. The journal may have
    /// more records by now.
    fn make_begun_batch(&mut self) -> Result<(), StoreError> {
        let begun = self.cursor.begun;
        if let Some(rules) = &self.begun_rules {
            self.aggregator.make_next_batch_with(rules.clone());
        }
        let read_upto = loop {
            let read = self.read_page(begun);
            if read.caught_up || read.upto >= begun {
                break read.upto;
            }
        };
        let readable = self.check_readable();
        if let Err(error) = readable
            && read_upto < begun
        {
            // A batch from a part of its records would leave out the others.
            self.resume();
            return Err(error);
        }
        self.reader.rewind(begun);
        self.take_batch(begun);
        Ok(())
    }
}

/// The actor counts one batch after another, and waits if there is nothing to count.
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
            // The actor receives only the `CountAll` of a drain.
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
                // The lock is free between steps, for `CountAll`.
                let (step, pauses) = {
                    let mut counting = counting.lock().await;
                    (counting.step().await, counting.pauses())
                };
                if step.is_ok() {
                    outage.succeeded();
                }
                match step {
                    Ok(CountStep::Counted) => {}
                    Ok(CountStep::CaughtUp) => wait_for_hits(&counting, &notifier, pauses).await,
                    Err(error) => {
                        outage.failed(&error);
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }));
    }
}

/// Waits until it is time for the next batch.
async fn wait_for_hits(counting: &Mutex<CountingState>, notifier: &Notifier, pauses: Pauses) {
    let until = Instant::now() + pauses.pause;
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        if tokio::time::timeout(rest.min(pauses.read), notifier.notified()).await.is_ok() {
            tokio::time::sleep(pauses.webhook).await;
            return;
        }
        if rest <= pauses.read || counting.lock().await.read_ahead().await {
            return;
        }
    }
}

/// Counts all hits in the journal. Returns whether that succeeded.
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
                        tracing::warn!(%error, "can't count the last hits: the next start counts them");
                        return false;
                    }
                }
            }
        })
    }
}
