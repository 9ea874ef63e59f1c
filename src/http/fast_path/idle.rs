//! How long a connection has been idle.

use std::pin::{Pin, pin};
use std::task::Context;
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

/// Notices that a connection makes no progress, at no cost to one that does: it compares, once in the time that is allowed, a
/// count of what has happened. So a connection is given up after one to two times of it.
#[derive(Default)]
pub struct Idle {
    sleep: Option<Pin<Box<Sleep>>>,
    progress: u64,
    /// [`Self::progress`] when the sleep began.
    seen: u64,
}

impl Idle {
    /// Bytes came or went.
    pub fn has_progressed(&mut self) {
        self.progress += 1;
    }

    /// Whether nothing has come or gone yet.
    pub fn is_new(&self) -> bool {
        self.progress == 0
    }

    /// Whether nothing has happened for `time` or longer; if not, the task is woken to ask again.
    pub fn is_over(&mut self, time: Duration, context: &mut Context<'_>) -> bool {
        let Self { sleep: slot, progress, seen } = self;
        let sleep = match slot {
            Some(sleep) if !sleep.is_elapsed() => return false,
            Some(_) if seen == progress => return true,
            Some(sleep) => {
                sleep.as_mut().reset(Instant::now() + time);
                sleep
            }
            None => slot.insert(Box::pin(sleep(time))),
        };
        *seen = *progress;
        // Only to be woken when it is over, also where this connection has used up its turn.
        let _ = pin!(unconstrained(sleep.as_mut())).poll(context);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use tokio::task::coop::{consume_budget, has_budget_remaining};
    use tokio::time::timeout;

    use super::*;

    /// A connection whose client sends without a pause has no turn left when it first waits.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_used_up_its_turn_is_still_given_up_when_nothing_moves() {
        let second = Duration::from_secs(1);
        let mut idle = Idle::default();
        let mut first = true;
        let over = poll_fn(|context| {
            if std::mem::take(&mut first) {
                while has_budget_remaining() {
                    let _ = pin!(consume_budget()).poll(context);
                }
            }
            if idle.is_over(second, context) { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(10 * second, over).await.expect("nobody woke it");
    }
}
