//! The hit aggregator adds up records of the journal into rows for the store.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::enrich::Enricher;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{DayCount, Dimension, HitBatch, HitStamp, LabelCount, NodeId, Position, ServedCount};
use crate::domain::key::KeyId;
use crate::domain::link::{Revision, ShortId};
use crate::domain::webhook::{DeliveryId, NewDelivery};
use crate::journal::record::{HitRecord, hit_id};

/// The hashes have a random key, and clients can't measure look-ups, so that no visitor can choose labels that share a
/// slot. The hashes of the standard library, which resist even clients that can, took a third of the counting.
type SumMap<K, V> = HashMap<K, V, RandomState>;

/// Adds to a sum. The key is nearly always present: then a look-up is cheaper than `entry`, which reserves space for
/// another key each time.
fn add_to<K: Eq + Hash, V: Default>(sums: &mut SumMap<K, V>, key: K, add: impl FnOnce(&mut V)) {
    match sums.get_mut(&key) {
        Some(sum) => add(sum),
        None => add(sums.entry(key).or_default()),
    }
}

/// Sums of the records since the last [`take`](Self::take).
///
/// The caller bounds its size by [`rows`](Self::rows): a record adds at most a day, four labels and a key, and its
/// deliveries.
#[derive(Debug)]
pub struct HitAggregator {
    node: NodeId,
    enricher: Enricher,
    /// The last day and its month: hits are in order of time.
    month: (Day, Month),
    days: SumMap<(ShortId, Day), [u64; 3]>,
    labels: SumMap<(ShortId, Month, Dimension, Arc<str>), u64>,
    served: SumMap<(KeyId, Month), u64>,
    /// Consecutive hits of one key that are not in `served` yet: most nodes serve few keys.
    serving: Option<((KeyId, Month), u64)>,
    deliveries: Vec<NewDelivery>,
    records: u64,
}

impl HitAggregator {
    pub fn new(node: NodeId, enricher: Enricher) -> Self {
        Self {
            node,
            enricher,
            month: (Day(0), Day(0).month()),
            days: SumMap::default(),
            labels: SumMap::default(),
            served: SumMap::default(),
            serving: None,
            deliveries: Vec::new(),
            records: 0,
        }
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

    /// The number of rows of counters.
    pub fn rows(&self) -> usize {
        self.days.len() + self.labels.len() + self.served.len()
    }

    /// Counts one record, which ends at `position`.
    pub fn add(&mut self, position: Position, hit: &HitRecord<'_>) {
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
        if hit.tracked {
            let visitor = self.enricher.enrich(hit.user_agent, hit.ch_ua_mobile, hit.referer, hit.address);
            add_to(&mut self.days, (link, day), |devices| devices[visitor.device as usize] += 1);
            let place = visitor.place.as_deref();
            let labels = [
                (Dimension::Referrer, visitor.referrer),
                (Dimension::Country, place.map(|place| Arc::clone(&place.country))),
                (Dimension::Region, place.and_then(|place| place.region.clone())),
                (Dimension::City, place.and_then(|place| place.city.clone())),
            ];
            for (dimension, label) in labels {
                if let Some(label) = label {
                    add_to(&mut self.labels, (link, month, dimension, label), |count| *count += 1);
                }
            }
        }
        if hit.webhooks > 0 {
            let stamp = HitStamp { id: hit_id(self.node, position, hit.at_ms), at };
            let revision = Revision(hit.revision);
            let delivery = |url_index| NewDelivery { id: DeliveryId { link, hit: stamp, url_index }, owner, revision };
            self.deliveries.extend(hit.fired_webhooks().map(delivery));
        }
    }

    fn end_serving(&mut self) {
        if let Some((of, count)) = self.serving.take() {
            add_to(&mut self.served, of, |served| *served += count);
        }
    }

    /// Drops all sums.
    pub fn clear(&mut self) {
        self.serving = None;
        self.days.clear();
        self.labels.clear();
        self.served.clear();
        self.deliveries.clear();
        self.records = 0;
    }

    /// Takes the sums of the records in `(from, upto]` as a batch for the store.
    pub fn take(&mut self, from: Position, upto: Position) -> HitBatch {
        self.end_serving();
        self.records = 0;
        let days = self.days.drain().map(|((link, day), devices)| DayCount { link, day, devices });
        let labels = self.labels.drain().map(|((link, month, dimension, label), count)| LabelCount {
            link,
            month,
            dimension,
            label,
            count,
        });
        let served = self.served.drain().map(|((key, month), count)| ServedCount { key, month, count });
        let mut batch = HitBatch {
            writer: self.node,
            from,
            upto,
            days: days.collect(),
            labels: labels.collect(),
            served: served.collect(),
            deliveries: std::mem::take(&mut self.deliveries),
        };
        // Rows are in key order: the store finds adjacent rows in the same block, and a batch is the same at every
        // replay.
        batch.days.sort_unstable_by_key(|row| (row.link, row.day));
        batch.labels.sort_unstable_by(|a, b| {
            (a.link, a.dimension, a.month, &*a.label).cmp(&(b.link, b.dimension, b.month, &*b.label))
        });
        batch.served.sort_unstable_by_key(|row| (row.key, row.month));
        batch
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::domain::referrer::OwnHost;

    const HIT: HitRecord<'static> = HitRecord {
        at_ms: 1_795_000_000_000,
        short_id: *b"a1B2c3D",
        revision: 1,
        route: 0,
        tracked: true,
        webhooks: 2,
        webhook_places: &[],
        ch_ua_mobile: None,
        owner: [7; 16],
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        user_agent: b"",
        referer: b"",
    };

    #[test]
    fn deliveries_go_to_the_places_of_the_hit_and_keep_its_revision() {
        let enricher = Enricher::new(OwnHost::of_base_url("https://sign.example"), None);
        let mut aggregator = HitAggregator::new(NodeId(uuid::Uuid::from_bytes([3; 16])), enricher);
        aggregator.add(Position(100), &HIT);
        aggregator.add(Position(200), &HitRecord { revision: 5, webhook_places: &[1, 199], ..HIT });
        aggregator.add(Position(300), &HitRecord { revision: 6, webhooks: 0, ..HIT });
        let deliveries = aggregator.take(Position(0), Position(300)).deliveries;
        let of: Vec<_> = deliveries.iter().map(|new| (new.id.url_index, new.revision)).collect();
        assert_eq!(of, [(0, Revision(1)), (1, Revision(1)), (1, Revision(5)), (199, Revision(5))]);
        assert!(deliveries.iter().all(|new| new.owner == KeyId(uuid::Uuid::from_bytes([7; 16]))));
    }
}
