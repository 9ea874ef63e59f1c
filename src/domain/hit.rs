//! Hits: resolutions of short links, and what is counted of them.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::calendar::{Day, Month, Timestamp};
use super::key::KeyId;
use super::link::ShortId;

/// The identifier of a hit, in the form of a UUID v7; the same at every replay of its journal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HitId(pub Uuid);

impl fmt::Display for HitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node of the service: the writer of its own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub Uuid);

/// A place in a node's hit journal; grows over the node's whole life.
///
/// As a cursor, it covers every record that ends at or before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// How far a node's journal is counted in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCursor {
    /// All hits up to here are counted.
    pub counted: Position,
    /// Above `counted` where a batch up to here was begun: some of it may be counted already. The next batch has to be
    /// the same one, made from the records in `(counted, begun]`.
    pub begun: Position,
}

/// Nothing is begun beyond what is counted.
impl From<Position> for HitCursor {
    fn from(counted: Position) -> Self {
        Self { counted, begun: counted }
    }
}

/// A list of labels that is kept for a link.
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

/// How many labels a list keeps for a link, dimension and month.
pub const MAX_LABELS: u64 = 1_000;

/// The label under which later ones are counted once a list is full; top lists leave it out.
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

/// Hits served for one key in one month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedCount {
    pub key: KeyId,
    pub month: Month,
    pub count: u64,
}

/// What a stretch of one node's journal adds to the counters: the records in `(from, upto]`.
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

/// All that is counted of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkHits {
    /// Oldest first; days without hits are left out.
    pub days: Vec<(Day, [u64; 3])>,
    /// Over the link's lifetime, of each list the first [`TOP`](super::analytics::TOP) by count, ties by label, and then
    /// [`OTHER_LABEL`] where it has hits. Empty where they were not asked for.
    pub labels: Vec<(Dimension, Vec<(String, u64)>)>,
}

/// When a hit happened and which one it is: what webhooks tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HitStamp {
    pub id: HitId,
    pub at: Timestamp,
}
