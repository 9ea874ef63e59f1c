//! The heads that the fast path answers.

use super::encode::AfterAnswer;
use super::lines::{RequestLine, Room, read_lines};
use crate::domain::bots::PurposeHeader;
use crate::domain::link::LinkName;
use crate::domain::privacy::PrivacySignals;
use crate::http::answer_fields::AnswerFields;
use crate::http::fields::{Field, is_host};

/// The lines of a head that asks for a short link. Its fields are not interpreted yet.
pub struct HeadLines<'r, 'b> {
    name: LinkName,
    is_get: bool,
    is_http_1_1: bool,
    query: &'b str,
    /// All of them.
    pub fields: &'r [Field<'b>],
    /// How many bytes the head has.
    pub length: usize,
}

impl<'r, 'b> HeadLines<'r, 'b> {
    /// The lines of the head that `bytes` begin with, if it is whole and plain.
    pub fn read(bytes: &'b [u8], room: &'r mut Room<'b>) -> Option<Self> {
        let (name, is_get, name_end) = name_in(bytes)?;
        let RequestLine { line, head_length } = read_lines(bytes, room)?;
        let (rest, is_http_1_1) = match line.get(name_end..)?.split_last_chunk()? {
            (rest, b" HTTP/1.1") => (rest, true),
            (rest, b" HTTP/1.0") => (rest, false),
            _ => return None,
        };
        // A redirect is the same whatever its query is made of. A fragment is never sent.
        let query = match rest {
            [] => "",
            [b'?', query @ ..] if !query.iter().any(|byte| matches!(byte, b' ' | b'#')) => {
                str::from_utf8(query).ok()?
            }
            _ => return None,
        };
        Some(Self { name, is_get, is_http_1_1, query, fields: room, length: head_length })
    }
}

/// The head of a `GET` or `HEAD` for a short link, without a body.
pub struct Head<'r, 'b> {
    pub name: LinkName,
    pub is_get: bool,
    /// What the client asks for. Proxies that use a connection for each request send HTTP/1.0.
    pub then: AfterAnswer,
    /// The first `X-Request-Id` line; empty where there is none.
    pub request_id: &'b [u8],
    pub answer_fields: AnswerFields<'b>,
    /// All of them.
    pub fields: &'r [Field<'b>],
    /// How many bytes it has.
    pub length: usize,
}

impl<'r, 'b> Head<'r, 'b> {
    /// The head that `bytes` begin with, if it is whole, and plain in every respect.
    ///
    /// What is unusual or rare is left to the dispatcher, so that one place handles malformed heads, bodies, `Expect`,
    /// upgrades and kept connections of HTTP/1.0.
    pub fn parse(bytes: &'b [u8], room: &'r mut Room<'b>) -> Option<Self> {
        Self::of(&HeadLines::read(bytes, room)?)
    }

    /// The head of these lines, if its fields ask for no more than an answer.
    pub fn of(lines: &HeadLines<'r, 'b>) -> Option<Self> {
        let HeadLines { name, is_get, is_http_1_1, query, fields, length } = *lines;
        let PlainFields { closes, keeps, request_id, answer_fields } = PlainFields::of(fields)?;
        let answer_fields = AnswerFields { query, ..answer_fields };
        let then = match is_http_1_1 {
            false if keeps => return None,
            false => AfterAnswer::ClosesAsExpected,
            true if closes => AfterAnswer::Closes,
            true => AfterAnswer::GoesOn,
        };
        Some(Self { name, is_get, then, request_id, answer_fields, fields, length })
    }
}

/// The name of the link that such a head asks for, whether the method is `GET`, and where the name ends. Most heads that are the
/// dispatcher's have none, and are left to it unread.
fn name_in(bytes: &[u8]) -> Option<(LinkName, bool, usize)> {
    let (path, is_get) = match bytes {
        [b'G', b'E', b'T', b' ', b'/', path @ ..] => (path, true),
        [b'H', b'E', b'A', b'D', b' ', b'/', path @ ..] => (path, false),
        _ => return None,
    };
    let name = LinkName::at_start_of(path)?;
    let length = name.as_bytes().len();
    matches!(path.get(length), Some(b' ' | b'?')).then_some((name, is_get, bytes.len() - path.len() + length))
}

