//! The requests of a connection that are with their handlers.

use std::cell::Cell;
use std::rc::Rc;

/// How many requests of a connection are with their handlers: while there are any, the time is theirs, not the client's.
#[derive(Clone, Debug, Default)]
pub struct Handlers(Rc<HandlerCounts>);

#[derive(Debug, Default)]
struct HandlerCounts {
    at_work: Cell<usize>,
    /// Those that ever came, around and around.
    begun: Cell<u64>,
}

impl Handlers {
    /// Counts one until the guard is dropped.
    pub fn enter(&self) -> HandlerGuard {
        self.0.at_work.set(self.0.at_work.get() + 1);
        self.0.begun.set(self.0.begun.get().wrapping_add(1));
        HandlerGuard(self.clone())
    }

    pub fn are_at_work(&self) -> bool {
        self.0.at_work.get() > 0
    }

    /// Whether all of so many requests came, and are with no handler any more.
    pub fn are_done_with(&self, requests: u64) -> bool {
        self.0.begun.get() == requests && !self.are_at_work()
    }
}

/// A request that is with its handler.
#[must_use]
pub struct HandlerGuard(Handlers);

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        let count = &self.0.0.at_work;
        count.set(count.get().saturating_sub(1));
    }
}
