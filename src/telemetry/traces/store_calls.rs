//! The calls of the store during a request. The store notes them while the request is processed.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// The maximum number of calls that are noted for a request.
const MOST: usize = 64;

tokio::task_local! {
    static AT_WORK: StoreCalls;
}

/// A call that has ended.
pub(super) struct StoreCall {
    pub operation: &'static str,
    pub outcome: &'static str,
    pub is_failure: bool,
    pub ended: SystemTime,
    pub took: Duration,
}

/// The calls of one request.
#[derive(Clone, Default)]
pub struct StoreCalls(Rc<RefCell<Vec<StoreCall>>>);

impl StoreCalls {
    /// Notes the calls that `work` makes itself, but not those of actors to which it sends messages.
    pub fn during<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        AT_WORK.scope(self.clone(), work)
    }

    pub(super) fn take(&self) -> Vec<StoreCall> {
        self.0.take()
    }
}

/// Notes a call for the traced request of this task, if there is one.
pub fn note_store_call(operation: &'static str, outcome: &'static str, is_failure: bool, took: Duration) {
    let _ = AT_WORK.try_with(|calls| {
        let calls = &mut *calls.0.borrow_mut();
        if calls.len() < MOST {
            calls.push(StoreCall { operation, outcome, is_failure, ended: SystemTime::now(), took });
        }
    });
}
