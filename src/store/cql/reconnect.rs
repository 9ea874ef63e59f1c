//! Connecting anew to a cluster that was out of reach.
//!
//! The driver waits ever longer until it tries again to connect to a node that is gone, up to ten seconds, and longer still
//! until it gives up a connection on which nothing comes any more. So a session of its own is tried while the cluster is out
//! of reach, as soon as one of its nodes can be connected to, and takes the place of the other once it is answered.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use scylla::client::session::Session;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::cluster::Cluster;
use super::driver_counts::{counts_of, sum_of};
use super::session::{Cql, in_keyspace};

/// How long to wait between two tries.
const TRY_EVERY: Duration = Duration::from_millis(500);
/// How long a node may take to let itself be connected to.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

impl Cluster {
    /// Connects anew whenever the cluster is out of reach, for as long as the store is open.
    pub(super) async fn keep_in_reach(cluster: Weak<Self>) {
        loop {
            sleep(TRY_EVERY).await;
            let Some(cluster) = cluster.upgrade().filter(|cluster| cluster.check_open().is_ok()) else { return };
            if cluster.cql.reach.is_out() && cluster.cql.some_node_listens().await {
                cluster.connect_anew().await;
            }
        }
    }

    async fn connect_anew(&self) {
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
    /// Whether any of the nodes to begin with can be connected to.
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

    /// Sends everything through a session that was just answered. What is under way in the other one ends there.
    fn take_session(&self, session: Session) {
        if self.reach.is_out() {
            let before = self.session.swap(Arc::new(session));
            let mut counts = self.counts_before.lock().unwrap_or_else(PoisonError::into_inner);
            *counts = sum_of(*counts, counts_of(&before));
            tracing::info!("reconnected to the cluster");
        }
        self.reach.answered();
    }
}
