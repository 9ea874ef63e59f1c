//! Answers as the bytes of HTTP/1.1, for connections that no dispatcher answers.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::http::header::HttpDate;

use crate::domain::calendar::Timestamp;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::request_id::{X_REQUEST_ID, new_id};
use crate::http::resolve::{Answer, RedirectAnswer, Refusal};
use crate::limits::client::RetryAfter;

/// What every answer has, and no two have the same.
#[derive(Clone, Copy)]
pub struct AnswerStamp<'a> {
    pub request_id: &'a [u8],
    /// As [`DateText`] has it.
    pub date: &'a str,
    /// Whether it is its connection's last.
    pub is_last: bool,
}

impl AnswerStamp<'_> {
    /// Ends the head of an answer.
    fn write(self, out: &mut Vec<u8>) {
        if self.is_last {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(X_REQUEST_ID.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(self.request_id);
        out.extend_from_slice(b"\r\ndate: ");
        out.extend_from_slice(self.date.as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
    }
}

/// Writes answers, one behind another. Those that are the same but for their stamp are made once.
pub struct Encoder {
    out: Vec<u8>,
    date: DateText,
    not_found: CannedProblem,
    /// By the seconds to wait.
    limited: HashMap<u32, CannedProblem>,
}

impl Encoder {
    pub fn new() -> Self {
        Self {
            out: Vec::new(),
            date: DateText::default(),
            not_found: CannedProblem::new(&Refusal::NoSuchLink.into()),
            limited: HashMap::new(),
        }
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    pub fn clear(&mut self) {
        self.out.clear();
    }

    pub fn truncate(&mut self, length: usize) {
        self.out.truncate(length);
    }

    /// Writes an answer that is given `at` this time; one to `HEAD` has no body.
    pub fn write(&mut self, answer: &Answer<'_>, with_body: bool, at: Timestamp, request_id: &[u8], is_last: bool) {
        let Self { out, date, not_found, limited } = self;
        let stamp = date.stamp(at, request_id, is_last);
        match *answer {
            Answer::Redirect(ref redirect) => write_redirect(out, redirect, stamp),
            Answer::Refused(Refusal::NoSuchLink) => not_found.write(out, with_body, stamp),
            Answer::Refused(refusal @ Refusal::Limited(RetryAfter(seconds))) => {
                let problem = || CannedProblem::new(&refusal.into());
                limited.entry(seconds).or_insert_with(problem).write(out, with_body, stamp);
            }
            Answer::Refused(refusal @ Refusal::NotLoaded(_)) => {
                CannedProblem::new(&refusal.into()).write(out, with_body, stamp);
            }
        }
    }

    /// Writes that something went wrong, as a connection's last answer.
    pub fn write_failed(&mut self, with_body: bool, at: Timestamp, request_id: &[u8]) {
        let stamp = self.date.stamp(at, request_id, true);
        CannedProblem::new(&Problem::internal()).write(&mut self.out, with_body, stamp);
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

fn write_redirect(out: &mut Vec<u8>, redirect: &RedirectAnswer<'_>, stamp: AnswerStamp<'_>) {
    let RedirectAnswer { status, location, cache_control, .. } = redirect;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\ncontent-length: 0\r\ncache-control: ");
    out.extend_from_slice(cache_control.as_bytes());
    out.extend_from_slice(b"\r\nlocation: ");
    out.extend_from_slice(location.as_bytes());
    out.extend_from_slice(b"\r\n");
    stamp.write(out);
}

/// An error answer that is made once and sent often: 14 ns to copy, in the place of 172 for its JSON alone
/// (`cargo bench --bench redirect_parts`, 2026-11-23).
pub struct CannedProblem {
    head: Vec<u8>,
    body: String,
}

impl CannedProblem {
    pub fn new(problem: &Problem) -> Self {
        let body = problem.to_json();
        let status = problem.kind().status();
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len()).into_bytes();
        for (name, value) in problem.headers() {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        Self { head, body }
    }

    /// Writes the answer; to `HEAD`, without its body.
    pub fn write(&self, out: &mut Vec<u8>, with_body: bool, stamp: AnswerStamp<'_>) {
        out.extend_from_slice(&self.head);
        stamp.write(out);
        if with_body {
            out.extend_from_slice(self.body.as_bytes());
        }
    }
}

/// The `Date` of answers, made once a second: the text takes 81 ns (`cargo bench --bench redirect_parts`, 2026-11-23).
#[derive(Default)]
pub struct DateText {
    second: Option<u64>,
    text: String,
}

impl DateText {
    /// What an answer that is given now ends with.
    pub fn stamp<'a>(&'a mut self, now: Timestamp, request_id: &'a [u8], is_last: bool) -> AnswerStamp<'a> {
        AnswerStamp { request_id, date: self.at(now), is_last }
    }

    fn at(&mut self, now: Timestamp) -> &str {
        let second = now.0 / 1000;
        if self.second != Some(second) {
            self.second = Some(second);
            self.text = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
        }
        &self.text
    }
}

/// The answer after which a connection is closed, where no request was read.
pub fn last_answer(problem: &Problem) -> Vec<u8> {
    let mut answer = Vec::new();
    let date = HttpDate::from(SystemTime::now()).to_string();
    let stamp = AnswerStamp { request_id: &new_id(), date: &date, is_last: true };
    CannedProblem::new(problem).write(&mut answer, true, stamp);
    answer
}

pub fn too_slow() -> Problem {
    Problem::new(ProblemKind::RequestTimeout, "The head of the request did not arrive in time; send it at once.")
}
