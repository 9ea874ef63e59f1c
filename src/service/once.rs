//! Requests that are done once.

use crate::domain::idempotency::KeptAnswer;
use crate::store::once::{OnceState, OnceTicket};

/// The outcome of a request that is done once.
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

impl<T> Once<T> {
    /// The right to do a request; or else how it stands.
    pub(super) fn begun(state: OnceState) -> Result<OnceTicket, Self> {
        match state {
            OnceState::Begun(ticket) => Ok(ticket),
            OnceState::Answered(answer) => Err(Self::Answered(answer)),
            OnceState::UnderWay => Err(Self::UnderWay),
            OnceState::OtherRequest => Err(Self::OtherRequest),
        }
    }
}
