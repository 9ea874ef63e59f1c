//! Answers as the bytes of HTTP/1.1, for connections that no dispatcher answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::http::header::HttpDate;
use foldhash::quality::RandomState;

use crate::domain::calendar::Timestamp;
use crate::domain::link::LinkName;
use crate::http::pages::{ErrorAnswer, Pages};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::request_id::new_id;
use crate::http::resolve::{Answer, RedirectAnswer, Refusal};
use crate::limits::client::RetryAfter;

/// How a connection goes on behind an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAnswer {
    GoesOn,
    /// The client is told.
    Closes,
    /// The client, of HTTP/1.0, expects it.
    ClosesAsExpected,
}

/// What every answer has, and no two have the same.
#[derive(Clone, Copy)]
pub struct AnswerStamp<'a> {
    pub request_id: &'a [u8],
    /// The `Date` field and the end of the head, as [`DateText`] has them.
    pub date: &'a str,
    pub then: AfterAnswer,
}

impl<'a> AnswerStamp<'a> {
    /// The end of an answer's head, behind the value of the field before it.
    fn parts(self) -> [&'a [u8]; 3] {
        let id_follows: &[u8] = if self.then == AfterAnswer::Closes {
            b"\r\nconnection: close\r\nx-request-id: "
        } else {
            b"\r\nx-request-id: "
        };
        [id_follows, self.request_id, self.date.as_bytes()]
    }
}

/// What an answer depends on besides what was found.
#[derive(Clone, Copy)]
pub struct Asked {
    pub name: LinkName,
    /// `HEAD` is answered without.
    pub with_body: bool,
    /// Looked at for errors alone.
    pub prefers_html: bool,
}

/// Writes answers, one behind another. Those that are the same but for their stamp are made once.
pub struct Encoder {
    pages: Arc<Pages>,
    out: Vec<u8>,
    date: DateText,
    /// As a problem, and as a page where that is the same for all names.
    not_found: [Option<CannedError>; 2],
    /// By the seconds to wait, and whether it is a page.
    limited: HashMap<(u32, bool), CannedError, RandomState>,
}

