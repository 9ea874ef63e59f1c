//! Rows to write, made from small numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use signpost::domain::breakdown::{Dimension, Sheet, SheetLabel};
use signpost::domain::calendar::{Month, Timestamp};
use signpost::domain::device::Device;
use signpost::domain::hit::{DayHits, DeviceHits, HitBatch, HitId, HitStamp, HitSubject, NodeId, Position};
use signpost::domain::key::{ApiKey, KeyId, Scope, ScopeSet, SealedSecret, SecretHash, Tier};
use signpost::domain::link::{BaseUrl, Link, LinkData, LinkName, NewLink, Revision, ShortId, TargetUrl};
use signpost::domain::quarters::QuarterHits;
use signpost::domain::tally::Tally;
use signpost::domain::webhook::{AttemptOutcome, DeliveryId, NewDelivery};
use signpost::store::{Settlement, Store};
use url::Url;
use uuid::Uuid;

pub const MINUTE: Duration = Duration::from_mins(1);
pub const DAY: Duration = Duration::from_hours(24);

/// Noon on the 21st of November 2026.
pub fn noon() -> Timestamp {
    Timestamp::parse("2026-11-21T12:00:00Z").unwrap()
}

pub fn month(text: &str) -> Month {
    Timestamp::parse(&format!("{text}-15T00:00:00Z")).unwrap().month()
}

pub fn short_id(n: u32) -> ShortId {
    ShortId::parse(&format!("{n:07}")).unwrap()
}

/// Later numbers are newer keys.
pub fn key_id(n: u32) -> KeyId {
    KeyId(uuid_at(noon().0 + u64::from(n), n))
}

pub fn node(n: u32) -> NodeId {
    NodeId(uuid_at(noon().0, n))
}

