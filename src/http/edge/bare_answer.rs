//! What the dispatcher writes: which of it are its own answers, and which let the connection go on.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

use crate::http::fast_path::encode::too_slow;
use crate::http::problem::{Problem, ProblemKind};

/// Finds the dispatcher's own answer, the last of its connection, at the end of what is to be written.
///
/// It differs from those of the handlers by having no header field but length, connection and date: theirs have at least
/// a request id. Answers end in a body or in other fields, so that a look at a few bytes is enough for nearly all.
pub fn bare_answer(bytes: &[u8]) -> Option<(usize, Problem)> {
    const DATE: &[u8] = b"date: Thu, 01 Jan 1970 00:00:00 GMT";
    let head = bytes.strip_suffix(b"\r\n\r\n")?;
    let (head, date) = head.split_at_checked(head.len().checked_sub(DATE.len())?)?;
    if !date.starts_with(b"date: ") {
        return None;
    }
    let head = [&b"connection: close\r\n"[..], b"connection: keep-alive\r\n", b"connection: upgrade\r\n"]
        .iter()
        .find_map(|connection| head.strip_suffix(*connection))
        .unwrap_or(head);
    let head = head.strip_suffix(b"\r\ncontent-length: 0\r\n")?;
    let start = head.windows(7).rposition(|window| window == b"HTTP/1.")?;
    let status = head[start..].get(9..12)?;
    let problem = match status {
        b"400" => Problem::new(ProblemKind::MalformedBody, "The request is not well-formed HTTP/1.1."),
        b"408" => too_slow(),
        b"431" => Problem::new(
            ProblemKind::HeadersTooLarge,
            "The head of a request may have at most 96 header fields and 131072 bytes in all.",
        ),
        [b'4' | b'5', ..] => Problem::internal(),
        _ => return None,
    };
    Some((start, problem))
}

/// Header fields that an answer may have to be looked at.
const MAX_FIELDS: usize = 32;

/// Whether the answer that begins with `bytes` lets its connection go on, as the client reads it (RFC 9112, section 9.3).
/// `None` where there are only interim answers (`100 Continue`). What is not understood lets nothing go on.
///
/// A body in chunks lets nothing go on either: it may be written over time, and nobody else sees its end.
pub fn keeps_alive(mut bytes: &[u8]) -> Option<bool> {
    while !bytes.is_empty() {
        let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut answer = Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut answer, bytes, &mut room);
        let Ok(Status::Complete(length)) = parsed else { return Some(false) };
        if !matches!(answer.code, Some(100..200)) {
            let forbids = |field: &Header<'_>| {
                field.name.eq_ignore_ascii_case("connection") || field.name.eq_ignore_ascii_case("transfer-encoding")
            };
            return Some(answer.version == Some(1) && !answer.headers.iter().any(forbids));
        }
        bytes = &bytes[length..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_http_1_1_without_a_word_on_the_connection_lets_it_go_on() {
        let go_on = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ndate: x\r\n\r\n{}";
        let closes = "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 0\r\nconnection: close\r\ndate: x\r\n\r\n";
        let old = "HTTP/1.0 200 OK\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let old_kept = "HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n";
        let in_chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ndate: x\r\n\r\n2\r\n{}\r\n";
        let interim = "HTTP/1.1 100 Continue\r\n\r\n";
        for (bytes, expected) in [
            (String::new(), None),
            (go_on.into(), Some(true)),
            (closes.into(), Some(false)),
            (old.into(), Some(false)),
            (old_kept.into(), Some(false)),
            (in_chunks.into(), Some(false)),
            (interim.into(), None),
            (interim.to_owned() + go_on, Some(true)),
            (interim.to_owned() + closes, Some(false)),
            ("Continue\r\n\r\n".into(), Some(false)),
            (go_on[..20].into(), Some(false)),
        ] {
            assert_eq!(keeps_alive(bytes.as_bytes()), expected, "{bytes}");
        }
    }
}
