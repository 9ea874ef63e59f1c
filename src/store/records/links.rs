//! A link: its row in the embedded store, its line in an export, its row on the cluster.

use std::borrow::Cow;
use std::collections::HashSet;

use scylla::value::CqlTimestamp;
use scylla::{DeserializeRow, SerializeRow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::columns::{short_id, timestamp, timestamp_from};
use super::{Base62Id, RecordFault, Time, corrupt, require, split_version, unknown_version};
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkData, TargetUrl};
use crate::domain::webhook_url::WebhookUrl;
use crate::store::StoreError;

pub const TABLE: &str = "links";
pub(super) const VERSION: u8 = 1;

const MAX_WEBHOOKS: usize = 10;

/// How links are written now.
pub type LinkRecord<'a> = LinkV1<'a>;

/// A link in rows and exports.
#[derive(Serialize, Deserialize)]
pub struct LinkV1<'a> {
    id: Base62Id,
    target: Cow<'a, str>,
    /// Compact JSON.
    data: Cow<'a, str>,
    webhooks: Cow<'a, [String]>,
    tracked: bool,
    owner: Uuid,
    created_at: Time,
}

impl<'a> From<&'a Link> for LinkV1<'a> {
    fn from(link: &'a Link) -> Self {
        let Link { id, target, data, webhooks, tracked, owner, created_at } = link;
        Self {
            id: Base62Id(*id),
            target: target.as_str().into(),
            data: data.as_json().into(),
            webhooks: webhooks.into(),
            tracked: *tracked,
            owner: owner.0,
            created_at: Time(*created_at),
        }
    }
}

/// For records from this service's own store: their texts were checked before they were written.
impl From<LinkV1<'_>> for Link {
    fn from(record: LinkV1<'_>) -> Self {
        let LinkV1 { id, target, data, webhooks, tracked, owner, created_at } = record;
        Self {
            id: id.0,
            target: TargetUrl::from_store(target.into_owned()),
            data: LinkData::from_store(data.into_owned()),
            webhooks: webhooks.into_owned(),
            tracked,
            owner: KeyId(owner),
            created_at: created_at.0,
        }
    }
}

impl LinkV1<'_> {
    /// The link of a record from a file, if this service could have written it.
    pub fn checked(self) -> Result<Link, RecordFault> {
        let Self { id: _, target, data, webhooks, tracked: _, owner: _, created_at: _ } = &self;
        TargetUrl::parse_stored(target).map_err(|error| format!("target: {error}"))?;
        LinkData::parse_stored(data).map_err(|error| format!("data: {error}"))?;
        require(webhooks.len() <= MAX_WEBHOOKS, "webhooks: must be at most 10")?;
        let mut known = HashSet::new();
        for (index, webhook) in webhooks.iter().enumerate() {
            let url = WebhookUrl::parse_stored(webhook).map_err(|error| format!("webhooks/{index}: {error}"))?;
            require(known.insert(url), "webhooks: must be distinct")?;
        }
        Ok(self.into())
    }
}

pub fn encode(link: &Link) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, VERSION, &LinkRecord::from(link))
}

