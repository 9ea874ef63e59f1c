//! Hits: answered redirects, and their counts.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use uuid::Uuid;

use super::breakdown::{Dimension, LabelList, MAX_MONTH_TEXTS, Sheet};
use super::calendar::{Day, Month, Timestamp};
use super::key::KeyId;
use super::link::ShortId;
use super::quarters::QuarterHits;
use super::tally::Tally;

/// The id of a hit, in the form of a UUID v7. Every replay of its journal record results in the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HitId(pub Uuid);

impl HitId {
    /// The time of the hit, which the id begins with.
    pub fn at(self) -> Timestamp {
        Timestamp(u64::try_from(self.0.as_u128() >> 80).unwrap_or(0))
    }
}

impl fmt::Display for HitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node of the service, which writes its own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub Uuid);

/// A position in a node's hit journal. It only increases, as long as the node exists.
///
/// As a cursor, it covers every record that ends at or before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// How far a node's journal is counted in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCursor {
    /// All hits up to this position are counted.
    pub counted: Position,
    /// Greater than `counted` if a batch up to this position was started: a part of it may be counted already. The
    /// next batch must be the same: the records in `(counted, begun]`.
    pub begun: Position,
}

/// No batch beyond the counted position was started.
impl From<Position> for HitCursor {
    fn from(counted: Position) -> Self {
        Self { counted, begun: counted }
    }
}

/// The maximum number of labels in a list of a month, for each dimension of a link or key.
pub const MAX_LABELS: u64 = MAX_MONTH_TEXTS as u64;

/// The label for further hits once a list is full. Top lists omit it.
pub const OTHER_LABEL: &str = "(other)";

/// Whose hits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HitSubject {
    Link(ShortId),
    /// All tracked links of a key.
    Key(KeyId),
}

/// Hits by device, in the order of [`super::device::Device::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceHits(pub [Tally; 3]);

impl DeviceHits {
    pub fn total(self) -> Tally {
        self.0.into_iter().sum()
    }
}

impl AddAssign for DeviceHits {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, tally)| *sum += tally);
    }
}

/// Hits of a link or key on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayHits {
    pub of: HitSubject,
    pub day: Day,
    pub devices: DeviceHits,
    /// The same hits by quarter of an hour.
    pub quarters: QuarterHits,
    /// The same hits by all dimensions. The lists of the month get its labels, too.
    pub sheet: Sheet<Arc<str>>,
}

/// Hits of one key's links in one month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedCount {
    pub key: KeyId,
    pub month: Month,
    pub count: u64,
}

/// Hits of a link or key on one day, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayCount {
    pub of: HitSubject,
    pub day: Day,
    pub devices: DeviceHits,
    /// Empty once they are not kept any more.
    pub quarters: QuarterHits,
}

/// Hits of a link or key in one month under one label, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelCount {
    pub of: HitSubject,
    pub month: Month,
    pub list: LabelList,
    pub label: Arc<str>,
    pub tally: Tally,
}

/// The counts of a range of one node's journal: the records in `(from, upto]`. Links and keys have each day once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitBatch {
    pub writer: NodeId,
    pub from: Position,
    pub upto: Position,
    /// In the order of subjects and days.
    pub days: Vec<DayHits>,
    pub served: Vec<ServedCount>,
    pub deliveries: Vec<super::webhook::NewDelivery>,
}

impl HitBatch {
    /// When the first of its deliveries is due.
    pub fn first_due(&self) -> Option<Timestamp> {
        self.deliveries.iter().map(|delivery| delivery.id.hit.at).min()
    }
}

/// All hits of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkHits {
    /// Oldest first, without days that have no hits.
    pub days: Vec<(Day, DeviceHits)>,
    /// Counts since the link was created, of each of [`Dimension::LISTED`]: the first
    /// [`TOP`](super::analytics::TOP) by the number of hits that were asked for, then by label. Empty if they were not
    /// requested.
    pub labels: Vec<(Dimension, Vec<(String, u64)>)>,
}

/// The id and time of a hit, which webhooks deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HitStamp {
    pub id: HitId,
    pub at: Timestamp,
}
