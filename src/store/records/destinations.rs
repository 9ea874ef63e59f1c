//! The first part of a record of `store.links`: what a redirect needs of a link (`embedded/known_links/`).
//! `link_details.rs` has what follows.
//!
//! ```text
//! 0   checksum of all behind it (CRC-32)
//! 4   length of this part
//! 6   flags: 1 tracked, 2 blocked, 4 slug, 8 places of webhooks, 16 options,
//!     32 no preview, 64 bots fire no webhooks
//! 7   number of webhooks
//! 8   owner
//! 24  id
//! 31  revision
//! 35  length of the target
//! 37  target
//!     with flag 4: length of the slug (1 byte), slug
//!     with flag 8: the place of each webhook (1 byte each)
//!     with flag 16: not_before and expires_at (8 bytes each, all bits set: none), status (2 bytes), cache_seconds (4 bytes),
//!     and up to the end the fallback, if there is one
//! ```
//!
//! The file's first bytes are the layout's version. The file is derived from the links: one with another layout is
//! rebuilt.

use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Destination, FiredWebhooks, LinkName, LinkTimes, RedirectStatus, Revision, ShortId};

/// Bytes of the checksum at the beginning.
pub const CHECKSUM_BYTES: usize = size_of::<u32>();
/// Bytes before the target.
pub const HEAD_BYTES: usize = 37;
/// Of a link for which this part would be longer, no record is written.
pub const MAX_BYTES: usize = 512;

const TRACKED: u8 = 1;
const BLOCKED: u8 = 2;
const SLUG: u8 = 4;
const PLACES: u8 = 8;
const OPTIONS: u8 = 16;
const NO_PREVIEW: u8 = 32;
const SKIPS_BOTS: u8 = 64;

/// Stands for a time that the link does not have.
const NO_TIME: u64 = u64::MAX;

/// This part of a record; `None` if it would be too long.
pub fn encode(link: &Destination) -> Option<Vec<u8>> {
    let Destination {
        id,
        name,
        owner,
        revision,
        tracked,
        webhooks,
        target,
        times,
        fallback,
        status,
        cache_seconds,
        is_blocked,
        has_preview,
        skips_bots,
    } = link;
    let slug = (*name != LinkName::from(*id)).then(|| name.as_bytes());
    let has_options = *times != LinkTimes::default()
        || fallback.is_some()
        || *status != RedirectStatus::default()
        || *cache_seconds > 0;
    let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
    let flags = flag(TRACKED, *tracked)
        | flag(BLOCKED, *is_blocked)
        | flag(SLUG, slug.is_some())
        | flag(PLACES, webhooks.places().is_some())
        | flag(OPTIONS, has_options)
        | flag(NO_PREVIEW, !has_preview)
        | flag(SKIPS_BOTS, *skips_bots);
    let mut content = Vec::with_capacity(HEAD_BYTES + target.len());
    content.extend([0, 0, flags, webhooks.count()]);
    content.extend(owner.0.as_bytes());
    content.extend(id.0);
    content.extend(revision.0.to_le_bytes());
    content.extend(u16::try_from(target.len()).ok()?.to_le_bytes());
    content.extend(target.as_bytes());
    if let Some(slug) = slug {
        content.push(u8::try_from(slug.len()).ok()?);
        content.extend(slug);
    }
    content.extend(webhooks.places().unwrap_or_default());
    if has_options {
        for time in [times.not_before, times.expires_at] {
            content.extend(time.map_or(NO_TIME, |time| time.0).to_le_bytes());
        }
        content.extend(status.code().to_le_bytes());
        content.extend(cache_seconds.to_le_bytes());
        content.extend(fallback.as_deref().unwrap_or_default().as_bytes());
    }
    let length = CHECKSUM_BYTES + content.len();
    if length > MAX_BYTES {
        return None;
    }
    content[..2].copy_from_slice(&u16::try_from(length).ok()?.to_le_bytes());
    Some([&crc32fast::hash(&content).to_le_bytes()[..], &content].concat())
}

/// The length of this part of the record that `bytes` begin with, from its header.
pub fn length(bytes: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(*bytes.get(4..)?.first_chunk()?)))
}

