//! The header fields of a request, independent of the parser.

use actix_http::header::{HeaderMap, HeaderName, HeaderValue};

/// Header fields of a request.
pub trait HeaderFields {
    /// The values of all lines of a field, in order.
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]>;
}

impl HeaderFields for HeaderMap {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.get_all(name).map(HeaderValue::as_bytes)
    }
}

/// A field as the fast path reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'b> {
    /// As it was sent; ASCII.
    pub name: &'b [u8],
    pub value: &'b [u8],
}

impl HeaderFields for [Field<'_>] {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        let is_it = move |field: &&Field<'_>| field.name.eq_ignore_ascii_case(name.as_str().as_bytes());
        self.iter().filter(is_it).map(|field| field.value)
    }
}

/// Whether the value of a `Host` field is valid as a host and port (RFC 3986, section 3.2.2).
pub fn is_host(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|byte| STANDS_IN_HOSTS[usize::from(*byte)])
}

/// A table, because every redirect checks each byte of the field.
static STANDS_IN_HOSTS: [bool; 256] = {
    let marks = b"-._~!$&'()*+,;=:[]%";
    let (mut table, mut byte, mut mark) = ([false; 256], 0_u8, 0);
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
    }
    table
};
