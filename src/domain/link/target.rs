//! The target of a link, and the base URL of this service, which no link may point at.

use std::fmt::Display;

use thiserror::Error;
use url::Url;

/// The base URL of this service. Links may not point at it.
#[derive(Clone, Debug)]
pub struct BaseUrl {
    text: String,
    url: Url,
}

impl BaseUrl {
    /// `url` must be a valid `http` or `https` URL.
    pub fn new(url: Url) -> Self {
        let text = url.as_str().trim_end_matches('/').to_owned();
        Self { text, url }
    }

    /// `{base_url}/<name>`.
    pub fn short_url(&self, name: impl Display) -> String {
        format!("{}/{name}", self.text)
    }

    /// Without a trailing slash.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host in lower case.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether `target` is at this service: the same host and port, under the same path, with any scheme.
    fn covers(&self, target: &Url) -> bool {
        let host = |url: &Url| url.host_str().map(|host| host.trim_end_matches('.').to_ascii_lowercase());
        let same_port =
            self.url.port() == target.port() || self.url.port_or_known_default() == target.port_or_known_default();
        let path = self.url.path().trim_end_matches('/');
        let under = target.path().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        host(&self.url) == host(target) && same_port && under
    }
}

/// Why a text is not a valid target of a link. Each text is the `detail` of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TargetUrlError {
    #[error("must be at most 8192 bytes long")]
    TooLong,
    #[error("must not contain control characters or white space")]
    ForbiddenCharacter,
    #[error("must be an absolute http or https URL with a host")]
    NotAbsoluteHttp,
    #[error("must not point at this service itself")]
    AtThisService,
}

/// The target of a link: an absolute `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl(String);

impl TargetUrl {
    const MAX_BYTES: usize = 8192;
    /// Text other than ASCII is stored escaped, which is longer.
    const MAX_STORED_BYTES: usize = 16 * Self::MAX_BYTES;

    /// The target as sent if it is ASCII, else in its WHATWG form.
    ///
    /// # Errors
    /// See [`TargetUrlError`].
    pub fn parse(text: &str, this_service: &BaseUrl) -> Result<Self, TargetUrlError> {
        let url = Self::checked(text, Self::MAX_BYTES)?;
        if this_service.covers(&url) {
            return Err(TargetUrlError::AtThisService);
        }
        Ok(Self::normalized(text, url))
    }

    /// A target to search for, as sent or as stored. It may be at this service: a link may point at what has become this
    /// service since.
    ///
    /// # Errors
    /// See [`TargetUrlError`].
    pub fn parse_sought(text: &str) -> Result<Self, TargetUrlError> {
        let url = Self::checked(text, Self::MAX_STORED_BYTES)?;
        Ok(Self::normalized(text, url))
    }

    fn normalized(text: &str, url: Url) -> Self {
        Self(if text.is_ascii() { text.to_owned() } else { url.into() })
    }

    /// Parses a target in its stored form, which this service or another one has accepted before.
    ///
    /// # Errors
    /// See [`TargetUrlError`].
    pub fn parse_stored(text: &str) -> Result<Self, TargetUrlError> {
        if !text.is_ascii() {
            return Err(TargetUrlError::ForbiddenCharacter);
        }
        Self::checked(text, Self::MAX_STORED_BYTES)?;
        Ok(Self(text.to_owned()))
    }

    /// A target from this service's own store, checked before it was stored.
    pub fn from_store(text: String) -> Self {
        Self(text)
    }

    fn checked(text: &str, most_bytes: usize) -> Result<Url, TargetUrlError> {
        if text.len() > most_bytes {
            return Err(TargetUrlError::TooLong);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(TargetUrlError::ForbiddenCharacter);
        }
        // The WHATWG parser finds a host in `http:///x` and in `http:x`; these are refused.
        let (scheme, rest) = text.split_once("://").ok_or(TargetUrlError::NotAbsoluteHttp)?;
        let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        if !is_http || rest.is_empty() || rest.starts_with(['/', '\\', '?', '#']) {
            return Err(TargetUrlError::NotAbsoluteHttp);
        }
        let url = Url::parse(text).map_err(|_| TargetUrlError::NotAbsoluteHttp)?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(TargetUrlError::NotAbsoluteHttp);
        }
        Ok(url)
    }

    /// ASCII only, so that it is valid in a header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, TargetUrlError> {
        let base = BaseUrl::new(Url::parse("https://sign.example/s").unwrap());
        TargetUrl::parse(text, &base).map(|url| url.as_str().to_owned())
    }

    #[test]
    fn a_target_is_kept_as_sent_when_it_is_ascii_and_else_in_its_whatwg_form() {
        for same in
            ["http://a", "HTTPS://A.example:443/%7e?q=<x>#f", "http://u:p@h/", "https://[::1]:8/\"", "http://a//b"]
        {
            assert_eq!(parse(same).as_deref(), Ok(same));
        }
        assert_eq!(parse("https://bücher.example/ä").as_deref(), Ok("https://xn--bcher-kva.example/%C3%A4"));
    }

    #[test]
    fn other_than_absolute_http_urls_are_refused() {
        use TargetUrlError::{ForbiddenCharacter, NotAbsoluteHttp, TooLong};
        for text in [
            "",
            "a",
            "/a",
            "//a/b",
            "ftp://a",
            "http:a",
            "http:///x",
            "http://",
            "http://?q",
            "http:\\\\a",
            "javascript:alert(1)",
            "http://a:99999/",
            "http://[::1",
            "http://%zz/",
        ] {
            assert_eq!(parse(text), Err(NotAbsoluteHttp), "{text}");
        }
        for text in ["http://a/ b", " http://a", "http://a/\n", "http://a/\u{7f}", "http://a/\u{a0}", "http://a\t/"] {
            assert_eq!(parse(text), Err(ForbiddenCharacter), "{text:?}");
        }
        assert!(parse(&format!("http://a/{}", "x".repeat(8192 - 9))).is_ok());
        assert_eq!(parse(&format!("http://a/{}", "x".repeat(8192 - 8))), Err(TooLong));
    }

    #[test]
    fn a_target_at_this_service_is_refused_whatever_the_scheme_and_only_under_its_path() {
        for text in [
            "https://sign.example/s",
            "http://sign.example/s/abc",
            "https://SIGN.example:443/s/",
            "http://sign.example./s/x",
            "http://x@sign.example/s?y",
        ] {
            assert_eq!(parse(text), Err(TargetUrlError::AtThisService), "{text}");
        }
        let found = TargetUrl::parse_sought("https://sign.example/s/ä").unwrap();
        assert_eq!(found.as_str(), "https://sign.example/s/%C3%A4");
        for text in [
            "https://sign.example/",
            "https://sign.example/shop",
            "https://sign.example:444/s",
            "https://www.sign.example/s",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }
}
