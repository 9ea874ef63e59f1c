//! Exports under way on this node: a few of each key, and not many in all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::domain::key::{ApiKey, KeyId};
use crate::locks::lock;

/// Exports of one key at once, unless it is the root key.
const OF_A_KEY: usize = 4;
/// Exports of all keys at once.
const OF_ALL: usize = 32;

/// The exports under way, by key. All clones share them.
#[derive(Clone, Debug, Default)]
pub struct ExportSlots(Arc<Mutex<HashMap<KeyId, usize>>>);

/// An export under way. It ends when this is dropped.
#[derive(Debug)]
pub struct ExportSlot {
    key: KeyId,
    slots: ExportSlots,
}

impl ExportSlots {
    /// Begins an export of a key; `None` if too many are under way.
    pub fn enter(&self, key: &ApiKey) -> Option<ExportSlot> {
        let most = if key.is_root { OF_ALL } else { OF_A_KEY };
        self.enter_up_to(most, key.id)
    }

    fn enter_up_to(&self, most: usize, key: KeyId) -> Option<ExportSlot> {
        let mut under_way = self.under_way();
        let of_key = under_way.get(&key).copied().unwrap_or(0);
        if of_key >= most || under_way.values().sum::<usize>() >= OF_ALL {
            return None;
        }
        under_way.insert(key, of_key + 1);
        Some(ExportSlot { key, slots: self.clone() })
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<KeyId, usize>> {
        lock(&self.0)
    }
}

impl Drop for ExportSlot {
    fn drop(&mut self) {
        let mut under_way = self.slots.under_way();
        if let Some(count) = under_way.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_few_exports_of_each_key_and_not_many_in_all_are_under_way_at_once() {
        let slots = ExportSlots::default();
        let enter = |n| slots.enter_up_to(OF_A_KEY, KeyId(Uuid::from_u128(n)));
        let mut first: Vec<_> = (0..OF_A_KEY).map(|_| enter(0).unwrap()).collect();
        assert!(enter(0).is_none());
        first.pop();
        first.push(enter(0).unwrap());
        let others: Vec<_> = (1..=99).map_while(&enter).collect();
        assert_eq!(first.len() + others.len(), OF_ALL);
        drop(first);
        assert!(enter(99).is_some());
        drop(others);
        assert!(slots.under_way().is_empty());
    }
}
