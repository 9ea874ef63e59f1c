//! Whether this process serves requests. It does not while it starts or drains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that all clones share.
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