/// The destination of the record that `bytes` begin with, if it is whole.
pub fn decode(bytes: &[u8]) -> Option<Destination> {
    let (sum, content) = bytes.get(..length(bytes)?)?.split_first_chunk()?;
    if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
        return None;
    }
    let mut from = Fields(content.get(2..)?);
    let [flags, count] = from.array()?;
    let owner = KeyId(uuid::Uuid::from_bytes(from.array()?));
    let id = ShortId(from.array()?);
    let revision = Revision(u32::from_le_bytes(from.array()?));
    let target_length = u16::from_le_bytes(from.array()?);
    let target = from.text(target_length.into())?;
    let has = |flag| flags & flag != 0;
    let name = if has(SLUG) {
        let [length] = from.array()?;
        LinkName::of_form(&from.text(length.into())?)?
    } else {
        LinkName::from(id)
    };
    let webhooks = if has(PLACES) { from.take(count.into())?.into() } else { FiredWebhooks::first(count) };
    let mut link = Destination {
        id,
        name,
        owner,
        revision,
        tracked: has(TRACKED),
        webhooks,
        target,
        times: LinkTimes::default(),
        fallback: None,
        status: RedirectStatus::default(),
        cache_seconds: 0,
        is_blocked: has(BLOCKED),
        has_preview: !has(NO_PREVIEW),
        skips_bots: has(SKIPS_BOTS),
    };
    if has(OPTIONS) {
        let [not_before, expires_at] = [from.time()?, from.time()?];
        link.times = LinkTimes { not_before, expires_at };
        link.status = RedirectStatus::from_code(u16::from_le_bytes(from.array()?).into())?;
        link.cache_seconds = u32::from_le_bytes(from.array()?);
        link.fallback = Some(from.text(from.0.len())?).filter(|fallback| !fallback.is_empty());
    }
    Some(link)
}

/// What is left of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self, length: usize) -> Option<String> {
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    /// The inner `None` is a time that the link does not have.
    #[expect(clippy::option_option, reason = "the outer one is a record that ends too early")]
    fn time(&mut self) -> Option<Option<Timestamp>> {
        let time = u64::from_le_bytes(self.array()?);
        Some((time != NO_TIME).then_some(Timestamp(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(target: &str) -> Destination {
        let id = ShortId::parse("abcdefg").unwrap();
        let owner = KeyId(uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        Destination {
            id,
            name: id.into(),
            owner,
            revision: Revision::FIRST,
            tracked: true,
            webhooks: FiredWebhooks::first(3),
            target: target.into(),
            times: LinkTimes::default(),
            fallback: None,
            status: RedirectStatus::default(),
            cache_seconds: 0,
            is_blocked: false,
            has_preview: true,
            skips_bots: false,
        }
    }

    fn link_with_everything() -> Destination {
        Destination {
            name: LinkName::parse("summer_sale").unwrap(),
            revision: Revision(7),
            tracked: false,
            webhooks: [1, 5, 9].as_slice().into(),
            times: LinkTimes { not_before: Some(Timestamp(1)), expires_at: Some(Timestamp(2)) },
            fallback: Some("https://example.com/over".into()),
            status: RedirectStatus::PermanentRedirect,
            cache_seconds: 60,
            is_blocked: true,
            has_preview: false,
            skips_bots: true,
            ..link("https://example.com/a")
        }
    }

    #[test]
    fn a_destination_is_read_back_whole_or_not_at_all() {
        for link in [link("https://example.com/a?b=c"), link_with_everything()] {
            let record = encode(&link).unwrap();
            let followed = [&record[..], b"another"].concat();
            assert_eq!(decode(&followed), Some(link.clone()));
            assert!((0..record.len()).all(|length| decode(&record[..length]).is_none()));
            for bit in 0..record.len() * 8 {
                let mut damaged = followed.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&damaged), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn each_option_is_kept_by_itself() {
        let plain = || link("https://example.com/a");
        let times = |not_before: Option<u64>, expires_at: Option<u64>| LinkTimes {
            not_before: not_before.map(Timestamp),
            expires_at: expires_at.map(Timestamp),
        };
        let links = [
            Destination { times: times(Some(0), None), ..plain() },
            Destination { times: times(None, Some(5)), ..plain() },
            Destination { fallback: Some("https://example.com/over".into()), ..plain() },
            Destination { status: RedirectStatus::TemporaryRedirect, ..plain() },
            Destination { cache_seconds: 1, ..plain() },
            Destination { skips_bots: true, ..plain() },
            Destination { name: LinkName::parse("a").unwrap(), ..plain() },
            Destination { webhooks: FiredWebhooks::first(0), ..plain() },
        ];
        for link in links {
            assert_eq!(decode(&encode(&link).unwrap()), Some(link));
        }
    }

    #[test]
    fn targets_are_kept_that_a_record_has_room_for() {
        let longest = link(&"x".repeat(MAX_BYTES - HEAD_BYTES));
        assert_eq!(decode(&encode(&longest).unwrap()), Some(longest));
        assert_eq!(encode(&link(&"x".repeat(MAX_BYTES - HEAD_BYTES + 1))), None);
    }
}
