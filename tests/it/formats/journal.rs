//! Segments of the hit journal.

use std::path::Path;
use std::time::Duration;

use signpost::domain::bots::BotKind;
use signpost::domain::device::Device;
use signpost::domain::hit::{NodeId, Position};
use signpost::domain::privacy::PrivateVisitor;
use signpost::domain::utm::UTM_COUNT;
use signpost::journal::record::{HitRecord, hit_id};
use signpost::journal::{Journal, JournalSettings, open};
use uuid::Uuid;

use super::{THIS, keep, restore, to_write, version_of, versions};

const NAME: &str = "journal";
const NODE: NodeId = NodeId(Uuid::from_bytes([7; 16]));

fn settings() -> JournalSettings {
    JournalSettings {
        segment_bytes: 4096,
        disk_budget: 64 * 4096,
        sync_interval: Duration::from_secs(1),
        ..JournalSettings::default()
    }
}

/// Every flag, both kinds of addresses, texts of every kind of length; enough for two segments. Before 0.2.0, links could
/// not be changed, and had one target; of visitors less was known.
fn hits<'a>(version: &str, texts: &'a [String; 3]) -> Vec<HitRecord<'a>> {
    let is_first = version == "0.1.0";
    let mut hits = Vec::new();
    for (number, tracked) in (0_u8..).zip([true, false].into_iter().cycle()).take(12) {
        for (mobile, text) in [None, Some(false), Some(true)].into_iter().zip(texts) {
            hits.push(HitRecord {
                at_ms: 1_795_000_000_000 + u64::from(number),
                short_id: *b"a1B2c3D",
                revision: if is_first { 1 } else { 1 + u32::from(number) * 390_000_000 },
                route: if is_first { 0 } else { u16::from(number) * 0x0101 },
                tracked,
                webhooks: number % 11,
                webhook_places: if is_first { &[] } else { places(number % 11) },
                skips_bots: !is_first && number % 2 == 1,
                is_prefetch: !is_first && number % 4 == 2,
                ch_ua_mobile: mobile,
                owner: [number; 16],
                address: if number % 3 == 0 {
                    std::net::IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)])
                } else {
                    [192, 0, 2, number].into()
                },
                user_agent: text.as_bytes(),
                referer: texts[usize::from(number) % 3].as_bytes(),
                language: if is_first || number % 3 == 1 { b"" } else { b"pt-br" },
                utm: if is_first || number % 3 == 2 { [b""; UTM_COUNT] } else { [b"mail", b"", b"a b", b"", b"x"] },
                private: None,
            });
        }
    }
    if !is_first {
        hits.extend(private_visitors().map(|(number, visitor)| HitRecord {
            at_ms: 1_795_000_000_100 + number,
            private: Some(visitor),
            address: [0, 0, 0, 0].into(),
            ..HitRecord::EMPTY
        }));
    }
    hits
}

/// Every device, and every kind of bot.
fn private_visitors() -> impl Iterator<Item = (u64, PrivateVisitor)> {
    let bots = BotKind::ALL.map(Some).into_iter().chain([None]);
    let visitors = bots.zip(Device::ALL.into_iter().cycle());
    (0..).zip(visitors.map(|(bot, device)| PrivateVisitor { device, bot }))
}

/// The places of so many webhooks: none for some, which are the first ones.
fn places(webhooks: u8) -> &'static [u8] {
    const LAST: [u8; 10] = [0, 2, 3, 5, 8, 13, 21, 34, 55, 199];
    if webhooks.is_multiple_of(2) { &[] } else { &LAST[LAST.len() - usize::from(webhooks)..] }
}

fn texts() -> [String; 3] {
    [String::new(), "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)".into(), "ü".repeat(200)]
}

fn write(directory: &Path) {
    let Journal { writer, .. } = open(directory, &settings(), NODE, Position(0)).unwrap();
    for hit in hits(THIS, &texts()) {
        writer.append(&hit).unwrap();
    }
}

#[test]
fn segments_of_all_versions_are_read() {
    if let Some(fixture) = to_write(NAME) {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path());
        keep(directory.path(), &fixture);
    }
    for fixture in versions(NAME) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        restore(&fixture, &path);
        let Journal { mut reader, .. } = open(&path, &settings(), NODE, Position(0)).unwrap();
        assert!(reader.recovery().is_clean(), "{:?}", reader.recovery());
        let texts = texts();
        let version = version_of(&fixture);
        let hits = hits(version, &texts);
        let mut expected = hits.iter();
        let mut ids = Vec::new();
        let mut each = |position, hit: HitRecord<'_>| {
            assert_eq!(Some(hit), expected.next().copied(), "{version}");
            ids.push(hit_id(NODE, position, hit.at_ms).0.to_string());
        };
        while !reader.read(100, &mut each).caught_up {}
        assert_eq!(expected.next(), None, "{version}");
        if version == "0.1.0" {
            // Receivers of webhooks know these ids.
            let ids = (ids[0].as_str(), ids.last().unwrap().as_str());
            assert_eq!(ids, ("01a1ee56-5e00-756c-9856-9b7dd8680a4a", "01a1ee56-5e0b-7ad3-8e24-b9db8207d873"));
        }
    }
}
