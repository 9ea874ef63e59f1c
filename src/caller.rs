//! Whether the caller of some work still waits for it. Work that goes on without its caller asks before steps that only the caller needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held by the future that waits. When it is dropped, its caller waits no longer.
#[derive(Debug)]
pub struct CallerGuard(CallerState);

/// Tells the work whether its caller still waits.
#[derive(Clone, Debug)]
pub struct CallerState(Arc<AtomicBool>);

impl CallerGuard {
    pub fn new() -> (Self, CallerState) {
        let state = CallerState(Arc::new(AtomicBool::new(true)));
        (Self(state.clone()), state)
    }
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl CallerState {
    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
