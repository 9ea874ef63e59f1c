//! What the driver has counted.

use scylla::client::session::Session;

use crate::store::DriverCounts;

/// The counts of a session.
pub fn counts_of(session: &Session) -> DriverCounts {
    let counted = session.get_metrics();
    DriverCounts {
        queries: counted.get_requests_unpaged_num() + counted.get_requests_automatically_paged_num(),
        errors: counted.get_errors_unpaged_num() + counted.get_errors_automatically_paged_num(),
        retries: counted.get_retries_num(),
        request_timeouts: counted.get_request_timeouts(),
        connection_timeouts: counted.get_connection_timeouts(),
        connections: counted.get_total_connections(),
    }
}

/// The counts of consecutive sessions; the connections are those of the last.
pub fn sum_of(before: DriverCounts, now: DriverCounts) -> DriverCounts {
    DriverCounts {
        queries: before.queries + now.queries,
        errors: before.errors + now.errors,
        retries: before.retries + now.retries,
        request_timeouts: before.request_timeouts + now.request_timeouts,
        connection_timeouts: before.connection_timeouts + now.connection_timeouts,
        connections: now.connections,
    }
}
