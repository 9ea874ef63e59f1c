//! A link: its row in the embedded store, its line in an export, its row on the cluster.

mod options;
mod rows;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Base62Id, RecordFault, Time, corrupt, require, split_version, unknown_version};
use crate::domain::key::KeyId;
use crate::domain::link::{
    Link, LinkData, LinkName, LinkOptions, LinkWebhooks, MAX_WEBHOOKS, MAX_WEBHOOKS_EVER, Revision, TargetUrl,
};
use crate::domain::webhook_url::WebhookUrl;
use crate::store::StoreError;

pub(super) use self::options::OptionsV1;
pub use self::rows::{ChangedLinkRow, LinkRow, NewLinkRow};

pub const TABLE: &str = "links";
pub(super) const VERSION: u8 = 2;

/// How links are written now.
pub type LinkRecord<'a> = LinkV2<'a>;

/// A link in rows and exports, as 0.1.0 wrote it.
#[derive(Deserialize)]
struct LinkV1<'a> {
    id: Base62Id,
    target: Cow<'a, str>,
    data: Cow<'a, str>,
    webhooks: Vec<String>,
    tracked: bool,
    owner: Uuid,
    created_at: Time,
}

/// A link in rows and exports. In JSON, what links of 0.1.0 did not have may be missing.
#[derive(Serialize, Deserialize)]
pub struct LinkV2<'a> {
    id: Base62Id,
    target: Cow<'a, str>,
    /// Compact JSON.
    data: Cow<'a, str>,
    /// All URLs that the link has had, by place.
    webhooks: Cow<'a, [String]>,
    tracked: bool,
    owner: Uuid,
    created_at: Time,
    #[serde(default)]
    slug: Option<Cow<'a, str>>,
    /// The places of the webhooks that hits fire; `None`: of all, in order.
    #[serde(default)]
    active_webhooks: Option<Vec<u8>>,
    /// `None`: the defaults.
    #[serde(default)]
    options: Option<OptionsV1>,
    #[serde(default)]
    block_reason: Option<Cow<'a, str>>,
    /// `None`: when it was created.
    #[serde(default)]
    updated_at: Option<Time>,
    #[serde(default = "first_revision")]
    revision: u32,
}

/// The revision of what 0.1.0 wrote: its links could not be changed.
pub(super) fn first_revision() -> u32 {
    Revision::FIRST.0
}

impl<'a> From<&'a Link> for LinkV2<'a> {
    fn from(link: &'a Link) -> Self {
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
        Self {
            id: Base62Id(*id),
            target: target.as_str().into(),
            data: data.as_json().into(),
            webhooks: webhooks.all().into(),
            tracked: *tracked,
            owner: owner.0,
            created_at: Time(*created_at),
            slug: slug.map(|slug| slug.to_string().into()),
            active_webhooks: active_of(webhooks),
            options: OptionsV1::of(options),
            block_reason: block_reason.as_ref().map(Cow::from),
            updated_at: Some(Time(*updated_at)).filter(|_| updated_at != created_at),
            revision: revision.0,
        }
    }
}

/// The places of active webhooks, unless they are all.
pub(super) fn active_of(webhooks: &LinkWebhooks) -> Option<Vec<u8>> {
    (!webhooks.is_unchanged()).then(|| webhooks.places().to_vec())
}

/// `None` if a place has no URL.
pub(super) fn webhooks_of(urls: Vec<String>, active: Option<Vec<u8>>) -> Option<LinkWebhooks> {
    match active {
        None => Some(urls.into()),
        Some(active) => LinkWebhooks::from_stored(urls, active),
    }
}

impl From<LinkV1<'_>> for Link {
    fn from(record: LinkV1<'_>) -> Self {
        let LinkV1 { id, target, data, webhooks, tracked, owner, created_at } = record;
        Self {
            id: id.0,
            slug: None,
            target: TargetUrl::from_store(target.into_owned()),
            data: LinkData::from_store(data.into_owned()),
            webhooks: webhooks.into(),
            tracked,
            options: LinkOptions::default(),
            block_reason: None,
            owner: KeyId(owner),
            created_at: created_at.0,
            updated_at: created_at.0,
            revision: Revision::FIRST,
        }
    }
}

