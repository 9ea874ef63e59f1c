//! What is answered in the lane.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::http::header::HeaderValue;
use tracing::Span;

use super::head::{Head, room};
use crate::cache::links::{CachedLink, Entry};
use crate::cache::near::NearLinks;
use crate::domain::calendar::Timestamp;
use crate::domain::link::ShortId;
use crate::http::Api;
use crate::http::client::client_address;
use crate::http::fields::Fields;
use crate::http::h1::{CannedProblem, DateText, Stamp, write_redirect};
use crate::http::problem::Problem;
use crate::http::redirect::{Ask, find};
use crate::http::report::span_of;
use crate::http::request_id::{new_id, new_request_id, request_id, sent_id, value_of};
use crate::limits::client::RetryAfter;
use crate::store::StoreError;
use crate::telemetry::metrics::requests::LookUp;

/// Answers are written in pieces of about this size, however many requests come at once.
const MAX_ANSWERS_BYTES: usize = 64 * 1024;

/// How the connection goes on.
#[derive(Debug)]
pub enum Next {
    Read,
    /// The first request of `rest` was let in, and the store has to be asked for its link.
    Load {
        id: ShortId,
        admitted: Admitted,
        rest: Vec<u8>,
    },
    /// Nothing of this is answered here.
    HandOver(Vec<u8>),
    Close,
}

/// A request that was let in: when, and under which id.
#[derive(Debug)]
pub struct Admitted {
    at: Timestamp,
    /// When it was read.
    began: Instant,
    request_id: HeaderValue,
}

impl Admitted {
    pub fn span(&self) -> Span {
        span_of(&self.request_id)
    }
}

/// What the store said of the first request's link.
pub struct Loaded {
    pub entry: Result<Entry, Arc<StoreError>>,
    pub admitted: Admitted,
}

/// Answers requests from what is in memory. One for each worker.
pub struct Teller {
    api: Arc<Api>,
    /// Whether connections are closed after each answer.
    closes_always: bool,
    near: NearLinks,
    date: DateText,
    not_found: CannedProblem,
    /// By the seconds to wait.
    limited: HashMap<u32, CannedProblem>,
    /// The answers, one behind another.
    out: Vec<u8>,
    /// How many bytes of answers are whole, and how many of requests they answer.
    done: (usize, usize),
    /// When what is answered was read.
    began: Instant,
}

impl Teller {
    pub fn new(api: Arc<Api>, closes_always: bool) -> Self {
        Self {
            api,
            closes_always,
            near: NearLinks::default(),
            date: DateText::default(),
            not_found: CannedProblem::new(&Problem::no_such_link()),
            limited: HashMap::new(),
            out: Vec::new(),
            done: (0, 0),
            began: Instant::now(),
        }
    }

    /// What the last call has answered.
    pub fn answers(&self) -> &[u8] {
        &self.out
    }

