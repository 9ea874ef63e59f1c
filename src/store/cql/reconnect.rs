//! Reconnects to a cluster that was unreachable.
//!
//! The driver waits up to ten seconds before it tries again to connect to a node that is gone, and longer before it
//! closes a connection that receives nothing any more. So while the cluster is unreachable, a new session is opened as
//! soon as one of its nodes accepts a connection, and replaces the old session once it gets an answer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use scylla::client::session::Session;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::cluster::Cluster;
use super::driver_counts::{counts_of, sum_of};
use super::session::{Cql, in_keyspace};
use crate::locks::lock;

/// The interval of attempts.
const TRY_EVERY: Duration = Duration::from_millis(500);
/// The time limit of a connection attempt.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

impl Cluster {
    /// Reconnects whenever the cluster is unreachable, for as long as the store is open.
    pub(super) async fn reconnect_loop(cluster: Weak<Self>) {
        loop {
            sleep(TRY_EVERY).await;
            let Some(cluster) = cluster.upgrade().filter(|cluster| cluster.check_open().is_ok()) else { return };
            if cluster.cql.reach.is_out() && cluster.cql.some_node_listens().await {
                cluster.reconnect().await;
            }
        }
    }

    async fn reconnect(&self) {
        let session = match in_keyspace(&self.cql.settings, &self.cql.timestamps).await {
            Ok(session) => session,
            Err(error) => return tracing::debug!(%error, "can't open a new session to the cluster"),
        };
        match session.execute_unpaged(&self.statements.ready, ("ready",)).await {
            Ok(_) => self.cql.take_session(session),
            Err(error) => tracing::debug!(%error, "a new session to the cluster got no answer"),
        }
    }
}

impl Cql {
    /// Whether any of the configured nodes accepts connections.
    async fn some_node_listens(&self) -> bool {
        let connect = |node: &String| timeout(CONNECTED_WITHIN, TcpStream::connect(node.clone()));
        let mut connecting: FuturesUnordered<_> = self.settings.nodes.iter().map(connect).collect();
        while let Some(connected) = connecting.next().await {
            if matches!(connected, Ok(Ok(_))) {
                return true;
            }
        }
        false
    }

    /// Uses a session that just got an answer. Requests that are under way in the old session end there.
    fn take_session(&self, session: Session) {
        if self.reach.is_out() {
            let before = self.session.swap(Arc::new(session));
            let mut counts = lock(&self.counts_before);
            *counts = sum_of(*counts, counts_of(&before));
            tracing::info!("reconnected to the cluster");
        }
        self.reach.answered();
    }
}
