//! Values by key, of which there is one for all users of the key.

use crate::locks::lock;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Values by key. Two users of a key at the same time share its value. Once there are more than `MAX_IDLE` values,
/// those without a user are dropped.
pub struct InUse<K, V, const MAX_IDLE: usize> {
    values: Mutex<HashMap<K, Arc<V>>>,
    has_dropped: AtomicBool,
}

impl<K, V, const MAX_IDLE: usize> Default for InUse<K, V, MAX_IDLE> {
    fn default() -> Self {
        Self { values: Mutex::default(), has_dropped: AtomicBool::new(false) }
    }
}

impl<K: Copy + Eq + Hash, V, const MAX_IDLE: usize> InUse<K, V, MAX_IDLE> {
    /// The value of a key. `new` creates it; it is passed whether the key may have had another value before.
    pub fn of(&self, key: K, new: impl FnOnce(bool) -> V) -> Arc<V> {
        // `new` must not panic while this lock is held; nothing else here does.
        let mut values = lock(&self.values);
        if values.len() > MAX_IDLE {
            values.retain(|_, value| Arc::strong_count(value) > 1);
            self.has_dropped.store(true, Ordering::Relaxed);
        }
        let new = || Arc::new(new(self.has_dropped.load(Ordering::Relaxed)));
        Arc::clone(values.entry(key).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_use_is_shared_and_idle_ones_are_dropped() {
        let values = InUse::<u8, bool, 2>::default();
        let first = values.of(0, |may_have_had_one| may_have_had_one);
        (1..3).for_each(|key| assert!(!*values.of(key, |may_have_had_one| may_have_had_one)));
        // Drops all but the first.
        assert!(*values.of(3, |may_have_had_one| may_have_had_one));
        assert!(Arc::ptr_eq(&first, &values.of(0, |_| unreachable!())));
        assert!(*values.of(1, |may_have_had_one| may_have_had_one));
    }
}
