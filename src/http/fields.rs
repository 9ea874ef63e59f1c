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
}
