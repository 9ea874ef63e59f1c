//! Whether this process serves: not while it starts, and not while it drains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by whoever sets it and whoever tells of it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub fn is_serving(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set_serving(&self, serving: bool) {
        self.0.store(serving, Ordering::Relaxed);
    }
}
