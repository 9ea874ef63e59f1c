//! The heads of redirects, made once for each load of a link.

use ::http::{HeaderValue, StatusCode};
use bytes::Bytes;

/// The beginning of a redirect's answer as HTTP/1.1 writes it, up to the value of `Cache-Control`. All answers share it.
#[derive(Clone, Debug)]
pub struct RedirectHead {
    bytes: Bytes,
    pub status: StatusCode,
    /// A part of the bytes.
    pub location: HeaderValue,
    /// The last part of the bytes.
    pub cache_control: HeaderValue,
}

/// A target that no head can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the target has a character that no header can have")]
pub struct UnfitTarget;

impl RedirectHead {
    /// The head of a redirect to `target`. `noindex`: with `X-Robots-Tag: noindex`.
    ///
    /// # Errors
    /// If a header can't have the target.
    pub fn new(
        status: StatusCode,
        target: &str,
        cache_control: &HeaderValue,
        noindex: bool,
    ) -> Result<Self, UnfitTarget> {
        let reason = status.canonical_reason().unwrap_or_default();
        let robots = if noindex { "x-robots-tag: noindex\r\n" } else { "" };
        let before = format!("HTTP/1.1 {} {reason}\r\ncontent-length: 0\r\n{robots}location: ", status.as_str());
        let bytes = [before.as_bytes(), target.as_bytes(), b"\r\ncache-control: ", cache_control.as_bytes()].concat();
        let bytes = Bytes::from(bytes);
        let part = |part| HeaderValue::from_maybe_shared(part).map_err(|_| UnfitTarget);
        Ok(Self {
            location: part(bytes.slice(before.len()..before.len() + target.len()))?,
            cache_control: part(bytes.slice(bytes.len() - cache_control.len()..))?,
            bytes,
            status,
        })
    }

    /// The head of a redirect that no link has.
    ///
    /// # Errors
    /// If a header can't have the target.
    pub fn of_fallback(target: &str, noindex: bool) -> Result<Self, UnfitTarget> {
        Self::new(StatusCode::FOUND, target, &HeaderValue::from_static("no-store"), noindex)
    }

    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All but the value of `Cache-Control`.
    pub fn before_cache_control(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - self.cache_control.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_as_http_writes_it_and_its_parts_are_those_of_a_response() {
        let cache_control = HeaderValue::from_static("private, max-age=60");
        let head =
            RedirectHead::new(StatusCode::PERMANENT_REDIRECT, "https://example.com/a?b", &cache_control, true).unwrap();
        let expected = "HTTP/1.1 308 Permanent Redirect\r\ncontent-length: 0\r\nx-robots-tag: noindex\r\n\
                        location: https://example.com/a?b\r\ncache-control: private, max-age=60";
        assert_eq!(head.as_bytes(), expected.as_bytes());
        assert_eq!(
            (&head.location, &head.cache_control),
            (&"https://example.com/a?b".parse().unwrap(), &cache_control)
        );
        let before = expected.strip_suffix("private, max-age=60").unwrap();
        assert_eq!(head.before_cache_control(), before.as_bytes());

        let head = RedirectHead::of_fallback("https://example.com/", false).unwrap();
        let expected =
            "HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: https://example.com/\r\ncache-control: no-store";
        assert_eq!(head.as_bytes(), expected.as_bytes());
    }

    #[test]
    fn no_head_has_a_second_line_of_its_target() {
        let head = RedirectHead::of_fallback("https://example.com/\r\nset-cookie: a", true);
        assert_eq!(head.map(|_| ()), Err(UnfitTarget));
    }
}