    /// Answers the requests in `bytes`, one behind another. With `loaded`, the first of them has been asked for already.
    pub fn answer(&mut self, peer: Option<SocketAddr>, bytes: &[u8], mut loaded: Option<Loaded>) -> Next {
        self.out.clear();
        self.done = (0, 0);
        self.began = loaded.as_ref().map_or_else(Instant::now, |loaded| loaded.admitted.began);
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut room = room();
            let Some(head) = Head::parse(rest, &mut room) else { return Next::HandOver(rest.to_vec()) };
            if self.out.len() > MAX_ANSWERS_BYTES {
                return Next::HandOver(rest.to_vec());
            }
            // Once the process was told to stop, a client that is told sends its next request elsewhere.
            let is_last = head.closes || self.closes_always || !self.api.readiness.is_serving();
            let client = client_address(peer, head.fields, &self.api.trusted_proxies);
            let ask = Ask { id: head.id, is_hit: head.is_get, peer, client, fields: head.fields };
            if let Err(admitted) = self.answer_one(&ask, is_last, loaded.take()) {
                return Next::Load { id: ask.id, admitted, rest: rest.to_vec() };
            }
            self.api.metrics.redirects.times.observe(self.began.elapsed());
            if is_last {
                return Next::Close;
            }
            rest = &rest[head.length..];
            self.done = (self.out.len(), bytes.len() - rest.len());
        }
        Next::Read
    }

    /// Answers in the place of a call of [`answer`](Self::answer) with `bytes` that panicked: what it had answered before,
    /// and then, as the connection's last, that something went wrong.
    pub fn answer_after_panic(&mut self, bytes: &[u8]) -> Next {
        let (answers, requests) = self.done;
        self.out.truncate(answers);
        let mut room = room();
        let head = Head::parse(&bytes[requests..], &mut room);
        let request_id = head.as_ref().map_or_else(new_request_id, |head| request_id(head.fields));
        span_of(&request_id).in_scope(|| tracing::error!("a redirect panicked"));
        self.api.metrics.redirects.failed();
        self.api.metrics.redirects.times.observe(self.began.elapsed());
        let with_body = head.is_none_or(|head| head.is_get);
        let stamp = self.date.stamp(self.api.clock.now(), request_id.as_bytes(), true);
        CannedProblem::new(&Problem::internal()).write(&mut self.out, with_body, stamp);
        Next::Close
    }

    /// The same for a load that panicked: nothing was answered yet.
    pub fn answer_after_failed_load(&mut self, bytes: &[u8]) -> Next {
        self.done = (0, 0);
        self.answer_after_panic(bytes)
    }

    /// Answers one request, or says how it was let in where its link is not in memory.
    fn answer_one<F: Fields + ?Sized>(
        &mut self,
        ask: &Ask<'_, F>,
        is_last: bool,
        loaded: Option<Loaded>,
    ) -> Result<(), Admitted> {
        let Self { api, near, date, not_found, limited, out, began, .. } = self;
        if let Some(Loaded { entry, admitted: Admitted { at, request_id, .. } }) = loaded {
            let stamp = date.stamp(at, request_id.as_bytes(), is_last);
            match entry {
                Ok(entry) => write_answer(api, out, not_found, ask, (entry.as_deref(), LookUp::Store), at, stamp),
                Err(error) => {
                    api.metrics.redirects.unavailable();
                    let problem = span_of(&request_id).in_scope(|| Problem::from(error));
                    CannedProblem::new(&problem).write(out, ask.is_hit, stamp);
                }
            }
            return Ok(());
        }

        let made;
        let request_id = if let Some(sent) = sent_id(ask.fields) {
            sent
        } else {
            made = new_id();
            &made
        };
        let at = match ask.admit(api) {
            Ok(at) => at,
            Err(retry_after @ RetryAfter(seconds)) => {
                let problem = || CannedProblem::new(&Problem::from(retry_after));
                let stamp = date.stamp(api.clock.now(), request_id, is_last);
                limited.entry(seconds).or_insert_with(problem).write(out, ask.is_hit, stamp);
                return Ok(());
            }
        };
        let entry;
        let found = if let Some(link) = near.get(ask.id) {
            (Some(link), LookUp::Memory)
        } else {
            let Some((told, by)) = find(api, ask.id) else {
                return Err(Admitted { at, began: *began, request_id: value_of(request_id) });
            };
            entry = told;
            if let Some(link) = &entry {
                near.put(link);
            }
            (entry.as_deref(), by)
        };
        write_answer(api, out, not_found, ask, found, at, date.stamp(at, request_id, is_last));
        Ok(())
    }
}

/// Answers with what was found, and takes note of it.
fn write_answer<F: Fields + ?Sized>(
    api: &Api,
    out: &mut Vec<u8>,
    not_found: &CannedProblem,
    ask: &Ask<'_, F>,
    (link, by): (Option<&CachedLink>, LookUp),
    at: Timestamp,
    stamp: Stamp<'_>,
) {
    if let Some(link) = link {
        ask.found(api, link, by, at);
        write_redirect(out, link, stamp);
    } else {
        api.metrics.redirects.unknown(by);
        not_found.write(out, ask.is_hit, stamp);
    }
}
