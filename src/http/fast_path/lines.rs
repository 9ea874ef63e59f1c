//! The lines of a request's head, as far as they are plain.
//!
//! Reading heads with httparse takes half of the instructions of a redirect (`loadtests/guard`). This finds the ends of names
//! and lines for 64 bytes at once. It is no second judge of what is malformed: it takes only printable ASCII in lines that end
//! with CR LF, names of letters, digits and `-`, and at most one space around a value. httparse reads such a head the same way,
//! which tests compare; all others are left to the dispatcher.

use arrayvec::ArrayVec;

use crate::http::fields::Field;

/// Fields that a head may have to stay on the fast path. Browsers send some 15.
pub const MAX_FIELDS: usize = 32;

/// Where a head's fields are put.
pub type Room<'b> = ArrayVec<Field<'b>, MAX_FIELDS>;

/// The first line of a head, and how many bytes the head has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'b> {
    /// Without its CR LF.
    pub line: &'b [u8],
    pub head_length: usize,
}

/// Reads the head that `bytes` begin with, and puts its fields into `room`, which is empty. `None`: the head is not whole, or not
/// plain.
pub fn read_lines<'b>(bytes: &'b [u8], room: &mut Room<'b>) -> Option<RequestLine<'b>> {
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
    /// No printable ASCII.
    controls: u64,
    /// Neither a letter, a digit nor `-`.
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

#[cfg(target_arch = "x86_64")]
fn marks(block: &[u8; BLOCK]) -> Marks {
    // SAFETY: each processor of this architecture has SSE2.
    #[expect(unsafe_code, reason = "the only way to call a function with a target feature")]
    unsafe {
        marks_by_sse2(block)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn marks_by_sse2(block: &[u8; BLOCK]) -> Marks {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };

    let within = |bytes: __m128i, first: u8, last: u8| {
        let above = _mm_cmpgt_epi8(bytes, _mm_set1_epi8(first.cast_signed() - 1));
        _mm_and_si128(above, _mm_cmpgt_epi8(_mm_set1_epi8(last.cast_signed() + 1), bytes))
    };
    let bits = |mask: __m128i| u64::from(_mm_movemask_epi8(mask).cast_unsigned());
    let mut marks = Marks::default();
    for (chunk, at) in block.as_chunks::<16>().0.iter().zip([0, 16, 32, 48]) {
        let bytes: __m128i = bytemuck::cast(*chunk);
        // Compared as signed numbers: bytes that are no ASCII are below all others.
        let control = _mm_or_si128(
            _mm_cmpgt_epi8(_mm_set1_epi8(b' '.cast_signed()), bytes),
            _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)),
        );
        let letter = within(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), b'a', b'z');
        let digit = within(bytes, b'0', b'9');
        let hyphen = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'-'.cast_signed()));
        let of_names = _mm_or_si128(_mm_or_si128(letter, digit), hyphen);
        marks.controls |= bits(control) << at;
        marks.others |= (bits(of_names) ^ 0xffff) << at;
    }
    marks
}

#[cfg(not(target_arch = "x86_64"))]
fn marks(block: &[u8; BLOCK]) -> Marks {
    marks_by_byte(block)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn marks_by_byte(block: &[u8; BLOCK]) -> Marks {
    let mut marks = Marks::default();
    for (at, byte) in block.iter().enumerate() {
        marks.controls |= u64::from(!matches!(byte, b' '..=b'~')) << at;
        marks.others |= u64::from(!(byte.is_ascii_alphanumeric() || *byte == b'-')) << at;
    }
    marks
}

#[cfg(test)]
mod tests {
    use httparse::{EMPTY_HEADER, Request, Status};
    use proptest::prelude::*;

    use super::*;

    const LINE: &[u8] = b"GET /a HTTP/1.1";

    /// A head in words: its first line, its length and its fields.
    fn words<'b>(line: &str, length: usize, fields: impl Iterator<Item = (&'b [u8], &'b [u8])>) -> String {
        let fields = fields.map(|(name, value)| format!("\n{}: {}", name.escape_ascii(), value.escape_ascii()));
        format!("{line}, {length} bytes{}", fields.collect::<String>())
    }

    /// As httparse reads it.
    fn by_httparse(bytes: &[u8]) -> Option<String> {
        let mut room = [EMPTY_HEADER; MAX_FIELDS];
        let mut request = Request::new(&mut room);
        let Ok(Status::Complete(length)) = request.parse(bytes) else { return None };
        let line = format!("{} {} HTTP/1.{}", request.method?, request.path?, request.version?);
        Some(words(&line, length, request.headers.iter().map(|field| (field.name.as_bytes(), field.value))))
    }

    /// Whether a head is taken. What is taken must be what httparse reads.
    fn is_taken(bytes: &[u8]) -> bool {
        let mut room = Room::new();
        let Some(RequestLine { line, head_length }) = read_lines(bytes, &mut room) else { return false };
        // Of a request line, this tells only where it ends.
        let expected = by_httparse(&[LINE, &bytes[line.len()..]].concat());
        let length = head_length - line.len() + LINE.len();
        let ours = words("GET /a HTTP/1.1", length, room.iter().map(|field| (field.name, field.value)));
        assert_eq!(Some(ours), expected, "{}", bytes.escape_ascii());
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
        assert!(is_taken(&head(b"Host: a")));
        for line in [
            &b"no colon"[..],
            b": no name",
            b" Host: a",
            b"Host : a",
            b"Ho_st: a",
            b"Host:  a",
            b"Host: a ",
            b"Host:\ta",
            b"Host: a\tb",
            b"Host: a\nB: c",
            b"Host: a\r",
            b"Host: a\r B",
            b"Host: \x7f",
            b"Host: \x00",
            "Host: ü".as_bytes(),
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
