//! Maps and sets of deliveries, keys and receivers. The hashes have a random key, and clients can't measure look-ups, so that
//! nobody can choose hosts that share a slot.

use foldhash::quality::RandomState;

pub type Map<K, V> = std::collections::HashMap<K, V, RandomState>;
pub type Set<T> = std::collections::HashSet<T, RandomState>;
