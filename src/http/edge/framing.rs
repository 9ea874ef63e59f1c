//! Where requests end: hands a connection's requests to the dispatcher one at a time.
//!
//! actix-http decodes pipelined requests ahead, and answers each with method, version and connection type of the one that it
//! decoded last. It never meets that where it gets the next request only when the one before is answered.

use bytes::{Buf, BytesMut};
use httparse::{EMPTY_HEADER, Header, Request, Status};

use crate::http::fast_path::without_empty_lines;

/// Header fields that a request may have; one with more is the dispatcher's to refuse.
const MAX_FIELDS: usize = 96;
/// A longer head is the dispatcher's to refuse.
const MAX_HEAD_BYTES: usize = 131_072;

/// Where the request that is handed over stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingState {
    Head,
    /// So many bytes of the body are still to come.
    Body(u64),
    Chunks(Chunks),
    /// All of it is handed over.
    Whole,
    /// Nobody can tell where it ends: all that comes is handed over, and the dispatcher refuses it and closes.
    Unframed,
}

/// Where a body in chunks stands (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// In the line with a chunk's size.
    Size { size: u64, has_digits: bool, in_extension: bool },
    /// In a chunk's content and the line's end behind it.
    Content(u64),
    /// Behind the last chunk.
    Trailer(TrailerState),
}

/// Where a trailer stands. A line ends in CR and LF. Some proxies take an LF alone for the end of a line, and the dispatcher takes it
/// for a part of the line: they would disagree on where the next request begins. So such a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrailerState {
    LineBegins,
    InLine,
    LineEnds,
    /// Behind the CR of an empty line.
    Ends,
}

impl Chunks {
    const FIRST: Self = Self::Size { size: 0, has_digits: false, in_extension: false };
}

/// Tells the requests of one connection apart.
#[derive(Debug)]
pub struct Framing(FramingState);

impl Default for Framing {
    fn default() -> Self {
        Self(FramingState::Head)
    }
}

impl Framing {
    /// Whether a request is handed over to its end, so that the next one has to wait for [`answered`](Self::answered).
    pub fn is_whole(&self) -> bool {
        self.0 == FramingState::Whole
    }

    /// Whether no request is begun.
    pub fn is_at_head(&self) -> bool {
        self.0 == FramingState::Head
    }

    /// The next request may be handed over.
    pub fn answered(&mut self) {
        if self.is_whole() {
            self.0 = FramingState::Head;
        }
    }

