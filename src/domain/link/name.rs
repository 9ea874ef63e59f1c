//! The name of a link: what visitors and clients of the API reach it by.

use std::fmt;
use std::hash::{Hash, Hasher};

use thiserror::Error;

use super::ShortId;
use crate::domain::reserved::{is_reserved, is_route};

/// Why a text is not valid as the name of a new link. Each text is the `detail` of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SlugError {
    #[error("must be 1 to 64 characters long")]
    Length,
    #[error("must have only letters A-Z and a-z, digits, - and _")]
    Character,
    #[error("must not begin or end with -")]
    Hyphen,
    #[error("is a reserved name")]
    Reserved,
}

/// Whether a name may have this byte.
const IS_OF_NAMES: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0_u8);
    while byte < u8::MAX {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        byte += 1;
    }
    table
};

/// 1 to 64 of `A–Z a–z 0–9 - _`: a generated id, or a slug that a client has chosen. Case matters.
#[derive(Clone, Copy)]
pub struct LinkName {
    length: u8,
    /// Zero behind the name.
    bytes: [u8; Self::MAX_BYTES],
}

impl LinkName {
    pub const MAX_BYTES: usize = 64;

    /// `None` for text that no link has as its name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::at_start_of(text.as_bytes()).filter(|name| name.as_bytes().len() == text.len())
    }

    /// The name that `bytes` begin with, up to the first byte that no name has. `None` if no link has it.
    pub fn at_start_of(bytes: &[u8]) -> Option<Self> {
        let mut name = Self { length: 0, bytes: [0; Self::MAX_BYTES] };
        for (to, from) in name.bytes.iter_mut().zip(bytes) {
            if !IS_OF_NAMES[usize::from(*from)] {
                break;
            }
            *to = *from;
            name.length += 1;
        }
        let text = name.as_bytes();
        let is_longer = bytes.get(text.len()).is_some_and(|next| IS_OF_NAMES[usize::from(*next)]);
        let has_its_form = *text.first()? != b'-' && *text.last()? != b'-' && !is_longer;
        (has_its_form && !is_route(text)).then_some(name)
    }

    /// The name of a new link, as its creator has chosen it.
    ///
    /// # Errors
    /// See [`SlugError`].
    pub fn parse_slug(text: &str) -> Result<Self, SlugError> {
        let name = Self::checked(text)?;
        if is_reserved(text) { Err(SlugError::Reserved) } else { Ok(name) }
    }

    /// A name by its form alone: a later release may have a route of this name, which no link is reached by.
    pub fn of_form(text: &str) -> Option<Self> {
        Self::checked(text).ok()
    }

    fn checked(text: &str) -> Result<Self, SlugError> {
        let length = u8::try_from(text.len()).ok().filter(|length| (1..=64).contains(length));
        let length = length.ok_or(SlugError::Length)?;
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        if !text.bytes().all(|byte| IS_OF_NAMES[usize::from(byte)]) {
            return Err(SlugError::Character);
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(SlugError::Hyphen);
        }
        Ok(Self { length, bytes })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub fn as_str(&self) -> &str {
        // Only ASCII: every byte is one of `IS_OF_NAMES`.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The bytes in words of 8, without the words behind the name: one for an id.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        let words = self.bytes.as_chunks().0.iter().take(usize::from(self.length).div_ceil(8));
        words.map(|word| u64::from_le_bytes(*word))
    }

    /// The id that this name has the form of: a generated link with that id has this name.
    pub fn as_id(&self) -> Option<ShortId> {
        ShortId::parse(self.as_str())
    }
}

/// A link without a slug has its id as its name.
impl From<ShortId> for LinkName {
    fn from(id: ShortId) -> Self {
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..ShortId::LENGTH].copy_from_slice(&id.0);
        #[expect(clippy::cast_possible_truncation, reason = "7")]
        Self { length: ShortId::LENGTH as u8, bytes }
    }
}

impl PartialEq for LinkName {
    fn eq(&self, other: &Self) -> bool {
        // Behind a name are zeros, which no name has. A comparison of a fixed length needs no call.
        self.bytes == other.bytes
    }
}

impl Eq for LinkName {}

impl PartialOrd for LinkName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LinkName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// Writes as few words as the name has. The derived implementation hashes all 65 bytes.
impl Hash for LinkName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().for_each(|word| state.write_u64(word));
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_has_1_to_64_characters_of_its_alphabet() {
        for text in ["a", "_", "_-_", "Summer_sale-2026", "aB3xYz9", &"x".repeat(64)] {
            assert_eq!(LinkName::parse_slug(text).unwrap().as_str(), text);
        }
        let faults = [
            ("", SlugError::Length),
            (&"x".repeat(65), SlugError::Length),
            ("a b", SlugError::Character),
            ("a.b", SlugError::Character),
            ("a+", SlugError::Character),
            ("ä", SlugError::Character),
            ("-a", SlugError::Hyphen),
            ("a-", SlugError::Hyphen),
            ("-", SlugError::Hyphen),
            ("Console", SlugError::Reserved),
            ("api-keys", SlugError::Reserved),
        ];
        for (text, fault) in faults {
            assert_eq!(LinkName::parse_slug(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn names_that_became_reserved_later_are_still_found_and_paths_of_routes_are_not() {
        assert_eq!(LinkName::parse("sitemap").unwrap().as_id(), ShortId::parse("sitemap"));
        for path in ["shorten", "console"] {
            assert_eq!(LinkName::parse(path), None);
        }
    }

    #[test]
    fn the_name_that_a_text_begins_with_ends_before_the_first_other_byte() {
        let longest = "x".repeat(64);
        for name in ["a", "_-_", "aB3xYz9", &longest] {
            for rest in ["", " HTTP/1.1", "?a", "+", "/", "\u{e4}"] {
                let found = LinkName::at_start_of(format!("{name}{rest}").as_bytes());
                assert_eq!(found.map(|name| name.to_string()).as_deref(), Some(name), "{rest}");
                assert_eq!(LinkName::parse(&format!("{name}{rest}")).is_some(), rest.is_empty());
            }
        }
        for text in ["", " a", "-a", "a- b", "shorten", "docs?x", &format!("{longest}x")] {
            assert_eq!(LinkName::at_start_of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn an_id_is_the_name_of_the_same_text() {
        let id = ShortId::parse("aB3xYz9").unwrap();
        assert_eq!(LinkName::from(id), LinkName::parse("aB3xYz9").unwrap());
        assert_eq!(LinkName::from(id).as_id(), Some(id));
        assert_eq!(LinkName::parse("aB3xYz").unwrap().as_id(), None);
    }
}
