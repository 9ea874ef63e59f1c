//! Changes of one record at a time in this process: conflicts are then with other nodes alone, and rare.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use foldhash::quality::RandomState;
use tokio::sync::{Mutex, MutexGuard};

use crate::store::StoreError;

/// Records are divided into this many groups. Changes of one group wait for each other.
const GROUPS: usize = 1_024;
/// The longest wait: as long as the store may take for a change.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct StripedLocks {
    hasher: RandomState,
    groups: Box<[Mutex<()>]>,
}

impl Default for StripedLocks {
    fn default() -> Self {
        Self { hasher: RandomState::default(), groups: (0..GROUPS).map(|_| Mutex::default()).collect() }
    }
}

impl StripedLocks {
    /// Waits until no other change of this record is under way.
    ///
    /// # Errors
    /// When the changes before take too long.
    pub async fn lock(&self, record: impl Hash) -> Result<MutexGuard<'_, ()>, StoreError> {
        // A remainder of GROUPS.
        let group = usize::try_from(self.hasher.hash_one(record) % GROUPS as u64).unwrap_or(0);
        let late = |_| StoreError::Unavailable("other changes of the same record take too long".into());
        tokio::time::timeout(PATIENCE, self.groups[group].lock()).await.map_err(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_of_a_record_wait_for_each_other_and_not_for_ever() {
        let locks = StripedLocks::default();
        let first = locks.lock("record").await.unwrap();
        assert!(matches!(locks.lock("record").await, Err(StoreError::Unavailable(_))));
        drop(first);
        assert!(locks.lock("record").await.is_ok());
    }
}