/// What the fields of a plain head say.
#[derive(Default)]
struct PlainFields<'b> {
    closes: bool,
    /// Whether the client asked for the connection to be kept; in HTTP/1.1 it need not ask.
    keeps: bool,
    request_id: &'b [u8],
    answer_fields: AnswerFields<'b>,
}

impl<'b> PlainFields<'b> {
    /// `None` where the fields ask for more than an answer.
    fn of(fields: &[Field<'b>]) -> Option<Self> {
        let (mut hosts, mut host, mut closes, mut keeps, mut request_id) = (0, &[][..], false, false, None);
        let (mut user_agent, mut referer, mut sec_ch_ua_mobile, mut accept_language) = (None, None, None, None);
        let (mut is_prefetch, mut privacy) = (false, PrivacySignals::default());
        for &Field { name, value } in fields {
            // As browsers write it: that is a comparison of two words. The other one goes letter by letter.
            let is = |usual: &str| name == usual.as_bytes() || name.eq_ignore_ascii_case(usual.as_bytes());
            // By length and first letter: nearly all names are none of these. `|` makes the letter a small one.
            match (name.len(), name.first().map_or(0, |letter| letter | 0x20)) {
                (3, b'd') if is("DNT") => privacy.dnt |= PrivacySignals::in_dnt(value),
                (4, b'h') if is("Host") => {
                    hosts += 1;
                    host = value;
                }
                (5, b'x') if is("X-Moz") => is_prefetch |= PurposeHeader::Older.asks_for_prefetch(value),
                (6, b'e') if is("Expect") => return None,
                (7, b'u') if is("Upgrade") => return None,
                (7, b'r') if is("Referer") => _ = referer.get_or_insert(value),
                (7, b's') if is("Sec-GPC") => privacy.gpc |= PrivacySignals::in_gpc(value),
                (7, b'p') if is("Purpose") => is_prefetch |= PurposeHeader::Older.asks_for_prefetch(value),
                (9, b'x') if is("X-Purpose") => is_prefetch |= PurposeHeader::Older.asks_for_prefetch(value),
                (10, b'u') if is("User-Agent") => _ = user_agent.get_or_insert(value),
                (10, b'c') if is("Connection") => match value {
                    b"keep-alive" => keeps = true,
                    value if value.eq_ignore_ascii_case(b"keep-alive") => keeps = true,
                    value if value.eq_ignore_ascii_case(b"close") => closes = true,
                    _ => return None,
                },
                (11, b's') if is("Sec-Purpose") => is_prefetch |= PurposeHeader::Current.asks_for_prefetch(value),
                (12, b'x') if is("X-Request-Id") => _ = request_id.get_or_insert(value),
                (14, b'c') if is("Content-Length") => return None,
                (15, b'a') if is("Accept-Language") => _ = accept_language.get_or_insert(value),
                (16, b's') if is("sec-ch-ua-mobile") => _ = sec_ch_ua_mobile.get_or_insert(value),
                (17, b't') if is("Transfer-Encoding") => return None,
                _ => {}
            }
        }
        if hosts != 1 || !is_host(host) {
            return None;
        }
        Some(Self {
            closes,
            keeps,
            request_id: request_id.unwrap_or_default(),
            answer_fields: AnswerFields {
                user_agent: user_agent.unwrap_or_default(),
                referer: referer.unwrap_or_default(),
                sec_ch_ua_mobile: sec_ch_ua_mobile.unwrap_or_default(),
                accept_language: accept_language.unwrap_or_default(),
                query: "",
                is_prefetch,
                privacy,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fast_path::lines::MAX_FIELDS;

    fn parse(bytes: &[u8]) -> Option<(String, bool, AfterAnswer, usize)> {
        let mut room = Room::new();
        let head = Head::parse(bytes, &mut room)?;
        Some((head.name.to_string(), head.is_get, head.then, head.length))
    }

    #[test]
    fn plain_heads_are_taken_one_at_a_time() {
        let id = "Abc1234".to_owned();
        let head = b"GET /Abc1234 HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(parse(head), Some((id.clone(), true, AfterAnswer::GoesOn, head.len())));
        assert_eq!(parse(&[&head[..], b"GET"].concat()), Some((id.clone(), true, AfterAnswer::GoesOn, head.len())));
        let head = b"HEAD /Abc1234?fbclid=x%20y HTTP/1.1\r\nConnection: Close\r\nHOST: a\r\n\r\n";
        assert_eq!(parse(head), Some((id.clone(), false, AfterAnswer::Closes, head.len())));
        let head = b"GET /Abc1234 HTTP/1.1\r\nHost: a\r\nconnection: keep-alive\r\nReferer: b\r\n\r\n";
        assert_eq!(parse(head), Some((id.clone(), true, AfterAnswer::GoesOn, head.len())));
        for fields in ["", "Connection: close\r\n"] {
            let head = format!("GET /Abc1234 HTTP/1.0\r\nHost: a\r\n{fields}\r\n");
            assert_eq!(
                parse(head.as_bytes()),
                Some((id.clone(), true, AfterAnswer::ClosesAsExpected, head.len())),
                "{fields}"
            );
        }
    }

    #[test]
    fn names_have_1_to_64_characters() {
        for name in ["a", "_", "summer-sale_2026", &"x".repeat(64)] {
            let head = format!("GET /{name}?a HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(parse(head.as_bytes()), Some((name.to_owned(), true, AfterAnswer::GoesOn, head.len())));
        }
    }

    #[test]
    fn of_each_field_the_first_line_is_taken() {
        let head =
            b"GET /Abc1234?utm_source=x HTTP/1.1\r\nuser-agent: a\r\nREFERER: \r\nReferer: b\r\nX-Request-ID: c\r\nHost: a\r\n\
                     sec-ch-ua-mobile: ?1\r\nx-request-id: d\r\nUser-Agent: e\r\naccept-language: de\r\n\
                     Accept-Language: fr\r\n\r\n";
        let mut room = Room::new();
        let head = Head::parse(head, &mut room).unwrap();
        let expected = AnswerFields {
            user_agent: b"a",
            referer: b"",
            sec_ch_ua_mobile: b"?1",
            accept_language: b"de",
            query: "utm_source=x",
            is_prefetch: false,
            privacy: PrivacySignals::default(),
        };
        assert_eq!((head.request_id, head.answer_fields), (&b"c"[..], expected));
        let mut room = Room::new();
        let head = Head::parse(b"GET /Abc1234 HTTP/1.1\r\nHost: a\r\n\r\n", &mut room).unwrap();
        assert_eq!((head.request_id, head.answer_fields), (&b""[..], AnswerFields::default()));
    }

    #[test]
    fn any_line_says_that_a_request_is_a_prefetch_or_wants_no_tracking() {
        let said = |fields: &str| {
            let head = format!("GET /Abc1234? HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut room = Room::new();
            let AnswerFields { is_prefetch, privacy, query, .. } =
                Head::parse(head.as_bytes(), &mut room).unwrap().answer_fields;
            assert_eq!(query, "");
            (is_prefetch, privacy.gpc, privacy.dnt)
        };
        for (fields, expected) in [
            ("", (false, false, false)),
            ("Sec-Purpose: prefetch;prerender\r\n", (true, false, false)),
            ("sec-purpose: none\r\nSEC-PURPOSE: Prefetch\r\n", (true, false, false)),
            ("Purpose: preview\r\n", (true, false, false)),
            ("X-Moz: prefetch\r\n", (true, false, false)),
            ("x-purpose: preview\r\n", (true, false, false)),
            ("Sec-Purpose: preview\r\nPurpose: prefetch;a\r\n", (false, false, false)),
            ("Sec-GPC: 1\r\n", (false, true, false)),
            ("DNT: 0\r\ndnt: 1\r\n", (false, false, true)),
            ("Sec-GPC: 0\r\nDNT: 0\r\n", (false, false, false)),
        ] {
            assert_eq!(said(fields), expected, "{fields}");
        }
    }

    #[test]
    fn all_others_are_left_to_the_dispatcher() {
        let kept = b"GET /Abc1234 HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n";
        assert_eq!(parse(kept), None);
        let long = format!("GET /{} HTTP/1.1", "x".repeat(65));
        for line in
            ["GET /Abc1234 HTTP/2.0", "POST /Abc1234 HTTP/1.1", "GET /Abc1234+ HTTP/1.1", "GET /-a HTTP/1.1", &long]
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
