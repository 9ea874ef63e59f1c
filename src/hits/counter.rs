//! Folds records of the journal into what they add to the counters.

use std::collections::HashMap;
use std::sync::Arc;

use super::enrich::Enricher;
use super::record::{HitRecord, hit_id};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{DayCount, Dimension, HitBatch, HitStamp, LabelCount, NodeId, Position, ServedCount};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, NewDelivery};

/// Sums of the records since the last [`take`](Self::take).
///
/// Its size is bounded by how many records are added: at most a day, six labels and a key each, and the deliveries.
#[derive(Debug)]
pub struct HitTally {
    node: NodeId,
    enricher: Enricher,
    /// The last day seen and its month: hits come in order of time.
    month: (Day, Month),
    days: HashMap<(ShortId, Day), [u64; 3]>,
    labels: HashMap<(ShortId, Month, Dimension, Arc<str>), u64>,
    served: HashMap<(KeyId, Month), u64>,
    deliveries: Vec<NewDelivery>,
}

impl HitTally {
    pub fn new(node: NodeId, enricher: Enricher) -> Self {
        Self {
            node,
            enricher,
            month: (Day(0), Day(0).month()),
            days: HashMap::new(),
            labels: HashMap::new(),
            served: HashMap::new(),
            deliveries: Vec::new(),
        }
    }

    /// Whose journal it counts.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Deliveries that were added.
    pub fn deliveries(&self) -> usize {
        self.deliveries.len()
    }

    /// Counts one record, which ends at `position`.
    pub fn add(&mut self, position: Position, hit: &HitRecord<'_>) {
        let at = Timestamp(hit.at_ms);
        let (day, link) = (at.day(), ShortId(hit.short_id));
        if self.month.0 != day {
            self.month = (day, day.month());
        }
        let month = self.month.1;
        let owner = KeyId(uuid::Uuid::from_bytes(hit.owner));
        *self.served.entry((owner, month)).or_default() += 1;
        if hit.tracked {
            let visitor = self.enricher.enrich(hit.user_agent, hit.ch_ua_mobile, hit.referer, hit.address);
            self.days.entry((link, day)).or_default()[visitor.device as usize] += 1;
            let place = visitor.place.as_deref();
            let labels = [
                (Dimension::Referrer, visitor.referrer),
                (Dimension::Country, place.map(|place| Arc::clone(&place.country))),
                (Dimension::Region, place.and_then(|place| place.region.clone())),
                (Dimension::City, place.and_then(|place| place.city.clone())),
            ];
            for (dimension, label) in labels {
                if let Some(label) = label {
                    *self.labels.entry((link, month, dimension, label)).or_default() += 1;
                }
            }
        }
        if hit.webhooks > 0 {
            let stamp = HitStamp { id: hit_id(self.node, position, hit.at_ms), at };
            let delivery = |url_index| NewDelivery { id: DeliveryId { link, hit: stamp, url_index }, owner };
            self.deliveries.extend((0..hit.webhooks).map(delivery));
        }
    }

    /// Forgets what was added.
    pub fn clear(&mut self) {
        self.days.clear();
        self.labels.clear();
        self.served.clear();
        self.deliveries.clear();
    }

    /// What was added, the records in `(from, upto]`, as a batch for the store.
    pub fn take(&mut self, from: Position, upto: Position) -> HitBatch {
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
        // Rows in key order: the store finds neighbours in the same block, and a batch is the same at every replay.
        batch.days.sort_unstable_by_key(|row| (row.link, row.day));
        batch.labels.sort_unstable_by(|a, b| {
            (a.link, a.dimension, a.month, &*a.label).cmp(&(b.link, b.dimension, b.month, &*b.label))
        });
        batch.served.sort_unstable_by_key(|row| (row.key, row.month));
        batch
    }
}
