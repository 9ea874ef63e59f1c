//! How many files the process may have open: each connection is one. A store or journal that can't open a file stops.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// Files for all but connections of clients and of webhooks: those of the store, the journal and the log, and connections to a
/// cluster.
const FILES_BESIDE: u64 = 1_024;

/// Raises the process's limit of open files as far as it may. Returns the limit; `None` if there is none.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "can't raise the limit of open files");
            current
        }
    }
}

/// The most connections of each worker: as many as are configured, if all workers may have as many files open.
pub fn connections_of_worker(config: &Config, workers: usize, limit: Option<u64>) -> usize {
    let configured = config.http.max_connections;
    // A webhook under way and one that is idle have a connection each.
    let beside = FILES_BESIDE + 2 * config.webhooks.workers as u64;
    let possible = limit.map(|limit| possible_connections(limit, beside, workers));
    let max_connections = possible.map_or(configured, |possible| configured.min(possible));
    if max_connections < configured {
        let (limit, setting) = (limit.unwrap_or_default(), "http.max_connections");
        tracing::info!(
            limit,
            setting,
            max_connections,
            "the process may open too few files for all connections: each worker accepts fewer"
        );
    }
    max_connections
}

/// The connections of each worker under a limit of open files, without those that are needed `beside` them. Under a low limit, half of it
/// is for connections.
fn possible_connections(limit: u64, beside: u64, workers: usize) -> usize {
    let of_all = limit.saturating_sub(beside).max(limit / 2);
    (usize::try_from(of_all).unwrap_or(usize::MAX) / workers.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_all_else() {
        assert_eq!(possible_connections(1_048_576, 1_536, 16), 65_440);
        assert_eq!(possible_connections(4_096, 1_536, 2), 1_280);
        assert_eq!(possible_connections(1_024, 1_536, 2), 256);
        assert_eq!(possible_connections(3, 1_536, 8), 1);
    }
}
