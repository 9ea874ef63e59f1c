//! The lines of a request's head.

use arrayvec::ArrayVec;
#[cfg(any(test, not(target_arch = "x86_64")))]
use httparse::{Request, Status};

#[cfg(target_arch = "x86_64")]
use super::plain_lines::read_plain_lines;
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

/// Reads the head that `bytes` begin with, and puts its fields into `room`, which is empty. `None`: the head is not whole, or is
/// left to the dispatcher.
pub fn read_lines<'b>(bytes: &'b [u8], room: &mut Room<'b>) -> Option<RequestLine<'b>> {
    #[cfg(target_arch = "x86_64")]
    let read = read_plain_lines(bytes, room);
    #[cfg(not(target_arch = "x86_64"))]
    let read = by_httparse(bytes, room);
    read
}

/// The same by the dispatcher's own parser.
#[cfg(any(test, not(target_arch = "x86_64")))]
pub fn by_httparse<'b>(bytes: &'b [u8], room: &mut Room<'b>) -> Option<RequestLine<'b>> {
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = Request::new(&mut []);
    let Ok(Status::Complete(head_length)) = request.parse_with_uninit_headers(bytes, &mut fields) else { return None };
    room.extend(request.headers.iter().map(|field| Field { name: field.name.as_bytes(), value: field.value }));
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    Some(RequestLine { line: line.strip_suffix(b"\r").unwrap_or(line), head_length })
}

/// The bytes behind empty lines, which a server ignores in front of a request (RFC 9112, section 2.2).
pub fn without_empty_lines(mut bytes: &[u8]) -> &[u8] {
    while let [b'\r', b'\n', behind @ ..] = bytes {
        bytes = behind;
    }
    bytes
}
