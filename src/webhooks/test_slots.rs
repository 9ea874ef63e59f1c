//! How many webhooks are tested at once. Tests have no place in the in-flight table, so they have bounds of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Semaphore;

use super::flow::Host;
use crate::domain::key::KeyId;
use crate::domain::link::MAX_WEBHOOKS;
use crate::locks::lock;

/// The largest number of tested webhooks at once.
const MOST: usize = 256;
/// Of these, of one key: three links with as many webhooks as a link can have.
const MOST_OF_KEY: usize = 32;
/// Tests in flight to one host and port, beside the deliveries to it: those of a link can all be at one host. Further ones wait.
const MOST_TO_HOST: usize = MAX_WEBHOOKS;

#[derive(Default)]
struct Taken {
    all: usize,
    of_keys: HashMap<KeyId, usize>,
    hosts: HashMap<Host, Arc<Semaphore>>,
}

/// The slots of tests.
#[derive(Default)]
pub struct TestSlots(Mutex<Taken>);

impl TestSlots {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        lock(&self.0)
    }

    /// Slots for so many tests of a key's webhooks; `None` if there are not as many.
    pub fn take(self: &Arc<Self>, owner: KeyId, count: usize) -> Option<TakenSlots> {
        let mut taken = self.taken();
        let of_key = taken.of_keys.get(&owner).copied().unwrap_or_default();
        if taken.all + count > MOST || of_key + count > MOST_OF_KEY {
            return None;
        }
        taken.all += count;
        taken.of_keys.insert(owner, of_key + count);
        Some(TakenSlots { slots: Arc::clone(self), owner, count })
    }
}

/// Slots of a key. They are free again when this is dropped.
pub struct TakenSlots {
    slots: Arc<TestSlots>,
    owner: KeyId,
    count: usize,
}

impl TakenSlots {
    /// The slots of all tests in flight to a host.
    pub fn of_host(&self, host: &Host) -> Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(MOST_TO_HOST));
        Arc::clone(self.slots.taken().hosts.entry(Arc::clone(host)).or_insert_with(new))
    }
}

impl Drop for TakenSlots {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        taken.all -= self.count;
        if let Some(of_key) = taken.of_keys.get_mut(&self.owner) {
            *of_key -= self.count;
        }
        taken.of_keys.retain(|_, count| *count > 0);
        taken.hosts.retain(|_, slots| Arc::strong_count(slots) > 1);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(n: u128) -> KeyId {
        KeyId(Uuid::from_u128(n))
    }

    #[test]
    fn a_key_can_take_only_a_part_of_all_slots() {
        let slots = Arc::<TestSlots>::default();
        let mut taken: Vec<_> = (0..3).map(|_| slots.take(key(1), 10).unwrap()).collect();
        assert!(slots.take(key(1), 10).is_none());
        taken.push(slots.take(key(1), 2).unwrap());
        assert!(slots.take(key(1), 1).is_none());
        let others: Vec<_> = (2..9).map(|n| slots.take(key(n), MOST_OF_KEY).unwrap()).collect();
        assert!(slots.take(key(9), 1).is_none(), "all are taken");
        taken.pop();
        assert!(slots.take(key(9), 3).is_none());
        let one = slots.take(key(9), 2).unwrap();
        drop((taken, others, one));
        let left = slots.taken();
        assert_eq!((left.all, left.of_keys.len(), left.hosts.len()), (0, 0, 0));
    }

    #[test]
    fn a_host_has_the_same_slots_for_all_keys_while_it_is_tested() {
        let slots = Arc::<TestSlots>::default();
        let [first, second] = [1, 2].map(|n| slots.take(key(n), 1).unwrap());
        let host: Host = "hooks.example:443".into();
        let in_flight = first.of_host(&host).try_acquire_many_owned(10).unwrap();
        assert!(second.of_host(&host).try_acquire_owned().is_err());
        assert!(second.of_host(&"other.example:443".into()).try_acquire_owned().is_ok());
        drop(first);
        assert!(second.of_host(&host).try_acquire_owned().is_err());
        drop((in_flight, second));
        assert_eq!(slots.taken().hosts.len(), 0);
    }
}
