//! The record of `store.links`: what a redirect needs of a link, at fixed offsets (`embedded/known_links/`).
//!
//! ```text
//! 0   checksum of all behind it (CRC-32)
//! 4   length of the target
//! 6   whether it is tracked
//! 7   number of webhooks
//! 8   owner
//! 24  short id
//! 31  target
//! ```
//!
//! The file's first bytes are the layout's version. The file is derived from the links: one with another layout is
//! rebuilt.

use crate::domain::key::KeyId;
use crate::domain::link::{Destination, ShortId};

/// Bytes before the target.
pub const HEAD_BYTES: usize = 31;
/// Longer records are not written.
pub const MAX_BYTES: usize = 512;

/// A record; `None` if it would be too long.
pub fn encode(link: &Destination) -> Option<Vec<u8>> {
    let Destination { id, owner, tracked, webhooks, target } = link;
    let target = target.as_bytes();
    if HEAD_BYTES + target.len() > MAX_BYTES {
        return None;
    }
    let length = u16::try_from(target.len()).ok()?.to_le_bytes();
    let content = [&length[..], &[u8::from(*tracked), *webhooks], owner.0.as_bytes(), &id.0, target].concat();
    Some([&crc32fast::hash(&content).to_le_bytes()[..], &content].concat())
}

/// The length of the record that `bytes` begin with, from its header.
pub fn length(bytes: &[u8]) -> Option<usize> {
    Some(HEAD_BYTES + usize::from(u16::from_le_bytes(*bytes.get(4..)?.first_chunk()?)))
}

/// The record that `bytes` begin with, if it is whole and of this link.
pub fn decode(id: ShortId, bytes: &[u8]) -> Option<Destination> {
    let (sum, content) = bytes.get(..length(bytes)?)?.split_first_chunk()?;
    if content[20..27] != id.0 || crc32fast::hash(content) != u32::from_le_bytes(*sum) {
        return None;
    }
    Some(Destination {
        id,
        owner: KeyId(uuid::Uuid::from_bytes(*content[4..].first_chunk()?)),
        tracked: content[2] != 0,
        webhooks: content[3],
        target: String::from_utf8(content[27..].to_vec()).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(target: &str) -> Destination {
        let id = ShortId::parse("abcdefg").unwrap();
        let owner = KeyId(uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        Destination { id, owner, tracked: true, webhooks: 3, target: target.into() }
    }

    #[test]
    fn a_record_is_read_back_whole_and_by_its_own_id_or_not_at_all() {
        let link = link("https://example.com/a?b=c");
        let record = encode(&link).unwrap();
        let followed = [&record[..], b"another"].concat();
        assert_eq!(decode(link.id, &followed), Some(link.clone()));
        assert_eq!(decode(ShortId::parse("abcdefh").unwrap(), &followed), None);
        assert!((0..record.len()).all(|length| decode(link.id, &record[..length]).is_none()));
        for bit in 0..record.len() * 8 {
            let mut damaged = followed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(link.id, &damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn targets_are_kept_that_a_record_has_room_for() {
        let longest = link(&"x".repeat(MAX_BYTES - HEAD_BYTES));
        assert_eq!(decode(longest.id, &encode(&longest).unwrap()), Some(longest));
        assert_eq!(encode(&link(&"x".repeat(MAX_BYTES - HEAD_BYTES + 1))), None);
    }
}
