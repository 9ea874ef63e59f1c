//! The rules by which the driver retries a request, as data.

use scylla::policies::retry::{RequestInfo, RetryDecision, RetryPolicy, RetrySession};

use super::outcome::{StatementResult, attempt_result};

/// How often one request is retried on another node.
const MOST_RETRIES: usize = 2;

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    AnotherNode,
    Fail,
}

/// By the result of the attempt, and whether the request is idempotent.
const RULES: [((StatementResult, bool), Retry); 8] = [
    ((StatementResult::NotApplied, true), Retry::AnotherNode),
    ((StatementResult::NotApplied, false), Retry::AnotherNode),
    ((StatementResult::Unknown, true), Retry::AnotherNode),
    // Whether it was applied is settled by reading (`Cql::settled`).
    ((StatementResult::Unknown, false), Retry::Fail),
    ((StatementResult::Unusable, true), Retry::Fail),
    ((StatementResult::Unusable, false), Retry::Fail),
    ((StatementResult::Refused, true), Retry::Fail),
    ((StatementResult::Refused, false), Retry::Fail),
];

/// Retries on another node if the request cannot be applied twice by that.
#[derive(Debug)]
pub struct Retries;

impl RetryPolicy for Retries {
    fn new_session(&self) -> Box<dyn RetrySession> {
        Box::new(Session { retried: 0 })
    }
}

struct Session {
    retried: usize,
}

impl Session {
    fn decide(&mut self, result: StatementResult, is_idempotent: bool) -> Retry {
        let rule = RULES.into_iter().find(|(case, _)| *case == (result, is_idempotent));
        match rule {
            Some((_, Retry::AnotherNode)) if self.retried < MOST_RETRIES => {
                self.retried += 1;
                Retry::AnotherNode
            }
            _ => Retry::Fail,
        }
    }
}

impl RetrySession for Session {
    fn decide_should_retry(&mut self, request: RequestInfo) -> RetryDecision {
        // What is not idempotent is an LWT.
        match self.decide(attempt_result(request.error, !request.is_idempotent), request.is_idempotent) {
            Retry::AnotherNode => RetryDecision::RetryNextTarget(None),
            Retry::Fail => RetryDecision::DontRetry,
        }
    }

    fn reset(&mut self) {
        self.retried = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lwt_of_unknown_outcome_is_never_sent_again() {
        assert_eq!(Session { retried: 0 }.decide(StatementResult::Unknown, false), Retry::Fail);
        assert_eq!(Session { retried: 0 }.decide(StatementResult::NotApplied, false), Retry::AnotherNode);
    }

    #[test]
    fn retries_come_to_an_end() {
        let mut session = Session { retried: 0 };
        let decisions: Vec<_> = (0..4).map(|_| session.decide(StatementResult::Unknown, true)).collect();
        assert_eq!(decisions, [Retry::AnotherNode, Retry::AnotherNode, Retry::Fail, Retry::Fail]);
        session.reset();
        assert_eq!(session.decide(StatementResult::NotApplied, true), Retry::AnotherNode);
    }

    #[test]
    fn every_case_has_one_rule() {
        for result in
            [StatementResult::NotApplied, StatementResult::Unknown, StatementResult::Unusable, StatementResult::Refused]
        {
            for is_idempotent in [true, false] {
                assert_eq!(RULES.iter().filter(|(case, _)| *case == (result, is_idempotent)).count(), 1);
            }
        }
    }
}
