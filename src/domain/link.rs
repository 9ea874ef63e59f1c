//! Short links and their texts, each parsed once when it is received.

mod data;
mod list;
mod merge;
mod name;
mod options;
mod state;
mod target;
mod webhooks;

use std::fmt;
use std::hash::{Hash, Hasher};

use ring::error::Unspecified;
use ring::rand::SecureRandom;

use super::base62;
use super::calendar::Timestamp;
use super::idempotency::OnceSeed;
use super::key::KeyId;
use super::reserved::{is_reserved, is_route};

pub use self::data::{DataTooLarge, LinkData, StoredDataError};
pub use self::list::{LinkFilter, ListIndex, ListOrder, ListPlace, words_of};
pub use self::name::{LinkName, SlugError};
pub use self::options::{LinkOptions, MAX_CACHE_SECONDS, OptionsError, RedirectStatus, folded};
pub use self::state::{LinkState, LinkTimes, TimeState};
pub use self::target::{BaseUrl, TargetUrl, TargetUrlError};
pub use self::webhooks::{FiredWebhooks, LinkWebhooks, MAX_WEBHOOKS, MAX_WEBHOOKS_EVER, TooManyWebhooks};

/// The id of a link: 7 base62 characters, never the path of a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShortId(pub [u8; Self::LENGTH]);

/// Writes one word to the hasher. The derived implementation also writes a length and hashes the bytes as a slice.
impl Hash for ShortId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut word = [0; 8];
        word[..Self::LENGTH].copy_from_slice(&self.0);
        state.write_u64(u64::from_le_bytes(word));
    }
}

impl ShortId {
    pub const LENGTH: usize = 7;

    /// Generates an id. The store checks whether it is taken.
    ///
    /// # Errors
    /// If the operating system's random generator fails.
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, Unspecified> {
        loop {
            if let Some(id) = Self::for_new_link(&base62::random_text(random, Self::LENGTH)?) {
                return Ok(id);
            }
        }
    }

    /// The id that follows from a seed: again, the same for the same number.
    pub fn derived(seed: OnceSeed, number: u32) -> Self {
        // Of 32 bytes there are seven that can be used, nearly always.
        let texts =
            (0..).map(|again: u32| base62::text_of(&seed.bytes(number.wrapping_add(again << 16)), Self::LENGTH));
        texts.flatten().find_map(|text| Self::for_new_link(&text)).unwrap_or(Self([b'0'; Self::LENGTH]))
    }

    /// A number for it, below 2^56. Numbers are in the order of ids.
    pub fn to_number(self) -> u64 {
        self.0.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// `None` for text that is not a valid id, or that is reserved.
    fn for_new_link(text: &str) -> Option<Self> {
        Self::parse(text).filter(|_| !is_reserved(text))
    }

    /// `None` for text that is not a valid id.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; Self::LENGTH] = text.as_bytes().try_into().ok()?;
        let shaped = bytes.iter().all(u8::is_ascii_alphanumeric);
        (shaped && !is_route(&bytes)).then_some(Self(bytes))
    }

    pub fn as_str(&self) -> &str {
        // Only ASCII letters and digits, because `parse` checks them.
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

/// The number of a link's state: 1 for a new link, one more for each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u32);

impl Revision {
    pub const FIRST: Self = Self(1);

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A short link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The link's id for as long as the service exists: counters, deliveries and the journal refer to the link by it.
    /// No id is ever used for a second link.
    pub id: ShortId,
    /// The name that its creator chose; without one, the link has its id as its name.
    pub slug: Option<LinkName>,
    pub target: TargetUrl,
    pub data: LinkData,
    pub webhooks: LinkWebhooks,
    /// Whether the link's hits are counted in detail. The usage of its key counts them always.
    pub tracked: bool,
    pub options: LinkOptions,
    /// Why the operator of the service has blocked the link.
    pub block_reason: Option<String>,
    /// The key that created the link.
    pub owner: KeyId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub revision: Revision,
}

impl Link {
    /// The name that visitors and clients of the API reach the link by.
    pub fn name(&self) -> LinkName {
        self.slug.unwrap_or(LinkName::from(self.id))
    }

    pub fn state(&self, now: Timestamp) -> LinkState {
        if self.block_reason.is_some() {
            return LinkState::Blocked;
        }
        self.options.times().at(now).into()
    }
}

/// The properties of a new link.
#[derive(Clone, Debug)]
pub struct NewLink {
    pub slug: Option<LinkName>,
    pub target: TargetUrl,
    pub data: LinkData,
    pub webhooks: LinkWebhooks,
    pub tracked: bool,
    pub options: LinkOptions,
}

impl NewLink {
    /// A tracked link with nothing but its target.
    pub fn to(target: TargetUrl) -> Self {
        Self {
            slug: None,
            target,
            data: LinkData::default(),
            webhooks: LinkWebhooks::default(),
            tracked: true,
            options: LinkOptions::default(),
        }
    }

    pub fn made(&self, id: ShortId, owner: KeyId, created_at: Timestamp) -> Link {
        let Self { slug, target, data, webhooks, tracked, options } = self.clone();
        Link {
            id,
            slug,
            target,
            data,
            webhooks,
            tracked,
            options,
            block_reason: None,
            owner,
            created_at,
            updated_at: created_at,
            revision: Revision::FIRST,
        }
    }
}

/// The part of a link that a redirect needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub id: ShortId,
    pub name: LinkName,
    pub owner: KeyId,
    pub revision: Revision,
    pub tracked: bool,
    pub webhooks: FiredWebhooks,
    pub target: String,
    pub times: LinkTimes,
    /// Where an expired link leads.
    pub fallback: Option<String>,
    pub status: RedirectStatus,
    pub cache_seconds: u32,
    pub is_blocked: bool,
    /// Whether `/{short_id}+` shows the target.
    pub has_preview: bool,
    /// Whether hits of bots fire no webhooks.
    pub skips_bots: bool,
}

impl From<&Link> for Destination {
    fn from(link: &Link) -> Self {
        let options = &link.options;
        Self {
            id: link.id,
            name: link.name(),
            owner: link.owner,
            revision: link.revision,
            tracked: link.tracked,
            webhooks: link.webhooks.fired(),
            target: link.target.as_str().to_owned(),
            times: options.times(),
            fallback: options.fallback.as_ref().map(|url| url.as_str().to_owned()),
            status: options.redirect_status,
            cache_seconds: options.cache_seconds,
            is_blocked: link.block_reason.is_some(),
            has_preview: options.preview,
            skips_bots: options.skip_bots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_have_seven_characters_and_new_ones_are_not_reserved() {
        assert!(ShortId::parse("aB3xYz9").is_some() && ShortId::for_new_link("aB3xYz9").is_some());
        // Links that have them go on redirecting.
        for text in ["SHORTEN", "Metrics", "sitemap", "favicon", "imports", "exports"] {
            assert!(ShortId::parse(text).is_some() && ShortId::for_new_link(text).is_none(), "{text}");
        }
        for text in ["", "abc", "abcdefgh", "abc-def", "äbcdef", "shorten", "console"] {
            assert!(ShortId::parse(text).is_none(), "{text}");
        }
    }
}
