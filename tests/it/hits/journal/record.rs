//! Records as bytes, in both layouts.

use std::net::IpAddr;

use proptest::prelude::*;
use signpost::domain::bots::BotKind;
use signpost::domain::device::Device;
use signpost::domain::privacy::PrivateVisitor;
use signpost::domain::utm::UTM_COUNT;
use signpost::journal::format::RecordLayout;
use signpost::journal::record::{DecodeError, HitRecord, MAX_EXTENSION_BYTES, MAX_HEADER_BYTES};

/// What precedes the texts in layout 1; layout 2 has [`ADDED`] more bytes there.
const V1_FIXED: usize = 53;
const ADDED: usize = 6;
/// The types of fields: the language, the first and the last UTM parameter, a private visitor, and the places of webhooks.
const LANGUAGE: u8 = 1;
const UTM: [u8; 2] = [2, 6];
const PRIVATE_VISITOR: u8 = 8;
const PLACES: u8 = 9;
/// The flag of a private hit.
const PRIVATE: u8 = 32;

fn encoded(hit: &HitRecord<'_>) -> Vec<u8> {
    let mut bytes = vec![0xEE; usize::from(hit.encoded_len())];
    hit.encode(&mut bytes);
    bytes
}

/// A record of layout 2 without an extension, as 0.1.0 wrote it.
fn in_layout_1(bytes: &[u8]) -> Vec<u8> {
    [&bytes[..V1_FIXED], &bytes[V1_FIXED + ADDED..]].concat()
}

/// An extension with these fields.
fn extension(fields: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let field =
        |(kind, value): &(u8, Vec<u8>)| [&[*kind, u8::try_from(value.len()).unwrap()], value.as_slice()].concat();
    fields.iter().flat_map(field).collect()
}

fn fields() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..=253)), 0..=4)
}

prop_compose! {
    fn hits()(
        at_ms: u64, short_id: [u8; 7], revision: u32, route: u16, tracked: bool, webhooks: u8, ch_ua_mobile: Option<bool>,
        owner: [u8; 16], address: IpAddr, flags: [bool; 2],
    ) -> HitRecord<'static> {
        let [skips_bots, is_prefetch] = flags;
        HitRecord {
            at_ms, short_id, revision, route, tracked, webhooks, ch_ua_mobile, owner, address, skips_bots, is_prefetch,
            user_agent: b"Mozilla/5.0", referer: b"https://example.com/", ..HitRecord::EMPTY
        }
    }
}

fn private_visitors() -> impl Strategy<Value = PrivateVisitor> {
    let bots = BotKind::ALL.map(Some).into_iter().chain([None]).collect::<Vec<_>>();
    let visitor = |(device, bot)| PrivateVisitor { device, bot };
    (prop::sample::select(Device::ALL.to_vec()), prop::sample::select(bots)).prop_map(visitor)
}

