//! Requests that are done once.

use crate::domain::idempotency::KeptAnswer;

/// What became of a request that is done once.
#[derive(Debug)]
pub enum Once<T> {
    /// It is done now.
    Done(T),
    /// It was done before.
    Answered(KeptAnswer),
    /// It is being done.
    UnderWay,
    /// Another request had its key.
    OtherRequest,
}
