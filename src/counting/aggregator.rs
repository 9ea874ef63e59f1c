//! The hit aggregator adds up records of the journal into rows for the store.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::enrich::Enricher;
use super::profile::{HitProfile, ProfileLabel};
use crate::domain::bots::{BotKind, BotRules};
use crate::domain::breakdown::{Sheet, SheetEntry};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{DayHits, DeviceHits, HitBatch, HitStamp, HitSubject, NodeId, Position, ServedCount};
use crate::domain::key::KeyId;
use crate::domain::link::{Revision, ShortId};
use crate::domain::live_hit::LiveEntry;
use crate::domain::quarters::QuarterHits;
use crate::domain::tally::Tally;
use crate::domain::webhook::{DeliveryId, NewDelivery};
use crate::feed::HitCapture;
use crate::journal::record::{HitRecord, hit_id};
use crate::threads::yield_periodically;

/// The hashes have a random key, and clients can't measure look-ups, so that no visitor can choose labels that share a
/// slot. The hashes of the standard library, which resist even clients that can, took a third of the counting.
type SumMap<K, V> = HashMap<K, V, RandomState>;

/// Adds to a sum. The key is nearly always present: then a look-up is cheaper than `entry`, which reserves space for
/// another key each time.
fn add_to<K: Eq + Hash, V>(sums: &mut SumMap<K, V>, key: K, add: impl FnOnce(&mut V), new: impl FnOnce() -> V) {
    match sums.get_mut(&key) {
        Some(sum) => add(sum),
        None => add(sums.entry(key).or_insert_with(new)),
    }
}

/// Hits of a link in a quarter of an hour with the same profile. A cell is looked up for each hit, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellKey {
    link: ShortId,
    day: Day,
    slot: u8,
    /// The number of the profile.
    profile: u64,
}

/// In whole words: a hash is made for each hit.
impl Hash for CellKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.link.to_number() << u8::BITS | u64::from(self.slot));
        state.write_u64(self.profile);
        state.write_u32(self.day.0);
    }
}

/// The day of a link has a row of counts and a row of a sheet, but for links whose counts are spread over many rows.
const ROWS_OF_DAY: usize = 2;
/// So many cells of a day take as much time to write as a row.
const CELLS_OF_ROW: usize = 2;
/// Memory for more cells than these is freed when there is nothing to count.
const SMALL_BATCH: usize = 4_096;

/// Sums of the records since the last [`take`](Self::take).
///
/// The caller bounds its size by [`rows`](Self::rows): a record adds at most a cell, a key, and its deliveries.
#[derive(Debug)]
pub struct HitAggregator {
    node: NodeId,
    enricher: Enricher,
    /// The last day and its month: hits are in order of time.
    month: (Day, Month),
    cells: SumMap<CellKey, u64>,
    /// The days of links that have cells, and the links' keys.
    owners: SumMap<(ShortId, Day), KeyId>,
    /// The profiles that cells have, by number.
    profiles: SumMap<u64, Arc<HitProfile>>,
    served: SumMap<(KeyId, Month), u64>,
    /// Consecutive hits of one key that are not in `served` yet: most nodes serve few keys.
    serving: Option<((KeyId, Month), u64)>,
    deliveries: Vec<NewDelivery>,
    records: u64,
    /// The records of bots, by the code of their kind.
    bots: [u64; BotKind::ALL.len()],
    /// Notes hits for live streams.
    capture: Option<HitCapture>,
}

impl HitAggregator {
    pub fn new(node: NodeId, enricher: Enricher) -> Self {
        Self {
            node,
            enricher,
            month: (Day(0), Day(0).month()),
            cells: SumMap::default(),
            owners: SumMap::default(),
            profiles: SumMap::default(),
            served: SumMap::default(),
            serving: None,
            deliveries: Vec::new(),
            records: 0,
            bots: Default::default(),
            capture: None,
        }
    }

    /// Notes hits for live streams, too.
    pub fn note_hits(&mut self, capture: HitCapture) {
        self.capture = Some(capture);
    }

    /// Notes hits for who listens now, from here on. To be called before hits are added.
    pub fn refresh_listeners(&mut self) {
        self.capture.iter_mut().for_each(HitCapture::begin);
    }

    /// The rules for bots that the current batch is made with.
    pub fn bot_rules(&self) -> &Arc<BotRules> {
        self.enricher.bot_rules()
    }

    /// Has the next batch made with these rules for bots, and those behind it with the rules that are in force.
    pub fn make_next_batch_with(&mut self, rules: BotRules) {
        self.enricher.make_next_batch_with(rules);
    }