    /// Moves what of `input` belongs to one request to `out`. Answers whether a request's head was among it.
    pub fn advance(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> bool {
        let mut has_begun = false;
        loop {
            if self.is_at_head() {
                // A server ignores empty lines in front of a request.
                input.advance(input.len() - without_empty_lines(input).len());
            }
            if input.is_empty() {
                break;
            }
            match self.0 {
                FramingState::Head => match Self::head(input, out) {
                    Some(state) => (self.0, has_begun) = (state, true),
                    None => break,
                },
                FramingState::Body(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    out.extend_from_slice(&input.split_to(count));
                    let left = left - count as u64;
                    self.0 = if left == 0 { FramingState::Whole } else { FramingState::Body(left) };
                }
                FramingState::Chunks(chunks) => {
                    let byte = input[0];
                    let count = match chunks {
                        // Many at once.
                        Chunks::Content(left @ 3..) => usize::try_from(left - 2).unwrap_or(usize::MAX).min(input.len()),
                        _ => 1,
                    };
                    let handed_over = input.split_to(count);
                    self.0 = chunk(chunks, byte, count as u64);
                    let is_bare_line_feed = matches!(chunks, Chunks::Trailer(state) if state.is_bare_line_feed(byte));
                    out.extend_from_slice(if is_bare_line_feed { MALFORMED_TRAILER } else { &handed_over });
                }
                FramingState::Whole => break,
                FramingState::Unframed => out.unsplit(input.split()),
            }
        }
        has_begun
    }

    /// Hands a head over, once it is there; what follows it is the state.
    fn head(input: &mut BytesMut, out: &mut BytesMut) -> Option<FramingState> {
        let plain = with_plain_query(input);
        let text: &[u8] = plain.as_deref().unwrap_or(input);
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let mut request = Request::new(&mut fields);
        let (length, state) = match request.parse(text) {
            Ok(Status::Partial) if input.len() < MAX_HEAD_BYTES => return None,
            Err(_) if input.len() < MAX_HEAD_BYTES && has_begun_query(input) => return None,
            Ok(Status::Partial) | Err(_) => return Some(FramingState::Unframed),
            Ok(Status::Complete(length)) => (length, body_of(request.method, request.headers)),
        };
        let upgrades: Vec<usize> = upgrades(request.headers).map(|at| at - text.as_ptr() as usize).collect();
        let begins_at = out.len();
        out.extend_from_slice(&text[..length]);
        for at in upgrades {
            out[begins_at + at..][..UPGRADE.len()].copy_from_slice(IGNORED);
        }
        // What the query has grown by did not come.
        input.advance(length - (text.len() - input.len()));
        Some(state)
    }
}

impl TrailerState {
    fn is_bare_line_feed(self, byte: u8) -> bool {
        byte == b'\n' && matches!(self, Self::LineBegins | Self::InLine)
    }
}

/// In a trailer, the dispatcher refuses it wherever it stands.
const MALFORMED_TRAILER: &[u8] = b"\r\r";

const UPGRADE: &[u8] = b"upgrade";
/// As long as what it stands for.
const IGNORED: &[u8] = b"ignored";

/// The addresses at which `upgrade` stands, as a field's name or an option of `Connection`. No upgrade is offered, and a server
/// may ignore the wish (RFC 9110, section 7.8); the dispatcher would echo it.
fn upgrades<'a>(fields: &'a [Header<'_>]) -> impl Iterator<Item = usize> + 'a {
    let names = fields.iter().filter(|field| field.name.as_bytes().eq_ignore_ascii_case(UPGRADE));
    let options = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
    let options = options.flat_map(|field| field.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let options = options.filter(|option| option.eq_ignore_ascii_case(UPGRADE));
    names.map(|field| field.name.as_ptr() as usize).chain(options.map(|option| option.as_ptr() as usize))
}

/// How a request goes on behind its head.
fn body_of(method: Option<&str>, fields: &[Header<'_>]) -> FramingState {
    let values = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value.trim_ascii())
    };
    let (mut codings, mut lengths) = (values("transfer-encoding"), values("content-length"));
    match (codings.next(), codings.next(), lengths.next(), lengths.next()) {
        // Behind its head are the tunnel's bytes.
        (None, None, None, None) if method == Some("CONNECT") => FramingState::Unframed,
        (None, None, None, None) => FramingState::Whole,
        (Some(coding), None, None, None) if coding.eq_ignore_ascii_case(b"chunked") => {
            FramingState::Chunks(Chunks::FIRST)
        }
        (None, None, Some(length), None) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            match std::str::from_utf8(length).ok().and_then(|length| length.parse().ok()) {
                Some(0) if method == Some("CONNECT") => FramingState::Unframed,
                Some(0) => FramingState::Whole,
                Some(length) => FramingState::Body(length),
                None => FramingState::Unframed,
            }
        }
        _ => FramingState::Unframed,
    }
}

/// The state behind `count` bytes, of which the first is `byte`; there are more than one in a chunk's content alone.
fn chunk(chunks: Chunks, byte: u8, count: u64) -> FramingState {
    let next = match (chunks, byte) {
        (Chunks::Size { has_digits: false, .. }, byte) if !byte.is_ascii_hexdigit() => return FramingState::Unframed,
        (Chunks::Size { size: 0, .. }, b'\n') => Chunks::Trailer(TrailerState::LineBegins),
        (Chunks::Size { size, .. }, b'\n') => match size.checked_add(2) {
            Some(length) => Chunks::Content(length),
            None => return FramingState::Unframed,
        },
        (Chunks::Size { size, in_extension: false, .. }, byte) if byte.is_ascii_hexdigit() => {
            let digit = char::from(byte).to_digit(16).unwrap_or_default();
            match size.checked_mul(16) {
                Some(size) => Chunks::Size { size: size + u64::from(digit), has_digits: true, in_extension: false },
                None => return FramingState::Unframed,
            }
        }
        (Chunks::Size { size, has_digits, .. }, _) => Chunks::Size { size, has_digits, in_extension: true },
        (Chunks::Content(left), _) if left == count => Chunks::FIRST,
        (Chunks::Content(left), _) => Chunks::Content(left - count),
        (Chunks::Trailer(state), byte) if state.is_bare_line_feed(byte) => return FramingState::Unframed,
        (Chunks::Trailer(TrailerState::LineBegins), b'\r') => Chunks::Trailer(TrailerState::Ends),
        (Chunks::Trailer(TrailerState::InLine), b'\r') => Chunks::Trailer(TrailerState::LineEnds),
        (Chunks::Trailer(TrailerState::LineBegins | TrailerState::InLine), _) => Chunks::Trailer(TrailerState::InLine),
        (Chunks::Trailer(TrailerState::LineEnds), b'\n') => Chunks::Trailer(TrailerState::LineBegins),
        (Chunks::Trailer(TrailerState::Ends), b'\n') => return FramingState::Whole,
        // The dispatcher refuses it.
        (Chunks::Trailer(TrailerState::LineEnds | TrailerState::Ends), _) => return FramingState::Unframed,
    };
    FramingState::Chunks(next)
}

/// The input with all bytes of its first query percent-encoded that RFC 3986 does not let stand there; nothing where there are
/// none. Other sites append what they like to a short link, and a visitor must not be refused for it.
fn with_plain_query(input: &[u8]) -> Option<Vec<u8>> {
    // The parser steps over empty lines in front.
    let start = input.iter().position(|byte| !b"\r\n".contains(byte))?;
    let end = start + input[start..].iter().position(|byte| *byte == b'\n')?;
    let line = &input[start..end];
    let query = line.iter().position(|byte| *byte == b'?')? + 1;
    let length = line[query..].iter().position(|byte| *byte == b' ')?;
    let text = &line[query..query + length];
    // A fragment is never sent: the parser behind is to see it.
    if text.iter().all(|byte| is_plain_in_query(*byte)) || text.contains(&b'#') {
        return None;
    }
    let mut plain = input[..start + query].to_vec();
    for byte in text {
        if is_plain_in_query(*byte) || byte.is_ascii_control() {
            plain.push(*byte);
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            plain.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
    plain.extend_from_slice(&input[start + query + length..]);
    Some(plain)
}

/// Whether the input is a first line up to somewhere in its query or behind it. The parser may refuse what stands there as it came,
/// before [`with_plain_query`] has the whole line.
fn has_begun_query(input: &[u8]) -> bool {
    let Some(query) = input.iter().position(|byte| *byte == b'?') else { return false };
    let is_one_line = !input.contains(&b'\n');
    is_one_line && matches!(Request::new(&mut []).parse(&input[..query]), Ok(Status::Partial))
}

/// What RFC 3986 lets stand in a query.
fn is_plain_in_query(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The requests in `bytes`, which come in pieces of these lengths; and what is left behind the last whole one.
    fn requests(bytes: &[u8], mut pieces: impl Iterator<Item = usize>) -> (Vec<String>, String) {
        let (mut framing, mut input, mut out) = (Framing::default(), BytesMut::new(), BytesMut::new());
        let (mut rest, mut found) = (bytes, Vec::new());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(pieces.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
            input.extend_from_slice(piece);
            rest = behind;
            loop {
                framing.advance(&mut input, &mut out);
                if !framing.is_whole() {
                    break;
                }
                found.push(String::from_utf8_lossy(&out.split()).into_owned());
                framing.answered();
            }
        }
        out.unsplit(input);
        (found, String::from_utf8_lossy(&out).into_owned())
    }

    const PIPELINE: [&str; 7] = [
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /",
        "\r\nHEAD /c HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n000000000000000004;x=\"1\"\r\nGET \r\nA\r\n0123456789\r\n0\r\n\r\n",
        "PUT /e HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nX: y\r\n\r\n",
        "GET /f HTTP/1.0\r\n\r\n",
        "DELETE /g HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ];

    proptest! {
        #[test]
        fn requests_are_told_apart_however_their_bytes_come(pieces in prop::collection::vec(1_usize..40, 0..200)) {
            let (found, left) = requests(PIPELINE.concat().as_bytes(), pieces.into_iter());
            prop_assert_eq!(found, PIPELINE.map(str::trim_ascii_start));
            prop_assert_eq!(left, "");
        }

        #[test]
        fn no_byte_is_lost_whatever_comes(bytes in prop::collection::vec(any::<u8>(), 0..300), pieces in prop::collection::vec(1_usize..40, 0..200)) {
            let (found, left) = requests(&bytes, pieces.into_iter());
            prop_assert_eq!(found.concat() + &left, String::from_utf8_lossy(without_empty_lines(&bytes)));
        }
    }

    #[test]
    fn what_nobody_can_tell_the_end_of_is_handed_over_whole() {
        for odd in [
            "no request\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
            "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
            "CONNECT a:1 HTTP/1.1\r\n\r\nbytes",
        ] {
            let (mut framing, mut out) = (Framing::default(), BytesMut::new());
            framing.advance(&mut odd.into(), &mut out);
            assert_eq!((framing.0, out), (FramingState::Unframed, odd.into()), "{odd}");
        }
    }

    #[test]
    fn a_line_of_a_trailer_that_ends_in_a_line_feed_alone_is_for_the_dispatcher_to_refuse() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
        for (trailer, handed_over) in [
            ("0\r\n\n", "0\r\n\r\r"),
            ("0\r\nX: y\n\r\n", "0\r\nX: y\r\r\r\n"),
            ("0\r\nX: y\r\n\n", "0\r\nX: y\r\n\r\r"),
        ] {
            let (mut framing, mut out) = (Framing::default(), BytesMut::new());
            framing.advance(&mut BytesMut::from(&*format!("{head}{trailer}{next}")), &mut out);
            assert_eq!(
                (framing.0, out),
                (FramingState::Unframed, (head.to_owned() + handed_over + next).as_str().into())
            );
        }
    }

    #[test]
    fn an_upgrade_is_not_asked_for_any_more() {
        let sent = "GET / HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nX: upgrade\r\n\r\n";
        let handed = "GET / HTTP/1.1\r\nConnection: keep-alive, ignored\r\nignored: websocket\r\nX: upgrade\r\n\r\n";
        assert_eq!(requests(sent.as_bytes(), std::iter::empty()), (vec![handed.to_owned()], String::new()));
    }

    #[test]
    fn odd_bytes_of_a_query_are_encoded() {
        let head = |query: &[u8]| [b"GET /a?", query, b" HTTP/1.1\r\nHost: a\r\n\r\nGET /b"].concat();
        for (query, expected) in [
            (&b"a=1&b=%20"[..], "a=1&b=%20"),
            (b"q=\"<b>\"", "q=%22%3Cb%3E%22"),
            ("q=ü".as_bytes(), "q=%C3%BC"),
            (b"q=\xfc|{}", "q=%FC%7C%7B%7D"),
        ] {
            let head = head(query);
            // However it comes.
            for first in 1..=head.len() {
                let (found, left) = requests(&head, std::iter::once(first));
                assert_eq!(found, [format!("GET /a?{expected} HTTP/1.1\r\nHost: a\r\n\r\n")], "{first}");
                assert_eq!(left, "GET /b");
            }
        }
        let fragment = head(b"a\"#b");
        assert_eq!(with_plain_query(&fragment), None);
    }
}
