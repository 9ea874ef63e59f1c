//! One load at a time for each name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::quality::RandomState;
use tokio::sync::OnceCell;

use super::changes::{Changes, LookUpStamp};
use super::clock::CacheClock;
use super::link::Entry;
use crate::domain::link::LinkName;
use crate::locks::lock;
use crate::store::StoreError;

pub type Loaded = Result<Entry, Arc<StoreError>>;

/// A load, which callers share.
pub struct Load {
    pub result: OnceCell<Loaded>,
    /// When it began, for changes.
    pub stamp: LookUpStamp,
    /// When it began, by the clock of the caches: what it finds was so in the store then, or later.
    pub began: u64,
}

/// Loads in progress. The lock is held for operations on the map only, never across a load.
#[derive(Default)]
pub struct Loads(Mutex<LoadMap>);

/// With each load, how many callers hold it.
type LoadMap = HashMap<LinkName, (Arc<Load>, usize), RandomState>;

impl Loads {
    /// The load of this name in progress, unless the link has changed since it began; else a new one.
    pub fn join(&self, name: LinkName, changes: &Changes, clock: &CacheClock) -> SharedLoad<'_> {
        let mut map = self.map();
        let current = map.get_mut(&name).filter(|(load, _)| changes.is_current(load.stamp));
        let load = if let Some((load, holders)) = current {
            *holders += 1;
            Arc::clone(load)
        } else {
            let load = Load { result: OnceCell::new(), stamp: changes.stamp(&name), began: clock.now() };
            let load = Arc::new(load);
            map.insert(name, (Arc::clone(&load), 1));
            load
        };
        SharedLoad { loads: self, name, load }
    }

    fn map(&self) -> MutexGuard<'_, LoadMap> {
        // No code panics while it holds this lock.
        lock(&self.0)
    }
}

/// A load in progress. The drop of the last one removes it from the map, so that later callers find the entry or ask
/// again.
pub struct SharedLoad<'a> {
    loads: &'a Loads,
    name: LinkName,
    pub load: Arc<Load>,
}

impl SharedLoad<'_> {
    /// Lets nobody else join this load.
    pub fn discard(&self) {
        let mut map = self.loads.map();
        if map.get(&self.name).is_some_and(|(current, _)| Arc::ptr_eq(current, &self.load)) {
            map.remove(&self.name);
        }
    }
}

impl Drop for SharedLoad<'_> {
    fn drop(&mut self) {
        let mut map = self.loads.map();
        let Some((current, holders)) = map.get_mut(&self.name) else { return };
        if Arc::ptr_eq(current, &self.load) {
            *holders -= 1;
            if *holders == 0 {
                map.remove(&self.name);
            }
        }
    }
}
