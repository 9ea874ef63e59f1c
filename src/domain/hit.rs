//! Hits: answered redirects, and their counts.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::calendar::{Day, Month, Timestamp};
use super::key::KeyId;
use super::link::ShortId;

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

/// A list of labels that is stored for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    Referrer,
    Country,
    Region,
    City,
}

impl Dimension {
    pub const ALL: [Self; 4] = [Self::Referrer, Self::Country, Self::Region, Self::City];
}

/// The maximum number of labels in a list, for each link, dimension and month.
pub const MAX_LABELS: u64 = 1_000;

/// The label for further hits once a list is full. Top lists omit it.
pub const OTHER_LABEL: &str = "(other)";

/// Hits of one link on one day, by device in the order of [`super::device::Device::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayCount {
    pub link: ShortId,
    pub day: Day,
    pub devices: [u64; 3],
}

/// Hits of one link in one month under one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelCount {
    pub link: ShortId,
    pub month: Month,
    pub dimension: Dimension,
    pub label: Arc<str>,
    pub count: u64,
}

/// Hits of one key's links in one month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedCount {
    pub key: KeyId,
    pub month: Month,
    pub count: u64,
}

/// The counts of a range of one node's journal: the records in `(from, upto]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitBatch {
    pub writer: NodeId,
    pub from: Position,
    pub upto: Position,
    pub days: Vec<DayCount>,
    pub labels: Vec<LabelCount>,
    pub served: Vec<ServedCount>,
    pub deliveries: Vec<super::webhook::NewDelivery>,
}

/// All counts of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkHits {
    /// Oldest first, without days that have no hits.
    pub days: Vec<(Day, [u64; 3])>,
    /// Counts since the link was created: of each list the first [`TOP`](super::analytics::TOP) by count, then by
    /// label; then [`OTHER_LABEL`] if it has hits. Empty if they were not requested.
    pub labels: Vec<(Dimension, Vec<(String, u64)>)>,
}

/// The id and time of a hit, which webhooks deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HitStamp {
    pub id: HitId,
    pub at: Timestamp,
}
