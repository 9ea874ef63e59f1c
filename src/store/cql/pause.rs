//! Waits between attempts.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::Instant;

/// Growing waits between attempts, until a deadline.
pub struct Pause {
    next: Duration,
    end: Instant,
}

impl Pause {
    pub fn within(patience: Duration) -> Self {
        Self { next: Duration::from_millis(20), end: Instant::now() + patience }
    }

    /// Breaks if the next wait would end after the deadline.
    pub async fn wait(&mut self) -> ControlFlow<()> {
        if Instant::now() + self.next >= self.end {
            return ControlFlow::Break(());
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(Duration::from_millis(500));
        ControlFlow::Continue(())
    }
}
