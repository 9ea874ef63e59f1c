//! The requests of a connection that are with their handlers, and what their answers know of the client.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// How many requests of a connection are with their handlers: while there are any, the time is theirs, not the client's.
#[derive(Clone, Debug, Default)]
pub struct Handlers(Rc<HandlerCounts>);

#[derive(Debug, Default)]
struct HandlerCounts {
    at_work: Cell<usize>,
    /// Those that ever came, as a number that wraps around.
    begun: Cell<u64>,
    /// Whether the client has closed the connection, or its half of it.
    is_left: Cell<bool>,
    /// The answer that waits for that.
    waiting: RefCell<Option<Waker>>,
    /// Whether an answer is sent that may go on for long.
    is_long: Cell<bool>,
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

    /// The client sends no more.
    pub fn client_left(&self) {
        self.0.is_left.set(true);
        if let Some(waiting) = self.0.waiting.take() {
            waiting.wake();
        }
    }

    /// Waits until the client sends no more. Of answers that are sent at once, the last one that asked is told.
    pub async fn until_client_leaves(&self) {
        poll_fn(|context| {
            if self.0.is_left.get() {
                return Poll::Ready(());
            }
            self.0.waiting.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// An answer of this connection goes on for long: a client that is gone without closing the connection is to be noticed.
    pub fn begin_long_answer(&self) {
        self.0.is_long.set(true);
    }

    /// Whether a long answer has begun since this was asked last.
    pub fn takes_long_answer(&self) -> bool {
        self.0.is_long.take()
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