fn uuid_at(millis: u64, n: u32) -> Uuid {
    let mut random = [0; 10];
    random[6..].copy_from_slice(&n.to_be_bytes());
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

pub fn target(url: &str) -> TargetUrl {
    TargetUrl::parse(url, &BaseUrl::new(Url::parse("https://this.example/").unwrap())).unwrap()
}

pub fn link(n: u32, owner: KeyId) -> Link {
    let new = NewLink {
        data: LinkData::from_json_object(r#"{"order":17}"#).unwrap(),
        webhooks: ["a", "b"].map(|hook| format!("https://hooks.example.com/{hook}")).to_vec().into(),
        ..NewLink::to(target("https://example.com/some/where?with=a#fragment"))
    };
    new.made(short_id(n), owner, noon())
}

pub fn name(text: &str) -> LinkName {
    LinkName::parse_slug(text).unwrap()
}

/// A link with a slug.
pub fn link_named(n: u32, owner: KeyId, slug: &str) -> Link {
    Link { slug: Some(name(slug)), ..link(n, owner) }
}

/// A link as its next change, a minute later, gives it to a store.
pub fn changed(link: &Link) -> Link {
    Link { revision: link.revision.next(), updated_at: link.updated_at.plus(MINUTE), ..link.clone() }
}

/// A link as its deletion, two minutes after its creation, gives it to a store.
pub fn deleted(link: &Link) -> Link {
    Link { updated_at: link.created_at.plus(2 * MINUTE), ..link.clone() }
}

/// A link with `bytes` of data.
pub fn link_with_data(n: u32, bytes: usize) -> Link {
    let data = format!(r#"{{"d":"{}"}}"#, "x".repeat(bytes - 8));
    Link { data: LinkData::from_json_object(&data).unwrap(), ..link(n, key_id(1)) }
}

pub fn longest_link(n: u32) -> Link {
    let webhooks = (0..10).map(|url| format!("https://h{url}.example/{}", "w".repeat(2_048 - 19)));
    Link {
        target: target(&format!("https://example.com/{}", "t".repeat(8_192 - 20))),
        webhooks: webhooks.collect::<Vec<_>>().into(),
        tracked: false,
        ..link_with_data(n, 10_240)
    }
}

pub fn secret(text: &str) -> SecretHash {
    SecretHash::of(text.as_bytes())
}

/// A key made by the one with the chain `above`, whose secret is `secret <n>`.
pub fn key(n: u32, above: &[KeyId]) -> ApiKey {
    ApiKey {
        id: key_id(n),
        name: format!("key {n}"),
        tier: Tier::Free,
        // Those of 0.1.0: fixtures of all versions have this key.
        scopes: ScopeSet::ALL.without(Scope::WebhooksWrite),
        is_root: false,
        prefix: "sp_12345".into(),
        secret_hash: secret(&format!("secret {n}")),
        retiring_secret: None,
        webhook_secret: SealedSecret(vec![7; 80]),
        retiring_webhook_secret: None,
        created_at: noon(),
        expires_at: None,
        rotated_at: None,
        revoked_at: None,
        ancestors: above.to_vec(),
        revision: 0,
    }
}

/// The records in `(from, upto]` of the first node's journal, with nothing in them yet.
pub fn batch(from: u64, upto: u64) -> HitBatch {
    HitBatch {
        writer: node(1),
        from: Position(from),
        upto: Position(upto),
        days: Vec::new(),
        served: Vec::new(),
        deliveries: Vec::new(),
    }
}

/// Hits of persons.
pub fn persons(count: u64) -> Tally {
    Tally { persons: count, bots: 0 }
}

/// Hits of bots.
pub fn bots(count: u64) -> Tally {
    Tally { persons: 0, bots: count }
}

/// Hits of persons by device, as they are read.
pub fn devices(counts: [u64; 3]) -> DeviceHits {
    DeviceHits(counts.map(persons))
}

/// Hits of persons on a link, all at the same time, of which nothing is known but the device.
pub fn day(n: u32, at: Timestamp, counts: [u64; 3]) -> DayHits {
    day_of(HitSubject::Link(short_id(n)), at, counts.map(persons))
}

/// Hits of a link or key, all at the same time, of which nothing is known but the device.
pub fn day_of(of: HitSubject, at: Timestamp, tallies: [Tally; 3]) -> DayHits {
    let mut hits = DayHits {
        of,
        day: at.day(),
        devices: DeviceHits(tallies),
        quarters: QuarterHits::default(),
        sheet: Sheet::default(),
    };
    hits.quarters.add(QuarterHits::slot_of(at), hits.devices.total());
    for device in Device::ALL {
        hits.sheet.add(Dimension::Device, SheetLabel::Code(device as u8), tallies[device as usize]);
    }
    hits
}

/// The same hits, as those of a key's links.
pub fn by_key(n: u32, hits: &DayHits) -> DayHits {
    DayHits { of: HitSubject::Key(key_id(n)), ..hits.clone() }
}

/// What is known of some hits of a day.
#[derive(Clone, Debug)]
pub struct SampleLabel {
    of: HitSubject,
    at: Timestamp,
    /// `None`: that the visitors want no tracking.
    label: Option<(Dimension, SheetLabel<Arc<str>>)>,
    tally: Tally,
}

/// The label of so many hits of persons on a link, on the day of `at`.
pub fn label(n: u32, at: Timestamp, dimension: Dimension, text: &str, count: u64) -> SampleLabel {
    label_of(HitSubject::Link(short_id(n)), at, dimension, text, persons(count))
}

/// The label of so many hits of a link or key, on the day of `at`.
pub fn label_of(of: HitSubject, at: Timestamp, dimension: Dimension, text: &str, tally: Tally) -> SampleLabel {
    let label = SheetLabel::of_text(dimension, Arc::from(text)).unwrap();
    SampleLabel { of, at, label: Some((dimension, label)), tally }
}

/// So many hits of a link or key are of visitors who want no tracking, on the day of `at`.
pub fn private_of(of: HitSubject, at: Timestamp, tally: Tally) -> SampleLabel {
    SampleLabel { of, at, label: None, tally }
}

/// The days of a batch, each once, with what is known of their hits.
pub fn counted(days: impl IntoIterator<Item = DayHits>, labels: impl IntoIterator<Item = SampleLabel>) -> Vec<DayHits> {
    let mut all = BTreeMap::<_, DayHits>::new();
    for hits in days {
        match all.get_mut(&(hits.of, hits.day)) {
            Some(sum) => add_up(sum, &hits),
            None => drop(all.insert((hits.of, hits.day), hits)),
        }
    }
    for SampleLabel { of, at, label, tally } in labels {
        let hits = all.get_mut(&(of, at.day())).expect("the hits of a label are hits of a day");
        match label {
            Some((dimension, label)) => hits.sheet.add(dimension, label, tally),
            None => hits.sheet.add_private(tally),
        }
    }
    let all: Vec<_> = all.into_values().collect();
    all.iter().for_each(assert_has_all_hits);
    all
}

fn add_up(sum: &mut DayHits, hits: &DayHits) {
    sum.devices += hits.devices;
    sum.quarters.add_all(&hits.quarters);
    sum.sheet.add_private(hits.sheet.private());
    for entry in hits.sheet.entries() {
        sum.sheet.add(entry.dimension, entry.label.clone(), entry.tally);
    }
}

/// No hit has two labels of a dimension.
fn assert_has_all_hits(hits: &DayHits) {
    let total = hits.devices.total();
    assert_eq!((hits.quarters.total(), hits.sheet.hits()), (total, total), "{hits:?}");
    for dimension in Dimension::ALL {
        let mut known: Tally = hits.sheet.of(dimension).map(|entry| entry.tally).sum();
        if dimension.is_of_visitor() {
            known += hits.sheet.private();
        }
        assert!(known.persons <= total.persons && known.bots <= total.bots, "{dimension:?}: {known:?} of {total:?}");
    }
}

/// A webhook of a hit of a person, to be delivered for a key.
pub fn new_delivery(id: DeliveryId, owner: KeyId) -> NewDelivery {
    NewDelivery { id, owner, revision: Revision::FIRST, bot: None }
}

/// The delivery of the hit at `at` on a link to its URL at `url_index`.
pub fn delivery(n: u32, at: Timestamp, url_index: u8) -> DeliveryId {
    let hit = HitStamp { id: HitId(uuid_at(at.0, n)), at };
    DeliveryId { link: short_id(n), hit, url_index }
}

/// Enqueues deliveries of key 1, as what comes next in the first node's journal.
pub async fn enqueue(store: &Arc<dyn Store>, ids: impl IntoIterator<Item = DeliveryId>) {
    let from = store.hit_cursor(node(1)).await.unwrap().counted;
    let deliveries = ids.into_iter().map(|id| new_delivery(id, key_id(1))).collect();
    store.apply_hits(Arc::new(HitBatch { deliveries, ..batch(from.0, from.0 + 1) })).await.unwrap();
}

pub fn settlement(id: DeliveryId, attempt: u32, outcome: AttemptOutcome, at: Timestamp) -> Settlement {
    Settlement { id, round: 0, attempt, outcome, at }
}

pub fn delivered() -> AttemptOutcome {
    AttemptOutcome::Delivered { response_status: 204 }
}

pub fn failed(retry_in: Option<Duration>) -> AttemptOutcome {
    AttemptOutcome::Failed { response_status: Some(500), error: "http 500".into(), retry_in }
}

pub fn never_sent() -> AttemptOutcome {
    AttemptOutcome::NeverSent { error: "quota exceeded".into() }
}
