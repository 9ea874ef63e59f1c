//! Requests that are done once, however often they are sent: those with an `Idempotency-Key`.

use std::fmt;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use uuid::Uuid;

use super::calendar::Timestamp;
use super::key::KeyId;

/// How long the answer to such a request is kept, in milliseconds.
pub const ANSWERS_KEPT_MILLIS: u64 = 24 * 60 * 60 * 1_000;

/// How long after its creation began a link may still be made: a request with an `Idempotency-Key` may be repeated for
/// a day, with the time of its first attempt.
pub const CREATION_ENDS_AFTER: Duration = Duration::from_hours(48);

/// Longest text of a key.
const MAX_LENGTH: usize = 255;

/// The text of an `Idempotency-Key`: 1 to 255 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Parses a header: a string of RFC 8941, in quotes, or the bare text. `None` for anything else.
    pub fn parse(header: &str) -> Option<Self> {
        let text = match header.strip_prefix('"') {
            Some(rest) => unquoted(rest)?,
            None => header.to_owned(),
        };
        let is_valid = (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then_some(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text of a string without its first quote. Nothing may follow the last one.
fn unquoted(rest: &str) -> Option<String> {
    let mut text = String::with_capacity(rest.len());
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => return letters.as_str().is_empty().then_some(text),
            '\\' => text.push(letters.next().filter(|letter| matches!(letter, '"' | '\\'))?),
            letter => text.push(letter),
        }
    }
}

/// The endpoints whose requests may have a key. Each has keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnceEndpoint {
    Shorten,
    Bulk,
    ApiKeys,
}

impl OnceEndpoint {
    /// The number that stores have for it.
    pub fn number(self) -> u8 {
        match self {
            Self::Shorten => 0,
            Self::Bulk => 1,
            Self::ApiKeys => 2,
        }
    }
}

/// What a request that is done once is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OnceId {
    pub owner: KeyId,
    pub endpoint: OnceEndpoint,
    pub key: IdempotencyKey,
}

impl OnceId {
    /// A hash of all of it.
    pub fn hash(&self) -> [u8; 32] {
        digest(&[self.owner.0.as_bytes(), &[self.endpoint.number()], self.key.as_str().as_bytes()])
    }
}

/// Tells the body of a request from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub fn of(content_type: &[u8], body: &[u8]) -> Self {
        Self(digest(&[&(content_type.len() as u64).to_be_bytes(), content_type, body]))
    }
}

/// A request that is to be done once.
#[derive(Clone, Debug)]
pub struct OnceRequest {
    pub id: OnceId,
    pub fingerprint: Fingerprint,
    pub now: Timestamp,
}

/// An answer that is kept: its status and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    pub status: u16,
    pub body: String,
}

/// The seed of what a request makes: whoever does it again, because the first attempt was cut off, makes the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnceSeed {
    /// Random, of this request alone.
    pub claim: Uuid,
    /// When the first attempt began: what is made was created then.
    pub begun_at: Timestamp,
}

impl OnceSeed {
    /// Random bytes; the same for the same number.
    pub fn bytes(&self, number: u32) -> [u8; 32] {
        digest(&[self.claim.as_bytes(), &number.to_be_bytes()])
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: &str) -> Option<String> {
        IdempotencyKey::parse(header).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn a_key_is_the_same_in_quotes_and_bare() {
        for header in ["abc", "\"abc\""] {
            assert_eq!(parsed(header).as_deref(), Some("abc"));
        }
        assert_eq!(parsed(r#""a\"b\\c""#).as_deref(), Some(r#"a"b\c"#));
        assert_eq!(parsed(r"a\b").as_deref(), Some(r"a\b"));
        let longest = "x".repeat(255);
        assert_eq!(parsed(&longest), Some(longest.clone()));
        assert_eq!(parsed(&format!("\"{longest}\"")), Some(longest));
    }

    #[test]
    fn a_key_that_is_no_visible_ascii_or_too_long_is_refused() {
        let longer = "x".repeat(256);
        for header in [
            "",
            "\"\"",
            "\"",
            "a b",
            "\"a b\"",
            "ä",
            "\"a",
            "\"a\";b=1",
            "\"a\"b",
            r#""a\b""#,
            r#""a\""#,
            "a\tb",
            &longer,
        ] {
            assert_eq!(parsed(header), None, "{header:?}");
        }
    }

    #[test]
    fn the_same_body_is_the_same_bytes_and_content_type() {
        let prints = [Fingerprint::of(b"", b"{}"), Fingerprint::of(b"a", b"{}"), Fingerprint::of(b"", b"a{}")];
        assert!(prints[0] != prints[1] && prints[1] != prints[2] && prints[0] != prints[2]);
        assert_eq!(Fingerprint::of(b"a", b"b"), Fingerprint::of(b"a", b"b"));
    }
}