    /// The node of the journal.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The number of deliveries.
    pub fn deliveries(&self) -> usize {
        self.deliveries.len()
    }

    /// The number of records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The number of records of bots, in the order of [`BotKind::ALL`].
    pub fn bot_hits(&self) -> [u64; BotKind::ALL.len()] {
        self.bots
    }

    /// About how many rows the sums make in the embedded store.
    pub fn rows(&self) -> usize {
        let (days, cells) = (self.owners.len(), self.cells.len());
        ROWS_OF_DAY * days + (cells - days) / CELLS_OF_ROW + self.served.len()
    }

    /// Counts one record, which ends at `position`.
    pub fn add(&mut self, position: Position, hit: &HitRecord<'_>) {
        if self.records == 0 {
            self.enricher.begin_batch();
        }
        self.records += 1;
        let at = Timestamp(hit.at_ms);
        let (day, link) = (at.day(), ShortId(hit.short_id));
        if self.month.0 != day {
            self.month = (day, day.month());
        }
        let month = self.month.1;
        let owner = KeyId(uuid::Uuid::from_bytes(hit.owner));
        match &mut self.serving {
            Some((serving, count)) if *serving == (owner, month) => *count += 1,
            _ => {
                self.end_serving();
                self.serving = Some(((owner, month), 1));
            }
        }
        let mut bot = None;
        if hit.tracked {
            let profile = self.enricher.profile(hit);
            bot = profile.bot;
            if let Some(capture) = self.capture.as_mut().filter(|capture| capture.is_on()) {
                let live_hit =
                    || profile.live_hit(hit_id(self.node, position, hit.at_ms), link, Revision(hit.revision));
                capture.note((position, at), (link, owner), live_hit);
            }
            let key = CellKey { link, day, slot: QuarterHits::slot_of(at), profile: profile.number };
            if let Some(count) = self.cells.get_mut(&key) {
                *count += 1;
            } else {
                self.cells.insert(key, 1);
                self.owners.insert((link, day), owner);
                self.profiles.insert(profile.number, profile);
            }
        } else if hit.webhooks > 0 {
            bot = self.enricher.bot(hit);
        }
        if let Some(bot) = bot {
            self.bots[usize::from(bot as u8 - 1)] += 1;
        }
        if hit.webhooks > 0 && !(hit.skips_bots && bot.is_some()) {
            let stamp = HitStamp { id: hit_id(self.node, position, hit.at_ms), at };
            let revision = Revision(hit.revision);
            let delivery =
                |url_index| NewDelivery { id: DeliveryId { link, hit: stamp, url_index }, owner, revision, bot };
            self.deliveries.extend(hit.fired_webhooks().map(delivery));
        }
    }

    fn end_serving(&mut self) {
        if let Some((of, count)) = self.serving.take() {
            add_to(&mut self.served, of, |served| *served += count, || 0);
        }
    }

    /// Drops all sums.
    pub fn clear(&mut self) {
        self.serving = None;
        self.cells.clear();
        self.owners.clear();
        self.profiles.clear();
        self.served.clear();
        self.deliveries.clear();
        self.records = 0;
        self.bots = Default::default();
        self.capture.iter_mut().for_each(HitCapture::clear);
    }

    /// Frees the memory of a large batch, if nothing is counted now; returns whether it did.
    pub fn shrink(&mut self) -> bool {
        let is_large = self.cells.is_empty() && self.cells.capacity() > SMALL_BATCH;
        if is_large {
            (self.cells, self.owners, self.profiles) = Default::default();
        }
        is_large
    }

    /// Takes what was noted for live streams since the last call, before the sums are taken.
    pub fn take_live_hits(&mut self) -> Vec<LiveEntry> {
        self.capture.as_mut().map(HitCapture::take).unwrap_or_default()
    }

