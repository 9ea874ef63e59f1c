//! What a failed request has done, derived from the driver's error.

use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use thiserror::Error;

use crate::store::StoreError;

/// Why a request to the cluster did not succeed, by what it has done there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CqlError {
    /// Nothing was changed, and nothing will be.
    #[error("{0}")]
    NotApplied(String),
    /// It may have been applied, or may still be: settled by reading, never guessed.
    #[error("{0}")]
    Unknown(String),
    /// The cluster does not understand such a request, or its answer is unreadable: a retry does not help.
    #[error("{0}")]
    Unusable(String),
    /// The cluster does not let this program do it. That says nothing of the rows, and lasts until an operator changes it.
    #[error("{0}")]
    Refused(String),
}

impl From<CqlError> for StoreError {
    fn from(error: CqlError) -> Self {
        match error {
            CqlError::NotApplied(reason) | CqlError::Unknown(reason) | CqlError::Refused(reason) => {
                Self::Unavailable(reason)
            }
            CqlError::Unusable(reason) => Self::Corrupt { table: "cluster", reason },
        }
    }
}

impl CqlError {
    /// The outcome of a request that ended with this error; `is_lwt`: a conditional write.
    pub fn of(error: &ExecutionError, is_lwt: bool) -> Self {
        let reason = error.to_string();
        match error {
            ExecutionError::BadQuery(_) => Self::Unusable(reason),
            ExecutionError::LastAttemptError(attempt) => attempt_result(attempt, is_lwt).error(reason),
            ExecutionError::RequestTimeout(_) => Self::Unknown(reason),
            // No connection, no plan, not prepared: it was never sent.
            _ => Self::NotApplied(reason),
        }
    }

    /// Whether a retry does not help.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Unusable(_) | Self::Refused(_))
    }

    /// A read changes nothing, however it ends.
    pub fn of_read(self) -> Self {
        match self {
            Self::Unknown(reason) => Self::NotApplied(reason),
            other => other,
        }
    }
}

/// What one attempt of a request has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatementResult {
    NotApplied,
    Unknown,
    Unusable,
    Refused,
}

impl StatementResult {
    fn error(self, reason: String) -> CqlError {
        match self {
            Self::NotApplied => CqlError::NotApplied(reason),
            Self::Unknown => CqlError::Unknown(reason),
            Self::Unusable => CqlError::Unusable(reason),
            Self::Refused => CqlError::Refused(reason),
        }
    }
}

/// The result of an attempt that ended with this error.
pub fn attempt_result(error: &RequestAttemptError, is_lwt: bool) -> StatementResult {
    match error {
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            StatementResult::Unusable
        }
        RequestAttemptError::UnableToAllocStreamId => StatementResult::NotApplied,
        RequestAttemptError::DbError(error, _) => result_of_error(error, is_lwt),
        // The request was sent, and its answer is lost or can't be read.
        _ => StatementResult::Unknown,
    }
}

fn result_of_error(error: &DbError, is_lwt: bool) -> StatementResult {
    match error {
        DbError::IsBootstrapping | DbError::Unprepared { .. } => StatementResult::NotApplied,
        // The coordinator checks whether enough replicas are alive before it does anything. An LWT has several rounds
        // with such a check: it may be refused in a later one after it was accepted.
        DbError::Unavailable { .. }
        | DbError::Overloaded
        | DbError::RateLimitReached { rejected_by_coordinator: true, .. }
            if !is_lwt =>
        {
            StatementResult::NotApplied
        }
        DbError::SyntaxError | DbError::Invalid | DbError::AlreadyExists { .. } | DbError::FunctionFailure { .. } => {
            StatementResult::Unusable
        }
        DbError::AuthenticationError | DbError::Unauthorized | DbError::ConfigError | DbError::ProtocolError => {
            StatementResult::Refused
        }
        // Time-outs and failures of replicas: some may have the write, and propagate it. An LWT that timed out while it
        // read may have completed the proposal of another, or its own.
        _ => StatementResult::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scylla::errors::WriteType;
    use scylla::frame::types::Consistency;

    use super::*;

    fn answered(error: DbError, is_lwt: bool) -> CqlError {
        let error = ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, String::new()));
        CqlError::of(&error, is_lwt)
    }

    #[test]
    fn a_refusal_before_the_work_has_changed_nothing_unless_the_work_has_several_rounds() {
        let unavailable = || DbError::Unavailable { consistency: Consistency::LocalQuorum, required: 2, alive: 1 };
        for refusal in [unavailable(), DbError::Overloaded, DbError::IsBootstrapping] {
            assert!(matches!(answered(refusal, false), CqlError::NotApplied(_)));
        }
        assert!(matches!(answered(DbError::IsBootstrapping, true), CqlError::NotApplied(_)));
        for refusal in [unavailable(), DbError::Overloaded] {
            assert!(matches!(answered(refusal, true), CqlError::Unknown(_)));
        }
        assert!(matches!(CqlError::of(&ExecutionError::EmptyPlan, true), CqlError::NotApplied(_)));
    }

    #[test]
    fn a_write_that_timed_out_is_unknown_whatever_its_kind() {
        for (write_type, is_lwt) in [(WriteType::Simple, false), (WriteType::Cas, true), (WriteType::Batch, false)] {
            let consistency = Consistency::LocalSerial;
            let timeout = DbError::WriteTimeout { consistency, received: 0, required: 2, write_type };
            assert!(matches!(answered(timeout, is_lwt), CqlError::Unknown(_)));
        }
        let timeout = ExecutionError::RequestTimeout(Duration::from_secs(1));
        assert!(matches!(CqlError::of(&timeout, true), CqlError::Unknown(_)));
        assert!(matches!(answered(DbError::ServerError, true), CqlError::Unknown(_)));
    }

    #[test]
    fn what_the_cluster_does_not_understand_or_allow_is_not_tried_again() {
        for refusal in [DbError::SyntaxError, DbError::Invalid] {
            assert!(matches!(answered(refusal, true), CqlError::Unusable(_)));
        }
        for refusal in [DbError::Unauthorized, DbError::AuthenticationError] {
            let error = answered(refusal, true);
            assert!(matches!(error, CqlError::Refused(_)));
            // Rows are not unreadable because of it.
            assert!(matches!(error.into(), StoreError::Unavailable(_)));
        }
    }
}
