//! The time that a client has for the rest of a request.

use std::pin::{Pin, pin};
use std::task::Context;
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

/// Checks once in the time for a head, and at no cost to the requests in between, whether the connection has had an answer since.
#[derive(Default)]
pub struct HeadTimer(Option<Check>);

struct Check {
    at: Pin<Box<Sleep>>,
    /// How many answers the connection had when this began.
    answers: u64,
}

impl HeadTimer {
    /// Whether the connection has had no answer for one to two times `timeout`. `is_at_work`: the time is a handler's.
    pub fn is_overdue(&mut self, timeout: Duration, answers: u64, is_at_work: bool, context: &mut Context<'_>) -> bool {
        let check = match &mut self.0 {
            Some(check) if !check.at.is_elapsed() => return false,
            Some(check) if check.answers == answers && !is_at_work => return true,
            Some(check) => {
                check.at.as_mut().reset(Instant::now() + timeout);
                check.answers = answers;
                check
            }
            none => none.insert(Check { at: Box::pin(sleep(timeout)), answers }),
        };
        // Only to be woken when it is over, also where this connection has used up its turn.
        let _ = pin!(unconstrained(check.at.as_mut())).poll(context);
        false
    }
}
