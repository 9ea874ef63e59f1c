//! A hit as a record of the journal, and the hit's id, which follows from the record's position.
//!
//! Records are written in layout 2 and read in both layouts. Layout 2 is layout 1 with six more bytes at fixed offsets,
//! and with an extension behind the texts: fields of a type, a length and a value, to the end of the record. A reader
//! skips fields of unknown types and ignores unknown flags, so new fields and flags need no new layout.
//! `docs/storage-format.md` describes the bytes and reserves the numbers of fields and flags.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ring::digest::{Context, SHA256};
use uuid::Variant;

use super::format::RecordLayout;
use crate::domain::hit::{HitId, NodeId, Position};
use crate::domain::privacy::PrivateVisitor;
use crate::domain::utm::{UTM_COUNT, UtmValues};

/// Longest part of a `User-Agent` or `Referer` header that is recorded, in bytes.
pub const MAX_HEADER_BYTES: usize = 512;

/// The longest extension of a record, in bytes: all fields with their types and lengths.
pub const MAX_EXTENSION_BYTES: usize = 1024;

/// The longest record, in bytes.
pub const MAX_RECORD_BYTES: usize = FIXED_BYTES + 2 * MAX_HEADER_BYTES + MAX_EXTENSION_BYTES;

/// Time, short id, flags, owner, address, lengths of the two headers, and number of webhooks: what layout 1 has before
/// the texts.
const V1_FIXED_BYTES: usize = 8 + 7 + 1 + 16 + 16 + 2 + 2 + 1;
/// Revision and route.
const V2_ADDED_BYTES: usize = 4 + 2;
/// What layout 2 has before the texts.
const FIXED_BYTES: usize = V1_FIXED_BYTES + V2_ADDED_BYTES;

const TRACKED: u8 = 1 << 0;
const MOBILE_SENT: u8 = 1 << 1;
const MOBILE: u8 = 1 << 2;
const IPV6: u8 = 1 << 3;
const PRIVATE: u8 = 1 << 5;
const PREFETCH: u8 = 1 << 6;
const SKIP_BOTS: u8 = 1 << 7;
const V1_FLAGS: u8 = TRACKED | MOBILE_SENT | MOBILE | IPV6;

/// The type of the field with the language.
const LANGUAGE: u8 = 1;
/// The types of the fields with UTM parameters, in the order of [`UTM_PARAMETERS`](crate::domain::utm::UTM_PARAMETERS).
const FIRST_UTM: u8 = 2;
const LAST_UTM: u8 = 6;
/// The type of the field with device and kind of bot of a private hit.
const PRIVATE_VISITOR: u8 = 8;
/// The type of the field with the places of the webhooks that the hit fires.
const WEBHOOK_PLACES: u8 = 9;
/// The type and the length of a field.
const FIELD_HEAD_BYTES: usize = 2;

/// The revision of every link of 0.1.0, which could not be changed.
const V1_REVISION: u32 = 1;

/// A hit with the data to count it and to send its webhooks later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitRecord<'a> {
    /// When the redirect was answered, in milliseconds of Unix time.
    pub at_ms: u64,
    /// The link's short id, in ASCII.
    pub short_id: [u8; 7],
    /// The revision of the link that the redirect met.
    pub revision: u32,
    /// What led to the answered target: the rule's number in the low byte and the variant's in the high byte, both from
    /// 1. 0 is the link's own target.
    pub route: u16,
    /// Whether the link is tracked.
    pub tracked: bool,
    /// How many webhooks the hit fires.
    pub webhooks: u8,
    /// The places of these webhooks among all that the link ever had, one a webhook; empty where they are the first
    /// ones, as they are for every link whose webhooks were never changed.
    pub webhook_places: &'a [u8],
    /// Whether the webhooks are not fired by bots.
    pub skips_bots: bool,
    /// Whether the request's headers say that it is a prefetch.
    pub is_prefetch: bool,
    /// The visitor wants no tracking: these alone are known, and the fields below are empty.
    pub private: Option<PrivateVisitor>,
    /// The value of `Sec-CH-UA-Mobile`, if the client sent it.
    pub ch_ua_mobile: Option<bool>,
    /// The id of the API key that created the link.
    pub owner: [u8; 16],
    /// The client's address. The store does not keep it.
    pub address: IpAddr,
    /// The `User-Agent` header; only its first 512 bytes are recorded.
    pub user_agent: &'a [u8],
    /// The `Referer` header; only its first 512 bytes are recorded.
    pub referer: &'a [u8],
    /// The language, as `de` or `pt-br`; empty without one.
    pub language: &'a [u8],
    /// The values of the UTM parameters: the request's, else the target's. Empty without one.
    pub utm: UtmValues<'a>,
}

