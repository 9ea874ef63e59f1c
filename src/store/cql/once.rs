//! Requests that are done once, over any number of nodes.
//!
//! A row settles by LWT who may do a request (`holder`), and from which seed: ids, claims and times follow from it. Whoever
//! does the request again makes the same, finds it made, and goes on. So a holder that seems to be gone can be taken over
//! at any time: two at work do no harm. Only the holder writes the answer, or removes what was made and gives the key back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use scylla::DeserializeRow;
use scylla::policies::timestamp_generator::TimestampGenerator;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::cluster::Cluster;
use super::in_use::InUse;
use super::keys::CqlKeys;
use super::outcome::CqlError;
use super::pause::Pause;
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{ANSWERS_KEPT_MILLIS, KeptAnswer, OnceId, OnceRequest, OnceSeed};
use crate::domain::key::ApiKey;
use crate::domain::quota::KeyLimit;
use crate::locks::lock;
use crate::store::once::{AnswerOfKey, OnceDone, OnceState, OnceTicket};
use crate::store::records::columns::{bigint, number, timestamp, timestamp_from};
use crate::store::records::once::{CountedOnce, PlannedLink, plan_from_json, plan_to_json};
use crate::store::{CreateKeyError, StoreError};

/// How long a holder is seen to be at work before it is taken over. A request is answered within 15 s of its body, and what
/// goes on behind it can be taken over.
const HELD_FOR: Duration = Duration::from_secs(15);
/// The same by the time when it began, also if nobody has seen it since. By the clocks of two machines, so longer.
const HELD_FOR_AT_MOST: Duration = Duration::from_secs(25);
/// Holders that are remembered.
const MAX_SEEN: usize = 10_000;
/// Requests whose lock is kept though nobody has it.
const MAX_IDLE_REQUESTS: usize = 1_000;
/// A row without an answer is not taken over in its last seconds: its columns do not expire in the same moment. As long as
/// a dead holder's request is answered 409 anyway.
pub(super) const LAST_OF_ROW: Duration = Duration::from_secs(5);

/// A row of the table.
#[derive(Clone, Debug, Default, DeserializeRow)]
pub struct OnceRow {
    fingerprint: Option<Vec<u8>>,
    pub claim: Option<Uuid>,
    begun_at: Option<CqlTimestamp>,
    pub holder: Option<Uuid>,
    /// When the holder began, in microseconds by the cluster's clock.
    held_since: Option<i64>,
    plan: Option<String>,
    counted: Option<i64>,
    used: Option<i64>,
    status: Option<i32>,
    answer: Option<String>,
}

impl OnceRow {
    pub fn answer(&self) -> Option<KeptAnswer> {
        let status = u16::try_from(self.status?).ok()?;
        Some(KeptAnswer { status, body: self.answer.clone()? })
    }

    pub fn plan(&self) -> Result<Option<Vec<PlannedLink>>, StoreError> {
        self.plan.as_deref().map(plan_from_json).transpose()
    }

    pub fn counted(&self) -> Option<CountedOnce> {
        let claim = self.claim?;
        Some(CountedOnce { claim, counted: number(Some(self.counted?)), used: number(self.used) })
    }

    fn seed(&self) -> Option<OnceSeed> {
        Some(OnceSeed { claim: self.claim?, begun_at: timestamp_from(self.begun_at?) })
    }
}

/// The table, and which holders this process has seen at work.
pub struct CqlOnce {
    pub(super) cluster: Arc<Cluster>,
    seen: Mutex<HashMap<Uuid, Instant>>,
    /// One attempt at a time in this process begins or takes over a request, by its hash: LWTs of many at once on one row
    /// time out.
    beginning: InUse<[u8; 32], tokio::sync::Mutex<()>, MAX_IDLE_REQUESTS>,
}

