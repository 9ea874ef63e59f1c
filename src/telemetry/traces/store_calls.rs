//! What a request asks of the store, noted by the store while the request is at work.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// More calls of one request than this are not told.
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
    /// Notes the calls that `work` makes itself, not those of actors that it asks.
    pub fn during<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        AT_WORK.scope(self.clone(), work)
    }

    pub(super) fn take(&self) -> Vec<StoreCall> {
        self.0.take()
    }
}

/// Notes a call for the request that is at work in this task, if there is one that is traced.
pub fn note_store_call(operation: &'static str, outcome: &'static str, is_failure: bool, took: Duration) {
    let _ = AT_WORK.try_with(|calls| {
        let calls = &mut *calls.0.borrow_mut();
        if calls.len() < MOST {
            calls.push(StoreCall { operation, outcome, is_failure, ended: SystemTime::now(), took });
        }
    });
}