pub fn decode(row: &[u8]) -> Result<Link, StoreError> {
    match split_version(TABLE, row)? {
        (VERSION, record) => super::decode::<LinkRecord<'_>>(TABLE, record).map(Link::from),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

/// The link as an export has it: the same text for the same link.
pub fn to_json(link: &Link) -> Result<String, StoreError> {
    super::to_json(TABLE, &LinkRecord::from(link))
}

/// Defines a row, and the names of its columns for the statements that read and write it.
macro_rules! row {
    ($(#[$attribute:meta])* $name:ident { $key:ident: $key_type:ty, $($column:ident: $type:ty),+ $(,)? }) => {
        $(#[$attribute])*
        pub struct $name {
            $key: $key_type,
            $($column: $type,)+
        }

        impl $name {
            /// Its columns but for the key, separated by commas.
            pub const VALUES: &str = concat!(stringify!($($column),+));
            /// All its columns.
            pub const COLUMNS: &str = concat!(stringify!($key), ", ", stringify!($($column),+));
        }
    };
}

row! {
    /// A link's row on the cluster. Of a removed link only the id is left.
    #[derive(SerializeRow, DeserializeRow)]
    LinkRow {
        id: String,
        owner: Option<Uuid>,
        created_at: Option<CqlTimestamp>,
        target: Option<String>,
        data: Option<String>,
        webhooks: Option<Vec<String>>,
        tracked: Option<bool>,
    }
}

impl From<&Link> for LinkRow {
    fn from(link: &Link) -> Self {
        let Link { id, target, data, webhooks, tracked, owner, created_at } = link;
        Self {
            id: id.to_string(),
            owner: Some(owner.0),
            created_at: Some(timestamp(*created_at)),
            target: Some(target.as_str().to_owned()),
            data: Some(data.as_json().to_owned()),
            webhooks: Some(webhooks.clone()),
            tracked: Some(*tracked),
        }
    }
}

impl LinkRow {
    /// The link; `None` if it was removed.
    pub fn into_link(self) -> Result<Option<Link>, StoreError> {
        let Self { id, owner, created_at, target, data, webhooks, tracked } = self;
        let Some(owner) = owner else { return Ok(None) };
        let missing = |column: &str| corrupt(TABLE, &format_args!("the column {column} is missing"));
        Ok(Some(Link {
            id: short_id(TABLE, &id)?,
            target: TargetUrl::from_store(target.ok_or_else(|| missing("target"))?),
            data: LinkData::from_store(data.ok_or_else(|| missing("data"))?),
            // The cluster stores an empty list as null.
            webhooks: webhooks.unwrap_or_default(),
            tracked: tracked.ok_or_else(|| missing("tracked"))?,
            owner: KeyId(owner),
            created_at: timestamp_from(created_at.ok_or_else(|| missing("created_at"))?),
        }))
    }
}

/// A new link's row, with the claim of the request that creates it.
#[derive(SerializeRow)]
pub struct NewLinkRow {
    claim: Uuid,
    #[scylla(flatten)]
    link: LinkRow,
}

impl NewLinkRow {
    /// The statement that writes it if there is no row.
    pub fn insert() -> String {
        let marks = "?, ".repeat(LinkRow::COLUMNS.split(',').count());
        format!("INSERT INTO {TABLE} ({}, claim) VALUES ({marks}?) IF NOT EXISTS", LinkRow::COLUMNS)
    }

    pub fn new(link: &Link, claim: Uuid) -> Self {
        Self { claim, link: link.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::link::ShortId;

    fn link() -> Link {
        Link {
            id: ShortId::parse("aB3xYz9").unwrap(),
            target: TargetUrl::parse_stored("https://example.com/a").unwrap(),
            data: LinkData::from_json_object("{\"a\":1}").unwrap(),
            webhooks: vec!["https://example.com/hook".into()],
            tracked: true,
            owner: KeyId(Uuid::from_u128(7)),
            created_at: Timestamp(5),
        }
    }

    #[test]
    fn a_link_is_the_same_in_a_row_in_json_and_in_columns() {
        let link = link();
        assert_eq!(decode(&encode(&link).unwrap()).unwrap(), link);
        let json = to_json(&link).unwrap();
        assert_eq!(serde_json::from_str::<LinkRecord<'_>>(&json).unwrap().checked().unwrap(), link);
        assert_eq!(LinkRow::from(&link).into_link().unwrap(), Some(link));
    }

    #[test]
    fn columns_are_listed_as_statements_need_them() {
        assert_eq!(LinkRow::VALUES, "owner, created_at, target, data, webhooks, tracked");
        let inserted = "INSERT INTO links (id, owner, created_at, target, data, webhooks, tracked, claim) \
                        VALUES (?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS";
        assert_eq!(NewLinkRow::insert(), inserted);
        assert_eq!(LinkRow::COLUMNS, "id, owner, created_at, target, data, webhooks, tracked");
    }

    #[test]
    fn a_row_without_an_owner_is_a_removed_link_and_another_gap_is_damage() {
        let removed = LinkRow { owner: None, ..LinkRow::from(&link()) };
        assert_eq!(removed.into_link().unwrap(), None);
        let torn = LinkRow { data: None, ..LinkRow::from(&link()) };
        let reason = torn.into_link().unwrap_err().to_string();
        assert_eq!(reason, "unreadable row in links: the column data is missing");
        let foreign = LinkRow { id: "../../a".into(), ..LinkRow::from(&link()) };
        assert!(foreign.into_link().is_err());
    }
}