proptest! {
    #[test]
    fn a_record_reads_back_as_written(
        hit in hits(),
        user_agent in prop::collection::vec(any::<u8>(), 0..700),
        referer in prop::collection::vec(any::<u8>(), 0..700),
        places in prop::option::of(prop::collection::vec(any::<u8>(), 1..=200)),
        language in "[a-z-]{0,7}",
        utm in prop::array::uniform5(prop::collection::vec(any::<u8>(), 0..=128)),
        private in prop::option::of(private_visitors()),
    ) {
        let webhooks = places.as_ref().map_or(hit.webhooks, |places| u8::try_from(places.len()).unwrap());
        let webhook_places = places.as_deref().unwrap_or_default();
        let utm: [&[u8]; UTM_COUNT] = std::array::from_fn(|place| utm[place].as_slice());
        let written = HitRecord {
            user_agent: &user_agent,
            referer: &referer,
            webhooks,
            webhook_places,
            language: language.as_bytes(),
            utm,
            private,
            ..hit
        };
        let kept = HitRecord {
            user_agent: &user_agent[..user_agent.len().min(MAX_HEADER_BYTES)],
            referer: &referer[..referer.len().min(MAX_HEADER_BYTES)],
            ..written
        };
        let bytes = encoded(&written);
        prop_assert_eq!(HitRecord::decode(RecordLayout::V2, &bytes), Ok(kept));
        // 0.1.0 knew no more than this.
        let plain = HitRecord {
            webhook_places: &[],
            language: b"",
            utm: [b""; UTM_COUNT],
            private: None,
            is_prefetch: false,
            skips_bots: false,
            ..written
        };
        let first =
            HitRecord { revision: 1, route: 0, user_agent: kept.user_agent, referer: kept.referer, ..plain };
        let bytes = in_layout_1(&encoded(&plain));
        prop_assert_eq!(HitRecord::decode(RecordLayout::V1, &bytes), Ok(first));
    }

    #[test]
    fn bytes_that_decode_encode_to_the_same(
        is_v1: bool, bytes in prop::collection::vec(any::<u8>(), 0..80), flags: u8, user_agent in 0u16..30, fields in fields(),
    ) {
        let mut bytes = bytes;
        let (layout, fixed) = if is_v1 { (RecordLayout::V1, V1_FIXED) } else { (RecordLayout::V2, V1_FIXED + ADDED) };
        let extension = if is_v1 { Vec::new() } else { extension(&fields) };
        // Mostly right lengths and flags, or hardly any bytes would decode.
        if let Some(texts) = bytes.len().checked_sub(fixed) {
            let texts = u16::try_from(texts).unwrap();
            let user_agent = user_agent.min(texts);
            bytes[15] = if is_v1 { flags % 32 } else { flags };
            bytes[48..50].copy_from_slice(&user_agent.to_le_bytes());
            bytes[50..52].copy_from_slice(&(texts - user_agent).to_le_bytes());
            bytes.extend_from_slice(&extension);
        }
        if let Ok(hit) = HitRecord::decode(layout, &bytes) {
            let again = encoded(&hit);
            prop_assert_eq!(HitRecord::decode(RecordLayout::V2, &again), Ok(hit));
            let again = if is_v1 { in_layout_1(&again) } else { again };
            let field = |value: &[u8]| if value.is_empty() { 0 } else { 2 + value.len() };
            let visitor = if hit.private.is_some() { 3 } else { 0 };
            let kept = field(hit.webhook_places) + field(hit.language) + hit.utm.into_iter().map(field).sum::<usize>();
            prop_assert_eq!(again.len() + extension.len(), bytes.len() + kept + visitor);
        }
    }

    #[test]
    fn fields_of_unknown_types_are_skipped(hit in hits(), fields in fields()) {
        let known = |kind| matches!(kind, LANGUAGE | PRIVATE_VISITOR | PLACES) || (UTM[0]..=UTM[1]).contains(&kind);
        let fields: Vec<_> = fields.into_iter().filter(|(kind, _)| !known(*kind)).collect();
        let extension = extension(&fields);
        prop_assert!(extension.len() <= MAX_EXTENSION_BYTES);
        let bytes = [encoded(&hit), extension].concat();
        prop_assert_eq!(HitRecord::decode(RecordLayout::V2, &bytes), Ok(hit));
    }

    #[test]
    fn any_bytes_decode_or_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200), user_agent in 0u16..600, referer in 0u16..600,
    ) {
        let mut bytes = bytes;
        if bytes.len() >= V1_FIXED {
            bytes[48..50].copy_from_slice(&user_agent.to_le_bytes());
            bytes[50..52].copy_from_slice(&referer.to_le_bytes());
        }
        for layout in [RecordLayout::V1, RecordLayout::V2] {
            let _ = HitRecord::decode(layout, &bytes);
        }
    }
}

const HIT: HitRecord<'static> = HitRecord {
    at_ms: 1_795_000_000_000,
    short_id: *b"a1B2c3D",
    webhooks: 1,
    owner: [7; 16],
    user_agent: b"Mozilla/5.0",
    ..HitRecord::EMPTY
};

#[test]
fn an_extension_ends_with_a_field_and_has_a_bound() {
    let with = |extension: &[u8]| {
        let bytes = [encoded(&HIT), extension.to_vec()].concat();
        HitRecord::decode(RecordLayout::V2, &bytes).map(|hit| assert_eq!(hit, HIT))
    };
    assert_eq!(with(&[]), Ok(()));
    assert_eq!(with(&[200, 0]), Ok(()));
    assert_eq!(with(&[200, 2, b'd', b'e', 201, 1, b'x']), Ok(()));
    for cut in [[1].as_slice(), &[1, 1], &[1, 2, b'd'], &[1, 2, b'd', b'e', 2], &[1, 255]] {
        assert_eq!(with(cut), Err(DecodeError::Fields), "{cut:?}");
    }
    let longest = [[200, 254].as_slice(), &[0; 254]].concat().repeat(4);
    assert_eq!(longest.len(), MAX_EXTENSION_BYTES);
    assert_eq!(with(&longest), Ok(()));
    assert_eq!(with(&[longest, vec![200, 0]].concat()), Err(DecodeError::Length));
}

