//! Wrappers around the store, whichever store it is.

use std::sync::Arc;

use super::meters;
use crate::store::Store;
use crate::store::metered::MeteredStore;
use crate::store::reach::{GuardedStore, Reach};
use crate::telemetry::metrics::Metrics;

/// Wraps the store: calls are refused while a cluster is unreachable, and all calls are counted.
pub fn guarded_and_metered(store: Arc<dyn Store>, reach: Option<Arc<Reach>>, metrics: &Metrics) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = match &reach {
        Some(reach) => Arc::new(GuardedStore::new(store, Arc::clone(reach))),
        None => store,
    };
    meters::show_reach(metrics, reach);
    Arc::new(MeteredStore::new(store, metrics))
}
