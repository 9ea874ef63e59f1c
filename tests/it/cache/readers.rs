//! Workers that read one link while it is changed again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use async_trait::async_trait;
use signpost::cache::links::{LinkCache, LinkCacheSettings};
use signpost::cache::worker_cache::WorkerCache;
use signpost::domain::blocked_hosts::BlockedHosts;
use signpost::domain::calendar::Timestamp;
use signpost::domain::link::{Destination, Link, LinkName, Revision, ShortId};
use signpost::domain::quota::MonthlyLimit;
use signpost::store::{
    CreateLinkError, ExpiredLink, LinkChange, LinkListPage, LinkListQuery, LinkStore, MadeLinks, NewLinks, StoreError,
    UpdateLinkError,
};

use super::{link, settings};

/// A store of one link whose revision is a number in memory, so that changes are as fast as look-ups.
struct OneLink {
    revision: AtomicU32,
    /// Whether it tells what it has in memory.
    tells: bool,
}

impl OneLink {
    fn now(&self) -> Link {
        Link { revision: Revision(self.revision.load(Ordering::SeqCst)), ..link() }
    }
}

#[async_trait]
impl LinkStore for OneLink {
    async fn link(&self, _: LinkName) -> Result<Option<Link>, StoreError> {
        let link = self.now();
        // A change may come between the look-up and its answer.
        tokio::task::yield_now().await;
        thread::yield_now();
        Ok(Some(link))
    }

    fn peek(&self, _: &LinkName) -> Option<Destination> {
        let link = self.tells.then(|| self.now())?;
        thread::yield_now();
        Some(Destination::from(&link))
    }

    async fn update_link(&self, link: Link) -> Result<(), UpdateLinkError> {
        self.revision.store(link.revision.0, Ordering::SeqCst);
        Ok(())
    }

    async fn create_link(&self, _: Link, _: MonthlyLimit) -> Result<u64, CreateLinkError> {
        Err(CreateLinkError::NameTaken)
    }

    async fn create_links(&self, new: NewLinks, _: MonthlyLimit) -> Result<MadeLinks, StoreError> {
        Ok(MadeLinks::refused(new.links.len(), 0, 0))
    }

    async fn link_by_id(&self, _: ShortId) -> Result<Option<Link>, StoreError> {
        Ok(None)
    }

    async fn link_at(&self, _: ShortId, _: Revision) -> Result<Option<Link>, StoreError> {
        Ok(None)
    }

    async fn delete_link(&self, _: Link) -> Result<(), UpdateLinkError> {
        Err(UpdateLinkError::Conflict)
    }

    async fn forget_expiry(&self, _: ExpiredLink) -> Result<(), StoreError> {
        Ok(())
    }

    async fn remove_counts_of_deleted(&self, _: Timestamp) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn expired_links(
        &self,
        _: Timestamp,
        _: Option<ExpiredLink>,
        _: usize,
    ) -> Result<Vec<ExpiredLink>, StoreError> {
        Ok(Vec::new())
    }

    async fn list_links(&self, _: LinkListQuery) -> Result<LinkListPage, StoreError> {
        Ok(LinkListPage::default())
    }
}

/// One worker: its look-ups are those of the fast path.
struct Reader {
    cache: Arc<LinkCache>,
    near: WorkerCache,
    runtime: tokio::runtime::Runtime,
}

impl Reader {
    fn new(cache: &Arc<LinkCache>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { cache: Arc::clone(cache), near: WorkerCache::new(cache), runtime }
    }

    fn read(&mut self, name: &LinkName) -> u32 {
        if let Some(link) = self.near.get(name) {
            return link.revision;
        }
        let known = self.cache.get(name).flatten().or_else(|| self.cache.take_known(name));
        if let Some(link) = known {
            self.near.put(&link);
            return link.revision;
        }
        self.runtime.block_on(self.cache.load(name)).unwrap().unwrap().revision
    }
}

/// While one thread changes the link, others read it: none gets a revision that is older than one that was answered before
/// it asked, be it by the change or by another reader.
fn check(tells: bool) {
    let store = Arc::new(OneLink { revision: AtomicU32::new(1), tells });
    let cache = Arc::new(LinkCache::new(Arc::clone(&store) as _, BlockedHosts::default(), settings()));
    let (answered, is_over) = (AtomicU32::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut reader = Reader::new(&cache);
                while !is_over.load(Ordering::SeqCst) {
                    let before = answered.load(Ordering::SeqCst);
                    let revision = reader.read(&link().name());
                    assert!(revision >= before, "{revision} after {before}");
                    answered.fetch_max(revision, Ordering::SeqCst);
                }
            });
        }
        for revision in 2..=5_000 {
            let changing = cache.begin_change(link().name());
            thread::yield_now();
            store.revision.store(revision, Ordering::SeqCst);
            thread::yield_now();
            changing.done();
            answered.fetch_max(revision, Ordering::SeqCst);
            if revision % 16 == 0 {
                // Readers keep it meanwhile.
                thread::sleep(std::time::Duration::from_micros(100));
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(Reader::new(&cache).read(&link().name()), 5_000);
}

#[test]
fn no_reader_gets_an_old_revision_of_a_link_that_the_store_has_in_memory() {
    check(true);
}

#[test]
fn no_reader_gets_an_old_revision_of_a_link_that_has_to_be_loaded() {
    check(false);
}

/// This node has answered a change before it is told of it; then it reads a replica that is behind.
#[tokio::test]
async fn a_link_does_not_go_back_to_before_what_was_answered_when_its_change_is_told() {
    let store = Arc::new(OneLink { revision: AtomicU32::new(2), tells: false });
    let settings = LinkCacheSettings { is_shared: true, ..settings() };
    let cache = Arc::new(LinkCache::new(Arc::clone(&store) as _, BlockedHosts::default(), settings));
    let name = link().name();
    assert_eq!(cache.load(&name).await.unwrap().unwrap().revision, 2);
    cache.note_change(LinkChange::Link { name, id: link().id });
    store.revision.store(1, Ordering::SeqCst);
    assert!(cache.load(&name).await.is_err());
    assert!(cache.get(&name).is_none());
    store.revision.store(2, Ordering::SeqCst);
    assert_eq!(cache.load(&name).await.unwrap().unwrap().revision, 2);
}