impl CqlOnce {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), seen: Mutex::default(), beginning: InUse::default() }
    }

    pub async fn read(&self, id: &OnceId) -> Result<Option<OnceRow>, CqlError> {
        self.cluster.cql.read_one(&self.cluster.statements.once, place(id)).await
    }

    async fn seen(&self, id: &OnceId) -> Result<Option<OnceRow>, CqlError> {
        self.cluster.cql.read_one(&self.cluster.statements.once_seen, place(id)).await
    }

    /// How a request stands; `None`: it can be begun, by taking over the holder of the row, if there is one.
    fn state(&self, row: Option<&OnceRow>, request: &OnceRequest) -> Option<OnceState> {
        let row = row?;
        let Some(fingerprint) = &row.fingerprint else { return Some(OnceState::UnderWay) };
        if *fingerprint != request.fingerprint.0 {
            return Some(OnceState::OtherRequest);
        }
        if let Some(answer) = row.answer() {
            return Some(OnceState::Answered(answer));
        }
        let (Some(seed), Some(holder)) = (row.seed(), row.holder) else { return Some(OnceState::UnderWay) };
        let until = seed.begun_at.0.saturating_add(ANSWERS_KEPT_MILLIS);
        let is_last = Timestamp(until) < request.now.plus(LAST_OF_ROW);
        (is_last || !self.is_gone(holder, row.held_since)).then_some(OnceState::UnderWay)
    }

    /// Whether a holder has let go, or was at work for too long.
    fn is_gone(&self, holder: Uuid, since: Option<i64>) -> bool {
        let age = since.map_or(0, |since| self.cluster.cql.timestamps.next_timestamp().saturating_sub(since));
        let is_old = u128::try_from(age).is_ok_and(|age| age > HELD_FOR_AT_MOST.as_micros());
        if holder.is_nil() || is_old {
            return true;
        }
        let mut seen = lock(&self.seen);
        if seen.len() >= MAX_SEEN {
            seen.retain(|_, since| since.elapsed() < 2 * HELD_FOR);
        }
        if seen.len() >= MAX_SEEN && !seen.contains_key(&holder) {
            return false;
        }
        seen.entry(holder).or_insert_with(Instant::now).elapsed() >= HELD_FOR
    }

    pub async fn look_up(&self, request: &OnceRequest) -> Result<Option<OnceState>, StoreError> {
        let row = self.seen(&request.id).await?;
        Ok(self.state(row.as_ref(), request))
    }

    /// When the first attempt of a request began that can be taken over.
    pub async fn cut_off(&self, request: &OnceRequest) -> Result<Option<Timestamp>, StoreError> {
        let row = self.seen(&request.id).await?;
        let is_free = self.state(row.as_ref(), request).is_none();
        Ok(row.and_then(|row| row.seed()).filter(|_| is_free).map(|seed| seed.begun_at))
    }

    pub async fn begin(&self, request: OnceRequest) -> Result<OnceState, StoreError> {
        let holder = Uuid::new_v4();
        let mut pause = Pause::within(self.cluster.cql.patience());
        let mut alone = None;
        loop {
            // A settled read would contend with the attempt that is at work. What this one misses, the LWT finds.
            let row = self.seen(&request.id).await?;
            if let Some(state) = self.state(row.as_ref(), &request) {
                return Ok(state);
            }
            if alone.is_none() {
                let others = self.beginning.of(request.id.hash(), |_| tokio::sync::Mutex::default()).lock_owned();
                let Ok(ours) = tokio::time::timeout(self.cluster.cql.patience(), others).await else {
                    return Ok(OnceState::UnderWay);
                };
                // The one before may have begun it.
                alone = Some(ours);
                continue;
            }
            let seed = match row.as_ref().and_then(OnceRow::seed) {
                Some(seed) => seed,
                None => OnceSeed { claim: Uuid::new_v4(), begun_at: request.now },
            };
            let ticket = OnceTicket::new(request.clone(), seed, holder, row.is_none());
            let is_ours = match row.and_then(|row| row.holder) {
                Some(before) => self.take_over(&ticket, before).await?,
                None => self.insert(&request, seed, holder).await?,
            };
            if is_ours {
                return Ok(OnceState::Begun(ticket));
            }
            if pause.wait().await.is_break() {
                return Ok(OnceState::UnderWay);
            }
        }
    }

    async fn insert(&self, request: &OnceRequest, seed: OnceSeed, holder: Uuid) -> Result<bool, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let (owner, endpoint, key) = place(&request.id);
        let fingerprint = request.fingerprint.0.as_slice();
        let values = (owner, endpoint, key, fingerprint, seed.claim, timestamp(seed.begun_at), holder);
        let attempt = || cql.lwt(&statements.begin_once, values);
        let settle = || async { Ok(self.read(&request.id).await?.map(|row| row.holder == Some(holder))) };
        Ok(cql.settled(attempt, settle).await?)
    }

    /// Makes `ticket` the holder in the place of `before`.
    async fn take_over(&self, ticket: &OnceTicket, before: Uuid) -> Result<bool, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let (owner, endpoint, key) = place(&ticket.id);
        let attempt = || async {
            let values = (seconds_left(ticket), ticket.holder, owner, endpoint, key, before);
            cql.lwt(&statements.take_over_once, values).await
        };
        Ok(cql.settled(attempt, || self.settle(ticket, before)).await?)
    }

    /// Whether `ticket` holds the request; `None`: nothing is decided.
    async fn settle(&self, ticket: &OnceTicket, before: Uuid) -> Result<Option<bool>, CqlError> {
        let row = self.read(&ticket.id).await?;
        let is_undecided = row.as_ref().is_some_and(|row| row.holder == Some(before) && row.answer().is_none());
        Ok((!is_undecided).then(|| row.and_then(|row| row.holder) == Some(ticket.holder)))
    }

    /// Lets the next attempt take over at once: this one does not know what it has made.
    pub async fn release(&self, ticket: &OnceTicket) {
        let nobody = OnceTicket { holder: Uuid::nil(), ..ticket.clone() };
        if let Err(error) = self.take_over(&nobody, ticket.holder).await {
            tracing::debug!(%error, "can't let go of a request: it is taken over later");
        }
    }

    /// Ends an attempt that has made nothing. What one before it may have made, the next one finds out.
    pub async fn give_up(&self, ticket: &OnceTicket) -> Result<(), StoreError> {
        if ticket.is_first {
            self.end(ticket).await?;
        } else {
            self.release(ticket).await;
        }
        Ok(())
    }

    /// Gives the key back; `false` if another attempt has it.
    pub async fn end(&self, ticket: &OnceTicket) -> Result<bool, StoreError> {
        Ok(self.try_to_end(ticket).await?)
    }

    /// As [`end`](Self::end), however long it takes.
    pub async fn end_at_last(&self, ticket: &OnceTicket) -> Result<bool, StoreError> {
        self.cluster.until_closed(|| self.try_to_end(ticket)).await
    }

    async fn try_to_end(&self, ticket: &OnceTicket) -> Result<bool, CqlError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let (owner, endpoint, key) = place(&ticket.id);
        let attempt = || cql.lwt(&statements.end_once, (owner, endpoint, key, ticket.holder));
        let settle = || async {
            let holder = self.read(&ticket.id).await?.and_then(|row| row.holder);
            Ok(if holder == Some(ticket.holder) { None } else { Some(holder.is_none()) })
        };
        cql.settled(attempt, settle).await
    }

    /// Writes what is to be counted; `false` if another attempt has the request.
    pub async fn put_plan(&self, ticket: &OnceTicket, plan: &[PlannedLink]) -> Result<bool, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let text = plan_to_json(plan)?;
        let attempt = || async {
            let (owner, endpoint, key) = place(&ticket.id);
            let values = (seconds_left(ticket), &text, owner, endpoint, key, ticket.holder);
            cql.lwt(&statements.plan_once, values).await
        };
        let settle = || async {
            let row = self.read(&ticket.id).await?.filter(|row| row.holder == Some(ticket.holder));
            Ok(match row {
                None => Some(false),
                Some(row) => (row.plan.as_ref() == Some(&text)).then_some(true),
            })
        };
        Ok(cql.settled(attempt, settle).await?)
    }

    /// Writes that the month has counted it.
    pub async fn put_counted(&self, ticket: &OnceTicket, counted: CountedOnce) -> Result<(), StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let mark = || async {
            let (owner, endpoint, key) = place(&ticket.id);
            let (count, used) = (bigint(counted.counted), bigint(counted.used));
            let values = (seconds_left(ticket), count, used, owner, endpoint, key, counted.claim);
            cql.lwt(&statements.count_once, values).await
        };
        self.cluster.until_closed(mark).await.map(drop)
    }

    /// Writes the answer. What another attempt has answered is returned then.
    pub async fn answer<T>(
        &self,
        ticket: &OnceTicket,
        answer: &KeptAnswer,
        done: T,
    ) -> Result<OnceDone<T>, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let attempt = || async {
            let (owner, endpoint, key) = place(&ticket.id);
            let (left, status) = (seconds_left(ticket), i32::from(answer.status));
            cql.lwt(&statements.answer_once, (left, status, &answer.body, owner, endpoint, key, ticket.holder)).await
        };
        let settle = || async {
            let row = self.read(&ticket.id).await?.filter(|row| row.holder == Some(ticket.holder));
            Ok(match row {
                None => Some(false),
                Some(row) => row.answer().map(|there| there == *answer),
            })
        };
        if cql.settled(attempt, settle).await? { Ok(OnceDone::Done(done)) } else { self.replaced(ticket).await }
    }

    /// Creates the key of a request. Returns the key that there is.
    pub async fn make_key(
        &self,
        keys: &CqlKeys,
        ticket: &OnceTicket,
        key: &ApiKey,
        limit: KeyLimit,
        answer: &AnswerOfKey,
    ) -> Result<OnceDone<ApiKey>, CreateKeyError> {
        match keys.make_key(key, limit).await {
            Ok(()) => {}
            Err(CreateKeyError::Store(error)) => {
                // An id that counts as given up never gets a key.
                if matches!(keys.settled_row(key.id).await, Ok(Some(None))) {
                    self.end(ticket).await?;
                } else {
                    self.release(ticket).await;
                }
                return Err(error.into());
            }
            Err(refused) => {
                return if self.end(ticket).await? { Err(refused) } else { Ok(self.replaced(ticket).await?) };
            }
        }
        let there = keys.read_key(key.id).await?;
        let there = there.ok_or_else(|| StoreError::Unavailable("a new key is not there".into()))?;
        let is_ours = there.secret_hash == key.secret_hash;
        match self.answer(ticket, &answer(&there), there.clone()).await? {
            // The secrets are those of this attempt: nobody else can tell them.
            OnceDone::Answered(_) | OnceDone::UnderWay if is_ours => Ok(OnceDone::Done(there)),
            done => Ok(done),
        }
    }

    /// How the request stands that another attempt has taken over.
    pub async fn replaced<T>(&self, ticket: &OnceTicket) -> Result<OnceDone<T>, StoreError> {
        let answer = self.row_of(ticket).await?.and_then(|row| row.answer());
        Ok(answer.map_or(OnceDone::UnderWay, OnceDone::Answered))
    }

    /// The row of the request, whoever is at work on it. `None`: it was ended, or has expired.
    pub async fn row_of(&self, ticket: &OnceTicket) -> Result<Option<OnceRow>, StoreError> {
        Ok(self.read(&ticket.id).await?.filter(|row| row.claim == Some(ticket.seed.claim)))
    }
}

/// The time to live of further columns of a row, in seconds: that of the first ones.
fn seconds_left(ticket: &OnceTicket) -> i32 {
    i32::try_from(ticket.kept_for().as_secs()).unwrap_or(i32::MAX).clamp(1, 86_400)
}

/// The place of a request in the table.
fn place(id: &OnceId) -> (Uuid, i8, &str) {
    (id.owner.0, i8::try_from(id.endpoint.number()).unwrap_or(i8::MAX), id.key.as_str())
}
