//! What is left in the row of a deleted link: whose name it was, and at which revision it ended.

use scylla::DeserializeRow;
use uuid::Uuid;

use super::cluster::Cluster;
use super::outcome::CqlError;
use crate::domain::key::KeyId;
use crate::domain::link::{LinkName, Revision, ShortId};
use crate::store::records::columns::revision_from;

/// The key that a name without a link is kept for, and the last revision of the link that had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameKeeper {
    pub owner: KeyId,
    pub last: Revision,
}

impl NameKeeper {
    pub fn of(owner: Option<Uuid>, last: Option<i64>) -> Option<Self> {
        Some(Self { owner: KeyId(owner?), last: revision_from(last)? })
    }
}

#[derive(DeserializeRow)]
pub struct RemainsRow {
    /// `None` for a link that was deleted, or that was not created to the end.
    pub owner: Option<Uuid>,
    slug: Option<String>,
    kept_for: Option<Uuid>,
    revision: Option<i64>,
}

impl RemainsRow {
    pub async fn read(cluster: &Cluster, id: ShortId) -> Result<Option<Self>, CqlError> {
        cluster.cql.read_one(&cluster.statements.link_remains, (id.as_str(),)).await
    }

    /// The revision of a link that was not deleted.
    pub fn live_revision(&self) -> Option<i64> {
        self.owner.map(|_| self.revision.unwrap_or(i64::from(Revision::FIRST.0)))
    }

    /// Whether it is that of a link that was deleted. Nobody has ever had a link that was not created to the end.
    pub fn is_of_deleted(&self) -> bool {
        self.owner.is_none() && self.revision.is_some()
    }

    /// For whom the row of the link `id` keeps `name`.
    pub fn keeper(&self, id: ShortId, name: &LinkName) -> Option<NameKeeper> {
        let had = self.slug.as_deref().unwrap_or(id.as_str());
        if self.owner.is_some() || had != name.as_str() {
            return None;
        }
        NameKeeper::of(self.kept_for, self.revision)
    }
}
