//! What a link has besides its destination. In `store.links` it follows the record of the destination, so that lists of
//! links need no look-up in the engine (`embedded/known_links/`).
//!
//! ```text
//! 0   checksum of the destination's checksum and of all behind it (CRC-32)
//! 4   length of the details
//! 6   details in postcard; none if the record would be too long
//! ```
//!
//! The version of the layout is that of the file, which is derived from the links.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Time;
use super::destinations::{self, CHECKSUM_BYTES};
use super::links::{OptionsV1, active_of, webhooks_of};
use crate::domain::link::{Destination, Link, LinkData, LinkName, LinkOptions, ShortId, TargetUrl};

/// A record is at most this long, with destination and details.
pub const MAX_BYTES: usize = 1_024;
/// Bytes before the details.
const HEAD_BYTES: usize = CHECKSUM_BYTES + size_of::<u16>();

#[derive(Serialize, Deserialize)]
struct LinkDetails<'a> {
    created_at: Time,
    /// `None`: when it was created.
    updated_at: Option<Time>,
    /// Whether its creator chose its name, which may have the form of an id.
    has_slug: bool,
    /// Compact JSON.
    data: Cow<'a, str>,
    /// All URLs that the link has had, by place.
    webhooks: Cow<'a, [String]>,
    /// The places of the webhooks that hits fire; `None`: of all, in order.
    active_webhooks: Option<Vec<u8>>,
    /// `None`: the defaults.
    options: Option<OptionsV1>,
    block_reason: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Link> for LinkDetails<'a> {
    fn from(link: &'a Link) -> Self {
        // The rest is in the destination.
        let Link {
            id: _,
            slug,
            target: _,
            data,
            webhooks,
            tracked: _,
            options,
            block_reason,
            owner: _,
            created_at,
            updated_at,
            revision: _,
        } = link;
        Self {
            created_at: Time(*created_at),
            updated_at: Some(Time(*updated_at)).filter(|_| updated_at != created_at),
            has_slug: slug.is_some(),
            data: data.as_json().into(),
            webhooks: webhooks.all().into(),
            active_webhooks: active_of(webhooks),
            options: OptionsV1::of(options),
            block_reason: block_reason.as_ref().map(Cow::from),
        }
    }
}

impl LinkDetails<'_> {
    /// `None` if a place of the webhooks has no URL.
    fn with(self, destination: Destination) -> Option<Link> {
        let Self { created_at, updated_at, has_slug, data, webhooks, active_webhooks, options, block_reason } = self;
        Some(Link {
            id: destination.id,
            slug: has_slug.then_some(destination.name),
            target: TargetUrl::from_store(destination.target),
            data: LinkData::from_store(data.into_owned()),
            webhooks: webhooks_of(webhooks.into_owned(), active_webhooks)?,
            tracked: destination.tracked,
            options: options.map_or_else(LinkOptions::default, LinkOptions::from),
            block_reason: block_reason.map(Cow::into_owned),
            owner: destination.owner,
            created_at: created_at.0,
            updated_at: updated_at.unwrap_or(created_at).0,
            revision: destination.revision,
        })
    }
}

/// The record of a link; `None` if its destination would be too long for one.
pub fn encode(link: &Link) -> Option<Vec<u8>> {
    let mut record = destinations::encode(&Destination::from(link))?;
    let room = MAX_BYTES.checked_sub(record.len() + HEAD_BYTES)?;
    let details = postcard::to_allocvec(&LinkDetails::from(link)).ok().filter(|details| details.len() <= room);
    let details = details.unwrap_or_default();
    let length = u16::try_from(details.len()).ok()?.to_le_bytes();
    let sum = checksum(*record.first_chunk()?, length, &details);
    record.extend(sum.to_le_bytes());
    record.extend(length);
    record.extend(details);
    Some(record)
}

/// The link of the record that `bytes` begin with, if that is whole, has details, and is of the link with this id.
pub fn decode(id: ShortId, bytes: &[u8]) -> Option<Link> {
    decode_if(|destination| destination.id == id, bytes)
}

/// The same for the link with this name.
pub fn decode_named(name: &LinkName, bytes: &[u8]) -> Option<Link> {
    decode_if(|destination| destination.name == *name, bytes)
}

fn decode_if(is_wanted: impl FnOnce(&Destination) -> bool, bytes: &[u8]) -> Option<Link> {
    let destination = destinations::decode(bytes).filter(is_wanted)?;
    let head = bytes.get(destinations::length(bytes)?..)?;
    let (sum, rest) = head.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let details = rest.get(..u16::from_le_bytes(*length).into())?;
    if details.is_empty() || checksum(*bytes.first_chunk()?, *length, details) != u32::from_le_bytes(*sum) {
        return None;
    }
    // What is left over was written in another layout.
    let (details, _) =
        postcard::take_from_bytes::<LinkDetails<'_>>(details).ok().filter(|(_, rest)| rest.is_empty())?;
    details.with(destination)
}

/// The checksum of the destination is part of it: so these are no details of another link.
fn checksum(destination: [u8; CHECKSUM_BYTES], length: [u8; 2], details: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for part in [&destination[..], &length, details] {
        sum.update(part);
    }
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::super::links::tests::{link, link_with_everything};
    use super::*;
    use crate::domain::link::LinkName;

    #[test]
    fn a_record_is_read_back_whole_and_by_its_own_id_or_not_at_all() {
        let named_like_its_id = Link { slug: Some(LinkName::from(link().id)), ..link() };
        for link in [link(), link_with_everything(), named_like_its_id] {
            let record = encode(&link).unwrap();
            let followed = [&record[..], &record].concat();
            assert_eq!(decode(link.id, &followed), Some(link.clone()));
            assert_eq!(destinations::decode(&followed), Some(Destination::from(&link)));
            assert_eq!(decode(ShortId::parse("another").unwrap(), &followed), None);
            assert!((0..record.len()).all(|length| decode(link.id, &record[..length]).is_none()));
            for bit in 0..record.len() * 8 {
                let mut damaged = followed.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(link.id, &damaged), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn details_are_of_their_own_destination() {
        let other = Link { revision: link().revision.next(), ..link() };
        let [record, other] = [link(), other].map(|link| encode(&link).unwrap());
        let (destination, _) = record.split_at(destinations::length(&record).unwrap());
        let (_, details) = other.split_at(destinations::length(&other).unwrap());
        assert_eq!(decode(link().id, &[destination, details].concat()), None);
    }

    #[test]
    fn of_a_link_that_is_too_long_the_destination_is_there() {
        let longest = (0..MAX_BYTES).rev().find(|bytes| decode(link().id, &encode(&titled(*bytes)).unwrap()).is_some());
        assert_eq!(encode(&titled(longest.unwrap())).unwrap().len(), MAX_BYTES);
        let longer = titled(longest.unwrap() + 1);
        assert_eq!(destinations::decode(&encode(&longer).unwrap()), Some(Destination::from(&longer)));
        let target = format!("https://example.com/{}", "x".repeat(destinations::MAX_BYTES));
        assert_eq!(encode(&Link { target: TargetUrl::parse_stored(&target).unwrap(), ..link() }), None);
    }

    fn titled(bytes: usize) -> Link {
        let title = Some("x".repeat(bytes));
        Link { options: LinkOptions { title, ..LinkOptions::default() }, ..link() }
    }
}
