//! Parses the lines of plain heads with SSE2 (x86-64).
//!
//! With httparse, parsing the head took half of the instructions of a redirect (`loadtests/guard`). This parser finds the ends of names
//! and lines 64 bytes at a time. It does not decide what is malformed: it accepts only lines without control characters that end with
//! CR LF, names of letters, digits, `-` and `_`, and values with at most one space before them and none behind. httparse parses such a
//! head the same way, which tests compare. All other heads are left to the dispatcher.

use super::lines::{RequestLine, Room};
use crate::http::fields::Field;

/// As [`super::lines::read_lines`].
pub fn read_plain_lines<'b>(bytes: &'b [u8], room: &mut Room<'b>) -> Option<RequestLine<'b>> {
    let mut request_line = None;
    // Where the line and the 64 bytes begin that are looked at, and where the line's name ends.
    let (mut begin, mut block_at, mut name_end) = (0, 0, None);
    loop {
        let Marks { mut controls, mut others } = marks_at(bytes, block_at)?;
        loop {
            if name_end.is_none() && others != 0 {
                name_end = Some(block_at + others.trailing_zeros() as usize);
            }
            if controls == 0 {
                block_at += BLOCK;
                break;
            }
            let end = block_at + controls.trailing_zeros() as usize;
            if bytes.get(end..end + 2)? != b"\r\n" {
                return None;
            }
            match request_line {
                None => request_line = Some(&bytes[begin..end]),
                Some(line) if begin == end => return Some(RequestLine { line, head_length: end + 2 }),
                Some(_) => room.try_push(field(&bytes[begin..end], name_end? - begin)?).ok()?,
            }
            (begin, name_end) = (end + 2, None);
            let seen = begin - block_at;
            if seen >= BLOCK {
                block_at = begin;
                break;
            }
            (controls, others) = (controls & (!0 << seen), others & (!0 << seen));
        }
    }
}

/// The field of a line whose name has `length` bytes.
fn field(line: &[u8], length: usize) -> Option<Field<'_>> {
    let (name, rest) = line.split_at_checked(length)?;
    let (b':', value) = rest.split_first()? else { return None };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    let is_plain = !name.is_empty() && value.first() != Some(&b' ') && value.last() != Some(&b' ');
    is_plain.then_some(Field { name, value })
}

const BLOCK: usize = 64;

/// What bytes of a block are: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks {
    /// Control characters.
    controls: u64,
    /// Neither a letter, a digit, `-` nor `_`.
    others: u64,
}

/// The marks of the 64 bytes at this place. Behind the end are zeros. `None`: all of them would be behind the end.
fn marks_at(bytes: &[u8], at: usize) -> Option<Marks> {
    let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
    if let Some(block) = rest.first_chunk() {
        return Some(marks(block));
    }
    let mut block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    Some(marks(&block))
}

fn marks(block: &[u8; BLOCK]) -> Marks {
    // SAFETY: each processor of this architecture has SSE2.
    #[expect(unsafe_code, reason = "a function with a target feature is called from one without")]
    unsafe {
        marks_by_sse2(block)
    }
}

