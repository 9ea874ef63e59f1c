//! What is answered on the fast path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::http::header::HeaderValue;
use tracing::Span;

use super::encode::{AfterAnswer, Asked, Encoder};
use super::head::{Head, HeadLines};
use super::lines::{Room, without_empty_lines};
use crate::cache::link::Entry;
use crate::cache::worker_cache::WorkerCache;
use crate::domain::link::LinkName;
use crate::http::Api;
use crate::http::accept::PreferenceMemo;
use crate::http::answer_fields::OwnedAnswerFields;
use crate::http::client::client_address;
use crate::http::report::span_of;
use crate::http::request_id::{is_request_id, new_id, new_request_id, request_id_of, value_of};
use crate::http::resolve::{AdmittedRequest, Answer, Client, Refusal, look_up};
use crate::store::StoreError;
use crate::telemetry::metrics::requests::LookUp;

/// Answers are written in pieces of about this size, however many requests come at once.
const MAX_ANSWERS_BYTES: usize = 64 * 1024;

/// How the connection goes on, once the answers are sent.
#[derive(Debug)]
pub enum Next {
    Read,
    /// These bytes are to be answered before others are read.
    Continue(Vec<u8>),
    /// The store has to be asked for the link of a request that was admitted; `rest` came behind it.
    Load {
        pending: Box<PendingRequest>,
        rest: Vec<u8>,
    },
    /// Nothing of this is answered here.
    HandOver(Vec<u8>),
    Close,
}

/// A request whose link has to be loaded, with what its answer needs of its head.
#[derive(Debug)]
pub struct PendingRequest {
    request: AdmittedRequest,
    fields: OwnedAnswerFields,
    request_id: HeaderValue,
    prefers_html: bool,
    /// How the connection goes on, if the process goes on.
    then: AfterAnswer,
    /// When it was read.
    began: Instant,
}

impl PendingRequest {
    pub fn name(&self) -> LinkName {
        self.request.name
    }

    pub fn span(&self) -> Span {
        span_of(&self.request_id)
    }
}

/// The outcome of one request.
enum Outcome {
    /// How the connection goes on.
    Answered(AfterAnswer),
    /// Its fields ask for more than an answer.
    NotAnswered,
    /// Its link is not in memory.
    AwaitsLoad(Box<PendingRequest>),
}

/// Answers requests from what is in memory. One for each worker.
pub struct Responder {
    api: Arc<Api>,
    /// Whether connections are closed after each answer.
    closes_always: bool,
    near: WorkerCache,
    accept: PreferenceMemo,
    encoder: Encoder,
    /// How many bytes of answers are whole, and how many of requests they answer.
    done: (usize, usize),
    /// When what is answered was read.
    began: Instant,
}

impl Responder {
    pub fn new(api: Arc<Api>, closes_always: bool) -> Self {
        let (encoder, near) = (Encoder::new(Arc::clone(&api.pages)), api.redirects.worker_cache());
        Self {
            api,
            closes_always,
            near,
            accept: PreferenceMemo::default(),
            encoder,
            done: (0, 0),
            began: Instant::now(),
        }
    }

    /// What the last call has answered.
    pub fn answers(&self) -> &[u8] {
        self.encoder.bytes()
    }

    /// When what is answered was read.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Forgets the answers of the last call.
    pub fn clear(&mut self) {
        self.encoder.clear();
        self.began = Instant::now();
    }

