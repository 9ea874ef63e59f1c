//! What a store does so that a request with an `Idempotency-Key` is done once.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use uuid::Uuid;

use super::links::{MadeLinks, NewLinks};
use super::{CreateKeyError, StoreError};
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{ANSWERS_KEPT_MILLIS, KeptAnswer, OnceId, OnceRequest, OnceSeed};
use crate::domain::key::ApiKey;
use crate::domain::quota::{KeyLimit, MonthlyLimit};

/// The right to do a request. It can be lost to another holder while this one is at work, which the store finds out.
#[derive(Clone)]
pub struct OnceTicket {
    pub id: OnceId,
    pub seed: OnceSeed,
    /// Of this attempt alone.
    pub holder: Uuid,
    /// No attempt was at work on the request before.
    pub(super) is_first: bool,
    /// When this attempt began, by the service's clock and by that of the machine.
    pub(super) began: (Timestamp, Instant),
    /// What the store needs until the attempt ends.
    pub(super) guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl OnceTicket {
    pub(super) fn new(request: OnceRequest, seed: OnceSeed, holder: Uuid, is_first: bool) -> Self {
        Self { id: request.id, seed, holder, is_first, began: (request.now, Instant::now()), guard: None }
    }

    /// The time by the service's clock.
    pub(super) fn now(&self) -> Timestamp {
        let (now, since) = self.began;
        now.plus(since.elapsed())
    }

    /// For how long the answer is to be kept.
    pub(super) fn kept_for(&self) -> Duration {
        let until = self.seed.begun_at.0.saturating_add(ANSWERS_KEPT_MILLIS);
        Duration::from_millis(until.saturating_sub(self.now().0))
    }
}

impl fmt::Debug for OnceTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceTicket").field("id", &self.id).field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// How a request stands.
#[derive(Debug)]
pub enum OnceState {
    /// It is the caller's to do.
    Begun(OnceTicket),
    /// It was done.
    Answered(KeptAnswer),
    /// Another attempt is at work.
    UnderWay,
    /// Another request had this key.
    OtherRequest,
}

/// The outcome of an attempt.
#[derive(Debug)]
pub enum OnceDone<T> {
    Done(T),
    /// Another attempt has done it.
    Answered(KeptAnswer),
    /// Another attempt is at work.
    UnderWay,
}

/// Makes the answer to a request that has created links.
pub type AnswerOfLinks = Arc<dyn Fn(&MadeLinks) -> KeptAnswer + Send + Sync>;

/// Makes the answer to a request that has created a key.
pub type AnswerOfKey = Arc<dyn Fn(&ApiKey) -> KeptAnswer + Send + Sync>;

/// Requests that are done once.
///
/// An answer is kept for 24 hours from the first attempt on. What makes nothing keeps no answer, and leaves the key free.
#[async_trait]
pub trait OnceStore: Send + Sync + 'static {
    /// Begins a request, unless it was done, or another attempt is at work. Whoever has begun it calls one of the methods
    /// below that create something, or [`end_once`](Self::end_once).
    ///
    /// An attempt that was cut off is taken over within 30 s.
    async fn begin_once(&self, request: OnceRequest) -> Result<OnceState, StoreError>;

    /// How a request stands that is not to be begun; `None`: there is none with this key.
    async fn look_up_once(&self, request: OnceRequest) -> Result<Option<OnceState>, StoreError>;

    /// When the first attempt of a request began that was cut off and can be taken over; `None`: there is none. What the
    /// request means is judged by that time.
    async fn cut_off_once(&self, request: OnceRequest) -> Result<Option<Timestamp>, StoreError>;

    /// Ends an attempt that has made nothing. What an attempt before it may have made is left to the next one.
    async fn end_once(&self, ticket: OnceTicket) -> Result<(), StoreError>;

    /// [`create_links`](super::LinkStore::create_links), once. The links and their ids must follow from the ticket's seed.
    async fn create_links_once(
        &self,
        ticket: OnceTicket,
        new: NewLinks,
        limit: MonthlyLimit,
        answer: AnswerOfLinks,
    ) -> Result<OnceDone<MadeLinks>, StoreError>;

    /// [`create_key`](super::KeyStore::create_key), once. The id must follow from the ticket's seed. Returns the key that
    /// there is: with other secrets, if an earlier attempt has made it.
    async fn create_key_once(
        &self,
        ticket: OnceTicket,
        key: ApiKey,
        limit: KeyLimit,
        answer: AnswerOfKey,
    ) -> Result<OnceDone<ApiKey>, CreateKeyError>;

    /// Removes answers to requests that began before `before`, some at a time; `false` when none is left.
    async fn drop_answers(&self, before: Timestamp) -> Result<bool, StoreError>;
}
