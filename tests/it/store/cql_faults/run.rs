//! A test is run with each fault at each request of a call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use scylla::client::session::Session;
use signpost::domain::key::KeyId;
use signpost::store::cql::ScyllaStore;
use signpost::store::cql::session::ScyllaSettings;
use signpost::store::{Store, StoreError};
use tokio::sync::Mutex;

use super::wire::{Fault, Met, Wire};
use crate::store::samples::{node, noon};
use crate::support::keyspaces::Keyspace;
use crate::support::{SOON, eventually};

/// How long the disturbed store waits for an answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// What is late comes after all that the store has tried in the meantime.
pub const LATE: Duration = Duration::from_millis(1_200);

/// One fault, at one request of a call.
pub struct Run {
    /// For rows of this run's own.
    pub n: u32,
    fault: Fault,
    /// Which request meets it, from 1 on.
    number: usize,
    wire: Mutex<Wire>,
    met: std::sync::Mutex<Option<Met>>,
    /// The store that the fault meets.
    pub store: Arc<dyn Store>,
    /// One that nothing meets.
    pub clean: Arc<dyn Store>,
    /// For what neither does.
    pub session: Arc<Session>,
}

impl Run {
    /// Makes the call that meets the fault.
    pub async fn disturbed<R>(&self, call: impl Future<Output = R>) -> R {
        let mut wire = self.wire.lock().await;
        wire.disturb(self.number, self.fault);
        let answer = call.await;
        let met = wire.mend().await;
        *self.met.lock().unwrap() = Some(met);
        answer
    }

    /// As [`Run::disturbed`], and then without a fault until it is answered, as the service goes on with what must be done.
    pub async fn disturbed_until_done<R>(&self, call: impl AsyncFn() -> Result<R, StoreError>) -> R {
        match self.answered(self.disturbed(call()).await) {
            Some(answer) => answer,
            None => self.done(call).await,
        }
    }

    /// Calls until there is an answer: after a fault, the driver may have to connect again.
    pub async fn done<R>(&self, call: impl AsyncFn() -> Result<R, StoreError>) -> R {
        eventually("an answer", SOON, async || self.answered(call().await)).await
    }

    /// Whatever the fault, an answer is right or there is none.
    #[track_caller]
    pub fn answered<R>(&self, answer: Result<R, StoreError>) -> Option<R> {
        match answer {
            Ok(answer) => Some(answer),
            Err(StoreError::Unavailable(_)) => None,
            Err(error) => panic!("{error}: {}", self.name()),
        }
    }

    pub fn name(&self) -> String {
        format!("{:?} at request {}", self.fault, self.number)
    }

    pub async fn links_created(&self, key: KeyId) -> u64 {
        self.clean.monthly_counts(key, noon().month()).await.unwrap().links_created
    }
}

/// Runs `test` with each fault at each request of what it disturbs.
pub async fn with_every_fault(test: impl AsyncFn(&Run)) {
    let keyspace = Keyspace::empty().await;
    let clean: Arc<dyn Store> = Arc::new(keyspace.open_store(node(1)).await);
    let session = Arc::new(keyspace.session().await);
    let node_address: SocketAddr = keyspace.contact_points[0].parse().unwrap();
    let next = AtomicU32::new(1);
    join_all(Fault::ALL.map(async |fault| {
        let wire = Wire::to(node_address, LATE).await;
        let settings = ScyllaSettings {
            request_timeout: PATIENCE,
            ..ScyllaSettings::new(vec![wire.address.to_string()], keyspace.name.clone())
        };
        // Its patience may be too short for the first connection.
        let open = async || Box::pin(ScyllaStore::open(&settings, node(2 + fault as u32))).await.ok();
        let store: Arc<dyn Store> = Arc::new(eventually("a store", SOON, open).await);
        let mut wire = Mutex::new(wire);
        let (mut number, mut not_answered) = (1, 0);
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (store, clean, session) = (Arc::clone(&store), Arc::clone(&clean), Arc::clone(&session));
            let run = Run { n, fault, number, wire, met: std::sync::Mutex::default(), store, clean, session };
            // Such a future is too big for a test's stack.
            Box::pin(test(&run)).await;
            let met = run.met.lock().unwrap().expect("something is disturbed");
            match met {
                Met::Yes => number += 1,
                // Once more: the cluster was slow by itself.
                Met::NotAnswered => {
                    not_answered += 1;
                    assert!(not_answered < 100, "nobody waits for the answer of request {number}: {fault:?}");
                }
                Met::No => {
                    assert!(number > 1, "it asks the cluster nothing: {fault:?}");
                    break;
                }
            }
            wire = run.wire;
        }
        store.close().await;
    }))
    .await;
    clean.close().await;
}