    /// Answers the requests in `bytes`, one behind another.
    pub fn answer(&mut self, peer: Option<SocketAddr>, bytes: &[u8]) -> Next {
        self.encoder.clear();
        self.done = (0, 0);
        self.began = Instant::now();
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.encoder.bytes().len() > MAX_ANSWERS_BYTES {
                return Next::Continue(rest.to_vec());
            }
            let mut room = Room::new();
            let Some(lines) = HeadLines::read(rest, &mut room) else { return Next::HandOver(rest.to_vec()) };
            let behind = &rest[lines.length..];
            let then = match self.answer_one(peer, &lines) {
                Outcome::Answered(then) => then,
                Outcome::NotAnswered => return Next::HandOver(rest.to_vec()),
                Outcome::AwaitsLoad(pending) => return Next::Load { pending, rest: behind.to_vec() },
            };
            rest = without_empty_lines(behind);
            self.api.metrics.redirects.answered(self.began.elapsed());
            if then != AfterAnswer::GoesOn {
                return Next::Close;
            }
            self.done = (self.encoder.bytes().len(), bytes.len() - rest.len());
        }
        Next::Read
    }

    /// Answers a request whose link is loaded now; `rest` came behind it.
    pub fn answer_loaded(
        &mut self,
        pending: &mut PendingRequest,
        loaded: &Result<Entry, Arc<StoreError>>,
        rest: Vec<u8>,
    ) -> Next {
        self.clear();
        let span = pending.span();
        let PendingRequest { request, fields, request_id, prefers_html, then, began } = pending;
        let asked = Asked { name: request.name, with_body: request.is_get, prefers_html: *prefers_html };
        let then = self.then(*then);
        let Self { api, encoder, .. } = self;
        span.in_scope(|| {
            let answer = request.answer_loaded(api, fields.as_fields(), loaded);
            encoder.write(&answer, asked, request.at, request_id.as_bytes(), then);
        });
        api.metrics.redirects.answered(began.elapsed());
        if then == AfterAnswer::GoesOn { Next::Continue(rest) } else { Next::Close }
    }

    /// Answers in the place of a call of [`answer`](Self::answer) with `bytes` that panicked: what it had answered before,
    /// and then, as the connection's last, that something went wrong.
    pub fn answer_after_panic(&mut self, bytes: &[u8]) -> Next {
        let (answers, requests) = self.done;
        self.encoder.truncate(answers);
        let mut room = Room::new();
        let head = Head::parse(&bytes[requests..], &mut room);
        let request_id = head.as_ref().map_or_else(new_request_id, |head| request_id_of(head.request_id));
        let prefers_html = head.as_ref().is_some_and(|head| self.accept.prefers_html(head.fields));
        self.answer_failed(&request_id, head.is_none_or(|head| head.is_get), prefers_html, self.began)
    }

    /// The same for a request whose load, or the answer after it, panicked.
    pub fn answer_after_failed_load(&mut self, pending: &PendingRequest) -> Next {
        self.encoder.clear();
        self.answer_failed(&pending.request_id, pending.request.is_get, pending.prefers_html, pending.began)
    }

    fn answer_failed(&mut self, request_id: &HeaderValue, with_body: bool, prefers_html: bool, began: Instant) -> Next {
        let Self { api, encoder, .. } = self;
        span_of(request_id).in_scope(|| tracing::error!("a panic while answering a redirect"));
        api.metrics.redirects.failed();
        api.metrics.redirects.answered(began.elapsed());
        encoder.write_failed(with_body, prefers_html, api.clock.now(), request_id.as_bytes());
        Next::Close
    }

    /// While the process stops, a client that sees this sends its next request elsewhere.
    fn then(&self, wanted: AfterAnswer) -> AfterAnswer {
        let keeps_alive = !self.closes_always && self.api.readiness.is_serving();
        if wanted == AfterAnswer::GoesOn && !keeps_alive { AfterAnswer::Closes } else { wanted }
    }

    /// Answers one request, if it can.
    fn answer_one(&mut self, peer: Option<SocketAddr>, lines: &HeadLines<'_, '_>) -> Outcome {
        let api = &self.api;
        // This prefetches the client's entry in the limit's table, while the fields are interpreted.
        let client = Client::new(api, client_address(peer, lines.fields, &api.trusted_proxies));
        let Some(head) = Head::of(lines) else { return Outcome::NotAnswered };
        let then = self.then(head.then);
        let Self { near, accept, encoder, began, .. } = self;
        let asked = |prefers_html| Asked { name: head.name, with_body: head.is_get, prefers_html };
        let made;
        let request_id = if is_request_id(head.request_id) {
            head.request_id
        } else {
            made = new_id();
            &made
        };
        let request = match AdmittedRequest::admit(api, head.name, head.is_get, client) {
            Ok(request) => request,
            Err(retry_after) => {
                api.notices.check_refused(peer, head.fields, &api.trusted_proxies);
                let answer = Answer::Refused(Refusal::Limited(retry_after));
                let asked = asked(accept.prefers_html(head.fields));
                encoder.write(&answer, asked, api.clock.now(), request_id, then);
                return Outcome::Answered(then);
            }
        };
        let entry;
        let (link, by) = if let Some(link) = near.get(&request.name) {
            (Some(link), LookUp::Memory)
        } else {
            let Some((told, by)) = look_up(api, &request.name) else {
                return Outcome::AwaitsLoad(Box::new(PendingRequest {
                    request,
                    fields: head.answer_fields.into(),
                    request_id: value_of(request_id),
                    prefers_html: accept.prefers_html(head.fields),
                    then: head.then,
                    began: *began,
                }));
            };
            entry = told;
            if let Some(link) = &entry {
                near.put(link);
            }
            (entry.as_deref(), by)
        };
        let answer = request.answer(api, head.answer_fields, link, by);
        // Of a redirect, `Accept` is not looked at.
        let prefers_html = matches!(answer, Answer::Refused(_)) && accept.prefers_html(head.fields);
        encoder.write(&answer, asked(prefers_html), request.at, request_id, then);
        Outcome::Answered(then)
    }
}