/// Why bytes can't be decoded as a hit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the record's length does not match its content")]
    Length,
    #[error("the record's fields do not end where the record ends")]
    Fields,
    #[error("the record has places of another number of webhooks")]
    WebhookPlaces,
    #[error("the record does not tell the device of a private hit")]
    PrivateVisitor,
    #[error("the record has unknown flags")]
    Flags,
}

impl HitRecord<'static> {
    /// A record of nothing, to be filled.
    pub const EMPTY: Self = Self {
        at_ms: 0,
        short_id: *b"0000000",
        revision: V1_REVISION,
        route: 0,
        tracked: true,
        webhooks: 0,
        webhook_places: &[],
        skips_bots: false,
        is_prefetch: false,
        private: None,
        ch_ua_mobile: None,
        owner: [0; 16],
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        user_agent: b"",
        referer: b"",
        language: b"",
        utm: [b""; UTM_COUNT],
    };
}

impl<'a> HitRecord<'a> {
    /// The encoded length in bytes.
    pub fn encoded_len(&self) -> u16 {
        let texts = truncated(self.user_agent).len() + truncated(self.referer).len();
        let len = FIXED_BYTES + texts + self.extension_len();
        // Can't fail: MAX_RECORD_BYTES is far below 65,536.
        u16::try_from(len).unwrap_or(u16::MAX)
    }

    /// Has `take` each field of the extension with its type, in the order in which they are written.
    fn each_field(&self, mut take: impl FnMut(u8, &'a [u8])) {
        let mut take = |kind, value: &'a [u8]| {
            if !value.is_empty() {
                take(kind, value);
            }
        };
        take(WEBHOOK_PLACES, self.webhook_places);
        take(LANGUAGE, self.language);
        // A chain of iterators copies the values first, which takes longer than the rest.
        (FIRST_UTM..).zip(&self.utm).for_each(|(kind, value)| take(kind, value));
    }

    fn extension_len(&self) -> usize {
        let mut len = if self.private.is_some() { FIELD_HEAD_BYTES + 1 } else { 0 };
        self.each_field(|_, value| len += FIELD_HEAD_BYTES + value.len());
        len
    }

    /// The places of the webhooks that the hit fires.
    pub fn fired_webhooks(&self) -> impl Iterator<Item = u8> {
        let first = if self.webhook_places.is_empty() { self.webhooks } else { 0 };
        self.webhook_places.iter().copied().chain(0..first)
    }

