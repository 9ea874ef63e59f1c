//! How fast hits are sent on a stream.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::live_hit::LIVE_HITS_A_SECOND;
use crate::feed::{StreamEvent, StreamEventKind};

const SECOND: Duration = Duration::from_secs(1);

/// When hits were sent in the last second: never more than [`LIVE_HITS_A_SECOND`] in any second.
#[derive(Default)]
pub struct Pace {
    /// With the number of hits.
    sent: VecDeque<(Instant, usize)>,
}

impl Pace {
    /// How many hits may be sent now.
    pub fn allowance(&mut self, now: Instant) -> usize {
        while self.sent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= SECOND) {
            self.sent.pop_front();
        }
        let sent: usize = self.sent.iter().map(|(_, count)| count).sum();
        (LIVE_HITS_A_SECOND as usize).saturating_sub(sent)
    }

    pub fn note(&mut self, now: Instant, events: &[StreamEvent]) {
        self.note_hits(now, events.iter().filter(|event| matches!(event.kind, StreamEventKind::Hit(_))).count());
    }

    fn note_hits(&mut self, now: Instant, count: usize) {
        if count > 0 {
            self.sent.push_back((now, count));
        }
    }

    /// When a hit may be sent; `None`: now.
    pub fn next_turn(&mut self, now: Instant) -> Option<Instant> {
        if self.allowance(now) > 0 { None } else { self.sent.front().map(|(at, _)| *at + SECOND) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_hits_than_the_limit() {
        let (mut pace, began) = (Pace::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        assert_eq!((pace.allowance(began), pace.next_turn(began)), (100, None));
        pace.note_hits(at(0), 60);
        pace.note_hits(at(500), 40);
        pace.note_hits(at(500), 0);
        assert_eq!((pace.allowance(at(999)), pace.next_turn(at(999))), (0, Some(at(1_000))));
        assert_eq!((pace.allowance(at(1_000)), pace.next_turn(at(1_000))), (60, None));
        pace.note_hits(at(1_000), 60);
        assert_eq!(pace.next_turn(at(1_001)), Some(at(1_500)));
        assert_eq!(pace.allowance(at(9_000)), 100);
    }
}
