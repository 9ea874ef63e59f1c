//! What is carried from one store to another, in pieces that any store can give and take.
//!
//! All but deliveries: these are for the store that has them to bring to an end. Giving and taking are meant for stores that
//! no node serves from meanwhile.

use async_trait::async_trait;
use thiserror::Error;

use super::StoreError;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{Dimension, NodeId, Position};
use crate::domain::key::{ApiKey, KeyId};
use crate::domain::link::{Link, ShortId};

/// The name under which the root key's id is kept.
pub const ROOT_KEY: &str = "root_key";
/// The name under which a sealed secret is kept that opens under the master key alone.
pub const MASTER_KEY_CHECK: &str = "master_key_check";
/// What all nodes share under a name, and is carried along.
pub const NAMES: [&str; 2] = [ROOT_KEY, MASTER_KEY_CHECK];
/// The name under which a store notes what it is being filled from.
pub const FILLED_FROM: &str = "import";
/// The name under which a store notes that it was filled.
pub const FILLED: &str = "import_done";

/// One piece of what a store keeps.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Key(Box<ApiKey>),
    KeyUse {
        key: KeyId,
        at: Timestamp,
    },
    Link(Link),
    /// What a key has used in a month.
    Usage {
        metric: Metric,
        key: KeyId,
        month: Month,
        count: u64,
    },
    /// Hits of a link on a day, by device.
    Day {
        link: ShortId,
        day: Day,
        devices: [u64; 3],
    },
    /// Hits of a link in a month under a label.
    Label {
        link: ShortId,
        month: Month,
        dimension: Dimension,
        label: String,
        count: u64,
    },
    /// Up to where a node's journal is in the counts: its hits must not be counted again.
    Cursor {
        writer: NodeId,
        counted: Position,
    },
    Name {
        name: String,
        value: Vec<u8>,
    },
}

/// What is counted of a key in a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    LinksCreated,
    HitsServed,
    WebhookDeliveries,
}

/// Records of one kind, which a store gives in an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Keys,
    KeyUses,
    Links,
    LinksCreated,
    HitsServed,
    WebhookDeliveries,
    Days,
    Labels,
    Cursors,
    Names,
}

impl Section {
    /// In the order in which they are carried. Names come last: a store without a root key is one that is not whole yet.
    pub const ALL: [Self; 10] = [
        Self::Keys,
        Self::KeyUses,
        Self::Links,
        Self::LinksCreated,
        Self::HitsServed,
        Self::WebhookDeliveries,
        Self::Days,
        Self::Labels,
        Self::Cursors,
        Self::Names,
    ];

    /// The section behind this one.
    pub fn next(self) -> Option<Self> {
        Self::ALL.into_iter().skip_while(|section| *section != self).nth(1)
    }
}

/// Some records of a section.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub records: Vec<Record>,
    /// From where the section goes on; `None` at its end. It means something to the store that gave it, also later.
    pub next: Option<String>,
}

/// A store that what it keeps can be taken from.
#[async_trait]
pub trait ExportSource: Send + Sync {
    /// The records of a section from a place on, which an earlier page named; from its beginning without one.
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError>;

    /// Whether there may be deliveries that are still to be made. They stay behind.
    async fn has_pending_deliveries(&self) -> Result<bool, StoreError>;
}

/// Why a record was not taken.
#[derive(Debug, Error)]
pub enum SinkError {
    /// It is there already, and is another one.
    #[error("the store already has another {0}: only an empty store can be imported into")]
    Taken(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store that can be filled.
#[async_trait]
pub trait Sink: Send + Sync {
    /// The value that is kept under a name.
    async fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps records. Those that are there already from an earlier try stay as they are.
    async fn write(&self, records: Vec<Record>) -> Result<(), SinkError>;
}