    /// Writes the record to `out`, in layout 2.
    ///
    /// # Panics
    /// If `out` is not exactly [`Self::encoded_len`] bytes long, if there are places, but not one for each webhook, or if
    /// a language or UTM value is longer than 255 bytes.
    pub fn encode(&self, out: &mut [u8]) {
        let user_agent = truncated(self.user_agent);
        let referer = truncated(self.referer);
        assert!(self.webhook_places.is_empty() || self.webhook_places.len() == usize::from(self.webhooks));
        let mut flags = 0;
        flags |= if self.tracked { TRACKED } else { 0 };
        flags |= if self.skips_bots { SKIP_BOTS } else { 0 };
        flags |= if self.is_prefetch { PREFETCH } else { 0 };
        flags |= if self.private.is_some() { PRIVATE } else { 0 };
        flags |= match self.ch_ua_mobile {
            None => 0,
            Some(false) => MOBILE_SENT,
            Some(true) => MOBILE_SENT | MOBILE,
        };
        let address = match self.address {
            IpAddr::V4(address) => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&address.octets());
                octets
            }
            IpAddr::V6(address) => {
                flags |= IPV6;
                address.octets()
            }
        };
        let (fixed, texts) = out.split_at_mut(FIXED_BYTES);
        fixed[0..8].copy_from_slice(&self.at_ms.to_le_bytes());
        fixed[8..15].copy_from_slice(&self.short_id);
        fixed[15] = flags;
        fixed[16..32].copy_from_slice(&self.owner);
        fixed[32..48].copy_from_slice(&address);
        fixed[48..50].copy_from_slice(&len_u16(user_agent).to_le_bytes());
        fixed[50..52].copy_from_slice(&len_u16(referer).to_le_bytes());
        fixed[52] = self.webhooks;
        fixed[53..57].copy_from_slice(&self.revision.to_le_bytes());
        fixed[57..59].copy_from_slice(&self.route.to_le_bytes());
        let (first, behind) = texts.split_at_mut(user_agent.len());
        let (second, mut extension) = behind.split_at_mut(referer.len());
        first.copy_from_slice(user_agent);
        second.copy_from_slice(referer);
        self.each_field(|kind, value| {
            extension = put_field(std::mem::take(&mut extension), kind, value);
        });
        if let Some(visitor) = self.private {
            extension = put_field(extension, PRIVATE_VISITOR, &[visitor.to_byte()]);
        }
        assert!(extension.is_empty(), "a record is as long as `encoded_len` says");
    }

    /// Decodes a record of a segment with this layout. It never panics, whatever the bytes are.
    pub fn decode(layout: RecordLayout, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (fixed, behind) = bytes.split_first_chunk::<V1_FIXED_BYTES>().ok_or(DecodeError::Length)?;
        let (revision, route, texts, known_flags) = match layout {
            RecordLayout::V1 => (V1_REVISION, 0, behind, V1_FLAGS),
            RecordLayout::V2 => {
                let (added, texts) = behind.split_first_chunk::<V2_ADDED_BYTES>().ok_or(DecodeError::Length)?;
                let [r0, r1, r2, r3, route @ ..] = *added;
                (u32::from_le_bytes([r0, r1, r2, r3]), u16::from_le_bytes(route), texts, u8::MAX)
            }
        };
        let flags = fixed[15];
        if flags & !known_flags != 0 || flags & (MOBILE_SENT | MOBILE) == MOBILE {
            return Err(DecodeError::Flags);
        }
        let user_agent_len = usize::from(u16::from_le_bytes([fixed[48], fixed[49]]));
        let referer_len = usize::from(u16::from_le_bytes([fixed[50], fixed[51]]));
        if texts.len() < user_agent_len + referer_len
            || user_agent_len > MAX_HEADER_BYTES
            || referer_len > MAX_HEADER_BYTES
        {
            return Err(DecodeError::Length);
        }
        let (user_agent, behind) = texts.split_at(user_agent_len);
        let (referer, extension) = behind.split_at(referer_len);
        let webhooks = fixed[52];
        let fields = match layout {
            RecordLayout::V1 if extension.is_empty() => RecordFields::default(),
            RecordLayout::V1 => return Err(DecodeError::Length),
            RecordLayout::V2 => RecordFields::read(extension)?,
        };
        if !fields.webhook_places.is_empty() && fields.webhook_places.len() != usize::from(webhooks) {
            return Err(DecodeError::WebhookPlaces);
        }
        if (flags & PRIVATE != 0) != fields.private.is_some() {
            return Err(DecodeError::PrivateVisitor);
        }
        let octets: [u8; 16] = array_at(fixed, 32);
        let address = if flags & IPV6 == 0 {
            IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
        } else {
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        Ok(Self {
            at_ms: u64::from_le_bytes(array_at(fixed, 0)),
            short_id: array_at(fixed, 8),
            revision,
            route,
            tracked: flags & TRACKED != 0,
            webhooks,
            webhook_places: fields.webhook_places,
            skips_bots: flags & SKIP_BOTS != 0,
            is_prefetch: flags & PREFETCH != 0,
            private: fields.private,
            ch_ua_mobile: (flags & MOBILE_SENT != 0).then_some(flags & MOBILE != 0),
            owner: array_at(fixed, 16),
            address,
            user_agent,
            referer,
            language: fields.language,
            utm: fields.utm,
        })
    }
}

/// The known fields of an extension.
#[derive(Default)]
struct RecordFields<'a> {
    webhook_places: &'a [u8],
    language: &'a [u8],
    utm: UtmValues<'a>,
    private: Option<PrivateVisitor>,
}

impl<'a> RecordFields<'a> {
    /// Each field has a byte for its type and a byte for its value's length. Fields of other types are passed over.
    fn read(mut fields: &'a [u8]) -> Result<Self, DecodeError> {
        if fields.len() > MAX_EXTENSION_BYTES {
            return Err(DecodeError::Length);
        }
        let mut known = Self::default();
        while let [kind, len, behind @ ..] = fields {
            let (value, next) = behind.split_at_checked(usize::from(*len)).ok_or(DecodeError::Fields)?;
            match *kind {
                WEBHOOK_PLACES => known.webhook_places = value,
                LANGUAGE => known.language = value,
                FIRST_UTM..=LAST_UTM => known.utm[usize::from(*kind - FIRST_UTM)] = value,
                PRIVATE_VISITOR => {
                    let [byte] = value else { return Err(DecodeError::PrivateVisitor) };
                    known.private = Some(PrivateVisitor::from_byte(*byte).ok_or(DecodeError::PrivateVisitor)?);
                }
                _ => {}
            }
            fields = next;
        }
        if fields.is_empty() { Ok(known) } else { Err(DecodeError::Fields) }
    }
}

/// Writes a field of an extension; returns what is behind it.
fn put_field<'o>(out: &'o mut [u8], kind: u8, value: &[u8]) -> &'o mut [u8] {
    let (head, behind) = out.split_at_mut(FIELD_HEAD_BYTES);
    head[0] = kind;
    head[1] = u8::try_from(value.len()).unwrap_or(u8::MAX);
    let (place, behind) = behind.split_at_mut(value.len());
    place.copy_from_slice(value);
    behind
}

