//! Short links and the texts they are made of, each parsed once at the edge.

mod data;

use std::fmt;
use std::hash::{Hash, Hasher};

use ring::error::Unspecified;
use ring::rand::SecureRandom;
use thiserror::Error;
use url::Url;

use super::base62;
use super::calendar::Timestamp;
use super::key::KeyId;

pub use self::data::{DataTooLarge, LinkData, StoredDataError};

/// The identifier of a link: 7 base62 characters, never a word that a route uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShortId(pub [u8; Self::LENGTH]);

/// One word for the hasher. The derived implementation also hashes a length, and the bytes as a slice of any length.
impl Hash for ShortId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut word = [0; 8];
        word[..Self::LENGTH].copy_from_slice(&self.0);
        state.write_u64(u64::from_le_bytes(word));
    }
}

impl ShortId {
    pub const LENGTH: usize = 7;

    /// First path segments that belong to routes; a test holds this against the route table.
    pub const RESERVED: [&str; 6] = ["api-keys", "docs", "links", "openapi.json", "shorten", "usage"];

    /// Draws a new id. Whether it is taken is for the store to say.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, Unspecified> {
        loop {
            if let Some(id) = Self::parse(&base62::random_text(random, Self::LENGTH)?) {
                return Ok(id);
            }
        }
    }

    /// `None` for text that can't be the id of any link.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; Self::LENGTH] = text.as_bytes().try_into().ok()?;
        let shaped = bytes.iter().all(u8::is_ascii_alphanumeric);
        (shaped && !Self::RESERVED.contains(&text)).then_some(Self(bytes))
    }

    pub fn as_str(&self) -> &str {
        // Only ASCII letters and digits get in, through `parse`.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShortId({self})")
    }
}

/// Where this service itself is reached: links may not point at it.
#[derive(Clone, Debug)]
pub struct BaseUrl {
    text: String,
    url: Url,
}

impl BaseUrl {
    /// Takes a checked `http` or `https` URL.
    pub fn new(url: Url) -> Self {
        let text = url.as_str().trim_end_matches('/').to_owned();
        Self { text, url }
    }

    /// `{base_url}/<short_id>`.
    pub fn short_url(&self, id: ShortId) -> String {
        format!("{}/{id}", self.text)
    }

    /// Without a trailing slash.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host, lower case.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether `target` is at this service: its host and port, under its path, whatever the scheme.
    fn covers(&self, target: &Url) -> bool {
        let host = |url: &Url| url.host_str().map(|host| host.trim_end_matches('.').to_ascii_lowercase());
        let same_port =
            self.url.port() == target.port() || self.url.port_or_known_default() == target.port_or_known_default();
        let path = self.url.path().trim_end_matches('/');
        let under = target.path().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        host(&self.url) == host(target) && same_port && under
    }
}

/// Why a text is no target of a link. The text of each is the `detail` a client reads.
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

/// Where a link leads: an absolute `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl(String);

impl TargetUrl {
    const MAX_BYTES: usize = 8192;
    /// What is no ASCII is kept escaped, and takes more room then.
    const MAX_STORED_BYTES: usize = 16 * Self::MAX_BYTES;

    /// Kept as sent when it is pure ASCII, else in its WHATWG form.
    ///
    /// # Errors
    /// See [`TargetUrlError`].
    pub fn parse(text: &str, this_service: &BaseUrl) -> Result<Self, TargetUrlError> {
        let url = Self::checked(text, Self::MAX_BYTES)?;
        if this_service.covers(&url) {
            return Err(TargetUrlError::AtThisService);
        }
        Ok(Self(if text.is_ascii() { text.to_owned() } else { url.into() }))
    }

    /// Takes a target that was accepted before, by this service or another one: in the form in which it is kept.
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

    /// A target from this service's own store. Its text was checked before it was written.
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
        // WHATWG parsing would find a host in `http:///x` and in `http:x`; a host as sent is asked for.
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

    /// ASCII only, so that it can stand in a header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A short link. Links never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub id: ShortId,
    pub target: TargetUrl,
    pub data: LinkData,
    /// Checked URLs as sent, in the order sent.
    pub webhooks: Vec<String>,
    /// Whether hits are kept per link; its key's usage counts them always.
    pub tracked: bool,
    /// The key that made it.
    pub owner: KeyId,
    pub created_at: Timestamp,
}

/// What a new link is to be.
#[derive(Clone, Debug)]
pub struct NewLink {
    pub target: TargetUrl,
    pub data: LinkData,
    /// Checked, distinct URLs as sent.
    pub webhooks: Vec<String>,
    pub tracked: bool,
}

impl NewLink {
    /// A tracked link with nothing but its target.
    pub fn to(target: TargetUrl) -> Self {
        Self { target, data: LinkData::default(), webhooks: Vec::new(), tracked: true }
    }

    pub fn made(&self, id: ShortId, owner: KeyId, created_at: Timestamp) -> Link {
        let Self { target, data, webhooks, tracked } = self.clone();
        Link { id, target, data, webhooks, tracked, owner, created_at }
    }
}

/// What a redirect needs of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub id: ShortId,
    pub owner: KeyId,
    pub tracked: bool,
    /// How many webhooks a hit fires.
    pub webhooks: u8,
    pub target: String,
}

impl From<&Link> for Destination {
    fn from(link: &Link) -> Self {
        Self {
            id: link.id,
            owner: link.owner,
            tracked: link.tracked,
            webhooks: u8::try_from(link.webhooks.len()).unwrap_or(u8::MAX),
            target: link.target.as_str().to_owned(),
        }
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
    fn what_is_no_absolute_http_url_is_refused() {
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
        for text in [
            "https://sign.example/",
            "https://sign.example/shop",
            "https://sign.example:444/s",
            "https://www.sign.example/s",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn short_ids_have_seven_characters_and_are_no_reserved_word() {
        assert!(ShortId::parse("aB3xYz9").is_some());
        for text in ["", "abc", "abcdefgh", "abc-def", "äbcdef", "shorten"] {
            assert!(ShortId::parse(text).is_none(), "{text}");
        }
    }
}