/// For records from this service's own store: their texts were checked before they were written.
impl TryFrom<LinkV2<'_>> for Link {
    type Error = RecordFault;

    fn try_from(record: LinkV2<'_>) -> Result<Self, RecordFault> {
        let LinkV2 {
            id,
            target,
            data,
            webhooks,
            tracked,
            owner,
            created_at,
            slug,
            active_webhooks,
            options,
            block_reason,
            updated_at,
            revision,
        } = record;
        let slug = slug.map(|slug| LinkName::of_form(&slug).ok_or("slug: is not a valid link name")).transpose()?;
        let webhooks = webhooks_of(webhooks.into_owned(), active_webhooks);
        Ok(Self {
            id: id.0,
            slug,
            target: TargetUrl::from_store(target.into_owned()),
            data: LinkData::from_store(data.into_owned()),
            webhooks: webhooks.ok_or("active_webhooks: must be places of webhooks")?,
            tracked,
            options: options.map_or_else(LinkOptions::default, LinkOptions::from),
            block_reason: block_reason.map(Cow::into_owned),
            owner: KeyId(owner),
            created_at: created_at.0,
            updated_at: updated_at.unwrap_or(created_at).0,
            revision: Revision(revision),
        })
    }
}

impl LinkV2<'_> {
    /// The link of a record from a file, if this service could have written it.
    pub fn checked(self) -> Result<Link, RecordFault> {
        TargetUrl::parse_stored(&self.target).map_err(|error| format!("target: {error}"))?;
        LinkData::parse_stored(&self.data).map_err(|error| format!("data: {error}"))?;
        require(self.webhooks.len() <= MAX_WEBHOOKS_EVER, "webhooks: must be at most 200")?;
        for (index, webhook) in self.webhooks.iter().enumerate() {
            WebhookUrl::parse_stored(webhook).map_err(|error| format!("webhooks/{index}: {error}"))?;
        }
        if let Some(options) = &self.options {
            options.check()?;
        }
        require(self.revision >= Revision::FIRST.0, "revision: must be at least 1")?;
        let link = Link::try_from(self)?;
        require(link.webhooks.places().len() <= MAX_WEBHOOKS, "active webhooks: must be at most 10")?;
        let urls = link.webhooks.active().filter_map(|url| WebhookUrl::parse_stored(url).ok());
        let mut known = HashSet::new();
        require(urls.into_iter().all(|url| known.insert(url)), "webhooks: must be distinct")?;
        Ok(link)
    }
}

pub fn encode(link: &Link) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, VERSION, &LinkRecord::from(link))
}

