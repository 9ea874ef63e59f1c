//! Whether the caller of some work still waits for it. Work that goes on without its caller asks before steps that only the caller needs.
//!
//! The embedded store asks before it begins a write of [`writes_while_waiting`](CallerState::writes_while_waiting): a request that was
//! answered 503 before its write began has changed nothing.

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

tokio::task_local! {
    /// The caller without whom the writes of the current task do not begin.
    static CALLER: CallerState;
}

impl CallerState {
    /// The result of `call`, whose writes are not begun once the caller waits no longer. Within such a call the outer caller counts.
    pub fn writes_while_waiting<F: Future>(&self, call: F) -> impl Future<Output = F::Output> {
        CALLER.scope(Self::of_this_call().unwrap_or_else(|| self.clone()), call)
    }

    /// The caller without whom a write of this call does not begin; `None`: it begins anyway.
    pub fn of_this_call() -> Option<Self> {
        CALLER.try_with(Self::clone).ok()
    }

    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
