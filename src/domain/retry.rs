//! The schedule of retries of a failed webhook delivery.

use std::time::Duration;

/// The delays between the attempts of a delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrySchedule {
    delays: Vec<Duration>,
    jitter: f64,
}

impl RetrySchedule {
    /// A schedule of `delays.len() + 1` attempts. Each delay varies by up to `jitter` of itself (`0.1`: ±10 %;
    /// clamped to 0 to 1), so that deliveries that failed together in an outage are not retried together.
    pub fn new(delays: Vec<Duration>, jitter: f64) -> Self {
        let jitter = if jitter.is_nan() { 0.0 } else { jitter };
        Self { delays, jitter: jitter.clamp(0.0, 1.0) }
    }

    /// The total number of attempts, including the first.
    pub fn max_attempts(&self) -> u32 {
        u32::try_from(self.delays.len()).map_or(u32::MAX, |retries| retries.saturating_add(1))
    }

    /// The longest delay before an attempt.
    pub fn longest(&self) -> Duration {
        let longest = self.delays.iter().max().copied().unwrap_or_default();
        Duration::try_from_secs_f64(longest.as_secs_f64() * (1.0 + self.jitter)).unwrap_or(longest)
    }

    /// The delay before the next attempt, after `attempts_made` failed attempts; zero before the first. `None` after
    /// the last attempt: the delivery has failed permanently.
    ///
    /// `random_unit` is a random number from 0 to 1.
    pub fn next(&self, attempts_made: u32, random_unit: f64) -> Option<Duration> {
        let Some(retry) = attempts_made.checked_sub(1) else {
            return Some(Duration::ZERO);
        };
        let delay = *self.delays.get(usize::try_from(retry).ok()?)?;
        let factor = 1.0 + self.jitter * (2.0 * random_unit.clamp(0.0, 1.0) - 1.0);
        // The factor is from 0 to 2. If the delay overflows, or `random_unit` is not a number, the configured delay
        // is used.
        Some(Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(delay))
    }
}

/// Three attempts: at once, 1 s after the first failure, 5 s after the second, ±10 %. Source: the API contract's
/// delivery rules.
impl Default for RetrySchedule {
    fn default() -> Self {
        Self::new(vec![Duration::from_secs(1), Duration::from_secs(5)], 0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: f64 = 0.5;

    #[test]
    fn a_delivery_has_three_attempts() {
        let schedule = RetrySchedule::default();
        let delays: Vec<_> = (0..=4).map(|made| schedule.next(made, MIDDLE)).collect();
        assert_eq!(
            delays,
            [Some(Duration::ZERO), Some(Duration::from_secs(1)), Some(Duration::from_secs(5)), None, None]
        );
        assert_eq!(schedule.max_attempts(), 3);
    }

    #[test]
    fn jitter_is_ten_percent_either_way() {
        let schedule = RetrySchedule::default();
        for (draw, first, second) in [(0.0, 900, 4_500), (1.0, 1_100, 5_500), (0.75, 1_050, 5_250)] {
            assert_eq!(schedule.next(1, draw), Some(Duration::from_millis(first)));
            assert_eq!(schedule.next(2, draw), Some(Duration::from_millis(second)));
        }
    }

    #[test]
    fn no_draw_and_no_setting_makes_it_panic() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -3.0, 7.0];
        for jitter in odd {
            let schedule = RetrySchedule::new(vec![Duration::MAX, Duration::ZERO], jitter);
            for draw in odd {
                assert!(schedule.next(1, draw).is_some());
                assert_eq!(schedule.next(2, draw), Some(Duration::ZERO));
                assert_eq!(schedule.next(u32::MAX, draw), None);
            }
        }
    }

    #[test]
    fn a_schedule_without_delays_has_one_attempt() {
        let schedule = RetrySchedule::new(Vec::new(), 0.1);
        assert_eq!(schedule.max_attempts(), 1);
        assert_eq!(schedule.next(0, MIDDLE), Some(Duration::ZERO));
        assert_eq!(schedule.next(1, MIDDLE), None);
    }
}
