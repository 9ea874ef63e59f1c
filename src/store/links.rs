//! What a store does with short links.

use async_trait::async_trait;
use thiserror::Error;

use super::StoreError;
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Destination, Link, LinkName, ListIndex, ListOrder, ListPlace, Revision, ShortId};
use crate::domain::quota::MonthlyLimit;

/// Why a link was not created. Nothing was counted.
#[derive(Debug, Error)]
pub enum CreateLinkError {
    /// Another link has this name, or it is kept for another key that had a link with this name; or the id was used
    /// before.
    #[error("the name is taken")]
    NameTaken,
    /// The key has used up its month.
    #[error("{current} of {limit} links of the month are used")]
    QuotaExceeded { limit: u64, current: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Links to be created together.
#[derive(Clone, Debug, Default)]
pub struct NewLinks {
    /// All of one owner and one month.
    pub links: Vec<Link>,
    /// For each link, further ids: if its generated id was used before, it gets the first of these that was not. May be
    /// shorter than `links`.
    pub spare_ids: Vec<Vec<ShortId>>,
    /// Whether the links may also have names that are kept for other keys.
    pub takes_kept_names: bool,
}

impl NewLinks {
    /// The spare ids of a link.
    pub fn spare_ids_of(&self, place: usize) -> &[ShortId] {
        self.spare_ids.get(place).map_or(&[], Vec::as_slice)
    }
}

/// The outcome of links that were to be created together.
#[derive(Debug, Default)]
pub struct MadeLinks {
    /// For each link in order: the id that it has, or why it was not created.
    pub links: Vec<Result<ShortId, CreateLinkError>>,
    /// How many links of their owner the month counts at the end.
    pub used: u64,
}

impl MadeLinks {
    /// The quota was used up before the first of `count` links.
    pub fn refused(count: usize, limit: u64, current: u64) -> Self {
        let refused = || Err(CreateLinkError::QuotaExceeded { limit, current });
        Self { links: (0..count).map(|_| refused()).collect(), used: current }
    }
}

/// Why a link was not changed or deleted.
#[derive(Debug, Error)]
pub enum UpdateLinkError {
    /// The link changed or was deleted since it was read: read it again.
    #[error("the link changed concurrently")]
    Conflict,
    /// The link has webhooks and was changed too often in the last 33 days: deliveries need its earlier revisions.
    #[error("the link was changed too often")]
    TooManyRevisions,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An expired link that is not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredLink {
    pub expires_at: Timestamp,
    pub id: ShortId,
    pub name: LinkName,
}

/// Which links to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkListQuery {
    /// `None`: the links of all keys.
    pub owner: Option<KeyId>,
    pub index: ListIndex,
    /// The order of an index by time.
    pub order: ListOrder,
    /// An index by time has only links that were created from this time on.
    pub created_from: Option<Timestamp>,
    /// The same for its end, which is exclusive.
    pub created_until: Option<Timestamp>,
    /// Only links after this place.
    pub after: Option<ListPlace>,
    /// The largest number of rows of the index to look at.
    pub limit: usize,
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkListPage {
    /// In the order of the list. Fewer than were looked at, if rows are out of date.
    pub links: Vec<Link>,
    /// How many rows were looked at.
    pub examined: usize,
    /// How many buckets of the list were read, also empty ones; 0 where lists have none.
    pub buckets: usize,
    /// The place after which the list goes on; `None`: it is at its end.
    pub next: Option<ListPlace>,
}

/// What a store reports of links that were changed on any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The link of this name was created, changed or deleted, or soon will be.
    Link { name: LinkName, id: ShortId },
    /// Changes may have been missed: everything that was read before may be out of date.
    Unknown,
}

/// Called for each change of a link on another node.
pub type LinkChangeHook = Box<dyn Fn(LinkChange) + Send + Sync>;

/// For how long a change of a link keeps the revision before, for the deliveries of its hits.
pub const REVISIONS_KEPT_DAYS: u32 = 33;

/// How many changes of a link with webhooks are possible in that time.
pub const MAX_REVISIONS: u64 = 1_000;

/// Short links.
///
/// A link has an id for as long as the service exists, and a name: its slug, or else its id. Ids and names of the form of
/// an id are one name space. After a deletion, the name is kept for the owner of the deleted link: a link that this key
/// creates with it is another link, with another id, and its revision goes on from that of the deleted link. No id is
/// ever used again.
#[async_trait]
pub trait LinkStore: Send + Sync + 'static {
    /// Creates a link and counts it in its owner's month, both or neither. Returns the month's count with this link.
    ///
    /// The link has the id of `link`, except if its slug has the form of an id that was never used: then that is its id.
    /// Its revision is the first, or goes on from that of the deleted link of this name; that of `link` does not matter.
    async fn create_link(&self, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError>;

    /// Creates links, each as [`create_link`](Self::create_link) does, or refuses it. The quota is taken in order: no link
    /// is created that stands behind one which the quota refuses. Of two links with one slug, the first may have it.
    ///
    /// An error is of the whole call: then each link may have been created or not.
    async fn create_links(&self, new: NewLinks, limit: MonthlyLimit) -> Result<MadeLinks, StoreError>;

    /// The link with this name.
    async fn link(&self, name: LinkName) -> Result<Option<Link>, StoreError>;

    /// The link with this id, as it is now.
    async fn link_by_id(&self, id: ShortId) -> Result<Option<Link>, StoreError>;

    /// A link as it was at a revision, by its id, for the deliveries of hits that met this revision. Only revisions with
    /// webhooks are kept, also after the link's deletion, for [`REVISIONS_KEPT_DAYS`].
    async fn link_at(&self, id: ShortId, revision: Revision) -> Result<Option<Link>, StoreError>;

    /// Replaces the previous revision of `link`. Once it returns, every later read and look-up of this store gives the new
    /// link; other nodes get the change within 2 s.
    async fn update_link(&self, link: Link) -> Result<(), UpdateLinkError>;

    /// Deletes a link if it still has this revision. The caller sets `updated_at` to now: it is the time of the deletion.
    /// It is never refused because of too many revisions.
    async fn delete_link(&self, link: Link) -> Result<(), UpdateLinkError>;

    /// Removes what is counted of links that were deleted before `before`, some at a time; `false` when none is left.
    async fn remove_counts_of_deleted(&self, before: Timestamp) -> Result<bool, StoreError>;

    /// Links that expired before `before`, in the order of their expiry, after `after`. It reads no other links.
    async fn expired_links(
        &self,
        before: Timestamp,
        after: Option<ExpiredLink>,
        limit: usize,
    ) -> Result<Vec<ExpiredLink>, StoreError>;

    /// Drops what is noted of an expiry that its link does not have any more, or never had.
    async fn forget_expiry(&self, expired: ExpiredLink) -> Result<(), StoreError>;

    /// A part of a list of links. It reads the index of the list, and no other links than those it looks at. It has every
    /// link that was created before the list's first part was read, and that is still there and in the index.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] also while links of an earlier release are being added to the indexes.
    async fn list_links(&self, query: LinkListQuery) -> Result<LinkListPage, StoreError>;

    /// How many percent of the links of an earlier release are in the indexes of lists; at 100 there are lists.
    fn link_lists_percent(&self) -> u8 {
        100
    }

    /// Whether there is certainly no link with this name, known from memory; `false` if that needs a look-up.
    fn definitely_absent(&self, name: &LinkName) -> bool {
        // Other nodes create links too, so it always needs a look-up.
        let _ = name;
        false
    }

    /// What a redirect needs of a link, if it is available without waiting. `None` does not mean that the link is
    /// absent.
    fn peek(&self, name: &LinkName) -> Option<Destination> {
        let _ = name;
        None
    }

    /// Calls `hook` for each change of a link on another node. At most one hook can be set.
    fn on_link_change(&self, hook: LinkChangeHook) {
        drop(hook);
    }

    /// How long ago this node last knew of all changes on other nodes; `None` if there are no other nodes.
    fn link_changes_age(&self) -> Option<std::time::Duration> {
        None
    }
}
