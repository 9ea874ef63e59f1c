//! Lists and exports of links.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use thiserror::Error;

use crate::clock::Clock;
use crate::domain::analytics::{self, HitsOfList};
use crate::domain::blocked_hosts::BlockedHosts;
use crate::domain::key::{ApiKey, KeyId, Scope};
use crate::domain::link::{Link, LinkFilter, LinkState, ListIndex, ListOrder, ListPlace};
use crate::service::exports::ExportSlots;
use crate::store::{CountStore, KeyStore, LinkListQuery, LinkStore, StoreError};

/// Rows that one page looks at, at the most.
const MOST_EXAMINED: usize = 1_000;
/// Rows that one call of the store looks at, at the most.
const MOST_AT_ONCE: usize = 250;
/// Rows of each call but the first, at the least.
const FEWEST_MORE: usize = 16;
/// Calls of the store for one page, at the most: with growing numbers of rows, as many as it takes to look at
/// [`MOST_EXAMINED`].
const MOST_CALLS: usize = 8;
/// Buckets that one page looks at: once there are so many, no further call is made. Those of deleted links are empty.
const MANY_BUCKETS: usize = 128;
/// Links whose counts are read at once.
const COUNTS_AT_ONCE: usize = 8;

/// Why there is no list.
#[derive(Debug, Error)]
pub enum ListError {
    /// The caller does not see the key whose links it asks for.
    #[error("no such key")]
    UnknownKey,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which links to list.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// `None`: the links of all keys.
    pub owner: Option<KeyId>,
    pub index: ListIndex,
    pub order: ListOrder,
    pub filter: LinkFilter,
}

/// A link of a list.
#[derive(Clone, Debug)]
pub struct ListedLink {
    pub link: Link,
    pub state: LinkState,
    /// `None` for an untracked link, or if hits were not asked for.
    pub hits: Option<HitsOfList>,
}

/// A page of a list.
#[derive(Clone, Debug, Default)]
pub struct ListedPage {
    pub links: Vec<ListedLink>,
    /// Rows that were looked at.
    pub examined: usize,
    /// Where the list goes on; `None`: it is at its end.
    pub next: Option<ListPlace>,
}

/// Lists links.
#[derive(Clone)]
pub struct LinkListService {
    links: Arc<dyn LinkStore>,
    counts: Arc<dyn CountStore>,
    keys: Arc<dyn KeyStore>,
    blocked_hosts: BlockedHosts,
    clock: Clock,
    /// The exports under way.
    pub exports: ExportSlots,
}

impl LinkListService {
    pub fn new(
        links: Arc<dyn LinkStore>,
        counts: Arc<dyn CountStore>,
        keys: Arc<dyn KeyStore>,
        blocked_hosts: BlockedHosts,
        clock: Clock,
    ) -> Self {
        Self { links, counts, keys, blocked_hosts, clock, exports: ExportSlots::default() }
    }

    /// The key whose links `caller` gets if it asks for those of `asked`; `None`: the links of all keys. The root key
    /// may ask for those of any key, a key with `keys:manage` for those of the keys that it sees, others for their own.
    pub async fn owner(&self, caller: &ApiKey, asked: Option<KeyId>) -> Result<Option<KeyId>, ListError> {
        let Some(asked) = asked else { return Ok((!caller.is_root).then_some(caller.id)) };
        if caller.is_root || asked == caller.id {
            return Ok(Some(asked));
        }
        if !caller.scopes.contains(Scope::KeysManage) {
            return Err(ListError::UnknownKey);
        }
        // The links of a revoked key are there all the same.
        let key = self.keys.key(asked).await?;
        key.filter(|key| caller.sees(key)).map(|key| Some(key.id)).ok_or(ListError::UnknownKey)
    }

    /// A page with at most `limit` links after a place.
    pub async fn page(
        &self,
        request: &ListRequest,
        after: Option<ListPlace>,
        limit: usize,
        with_hits: bool,
    ) -> Result<ListedPage, StoreError> {
        let mut page = ListedPage { next: after, ..ListedPage::default() };
        let mut found: Vec<(Link, LinkState)> = Vec::new();
        let (mut at_once, mut buckets) = (limit.min(MOST_AT_ONCE), 0);
        for _ in 0..MOST_CALLS {
            let part = self.links.list_links(query(request, page.next, at_once)).await?;
            page.examined += part.examined;
            page.next = part.next;
            buckets += part.buckets;
            let now = self.clock.now();
            let mut links = part.links.into_iter();
            while let Some(link) = links.next() {
                let state = self.blocked_hosts.state_of(&link, now);
                if !request.filter.admits(&link, state) {
                    continue;
                }
                let place = request.index.place_of(&link);
                found.push((link, state));
                if found.len() == limit {
                    let has_more = links.len() > 0 || page.next.is_some();
                    page.next = Some(place).filter(|_| has_more);
                    break;
                }
            }
            let is_enough = page.examined >= MOST_EXAMINED || buckets >= MANY_BUCKETS;
            if found.len() == limit || page.next.is_none() || is_enough {
                break;
            }
            at_once = (at_once * 2).clamp(FEWEST_MORE, MOST_AT_ONCE).min(MOST_EXAMINED - page.examined);
        }
        page.links = self.with_hits(found, with_hits).await?;
        Ok(page)
    }

    async fn with_hits(&self, found: Vec<(Link, LinkState)>, is_asked: bool) -> Result<Vec<ListedLink>, StoreError> {
        let today = self.clock.now().day();
        let listed = found.into_iter().map(|(link, state)| async move {
            let hits = if is_asked && link.tracked {
                Some(analytics::hits_of_list(&self.counts.link_hits(link.id, None).await?, today))
            } else {
                None
            };
            Ok::<_, StoreError>(ListedLink { link, state, hits })
        });
        stream::iter(listed).buffered(COUNTS_AT_ONCE).try_collect().await
    }
}

fn query(request: &ListRequest, after: Option<ListPlace>, limit: usize) -> LinkListQuery {
    LinkListQuery {
        owner: request.owner,
        index: request.index.clone(),
        order: request.order,
        created_from: request.filter.created_from,
        created_until: request.filter.created_until,
        after,
        limit,
    }
}
