//! The heads that the fast path answers.

use std::mem::MaybeUninit;

use httparse::{Header, Request, Status};

use crate::domain::link::ShortId;
use crate::http::fields::is_host;

/// Fields that a head may have to stay on the fast path. Browsers send some 15.
const MAX_FIELDS: usize = 32;

/// Where a head's fields are put: not written to before they are parsed.
pub type Room<'b> = [MaybeUninit<Header<'b>>; MAX_FIELDS];

/// A place for [`Head::parse`] to put fields.
pub fn room<'b>() -> Room<'b> {
    [const { MaybeUninit::uninit() }; MAX_FIELDS]
}

/// The head of a `GET` or `HEAD` for a short link, without a body.
pub struct Head<'r, 'b> {
    pub id: ShortId,
    pub is_get: bool,
    /// Whether the client asked for the connection to be closed.
    pub closes: bool,
    pub fields: &'r [Header<'b>],
    /// How many bytes it has.
    pub length: usize,
}

impl<'r, 'b> Head<'r, 'b> {
    /// The head that `bytes` begin with, if it is whole, and plain in every respect.
    ///
    /// Whatever is odd, or merely rare, is left to the dispatcher, so that there is one judge of what is malformed, of
    /// bodies, `Expect`, upgrades and HTTP/1.0. The parser is the dispatcher's own.
    pub fn parse(bytes: &'b [u8], room: &'r mut Room<'b>) -> Option<Self> {
        let mut request = Request::new(&mut []);
        let Ok(Status::Complete(length)) = request.parse_with_uninit_headers(bytes, room) else { return None };
        let is_get = match request.method? {
            "GET" => true,
            "HEAD" => false,
            _ => return None,
        };
        let (path, query) = request.path?.split_once('?').unwrap_or((request.path?, ""));
        let id = ShortId::parse(path.strip_prefix('/')?)?;
        // A query says nothing to a redirect, whatever it is made of. A fragment is never sent.
        if request.version? != 1 || query.contains('#') {
            return None;
        }
        let fields: &'r [Header<'b>] = request.headers;
        let closes = closes_if_plain(fields)?;
        Some(Self { id, is_get, closes, fields, length })
    }
}

/// Whether `bytes` begin with a head that the fast path answers.
pub fn is_fast(bytes: &[u8]) -> bool {
    // Most that come to the dispatcher do not even begin like one.
    let path = bytes.strip_prefix(b"GET /").or_else(|| bytes.strip_prefix(b"HEAD /"));
    let begins_like_one = path.is_some_and(|path| matches!(path.get(ShortId::LENGTH), Some(b' ' | b'?')));
    begins_like_one && Head::parse(bytes, &mut room()).is_some()
}

/// Whether the connection is to be closed; `None` where the fields ask for more than an answer.
fn closes_if_plain(fields: &[Header<'_>]) -> Option<bool> {
    let (mut hosts, mut closes) = (0, false);
    for Header { name, value } in fields {
        // By length first: nearly all names are none of these.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") && is_host(value) => hosts += 1,
            4 if name.eq_ignore_ascii_case("host") => return None,
            6 if name.eq_ignore_ascii_case("expect") => return None,
            7 if name.eq_ignore_ascii_case("upgrade") => return None,
            10 if name.eq_ignore_ascii_case("connection") => match value {
                value if value.eq_ignore_ascii_case(b"keep-alive") => {}
                value if value.eq_ignore_ascii_case(b"close") => closes = true,
                _ => return None,
            },
            14 if name.eq_ignore_ascii_case("content-length") => return None,
            17 if name.eq_ignore_ascii_case("transfer-encoding") => return None,
            _ => {}
        }
    }
    (hosts == 1).then_some(closes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Option<(String, bool, bool, usize)> {
        let mut room = room();
        let head = Head::parse(bytes, &mut room)?;
        Some((String::from_utf8_lossy(&head.id.0).into_owned(), head.is_get, head.closes, head.length))
    }

    #[test]
    fn plain_heads_are_taken_one_at_a_time() {
        let id = "Abc1234".to_owned();
        let head = b"GET /Abc1234 HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(parse(head), Some((id.clone(), true, false, head.len())));
        assert_eq!(parse(&[&head[..], b"GET"].concat()), Some((id.clone(), true, false, head.len())));
        let head = b"HEAD /Abc1234?fbclid=x%20y HTTP/1.1\r\nConnection: Close\r\nHOST: a\r\n\r\n";
        assert_eq!(parse(head), Some((id.clone(), false, true, head.len())));
        let head = b"GET /Abc1234 HTTP/1.1\r\nHost: a\r\nconnection: keep-alive\r\nReferer: b\r\n\r\n";
        assert_eq!(parse(head), Some((id, true, false, head.len())));
    }

    #[test]
    fn all_others_are_left_to_the_dispatcher() {
        for line in
            ["GET /Abc1234 HTTP/1.0", "POST /Abc1234 HTTP/1.1", "GET /Abc123 HTTP/1.1", "GET /Abc12345 HTTP/1.1"]
        {
            assert_eq!(parse(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()), None, "{line}");
        }
        for line in
            ["GET /Abc1234/ HTTP/1.1", "GET /Abc%31234 HTTP/1.1", "GET http://a/Abc1234 HTTP/1.1", "GET / HTTP/1.1"]
        {
            assert_eq!(parse(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()), None, "{line}");
        }
        for line in ["GET /Abc1234#a HTTP/1.1", "GET /Abc1234?a#b HTTP/1.1", "GET  /Abc1234 HTTP/1.1"] {
            assert_eq!(parse(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()), None, "{line}");
        }
        for fields in [
            "",
            "Host: a\r\nHost: a\r\n",
            "Host: \r\n",
            "Host: a b\r\n",
            "Host: a/b\r\n",
            "Host: a\r\nContent-Length: 0\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\n",
            "Host: a\r\nExpect: 100-continue\r\n",
            "Host: a\r\nUpgrade: h2c\r\n",
            "Host: a\r\nConnection: close, x\r\n",
            "Host: a\r\nConnection: upgrade\r\n",
            "Host: a\r\nno colon\r\n",
        ] {
            assert_eq!(parse(format!("GET /Abc1234 HTTP/1.1\r\n{fields}\r\n").as_bytes()), None, "{fields}");
        }
        let many = "X: y\r\n".repeat(MAX_FIELDS);
        assert_eq!(parse(format!("GET /Abc1234 HTTP/1.1\r\nHost: a\r\n{many}\r\n").as_bytes()), None);
        assert_eq!(parse(b"GET /Abc1234 HTTP/1.1\r\nHost: a\r\n"), None);
    }
}
