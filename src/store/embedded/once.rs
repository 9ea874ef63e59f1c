//! Requests that are done once: their answers, written in the transaction that makes what they create.
//!
//! Only this process is at work on a store, so which requests are under way is known in memory. One that was cut off with
//! the process has made all of it or nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use fjall::{Keyspace, Snapshot};
use uuid::Uuid;

use super::database::log_removed_unread;
use super::engine::Engine;
use super::transaction::{MAX_ROW, RowReader, Transaction};
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{ANSWERS_KEPT_MILLIS, Fingerprint, KeptAnswer, OnceRequest, OnceSeed};
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::once::{OnceState, OnceTicket};
use crate::store::records::once::{self as records, OnceRecord, TABLE};
use crate::store::records::{corrupt, row_keys};

/// Answers that one call removes. Each has up to some hundred rows.
const DROPPED: usize = 8;

type RequestHash = [u8; 32];

/// The requests that this process is at work on.
#[derive(Default)]
pub struct OnceUnderWay(Mutex<HashMap<RequestHash, Fingerprint>>);

impl OnceUnderWay {
    fn requests(&self) -> MutexGuard<'_, HashMap<RequestHash, Fingerprint>> {
        lock(&self.0)
    }

    /// Registers a request, or returns how it stands. Before the answers are looked up: whoever has registered it before has
    /// written its answer when it is not registered any more.
    pub fn begin(self: &Arc<Self>, request: &OnceRequest) -> Result<OnceGuard, Box<OnceState>> {
        let hash = request.id.hash();
        match self.requests().entry(hash) {
            Entry::Occupied(other) if *other.get() == request.fingerprint => Err(Box::new(OnceState::UnderWay)),
            Entry::Occupied(_) => Err(Box::new(OnceState::OtherRequest)),
            Entry::Vacant(place) => {
                place.insert(request.fingerprint);
                Ok(OnceGuard { hash, fingerprint: request.fingerprint, under_way: Arc::clone(self) })
            }
        }
    }

    pub fn look_up(&self, request: &OnceRequest) -> Option<OnceState> {
        let fingerprint = self.requests().get(&request.id.hash()).copied()?;
        Some(if fingerprint == request.fingerprint { OnceState::UnderWay } else { OnceState::OtherRequest })
    }
}

/// A request under way, until it is dropped.
pub struct OnceGuard {
    hash: RequestHash,
    fingerprint: Fingerprint,
    under_way: Arc<OnceUnderWay>,
}

impl OnceGuard {
    pub fn into_ticket(self, request: OnceRequest) -> OnceTicket {
        let seed = OnceSeed { claim: Uuid::new_v4(), begun_at: request.now };
        OnceTicket { guard: Some(Arc::new(self)), ..OnceTicket::new(request, seed, seed.claim, true) }
    }
}

impl Drop for OnceGuard {
    fn drop(&mut self) {
        self.under_way.requests().remove(&self.hash);
    }
}

/// Answers by the hash of their request, and by the time when it began.
pub struct OnceTable {
    answers: Keyspace,
}

impl OnceTable {
    pub fn new(engine: &Engine) -> Self {
        Self { answers: engine.keyspaces.idempotency.clone() }
    }

    /// How a request stands by its stored answer; `None`: it was not done.
    pub fn state(&self, from: &Snapshot, request: &OnceRequest) -> Result<Option<OnceState>, StoreError> {
        let Some(record) = self.get(from, request.id.hash())? else { return Ok(None) };
        if record.begun_at.0.saturating_add(ANSWERS_KEPT_MILLIS) <= request.now.0 {
            return Ok(None);
        }
        let is_same = record.fingerprint == request.fingerprint;
        Ok(Some(if is_same { OnceState::Answered(record.answer) } else { OnceState::OtherRequest }))
    }

    fn get(&self, from: &Snapshot, hash: RequestHash) -> Result<Option<OnceRecord>, StoreError> {
        let mut value = Vec::new();
        for part in 0..=u16::MAX {
            match from.row(&self.answers, row_keys::once_part(hash, part))? {
                Some(row) => {
                    let (more, bytes) = row.split_first().ok_or_else(|| corrupt(TABLE, &"an empty row"))?;
                    value.extend_from_slice(bytes);
                    if *more == 0 {
                        return records::decode(&value).map(Some);
                    }
                }
                None if part == 0 => return Ok(None),
                None => break,
            }
        }
        Err(corrupt(TABLE, &"a row of an answer is missing"))
    }

    /// Writes the answer to a request. One that has expired is replaced.
    pub fn put(
        &self,
        transaction: &mut Transaction<'_>,
        ticket: &OnceTicket,
        answer: KeptAnswer,
    ) -> Result<(), StoreError> {
        let guard = ticket.guard.as_ref().and_then(|guard| guard.downcast_ref::<OnceGuard>());
        let guard = guard.ok_or_else(|| corrupt(TABLE, &"a ticket of another store"))?;
        let begun_at = ticket.seed.begun_at;
        let value = records::encode(&OnceRecord { fingerprint: guard.fingerprint, begun_at, answer })?;
        self.remove_parts(transaction, guard.hash)?;
        let row_bytes = MAX_ROW - row_keys::once_part(guard.hash, 0).len() - 1;
        let mut parts = value.chunks(row_bytes).peekable();
        let mut number: u16 = 0;
        while let Some(part) = parts.next() {
            let more = u8::from(parts.peek().is_some());
            transaction.insert(&self.answers, row_keys::once_part(guard.hash, number), [&[more], part].concat())?;
            number = number.checked_add(1).ok_or_else(|| corrupt(TABLE, &"an answer is too long"))?;
        }
        transaction.insert(&self.answers, row_keys::once_time(begun_at, guard.hash), [0])
    }

    fn remove_parts(&self, transaction: &mut Transaction<'_>, hash: RequestHash) -> Result<(), StoreError> {
        for (row_key, _) in transaction.range(&self.answers, row_keys::once_parts(hash), usize::from(u16::MAX))? {
            transaction.remove(&self.answers, row_key);
        }
        Ok(())
    }

    /// Removes some answers to requests that began before `before`; `false` when none is left.
    pub fn remove(&self, transaction: &mut Transaction<'_>, before: Timestamp) -> Result<bool, StoreError> {
        let old = transaction.range(&self.answers, row_keys::once_times_before(before), DROPPED)?;
        for (row_key, _) in &old {
            let (begun_at, hash) = row_keys::once_time_of(row_key)?;
            match self.begun_at(transaction, hash) {
                Ok(Some(there)) if there == begun_at => self.remove_parts(transaction, hash)?,
                // The same key has been used again since.
                Ok(_) => {}
                // Other answers are to be removed all the same.
                Err(error @ StoreError::Corrupt { .. }) => {
                    log_removed_unread(&error);
                    self.remove_parts(transaction, hash)?;
                }
                Err(error) => return Err(error),
            }
            transaction.remove(&self.answers, row_key.clone());
        }
        Ok(!old.is_empty())
    }

    fn begun_at(&self, transaction: &Transaction<'_>, hash: RequestHash) -> Result<Option<Timestamp>, StoreError> {
        let mut value = Vec::new();
        for (_, row) in transaction.range(&self.answers, row_keys::once_parts(hash), usize::from(u16::MAX))? {
            value.extend_from_slice(row.get(1..).unwrap_or_default());
        }
        if value.is_empty() { Ok(None) } else { records::decode(&value).map(|record| Some(record.begun_at)) }
    }
}