    /// Takes the days of links, then those of keys, in order: the store finds adjacent rows in the same block.
    fn take_days(&mut self) -> Vec<DayHits> {
        let mut cells: Vec<_> = self.cells.drain().collect();
        cells.sort_unstable_by_key(|(key, _)| (key.link.to_number(), key.day, key.profile));
        let (mut days, mut of_keys) = (Vec::new(), SumMap::default());
        for cells in cells.chunk_by(|(a, _), (b, _)| (a.link, a.day) == (b.link, b.day)) {
            yield_periodically();
            let CellKey { link, day, .. } = cells[0].0;
            let cells = cells.iter().map(|(key, count)| (key.slot, key.profile, *count));
            days.push(self.day(HitSubject::Link(link), day, cells.clone()));
            // It is noted with the first cell.
            if let Some(&owner) = self.owners.get(&(link, day)) {
                cells.for_each(|(slot, profile, count)| {
                    add_to(&mut of_keys, (owner, day, profile, slot), |sum| *sum += count, || 0);
                });
            }
        }
        let mut cells: Vec<_> = of_keys.into_iter().collect();
        cells.sort_unstable();
        for cells in cells.chunk_by(|((key_a, a, ..), _), ((key_b, b, ..), _)| (key_a, a) == (key_b, b)) {
            yield_periodically();
            let (owner, day, ..) = cells[0].0;
            let cells = cells.iter().map(|((.., profile, slot), count)| (*slot, *profile, *count));
            days.push(self.day(HitSubject::Key(owner), day, cells));
        }
        self.owners.clear();
        self.profiles.clear();
        days
    }

    /// The hits of a day, by slot and profile. Those of one profile are adjacent.
    fn day(&self, of: HitSubject, day: Day, cells: impl Iterator<Item = (u8, u64, u64)>) -> DayHits {
        // Each profile is noted with its first cell.
        let with_profile = |(slot, profile, count)| Some((slot, &**self.profiles.get(&profile)?, count));
        day_hits(of, day, &cells.filter_map(with_profile).collect::<Vec<_>>())
    }

    /// Takes the sums of the records in `(from, upto]` as a batch for the store. It is the same at every replay.
    pub fn take(&mut self, from: Position, upto: Position) -> HitBatch {
        self.end_serving();
        self.records = 0;
        self.bots = Default::default();
        let served = self.served.drain().map(|((key, month), count)| ServedCount { key, month, count });
        let mut served: Vec<_> = served.collect();
        served.sort_unstable_by_key(|row| (row.key, row.month));
        let days = self.take_days();
        HitBatch { writer: self.node, from, upto, days, served, deliveries: std::mem::take(&mut self.deliveries) }
    }
}