#[test]
fn a_record_is_not_read_in_the_other_layout() {
    let bytes = encoded(&HIT);
    assert_eq!(HitRecord::decode(RecordLayout::V1, &bytes), Err(DecodeError::Length));
    assert_eq!(
        HitRecord::decode(RecordLayout::V1, &[in_layout_1(&bytes), vec![200, 0]].concat()),
        Err(DecodeError::Length)
    );
}

#[test]
fn webhooks_at_other_places_than_the_first_are_written_behind_the_texts() {
    let hit = HitRecord { webhooks: 3, webhook_places: &[1, 4, 199], ..HIT };
    let bytes = encoded(&hit);
    let plain = encoded(&HitRecord { webhook_places: &[], ..hit });
    assert_eq!(bytes, [plain.as_slice(), &[PLACES, 3, 1, 4, 199]].concat());
    assert_eq!(hit.fired_webhooks().collect::<Vec<_>>(), [1, 4, 199]);
    // Others come before and behind.
    let among = [plain.as_slice(), &[200, 2], b"de", &[PLACES, 3, 1, 4, 199], &[200, 0]].concat();
    assert_eq!(HitRecord::decode(RecordLayout::V2, &among), Ok(hit));
    let first = HitRecord::decode(RecordLayout::V2, &plain).unwrap();
    assert_eq!(first.fired_webhooks().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn places_of_another_number_of_webhooks_are_refused() {
    let with = |webhooks, extension: &[u8]| {
        let bytes = [encoded(&HitRecord { webhooks, ..HIT }), extension.to_vec()].concat();
        HitRecord::decode(RecordLayout::V2, &bytes).map(|hit| hit.webhook_places.len())
    };
    assert_eq!(with(2, &[PLACES, 2, 4, 5]), Ok(2));
    assert_eq!(with(2, &[PLACES, 0]), Ok(0));
    for (webhooks, extension) in [(1, [PLACES, 2, 4, 5].as_slice()), (3, &[PLACES, 2, 4, 5]), (0, &[PLACES, 1, 0])] {
        assert_eq!(with(webhooks, extension), Err(DecodeError::WebhookPlaces), "{webhooks}");
    }
}

#[test]
fn what_is_known_of_a_visitor_is_written_behind_the_texts() {
    let hit = HitRecord { language: b"pt-br", utm: [b"a", b"", b"", b"", b"bc"], ..HIT };
    let bytes = [encoded(&HIT), vec![LANGUAGE, 5], b"pt-br".to_vec(), vec![2, 1, b'a', 6, 2, b'b', b'c']].concat();
    assert_eq!(encoded(&hit), bytes);
    assert_eq!(HitRecord::decode(RecordLayout::V2, &bytes), Ok(hit));
}

#[test]
fn of_a_private_visitor_one_byte_is_written() {
    let plain = HitRecord { user_agent: b"", address: IpAddr::from([0, 0, 0, 0]), ..HIT };
    let private = Some(PrivateVisitor { device: Device::Tablet, bot: Some(BotKind::Tool) });
    let mut bytes = [encoded(&plain), vec![PRIVATE_VISITOR, 1, 0x62]].concat();
    bytes[15] |= PRIVATE;
    let hit = HitRecord { private, ..plain };
    assert_eq!(encoded(&hit), bytes);
    assert_eq!(HitRecord::decode(RecordLayout::V2, &bytes), Ok(hit));
    let with = |flags: u8, field: &[u8]| {
        let mut bytes = [encoded(&plain), field.to_vec()].concat();
        bytes[15] |= flags;
        HitRecord::decode(RecordLayout::V2, &bytes).map(|hit| hit.private)
    };
    assert_eq!(with(PRIVATE, &[PRIVATE_VISITOR, 1, 0]).map(|visitor| visitor.unwrap().bot), Ok(None));
    // A kind of bot that a later release knows is none.
    assert_eq!(with(PRIVATE, &[PRIVATE_VISITOR, 1, 0xF1]).map(|visitor| visitor.unwrap().bot), Ok(None));
    for (flags, field) in [
        (PRIVATE, &[][..]),
        (0, &[PRIVATE_VISITOR, 1, 0]),
        (PRIVATE, &[PRIVATE_VISITOR, 0]),
        (PRIVATE, &[PRIVATE_VISITOR, 2, 0, 0]),
        (PRIVATE, &[PRIVATE_VISITOR, 1, 3]),
    ] {
        assert_eq!(with(flags, field), Err(DecodeError::PrivateVisitor), "{flags} {field:?}");
    }
}