pub fn decode(row: &[u8]) -> Result<Link, StoreError> {
    match split_version(TABLE, row)? {
        (1, record) => super::decode::<LinkV1<'_>>(TABLE, record).map(Link::from),
        (VERSION, record) => {
            let record = super::decode::<LinkRecord<'_>>(TABLE, record)?;
            record.try_into().map_err(|fault: RecordFault| corrupt(TABLE, &fault))
        }
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

/// The link as an export has it: the same text for the same link.
pub fn to_json(link: &Link) -> Result<String, StoreError> {
    super::to_json(TABLE, &LinkRecord::from(link))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::link::{RedirectStatus, ShortId};

    pub fn link() -> Link {
        Link {
            id: ShortId::parse("aB3xYz9").unwrap(),
            slug: None,
            target: TargetUrl::parse_stored("https://example.com/a").unwrap(),
            data: LinkData::from_json_object("{\"a\":1}").unwrap(),
            webhooks: vec!["https://example.com/hook".to_owned()].into(),
            tracked: true,
            options: LinkOptions::default(),
            block_reason: None,
            owner: KeyId(Uuid::from_u128(7)),
            created_at: Timestamp(5),
            updated_at: Timestamp(5),
            revision: Revision::FIRST,
        }
    }

    pub fn link_with_everything() -> Link {
        let webhooks = link().webhooks.changed_to(vec!["https://example.com/other".into()]).unwrap();
        Link {
            slug: Some(LinkName::parse("summer").unwrap()),
            webhooks,
            options: LinkOptions {
                title: Some("Summer".into()),
                tags: vec!["a".into(), "b".into()],
                notes: Some("n".into()),
                archived: true,
                expires_at: Some(Timestamp(90)),
                not_before: Some(Timestamp(80)),
                fallback: Some(TargetUrl::parse_stored("https://example.com/over").unwrap()),
                redirect_status: RedirectStatus::PermanentRedirect,
                cache_seconds: 7,
                preview: false,
                skip_bots: true,
            },
            block_reason: Some("phishing".into()),
            updated_at: Timestamp(6),
            revision: Revision(2),
            ..link()
        }
    }

    #[test]
    fn a_link_is_the_same_in_a_row_in_json_and_in_columns() {
        for link in [link(), link_with_everything()] {
            assert_eq!(decode(&encode(&link).unwrap()).unwrap(), link);
            let json = to_json(&link).unwrap();
            assert_eq!(serde_json::from_str::<LinkRecord<'_>>(&json).unwrap().checked().unwrap(), link);
            assert_eq!(LinkRow::try_from(&link).unwrap().into_link().unwrap(), Some(link));
        }
    }

    #[test]
    fn what_0_1_0_wrote_is_read() {
        let v1 = (Base62Id(link().id), "https://example.com/a", "{\"a\":1}", ["https://example.com/hook"].as_slice());
        let row = super::super::encode(TABLE, 1, &(v1.0, v1.1, v1.2, v1.3, true, Uuid::from_u128(7), 5_u64)).unwrap();
        assert_eq!(decode(&row).unwrap(), link());
        let json = r#"{"id":"aB3xYz9","target":"https://example.com/a","data":"{\"a\":1}","webhooks":["https://example.com/hook"],"tracked":true,"owner":"00000000-0000-0000-0000-000000000007","created_at":"1970-01-01T00:00:00.005Z"}"#;
        assert_eq!(serde_json::from_str::<LinkRecord<'_>>(json).unwrap().checked().unwrap(), link());
        let columns = LinkRow {
            slug: None,
            active_webhooks: None,
            options: None,
            block_reason: None,
            updated_at: None,
            revision: None,
            ..LinkRow::try_from(&link()).unwrap()
        };
        assert_eq!(columns.into_link().unwrap(), Some(link()));
    }

    #[test]
    fn columns_are_listed_as_statements_need_them() {
        assert_eq!(
            LinkRow::VALUES,
            "owner, created_at, target, data, webhooks, tracked, slug, active_webhooks, options, block_reason, \
             updated_at, revision"
        );
        assert!(
            NewLinkRow::insert()
                .ends_with("revision, claim) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS")
        );
        assert_eq!(LinkRow::COLUMNS, format!("id, {}", LinkRow::VALUES));
    }

    #[test]
    fn a_row_without_an_owner_is_a_removed_link_and_another_gap_is_damage() {
        let row = || LinkRow::try_from(&link()).unwrap();
        assert_eq!(LinkRow { owner: None, ..row() }.into_link().unwrap(), None);
        let torn = LinkRow { data: None, ..row() };
        let reason = torn.into_link().unwrap_err().to_string();
        assert_eq!(reason, "unreadable row in links: the column data is missing");
        let foreign = LinkRow { id: "../../a".into(), ..row() };
        assert!(foreign.into_link().is_err());
        let no_place = LinkRow { active_webhooks: Some(vec![1]), ..row() };
        let reason = no_place.into_link().unwrap_err().to_string();
        assert_eq!(reason, "unreadable row in links: the column active_webhooks can't be read");
    }
}