/// The id of the hit whose record ends at `position` of `node`'s journal: a UUID v7 whose random bits are a digest of
/// node and position. So a redirect need not generate it, and a record that is read again after a crash has the same
/// id.
pub fn hit_id(node: NodeId, position: Position, at_ms: u64) -> HitId {
    let mut digest = Context::new(&SHA256);
    digest.update(node.0.as_bytes());
    digest.update(&position.0.to_be_bytes());
    let digest = digest.finish();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&at_ms.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&digest.as_ref()[..10]);
    let id = uuid::Builder::from_bytes(bytes)
        .with_version(uuid::Version::SortRand)
        .with_variant(Variant::RFC4122)
        .into_uuid();
    HitId(id)
}

fn truncated(header: &[u8]) -> &[u8] {
    &header[..header.len().min(MAX_HEADER_BYTES)]
}

/// The length of a truncated header, which is at most 512.
fn len_u16(header: &[u8]) -> u16 {
    u16::try_from(header.len()).unwrap_or(u16::MAX)
}

fn array_at<const N: usize>(bytes: &[u8; V1_FIXED_BYTES], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

const _: () = assert!((LAST_UTM - FIRST_UTM + 1) as usize == UTM_COUNT);
const _: () = assert!(MAX_RECORD_BYTES < u16::MAX as usize);

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::bots::BotKind;
    use crate::domain::device::Device;

    #[test]
    fn a_hit_id_has_the_form_of_a_uuid_v7_and_is_the_same_each_time() {
        let node = NodeId(Uuid::from_bytes([3; 16]));
        let id = hit_id(node, Position(640), 1_764_000_000_123);
        assert_eq!(id, hit_id(node, Position(640), 1_764_000_000_123));
        assert_ne!(id, hit_id(node, Position(648), 1_764_000_000_123));
        assert_ne!(id, hit_id(NodeId(Uuid::nil()), Position(640), 1_764_000_000_123));
        assert_eq!(id.0.get_version_num(), 7);
        assert_eq!(id.0.get_variant(), Variant::RFC4122);
        let (seconds, nanos) = id.0.get_timestamp().expect("v7 carries a time").to_unix();
        assert_eq!((seconds, nanos), (1_764_000_000, 123_000_000));
    }

    #[test]
    fn a_hit_id_is_what_every_release_derives_from_the_same_record() {
        let id = hit_id(NodeId(Uuid::from_bytes([3; 16])), Position(640), 1_764_000_000_123);
        assert_eq!(id.0.to_string(), "019ab697-e87b-744f-8ea3-20c14897df82");
    }

    #[test]
    fn flags_that_no_record_of_layout_1_is_written_with_are_refused() {
        let mut bytes = [0; V1_FIXED_BYTES];
        assert!(HitRecord::decode(RecordLayout::V1, &bytes).is_ok());
        for flags in [MOBILE, IPV6 << 1, 1 << 7] {
            bytes[15] = flags;
            assert_eq!(HitRecord::decode(RecordLayout::V1, &bytes), Err(DecodeError::Flags));
        }
    }

    #[test]
    fn flags_of_layout_2_are_read_and_reserved_ones_ignored() {
        let mut bytes = [0; FIXED_BYTES];
        let decoded =
            |bytes: &[u8]| HitRecord::decode(RecordLayout::V2, bytes).map(|hit| (hit.is_prefetch, hit.skips_bots));
        for (flags, expected) in [
            (0, Ok((false, false))),
            // Reserved.
            (1 << 4, Ok((false, false))),
            (PREFETCH, Ok((true, false))),
            (SKIP_BOTS, Ok((false, true))),
            (MOBILE, Err(DecodeError::Flags)),
            (PRIVATE, Err(DecodeError::PrivateVisitor)),
        ] {
            bytes[15] = flags;
            assert_eq!(decoded(&bytes), expected, "{flags}");
        }
        // The device of a private hit, and a kind of bot.
        for (flags, byte, expected) in
            [(PRIVATE, 0x31, true), (PRIVATE, 0x03, false), (PRIVATE, 0x71, true), (0, 0, false)]
        {
            bytes[15] = flags;
            let record = [&bytes[..], &[PRIVATE_VISITOR, 1, byte]].concat();
            assert_eq!(HitRecord::decode(RecordLayout::V2, &record).is_ok(), expected, "{flags} {byte}");
        }
        bytes[15] = PRIVATE;
        let record = [&bytes[..], &[PRIVATE_VISITOR, 1, 0x31]].concat();
        let visitor = PrivateVisitor { device: Device::Mobile, bot: Some(BotKind::Crawler) };
        assert_eq!(HitRecord::decode(RecordLayout::V2, &record).unwrap().private, Some(visitor));
    }
}
