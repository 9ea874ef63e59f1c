//! A link's row on the cluster.

use scylla::value::{CqlTimestamp, MaybeUnset};
use scylla::{DeserializeRow, SerializeRow};
use uuid::Uuid;

use super::super::columns::{short_id, timestamp, timestamp_from};
use super::super::{corrupt, from_json, to_json};
use super::options::OptionsV1;
use super::{TABLE, active_of, webhooks_of};
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkData, LinkName, LinkOptions, Revision, TargetUrl};
use crate::store::StoreError;

/// Defines a row, and the names of its columns for the statements that read and write it.
macro_rules! row {
    ($(#[$attribute:meta])* $name:ident { $key:ident: $key_type:ty, $first:ident: $first_type:ty, $($column:ident: $type:ty),+ $(,)? }) => {
        $(#[$attribute])*
        pub struct $name {
            pub(super) $key: $key_type,
            pub(super) $first: $first_type,
            $(pub(super) $column: $type,)+
        }

        impl $name {
            /// Its columns but for the key, separated by commas.
            pub const VALUES: &str = concat!(stringify!($first) $(, ", ", stringify!($column))+);
            /// All its columns.
            pub const COLUMNS: &str = concat!(stringify!($key), ", ", stringify!($first) $(, ", ", stringify!($column))+);
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
        slug: Option<String>,
        active_webhooks: Option<Vec<u8>>,
        options: Option<String>,
        block_reason: Option<String>,
        updated_at: Option<CqlTimestamp>,
        revision: Option<i64>,
    }
}

impl TryFrom<&Link> for LinkRow {
    type Error = StoreError;

    fn try_from(link: &Link) -> Result<Self, StoreError> {
        let Link {
            id,
            slug,
            target,
            data,
            webhooks,
            tracked,
            options,
            block_reason,
            owner,
            created_at,
            updated_at,
            revision,
        } = link;
        let options = OptionsV1::of(options).map(|options| to_json(TABLE, &options)).transpose()?;
        Ok(Self {
            id: id.to_string(),
            owner: Some(owner.0),
            created_at: Some(timestamp(*created_at)),
            target: Some(target.as_str().to_owned()),
            data: Some(data.as_json().to_owned()),
            webhooks: Some(webhooks.all().to_vec()),
            tracked: Some(*tracked),
            slug: slug.map(|slug| slug.to_string()),
            active_webhooks: active_of(webhooks),
            options,
            block_reason: block_reason.clone(),
            updated_at: Some(timestamp(*updated_at)),
            revision: Some(i64::from(revision.0)),
        })
    }
}

impl LinkRow {
    /// The link; `None` if it was removed. What 0.1.0 did not write is null.
    pub fn into_link(self) -> Result<Option<Link>, StoreError> {
        let Self {
            id,
            owner,
            created_at,
            target,
            data,
            webhooks,
            tracked,
            slug,
            active_webhooks,
            options,
            block_reason,
            updated_at,
            revision,
        } = self;
        let Some(owner) = owner else { return Ok(None) };
        let missing = |column: &str| corrupt(TABLE, &format_args!("the column {column} is missing"));
        let unreadable = |column: &str| corrupt(TABLE, &format_args!("the column {column} can't be read"));
        let created_at = timestamp_from(created_at.ok_or_else(|| missing("created_at"))?);
        let slug = slug.map(|slug| LinkName::of_form(&slug).ok_or_else(|| unreadable("slug"))).transpose()?;
        let options = options.map(|text| from_json::<OptionsV1>(TABLE, &text)).transpose()?;
        // The cluster stores an empty list as null.
        let webhooks = webhooks_of(webhooks.unwrap_or_default(), active_webhooks);
        let revision = revision.map_or(Ok(Revision::FIRST.0), u32::try_from).map_err(|_| unreadable("revision"))?;
        Ok(Some(Link {
            id: short_id(TABLE, &id)?,
            slug,
            target: TargetUrl::from_store(target.ok_or_else(|| missing("target"))?),
            data: LinkData::from_store(data.ok_or_else(|| missing("data"))?),
            webhooks: webhooks.ok_or_else(|| unreadable("active_webhooks"))?,
            tracked: tracked.ok_or_else(|| missing("tracked"))?,
            options: options.map_or_else(LinkOptions::default, LinkOptions::from),
            block_reason,
            owner: KeyId(owner),
            created_at,
            updated_at: updated_at.map_or(created_at, timestamp_from),
            revision: Revision(revision),
        }))
    }
}

impl LinkRow {
    /// What is left of a link's row after its deletion.
    fn deleted(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            owner: None,
            created_at: None,
            target: None,
            data: None,
            webhooks: None,
            tracked: None,
            slug: None,
            active_webhooks: None,
            options: None,
            block_reason: None,
            updated_at: None,
            revision: None,
        }
    }
}

/// A changed or deleted link's row, with what it was before.
#[derive(SerializeRow)]
pub struct ChangedLinkRow {
    #[scylla(flatten)]
    link: LinkRow,
    edits: Vec<Uuid>,
    kept_for: Option<Uuid>,
    deleted_at: Option<CqlTimestamp>,
    /// `None` for a link of 0.1.0, which has no revision in its row.
    before: Option<i64>,
    of_owner: Uuid,
}

impl ChangedLinkRow {
    /// The statement that writes it if the row is as it was.
    pub fn update() -> String {
        let columns = LinkRow::VALUES.split(", ").chain(["edits", "kept_for", "deleted_at"]);
        let assignments: Vec<String> = columns.map(|column| format!("{column} = :{column}")).collect();
        let assignments = assignments.join(", ");
        format!("UPDATE {TABLE} SET {assignments} WHERE id = :id IF revision = :before AND owner = :of_owner")
    }

    pub fn changed(link: &Link, before: Option<i64>, edits: Vec<Uuid>) -> Result<Self, StoreError> {
        let of_owner = link.owner.0;
        Ok(Self { link: link.try_into()?, edits, kept_for: None, deleted_at: None, before, of_owner })
    }

    /// `link` is the link before its deletion. Its revision stays: the next link of its name goes on from it.
    pub fn deleted(link: &Link, before: Option<i64>, edits: Vec<Uuid>) -> Self {
        let revision = Some(i64::from(link.revision.0));
        let slug = link.slug.map(|slug| slug.to_string());
        let row = LinkRow { slug, revision, ..LinkRow::deleted(link.id.as_str()) };
        let (kept_for, deleted_at) = (Some(link.owner.0), Some(timestamp(link.updated_at)));
        Self { link: row, edits, kept_for, deleted_at, before, of_owner: link.owner.0 }
    }
}

/// A new link's row, with the claim of the request that creates it. What a link does not have is not written: a null would be a
/// tombstone, which takes space and time at each read.
#[derive(SerializeRow)]
pub struct NewLinkRow {
    id: String,
    owner: MaybeUnset<Uuid>,
    created_at: MaybeUnset<CqlTimestamp>,
    target: MaybeUnset<String>,
    data: MaybeUnset<String>,
    webhooks: MaybeUnset<Vec<String>>,
    tracked: MaybeUnset<bool>,
    slug: MaybeUnset<String>,
    active_webhooks: MaybeUnset<Vec<u8>>,
    options: MaybeUnset<String>,
    block_reason: MaybeUnset<String>,
    updated_at: MaybeUnset<CqlTimestamp>,
    revision: MaybeUnset<i64>,
    claim: Uuid,
}

impl NewLinkRow {
    /// The statement that writes it if there is no row.
    pub fn insert() -> String {
        let marks = "?, ".repeat(LinkRow::COLUMNS.split(',').count());
        format!("INSERT INTO {TABLE} ({}, claim) VALUES ({marks}?) IF NOT EXISTS", LinkRow::COLUMNS)
    }

    pub fn new(link: &Link, claim: Uuid) -> Result<Self, StoreError> {
        let row = LinkRow::try_from(link)?;
        Ok(Self {
            id: row.id,
            owner: set(row.owner),
            created_at: set(row.created_at),
            target: set(row.target),
            data: set(row.data),
            webhooks: set(row.webhooks),
            tracked: set(row.tracked),
            slug: set(row.slug),
            active_webhooks: set(row.active_webhooks),
            options: set(row.options),
            block_reason: set(row.block_reason),
            updated_at: set(row.updated_at),
            revision: set(row.revision),
            claim,
        })
    }
}

fn set<T>(value: Option<T>) -> MaybeUnset<T> {
    value.map_or(MaybeUnset::Unset, MaybeUnset::Set)
}
