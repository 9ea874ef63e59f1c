//! The header fields of a request, independent of the parser.

use actix_http::header::{HeaderMap, HeaderName, HeaderValue};

/// Header fields of a request.
pub trait HeaderFields {
    /// The values of all lines of a field, in order.
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]>;

    /// The value of a field's first line; empty if the field is missing.
    fn first(&self, name: HeaderName) -> &[u8] {
        self.lines(name).next().unwrap_or_default()
    }
}

impl HeaderFields for HeaderMap {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.get_all(name).map(HeaderValue::as_bytes)
    }
}

impl HeaderFields for [httparse::Header<'_>] {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.iter().filter(move |line| line.name.eq_ignore_ascii_case(name.as_str())).map(|line| line.value)
    }

    // Every redirect reads five fields. If this used `lines`, the compiler might not inline it, which took 6 % more
    // instructions for a redirect.
    #[inline]
    fn first(&self, name: HeaderName) -> &[u8] {
        let name = name.as_str();
        let is_it =
            |line: &&httparse::Header<'_>| line.name.len() == name.len() && line.name.eq_ignore_ascii_case(name);
        self.iter().find(is_it).map_or(&[], |line| line.value)
    }
}

/// Copies of some fields, for an answer that is created after the head's bytes are gone.
#[derive(Debug)]
pub struct CarriedFields(Vec<(HeaderName, Box<[u8]>)>);

impl CarriedFields {
    /// The first line of each of `names`, up to `max_bytes` of each.
    pub fn of(fields: &(impl HeaderFields + ?Sized), names: &[HeaderName], max_bytes: usize) -> Self {
        let copy = |name: &HeaderName| {
            let value = fields.first(name.clone());
            (!value.is_empty()).then(|| (name.clone(), Box::from(&value[..value.len().min(max_bytes)])))
        };
        Self(names.iter().filter_map(copy).collect())
    }
}

impl HeaderFields for CarriedFields {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| *known == name).map(|(_, value)| &**value)
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
