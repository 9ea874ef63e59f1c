//! Cursors of lists of links: a place in a list, bound to the list's filters, and good for 24 hours.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use crate::domain::calendar::Timestamp;
use crate::domain::link::{LinkName, ListPlace, ShortId};

const VERSION: u8 = 1;
/// For how long a cursor can be used.
const GOOD_FOR: Duration = Duration::from_hours(24);
const HASH_BYTES: usize = 16;
const BY_TIME: u8 = 0;
const BY_NAME: u8 = 1;

/// What a list shows, so that a cursor of another list is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFingerprint([u8; HASH_BYTES]);

impl ListFingerprint {
    /// Of the values of all filters, in a fixed order.
    pub fn of<'a>(filters: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut text = Vec::new();
        for filter in filters {
            match filter {
                Some(filter) => {
                    text.extend_from_slice(&filter.len().to_be_bytes());
                    text.extend_from_slice(filter.as_bytes());
                }
                None => text.extend_from_slice(&usize::MAX.to_be_bytes()),
            }
        }
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(&digest(&SHA256, &text).as_ref()[..HASH_BYTES]);
        Self(hash)
    }
}

/// The hash in a cursor: of its list, and of what follows in the cursor.
fn hash(list: ListFingerprint, rest: &[u8]) -> [u8; HASH_BYTES] {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&digest(&SHA256, &[&list.0, rest].concat()).as_ref()[..HASH_BYTES]);
    hash
}

/// The text of a cursor.
pub fn encode(place: ListPlace, list: ListFingerprint, now: Timestamp) -> String {
    let mut rest = now.0.to_be_bytes().to_vec();
    match place {
        ListPlace::Time(at, id) => {
            rest.push(BY_TIME);
            rest.extend_from_slice(&at.0.to_be_bytes());
            rest.extend_from_slice(&id.0);
        }
        ListPlace::Name(name) => {
            rest.push(BY_NAME);
            rest.extend_from_slice(name.as_bytes());
        }
    }
    sealed(&rest, list)
}

/// The text of a cursor that says `rest`, whatever that is.
pub fn sealed(rest: &[u8], list: ListFingerprint) -> String {
    URL_SAFE_NO_PAD.encode([&[VERSION], hash(list, rest).as_slice(), rest].concat())
}

/// The place in a cursor.
///
/// # Errors
/// If it is not a cursor of this list, or too old.
pub fn decode(text: &str, list: ListFingerprint, now: Timestamp) -> Result<ListPlace, &'static str> {
    const OTHER: &str = "must be a next_cursor of this list with the same filters";
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| OTHER)?;
    let [VERSION, rest @ ..] = bytes.as_slice() else { return Err(OTHER) };
    let (of, rest) = rest.split_first_chunk::<HASH_BYTES>().ok_or(OTHER)?;
    if *of != hash(list, rest) {
        return Err(OTHER);
    }
    let (issued_at, rest) = rest.split_first_chunk().ok_or(OTHER)?;
    if Timestamp(u64::from_be_bytes(*issued_at)).plus(GOOD_FOR) < now {
        return Err("is older than 24 hours: start the list again without a cursor");
    }
    place(rest).ok_or(OTHER)
}

fn place(bytes: &[u8]) -> Option<ListPlace> {
    match bytes.split_first()? {
        (&BY_TIME, rest) => {
            let (at, id) = rest.split_first_chunk()?;
            let id: [u8; ShortId::LENGTH] = id.try_into().ok()?;
            // The end of a part of a list need not be the place of a link.
            id.iter()
                .all(u8::is_ascii_alphanumeric)
                .then(|| ListPlace::Time(Timestamp(u64::from_be_bytes(*at)), ShortId(id)))
        }
        (&BY_NAME, name) => LinkName::of_form(std::str::from_utf8(name).ok()?).map(ListPlace::Name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_of_one_list_and_good_for_a_day() {
        let list = ListFingerprint::of([Some("a"), None]);
        let now = Timestamp(1_795_000_000_000);
        for place in [
            ListPlace::Time(Timestamp(1_700_000_000_000), ShortId::parse("aB3xYz9").unwrap()),
            ListPlace::Name(LinkName::parse("Summer_2026").unwrap()),
        ] {
            let cursor = encode(place, list, now);
            assert_eq!(decode(&cursor, list, now), Ok(place));
            assert_eq!(decode(&cursor, list, now.plus(GOOD_FOR)), Ok(place));
            assert!(decode(&cursor, list, now.plus(GOOD_FOR + Duration::from_millis(1))).is_err());
            for other in [[Some("a"), Some("")], [None, Some("a")], [Some("b"), None]] {
                assert!(decode(&cursor, ListFingerprint::of(other), now).is_err());
            }
            for cut in 0..cursor.len() {
                assert!(decode(&cursor[..cut], list, now).is_err());
            }
        }
        for text in ["", "x", "ÄÄ", "AAAA", "019aa54c3f1c7a609f436d1b0c8e2a57"] {
            assert!(decode(text, list, now).is_err(), "{text}");
        }
    }
}