/// The hits of a day, by slot and profile. Those of one profile are adjacent.
fn day_hits(of: HitSubject, day: Day, cells: &[(u8, &HitProfile, u64)]) -> DayHits {
    let (mut devices, mut quarters) = (DeviceHits::default(), QuarterHits::default());
    for (slot, profile, count) in cells {
        let tally = profile.tally(*count);
        devices.0[profile.device as usize] += tally;
        quarters.add(*slot, tally);
    }
    let mut sheet = Sheet::default();
    let mut entries: Vec<(&ProfileLabel, Tally)> = Vec::new();
    let mut profiles = 0;
    for cells in cells.chunk_by(|(_, a, _), (_, b, _)| a.number == b.number) {
        let profile = cells[0].1;
        let tally = profile.tally(cells.iter().map(|(.., count)| count).sum());
        if profile.is_private {
            sheet.add_private(tally);
        }
        entries.extend(profile.labels.iter().map(|label| (label, tally)));
        profiles += 1;
    }
    // The labels of one profile are in order.
    if profiles > 1 {
        entries.sort_unstable_by_key(|(label, _)| *label);
    }
    for entries in entries.chunk_by(|(a, _), (b, _)| a == b) {
        let (dimension, label) = entries[0].0;
        let tally = entries.iter().map(|(_, tally)| *tally).sum();
        sheet.push(SheetEntry { dimension: *dimension, label: label.clone(), tally });
    }
    DayHits { of, day, devices, quarters, sheet }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::bots::SharedBotRules;
    use crate::domain::breakdown::Dimension;
    use crate::domain::device::Device;
    use crate::domain::privacy::PrivateVisitor;
    use crate::domain::referrer::OwnHost;

    const HIT: HitRecord<'static> = HitRecord {
        at_ms: 1_795_000_000_000,
        short_id: *b"a1B2c3D",
        webhooks: 2,
        owner: [7; 16],
        user_agent: b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/153.0.0.0 Safari/537.36",
        ..HitRecord::EMPTY
    };
    const BOT: HitRecord<'static> = HitRecord { user_agent: b"Googlebot/2.1", ..HIT };
    const KEY: KeyId = KeyId(uuid::Uuid::from_bytes([7; 16]));

    fn aggregator() -> HitAggregator {
        let rules = SharedBotRules::new(BotRules::built_in());
        let enricher = Enricher::new(OwnHost::of_base_url("https://sign.example"), None, rules);
        HitAggregator::new(NodeId(uuid::Uuid::from_bytes([3; 16])), enricher)
    }

    fn batch(hits: &[HitRecord<'_>]) -> HitBatch {
        let mut aggregator = aggregator();
        hits.iter().zip(1..).for_each(|(hit, at)| aggregator.add(Position(at * 100), hit));
        aggregator.take(Position(0), Position(hits.len() as u64 * 100))
    }

    #[test]
    fn deliveries_go_to_the_places_of_the_hit_and_keep_its_revision() {
        let deliveries = batch(&[
            HIT,
            HitRecord { revision: 5, webhook_places: &[1, 199], ..HIT },
            HitRecord { revision: 6, webhooks: 0, ..HIT },
        ])
        .deliveries;
        let of: Vec<_> = deliveries.iter().map(|new| (new.id.url_index, new.revision)).collect();
        assert_eq!(of, [(0, Revision(1)), (1, Revision(1)), (1, Revision(5)), (199, Revision(5))]);
        assert!(deliveries.iter().all(|new| new.owner == KEY && new.bot.is_none()));
    }

    #[test]
    fn deliveries_of_bots_tell_the_kind_or_are_not_made() {
        for tracked in [true, false] {
            let deliveries = batch(&[
                HitRecord { tracked, webhooks: 1, ..BOT },
                HitRecord { tracked, webhooks: 1, skips_bots: true, ..BOT },
                HitRecord { tracked, webhooks: 1, skips_bots: true, ..HIT },
            ])
            .deliveries;
            assert_eq!(deliveries.iter().map(|new| new.bot).collect::<Vec<_>>(), [Some(BotKind::Crawler), None]);
        }
    }

    #[test]
    fn bots_are_counted_by_kind() {
        let mut aggregator = aggregator();
        let untracked = HitRecord { tracked: false, ..BOT };
        for (hit, at) in [HIT, BOT, untracked, HitRecord { is_prefetch: true, ..HIT }].iter().zip(1..) {
            aggregator.add(Position(at * 100), hit);
        }
        assert_eq!(aggregator.bot_hits(), [1, 0, 2, 0, 0, 0]);
        aggregator.take(Position(0), Position(400));
        assert_eq!(aggregator.bot_hits(), [0; 6]);
    }

    #[test]
    fn links_and_keys_have_the_same_hits_by_day_quarter_and_dimension() {
        let private = Some(PrivateVisitor { device: Device::Mobile, bot: None });
        let other = HitRecord { short_id: *b"0000001", ..HIT };
        let later = HitRecord { at_ms: HIT.at_ms + 15 * 60 * 1_000, language: b"de", ..HIT };
        let private = HitRecord { private, user_agent: b"", ..HIT };
        let days = batch(&[HIT, other, HIT, BOT, later, private, HitRecord { tracked: false, ..HIT }]).days;
        let [first, second, key] = &days[..] else { panic!("{days:?}") };
        let link = |id| HitSubject::Link(ShortId(id));
        assert_eq!([first.of, second.of, key.of], [link(*b"0000001"), link(*b"a1B2c3D"), HitSubject::Key(KEY)]);
        let tally = |persons, bots| Tally { persons, bots };
        assert_eq!(second.devices.0, [tally(3, 1), tally(1, 0), tally(0, 0)]);
        assert_eq!(key.devices.0, [tally(4, 1), tally(1, 0), tally(0, 0)]);
        let slot = QuarterHits::slot_of(Timestamp(HIT.at_ms));
        assert_eq!(second.quarters.slots().collect::<Vec<_>>(), [(slot, tally(3, 1)), (slot + 1, tally(1, 0))]);
        for day in &days {
            assert_eq!((day.sheet.hits(), day.quarters.total()), (day.devices.total(), day.devices.total()));
        }
        assert_eq!(second.sheet.private(), tally(1, 0));
        let labels = |dimension| {
            let entries = second.sheet.of(dimension);
            entries.map(|entry| (entry.label.text(dimension).unwrap(), entry.tally)).collect::<Vec<_>>()
        };
        assert_eq!(labels(Dimension::Browser), [("chrome", tally(3, 0)), ("other", tally(0, 1))]);
        assert_eq!(labels(Dimension::Language), [("de", tally(1, 0))]);
        assert_eq!(labels(Dimension::Bot), [("crawler", tally(0, 1))]);
        assert_eq!(labels(Dimension::Destination), [("default", tally(4, 1))]);
    }
}