impl Encoder {
    pub fn new(pages: Arc<Pages>) -> Self {
        let not_found = [false, true].map(|prefers_html| {
            let is_constant = !prefers_html || pages.not_found_is_constant();
            is_constant.then(|| canned(&pages, &Problem::no_such_link(), prefers_html, ""))
        });
        Self { pages, out: Vec::new(), date: DateText::default(), not_found, limited: HashMap::default() }
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

    /// Writes an answer that is given `at` this time.
    pub fn write(&mut self, answer: &Answer<'_>, asked: Asked, at: Timestamp, request_id: &[u8], then: AfterAnswer) {
        let Self { pages, out, date, not_found, limited } = self;
        let Asked { name, with_body, prefers_html } = asked;
        let stamp = date.stamp(at, request_id, then);
        let begin = out.len();
        let made = |refusal: Refusal<'_>| canned(pages, &refusal.into(), prefers_html, name.as_str());
        match *answer {
            Answer::Redirect(ref redirect) => write_redirect(out, redirect, stamp),
            Answer::Refused(refusal @ Refusal::NoSuchLink) => match &not_found[usize::from(prefers_html)] {
                Some(canned) => canned.write(out, with_body, stamp),
                None => made(refusal).write(out, with_body, stamp),
            },
            Answer::Refused(refusal @ Refusal::Limited(RetryAfter(seconds))) => {
                let canned = limited.entry((seconds, prefers_html)).or_insert_with(|| made(refusal));
                canned.write(out, with_body, stamp);
            }
            Answer::Refused(refusal @ (Refusal::Expired | Refusal::Blocked | Refusal::NotLoaded(_))) => {
                made(refusal).write(out, with_body, stamp);
            }
        }
        if then == AfterAnswer::ClosesAsExpected
            && let Some(minor_version) = out.get_mut(begin + "HTTP/1.".len())
        {
            *minor_version = b'0';
        }
    }

    /// Writes that something went wrong, as a connection's last answer.
    pub fn write_failed(&mut self, with_body: bool, prefers_html: bool, at: Timestamp, request_id: &[u8]) {
        let stamp = self.date.stamp(at, request_id, AfterAnswer::Closes);
        canned(&self.pages, &Problem::internal(), prefers_html, "").write(&mut self.out, with_body, stamp);
    }
}

fn canned(pages: &Pages, problem: &Problem, prefers_html: bool, name: &str) -> CannedError {
    CannedError::new(&pages.error(problem, prefers_html, name).with_noindex(pages.noindex))
}

fn write_redirect(out: &mut Vec<u8>, redirect: &RedirectAnswer<'_>, stamp: AnswerStamp<'_>) {
    let RedirectAnswer { head, cache_control, .. } = redirect;
    let [id_follows, request_id, date] = stamp.parts();
    match cache_control {
        None => append(out, [head.as_bytes(), id_follows, request_id, date]),
        Some(value) => append(out, [head.before_cache_control(), value.as_bytes(), id_follows, request_id, date]),
    }
}

/// Appends texts one behind another. Memory for all of them is reserved at once.
fn append<const COUNT: usize>(out: &mut Vec<u8>, parts: [&[u8]; COUNT]) {
    out.reserve(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// An error answer that is made once and sent often: 14 ns to copy, in the place of 172 for its JSON alone
/// (`cargo bench --bench redirect_parts`, 2026-11-23).
pub struct CannedError {
    head: Vec<u8>,
    body: String,
}

impl CannedError {
    pub fn new(ErrorAnswer { status, headers, body }: &ErrorAnswer) -> Self {
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}", body.len()).into_bytes();
        for (name, value) in headers {
            for part in [b"\r\n", name.as_str().as_bytes(), b": ", value.as_bytes()] {
                head.extend_from_slice(part);
            }
        }
        Self { head, body: body.clone() }
    }

    /// Writes the answer; to `HEAD`, without its body.
    pub fn write(&self, out: &mut Vec<u8>, with_body: bool, stamp: AnswerStamp<'_>) {
        let [id_follows, request_id, date] = stamp.parts();
        let body = if with_body { self.body.as_bytes() } else { &[] };
        append(out, [&self.head, id_follows, request_id, date, body]);
    }
}

/// The `Date` of answers and the end of their heads, made once a second: the text takes 81 ns (`cargo bench --bench redirect_parts`, 2026-11-23).
#[derive(Default)]
pub struct DateText {
    second: Option<u64>,
    text: String,
}

impl DateText {
    /// What an answer that is given now ends with.
    pub fn stamp<'a>(&'a mut self, now: Timestamp, request_id: &'a [u8], then: AfterAnswer) -> AnswerStamp<'a> {
        AnswerStamp { request_id, date: self.at(now), then }
    }

    fn at(&mut self, now: Timestamp) -> &str {
        let second = now.0 / 1000;
        if self.second != Some(second) {
            self.second = Some(second);
            let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
            self.text = end_of_head(date);
        }
        &self.text
    }
}

fn end_of_head(date: HttpDate) -> String {
    format!("\r\ndate: {date}\r\n\r\n")
}

/// The answer after which a connection is closed, where no request was read.
pub fn last_answer(problem: &Problem, noindex: bool) -> Vec<u8> {
    let mut answer = Vec::new();
    let date = end_of_head(HttpDate::from(SystemTime::now()));
    let stamp = AnswerStamp { request_id: &new_id(), date: &date, then: AfterAnswer::Closes };
    CannedError::new(&ErrorAnswer::from(problem).with_noindex(noindex)).write(&mut answer, true, stamp);
    answer
}

pub fn too_slow() -> Problem {
    Problem::new(ProblemKind::RequestTimeout, "The head of the request did not arrive in time; send it at once.")
}
