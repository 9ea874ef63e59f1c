//! What each process has let in of a key at a rate limit of late, so that limits hold for all nodes together.
//!
//! A key is a partition, with a row for each process and rate limit. They are written and read with the store's consistency,
//! not with that of one replica: where reads and writes meet in a replica, what was published is seen by the next that
//! looks, though another replica is gone or far behind. One replica would do on a good day, and let in more than the two
//! seconds' worth that is allowed on a bad one.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use scylla::policies::timestamp_generator::{MonotonicTimestampGenerator, TimestampGenerator};
use uuid::Uuid;

use super::cluster::Cluster;
use crate::domain::key::KeyId;
use crate::domain::rate_limit::RateLimitId;
use crate::domain::window::{WindowId, WindowLog};
use crate::store::StoreError;
use crate::store::records::columns::{self, times, times_from};

/// Keys exchanged at once. Each shard of keys has an exchange of its own, beside all else that is asked of the cluster.
const KEYS_AT_ONCE: usize = 64;

/// What was let in, by process.
pub struct Windows {
    cluster: Arc<Cluster>,
    /// Later publications win over earlier ones that are late, whatever becomes of the clock.
    timestamps: MonotonicTimestampGenerator,
}

impl Windows {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), timestamps: MonotonicTimestampGenerator::new() }
    }

    pub(super) async fn exchange_windows(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        let mut by_key: HashMap<KeyId, Vec<WindowLog>> = HashMap::new();
        for log in own {
            by_key.entry(log.key).or_default().push(log);
        }
        all_keys(by_key.into_iter().map(|(key, logs)| self.exchange_windows_of(key, logs))).await
    }

    pub(super) async fn read_windows(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        let mut by_key: HashMap<KeyId, Vec<RateLimitId>> = HashMap::new();
        for (key, rate_limit) in windows {
            by_key.entry(key).or_default().push(rate_limit);
        }
        all_keys(by_key.into_iter().map(|(key, rate_limits)| self.read_windows_of(key, rate_limits))).await
    }

    /// Published first and looked up then: of two that do so at once, one sees the other.
    async fn exchange_windows_of(&self, key: KeyId, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        // Only this process writes these rows, so its own order is all there is to keep.
        let row = |log: &WindowLog| {
            let at = self.timestamps.next_timestamp();
            (key.0, self.cluster.process, columns::rate_limit(log.rate_limit), times(&log.admitted_ms), at)
        };
        let rows = own.iter().map(row).collect();
        self.cluster.cql.write_partition(&self.cluster.statements.put_window, rows).await?;
        self.read_windows_of(key, own.into_iter().map(|log| log.rate_limit).collect()).await
    }

    async fn read_windows_of(&self, key: KeyId, asked: Vec<RateLimitId>) -> Result<Vec<WindowLog>, StoreError> {
        let rows =
            self.cluster.cql.read::<(Uuid, i8, Option<Vec<u8>>)>(&self.cluster.statements.windows, (key.0,)).await?;
        let mut others = Vec::new();
        for (process, number, admitted) in rows {
            // A limit that only a later release has is none that was asked for.
            let asked = asked.iter().copied().find(|asked| columns::rate_limit(*asked) == number);
            if let Some(rate_limit) = asked.filter(|_| process != self.cluster.process) {
                others.push(WindowLog {
                    key,
                    rate_limit,
                    admitted_ms: times_from("windows", &admitted.unwrap_or_default())?,
                });
            }
        }
        Ok(others)
    }
}

/// Some keys' questions at a time, and all answers together.
async fn all_keys<F>(questions: impl Iterator<Item = F>) -> Result<Vec<WindowLog>, StoreError>
where
    F: Future<Output = Result<Vec<WindowLog>, StoreError>>,
{
    let mut answers = stream::iter(questions).buffer_unordered(KEYS_AT_ONCE);
    let (mut others, mut failed) = (Vec::new(), None);
    // After a failure, too: the other keys' windows are to be seen all the same.
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(logs) => others.extend(logs),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(others), Err)
}
