//! One load at a time for each name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use tokio::sync::OnceCell;

use super::link::Entry;
use crate::domain::link::LinkName;
use crate::store::StoreError;

pub type Loaded = Result<Entry, Arc<StoreError>>;

/// A load, which callers share.
#[derive(Default)]
pub struct Load {
    pub result: OnceCell<Loaded>,
    /// Whether the link has changed since the load began.
    is_outdated: AtomicBool,
}

impl Load {
    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::SeqCst)
    }
}

/// Loads in progress. The lock is held for operations on the map only, never across a load.
#[derive(Default)]
pub struct Loads(Mutex<LoadMap>);

/// With each load, how many callers hold it.
type LoadMap = HashMap<LinkName, (Arc<Load>, usize), RandomState>;

impl Loads {
    /// The load of this name in progress, or a new one.
    pub fn join(&self, name: LinkName) -> SharedLoad<'_> {
        let mut map = self.map();
        let (load, holders) = map.entry(name).or_default();
        *holders += 1;
        SharedLoad { loads: self, name, load: Arc::clone(load) }
    }

    /// A load of this name that is in progress is out of date: whoever waits for it loads again.
    pub fn outdate(&self, name: &LinkName) {
        if let Some((load, _)) = self.map().remove(name) {
            load.is_outdated.store(true, Ordering::SeqCst);
        }
    }

    pub fn outdate_all(&self) {
        for (_, (load, _)) in self.map().drain() {
            load.is_outdated.store(true, Ordering::SeqCst);
        }
    }

    fn map(&self) -> MutexGuard<'_, LoadMap> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A load in progress. The drop of the last one removes it from the map, so that later callers find the entry or ask
/// again. Until then a change finds it there: any of the callers may be about to insert its result into the cache.
pub struct SharedLoad<'a> {
    loads: &'a Loads,
    name: LinkName,
    pub load: Arc<Load>,
}

impl Drop for SharedLoad<'_> {
    fn drop(&mut self) {
        let mut loads = self.loads.map();
        let Some((current, holders)) = loads.get_mut(&self.name) else { return };
        if Arc::ptr_eq(current, &self.load) {
            *holders -= 1;
            if *holders == 0 {
                loads.remove(&self.name);
            }
        }
    }
}
