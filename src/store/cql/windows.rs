//! The requests that each process has recently admitted for a key at a rate limit, so that limits hold over all nodes.
//!
//! A key is a partition, with a row for each process and rate limit. They are written and read with the store's
//! consistency and not with that of one replica. Reads and writes then share a replica, so a published window is seen
//! by the next read even if another replica is down or far behind. One replica would be enough in normal operation, but
//! after a failure it would admit more than the allowed two seconds' worth of requests.
//!
//! These rows do not use `own_rows.rs`: a row has a log that each publication replaces, not a total that batches of the
//! journal add to. So nothing is read before a write, and nothing is kept in memory.

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

/// Keys exchanged at once. Each key shard has an exchange of its own, besides all other requests to the cluster.
const KEYS_AT_ONCE: usize = 64;

/// Admitted requests, by process.
pub struct Windows {
    cluster: Arc<Cluster>,
    /// Later publications win over delayed earlier ones, even if the clock is set back.
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

    /// Publishes before it reads: of two processes that do so at once, one sees the other.
    async fn exchange_windows_of(&self, key: KeyId, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        // Only this process writes these rows, so only its own order matters.
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
            // Rate limits that only a later release has are skipped.
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

/// Sends the requests of some keys at a time and returns all answers together.
async fn all_keys<F>(questions: impl Iterator<Item = F>) -> Result<Vec<WindowLog>, StoreError>
where
    F: Future<Output = Result<Vec<WindowLog>, StoreError>>,
{
    let mut answers = stream::iter(questions).buffer_unordered(KEYS_AT_ONCE);
    let (mut others, mut failed) = (Vec::new(), None);
    // After a failure of one key, the windows of the others are published all the same.
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(logs) => others.extend(logs),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(others), Err)
}
