//! Header fields of a request, whoever has parsed it.

use actix_http::header::{HeaderMap, HeaderName, HeaderValue};

/// Header fields of a request.
pub trait Fields {
    /// The values of all lines of a field, in the order in which they came.
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]>;

    /// The value of a field's first line; empty where there is none.
    fn first(&self, name: HeaderName) -> &[u8] {
        self.lines(name).next().unwrap_or_default()
    }
}

impl Fields for HeaderMap {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.get_all(name).map(HeaderValue::as_bytes)
    }
}

impl Fields for [httparse::Header<'_>] {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.iter().filter(move |line| line.name.eq_ignore_ascii_case(name.as_str())).map(|line| line.value)
    }

    // Every redirect looks for five fields. By way of `lines`, it is left to chance what the compiler takes apart: that was
    // seen to cost a redirect 6 % more instructions.
    #[inline]
    fn first(&self, name: HeaderName) -> &[u8] {
        let name = name.as_str();
        let is_it =
            |line: &&httparse::Header<'_>| line.name.len() == name.len() && line.name.eq_ignore_ascii_case(name);
        self.iter().find(is_it).map_or(&[], |line| line.value)
    }
}

/// Copies of some fields, for an answer that is made when the head's bytes are gone.
#[derive(Debug)]
pub struct CarriedFields(Vec<(HeaderName, Box<[u8]>)>);

impl CarriedFields {
    /// The first line of each of `names`, and of each the first `max_bytes`.
    pub fn of(fields: &(impl Fields + ?Sized), names: &[HeaderName], max_bytes: usize) -> Self {
        let copy = |name: &HeaderName| {
            let value = fields.first(name.clone());
            (!value.is_empty()).then(|| (name.clone(), Box::from(&value[..value.len().min(max_bytes)])))
        };
        Self(names.iter().filter_map(copy).collect())
    }
}

impl Fields for CarriedFields {
    fn lines(&self, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| *known == name).map(|(_, value)| &**value)
    }
}

/// Whether a `Host` field's value can name a host and port (RFC 3986, section 3.2.2).
pub fn is_host(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|byte| STANDS_IN_HOSTS[usize::from(*byte)])
}

/// A table, because every redirect looks at each byte of the field.
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
