//! Answers as the bytes of HTTP/1.1, for connections that no dispatcher answers.

use std::time::{Duration, UNIX_EPOCH};

use actix_web::http::header::HttpDate;

use super::problem::Problem;
use super::request_id::X_REQUEST_ID;
use crate::cache::links::CachedLink;
use crate::domain::calendar::Timestamp;

/// What every answer has, and no two have the same.
#[derive(Clone, Copy)]
pub struct Stamp<'a> {
    pub request_id: &'a [u8],
    /// As [`DateText`] has it.
    pub date: &'a str,
    /// Whether it is its connection's last.
    pub is_last: bool,
}

impl Stamp<'_> {
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

/// Writes the answer that sends a client to a link's target.
pub fn write_redirect(out: &mut Vec<u8>, link: &CachedLink, stamp: Stamp<'_>) {
    out.extend_from_slice(b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\ncache-control: private, no-store\r\nlocation: ");
    out.extend_from_slice(link.location.as_bytes());
    out.extend_from_slice(b"\r\n");
    stamp.write(out);
}

/// An error answer that is made once and sent often: 14 ns to copy, in the place of 172 for its JSON alone
/// (`cargo bench -p loadtests --bench redirect_parts`, 2026-11-23).
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
    pub fn write(&self, out: &mut Vec<u8>, with_body: bool, stamp: Stamp<'_>) {
        out.extend_from_slice(&self.head);
        stamp.write(out);
        if with_body {
            out.extend_from_slice(self.body.as_bytes());
        }
    }
}

/// The `Date` of answers, made once a second: the text takes 81 ns (`cargo bench -p loadtests --bench redirect_parts`,
/// 2026-11-23).
#[derive(Default)]
pub struct DateText {
    second: Option<u64>,
    text: String,
}

impl DateText {
    /// What an answer that is given now ends with.
    pub fn stamp<'a>(&'a mut self, now: Timestamp, request_id: &'a [u8], is_last: bool) -> Stamp<'a> {
        Stamp { request_id, date: self.at(now), is_last }
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
