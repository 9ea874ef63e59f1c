//! Exports and imports, as records that every store can read and write.
//!
//! Deliveries are not exported: the store that has them completes them. No node may serve from a store during its
//! export or import.

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use super::StoreError;
use crate::domain::breakdown::Sheet;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{DayCount, HitSubject, LabelCount, NodeId, Position};
use crate::domain::key::{ApiKey, KeyId};
use crate::domain::link::{Link, LinkName, Revision, ShortId};

/// The name of the root key's id.
pub const ROOT_KEY: &str = "root_key";
/// The name of a secret that is sealed under the master key, to check that key.
pub const MASTER_KEY_CHECK: &str = "master_key_check";
/// Names whose values are exported.
pub const NAMES: [&str; 2] = [ROOT_KEY, MASTER_KEY_CHECK];
/// The name of a number that grows with each start of a node: what was exported before a start may have changed since.
pub const LAST_START: &str = "last_start";
/// The name under which a store notes the file of its import.
pub const FILLED_FROM: &str = "import";
/// The name under which a store notes that its import is complete.
pub const FILLED: &str = "import_done";

/// One record of a store.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Key(Box<ApiKey>),
    KeyUse {
        key: KeyId,
        at: Timestamp,
    },
    Link(Link),
    /// A name that no link has: it is kept for this key, whose next link of that name has a later revision. Without an
    /// owner, it is the id of a deleted link that had another name, and no link ever has it again.
    KeptName {
        name: LinkName,
        owner: Option<KeyId>,
        revision: Revision,
    },
    /// A link as it was until a change or its deletion, for hits that are not counted yet.
    Revision {
        link: Link,
        replaced_at: Timestamp,
    },
    /// A deleted link whose counts are to be removed.
    Deletion {
        link: ShortId,
        at: Timestamp,
    },
    /// What a key has used in a month.
    Usage {
        metric: Metric,
        key: KeyId,
        month: Month,
        count: u64,
    },
    Day(DayCount),
    Label(LabelCount),
    /// Hits of a link or key on a day by all dimensions.
    Sheet {
        of: HitSubject,
        day: Day,
        sheet: Sheet<Arc<str>>,
    },
    /// The position up to which a node's journal is counted: its hits must not be counted again.
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

/// Records of one kind, in an order that the store chooses.
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
    KeptNames,
    Revisions,
    Deletions,
    Sheets,
}

impl Section {
    /// In the order of an export. Names come last: a store without a root key is incomplete.
    pub const ALL: [Self; 14] = [
        Self::Keys,
        Self::KeyUses,
        Self::Links,
        Self::KeptNames,
        Self::Revisions,
        Self::Deletions,
        Self::LinksCreated,
        Self::HitsServed,
        Self::WebhookDeliveries,
        Self::Days,
        Self::Labels,
        Self::Sheets,
        Self::Cursors,
        Self::Names,
    ];

    /// The section after this one.
    pub fn next(self) -> Option<Self> {
        Self::ALL.into_iter().skip_while(|section| *section != self).nth(1)
    }
}

/// Some records of a section.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub records: Vec<Record>,
    /// The place where the next page begins; `None` at the end of the section. It stays valid for the store that
    /// returned it.
    pub next: Option<String>,
}

/// A store that can be exported.
#[async_trait]
pub trait ExportSource: Send + Sync {
    /// The records of a section from a place on, which an earlier page returned; from its beginning without one.
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError>;

    /// The number that the last start of a node has left; 0 if none did.
    async fn last_start(&self) -> Result<u64, StoreError>;

    /// Checks that no node works on the store: what it writes meanwhile would be in the export in part. An embedded store
    /// has one process at a time.
    async fn check_idle(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether there may be pending deliveries. They are not exported.
    async fn has_pending_deliveries(&self) -> Result<bool, StoreError>;
}

/// Why a record was not imported.
#[derive(Debug, Error)]
pub enum SinkError {
    /// Another record is in its place.
    #[error("the store already has another {0}: only an empty store can be imported into")]
    Taken(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store that can be imported into.
#[async_trait]
pub trait Sink: Send + Sync {
    /// The value of a name.
    async fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes records. Those that an earlier attempt has written stay as they are.
    async fn write(&self, records: Vec<Record>) -> Result<(), SinkError>;
}