#[target_feature(enable = "sse2")]
fn marks_by_sse2(block: &[u8; BLOCK]) -> Marks {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8,
    };

    // Compared as signed numbers: bytes that are no ASCII are below all others.
    let within = |bytes: __m128i, first: u8, last: u8| {
        let above = _mm_cmpgt_epi8(bytes, _mm_set1_epi8(first.cast_signed() - 1));
        _mm_and_si128(above, _mm_cmpgt_epi8(_mm_set1_epi8(last.cast_signed() + 1), bytes))
    };
    let bits = |mask: __m128i| u64::from(_mm_movemask_epi8(mask).cast_unsigned());
    let mut marks = Marks::default();
    for (chunk, at) in block.as_chunks::<16>().0.iter().zip([0, 16, 32, 48]) {
        let bytes: __m128i = bytemuck::cast(*chunk);
        let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()));
        let control = _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes), is(0x7f));
        let letter = within(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), b'a', b'z');
        let digit = within(bytes, b'0', b'9');
        let of_names = _mm_or_si128(_mm_or_si128(letter, digit), _mm_or_si128(is(b'-'), is(b'_')));
        marks.controls |= bits(control) << at;
        marks.others |= (bits(of_names) ^ 0xffff) << at;
    }
    marks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::fast_path::lines::{MAX_FIELDS, by_httparse};

    fn marks_by_byte(block: &[u8; BLOCK]) -> Marks {
        let mut marks = Marks::default();
        for (at, byte) in block.iter().enumerate() {
            marks.controls |= u64::from(byte.is_ascii_control()) << at;
            marks.others |= u64::from(!(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))) << at;
        }
        marks
    }

    /// Whether a head is taken. What is taken must be what httparse reads.
    fn is_taken(bytes: &[u8]) -> bool {
        let mut room = Room::new();
        let Some(RequestLine { line, head_length }) = read_plain_lines(bytes, &mut room) else { return false };
        // Of a request line, this tells only where it ends.
        let other_line = b"GET /a HTTP/1.1";
        let with_other_line = [other_line, &bytes[line.len()..]].concat();
        let mut expected = Room::new();
        let read = by_httparse(&with_other_line, &mut expected);
        let length = head_length - line.len() + other_line.len();
        assert_eq!(read, Some(RequestLine { line: other_line, head_length: length }), "{}", bytes.escape_ascii());
        assert_eq!(room, expected, "{}", bytes.escape_ascii());
        true
    }

    #[test]
    fn plain_heads_are_read_wherever_their_lines_end() {
        for length in 0..300 {
            let long = "x".repeat(length);
            for head in [
                format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
                format!("GET / HTTP/1.1\r\nHost: a\r\nReferer: {long}\r\nA-{long}: b:c\r\nB:\r\nC: \r\nD:e f\r\n\r\n"),
            ] {
                assert!(is_taken(head.as_bytes()), "{head:?}");
                assert!(is_taken(&[head.as_bytes(), b"GET"].concat()), "{head:?}");
                for end in 0..head.len() {
                    assert!(!is_taken(&head.as_bytes()[..end]), "{:?}", &head[..end]);
                }
            }
        }
    }

    #[test]
    fn what_is_not_plain_is_not_taken() {
        let head = |line: &[u8]| [b"GET / HTTP/1.1\r\n", line, b"\r\n\r\n"].concat();
        for line in [&b"Host: a"[..], b"X_Y:z", "City: S\u{e3}o Paulo".as_bytes(), b"City: S\xe3o"] {
            assert!(is_taken(&head(line)), "{}", line.escape_ascii());
        }
        for line in [
            &b"no colon"[..],
            b": no name",
            b" Host: a",
            b"Host : a",
            b"Ho.st: a",
            b"Host:  a",
            b"Host: a ",
            b"Host:\ta",
            b"Host: a\tb",
            b"Host: a\nB: c",
            b"Host: a\r",
            b"Host: a\r B",
            b"Host: \x7f",
            b"Host: \x00",
            "Hüst: a".as_bytes(),
        ] {
            assert!(!is_taken(&head(line)), "{:?}", String::from_utf8_lossy(line));
        }
        let fields = |count: usize| head("A: b\r\n".repeat(count).trim_end().as_bytes());
        assert!(is_taken(&fields(MAX_FIELDS)) && !is_taken(&fields(MAX_FIELDS + 1)));
    }

    #[test]
    fn each_byte_is_marked_as_one_by_one() {
        for byte in 0..=u8::MAX {
            for at in 0..BLOCK {
                let mut block = [b'a'; BLOCK];
                block[at] = byte;
                assert_eq!(marks(&block), marks_by_byte(&block), "{byte} at {at}");
            }
        }
    }

    /// Heads with bytes changed, and bytes that lines are made of.
    fn heads() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[ -~]{0,90}",
            "[A-Za-z0-9-]{1,70}: ?[ -~]{0,90}\r\n",
            Just("\r\n".to_owned()),
            Just("\r\n\r\n".to_owned()),
        ];
        let pieces = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes());
        (pieces, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)).prop_map(
            |(pieces, changes)| {
                let mut head = [b"GET /a HTTP/1.1\r\n", &pieces[..], b"\r\n"].concat();
                for (index, byte) in changes {
                    let at = index.index(head.len());
                    head[at] = byte;
                }
                head
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn httparse_reads_the_same(head in heads()) {
            is_taken(&head);
        }

        #[test]
        fn bytes_are_marked_as_one_by_one(block: [u8; BLOCK]) {
            prop_assert_eq!(marks(&block), marks_by_byte(&block));
        }
    }
}
