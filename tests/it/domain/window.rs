//! The sliding window against a naive model that keeps every request ever let in.

use std::num::NonZeroU32;

use proptest::collection::vec;
use proptest::prelude::*;
use signpost::domain::window::{Admission, SlidingWindow};

const MINUTE_MS: u64 = 60_000;

fn limit(limit: u32) -> NonZeroU32 {
    NonZeroU32::new(limit).expect("tests use limits above 0")
}

/// Every request ever let in, looked through from the start at each question.
#[derive(Default)]
struct NaiveWindow {
    admitted_ms: Vec<u64>,
    latest_ms: u64,
}

impl NaiveWindow {
    fn counted_at(&self, now_ms: u64) -> usize {
        let counts = |&&at: &&u64| at + MINUTE_MS > now_ms;
        self.admitted_ms.iter().filter(counts).count()
    }

    fn admit(&mut self, now_ms: u64, limit: u32) -> bool {
        if now_ms + MINUTE_MS < self.latest_ms {
            // What had left before the clock was set back is over for good.
            let latest_ms = self.latest_ms;
            self.admitted_ms.retain(|at| at + MINUTE_MS > latest_ms);
            for at in &mut self.admitted_ms {
                *at = (*at).min(now_ms);
            }
            self.latest_ms = now_ms;
        }
        self.latest_ms = self.latest_ms.max(now_ms);
        let admitted = self.counted_at(self.latest_ms) < limit as usize;
        if admitted {
            self.admitted_ms.push(self.latest_ms);
        }
        admitted
    }
}

/// Steps between requests in milliseconds: bursts, odd gaps, whole seconds, and the edge itself.
fn step_forward() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => Just(0_i64),
        4 => 1_i64..2_000,
        2 => (1_i64..=61).prop_map(|seconds| seconds * 1000),
        1 => prop_oneof![Just(59_999_i64), Just(60_000), Just(60_001)],
    ]
}

/// As [`step_forward`], with overtaken requests and a clock that is set back.
fn step_anywhere() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => step_forward(),
        2 => -2_000_i64..0,
        1 => prop_oneof![Just(-59_999_i64), Just(-60_000), Just(-60_001)],
        1 => -10_000_000_i64..-60_000,
        1 => 60_000_i64..10_000_000,
    ]
}

fn times(start_ms: u64, steps: &[i64]) -> Vec<u64> {
    let mut now_ms = start_ms;
    let mut advance = |&step: &i64| {
        now_ms = now_ms.saturating_add_signed(step);
        now_ms
    };
    steps.iter().map(&mut advance).collect()
}

proptest! {
    #[test]
    fn it_answers_as_the_naive_model_does_whatever_the_clock_does(
        steps in vec((step_anywhere(), 1_u32..8), 1..200),
    ) {
        let (steps, limits): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        let (mut window, mut naive) = (SlidingWindow::default(), NaiveWindow::default());
        for (now_ms, per_minute) in times(100_000, &steps).into_iter().zip(limits) {
            let admitted = naive.admit(now_ms, per_minute);
            match window.admit(now_ms, limit(per_minute)) {
                Admission::Admitted { remaining, .. } => {
                    prop_assert!(admitted);
                    let counted = naive.counted_at(naive.latest_ms);
                    prop_assert_eq!(remaining as usize, per_minute as usize - counted);
                }
                Admission::Refused { .. } => prop_assert!(!admitted),
            }
        }
    }

    #[test]
    fn no_sixty_seconds_let_in_more_than_the_limit(
        steps in vec(step_forward(), 1..300),
        per_minute in 1_u32..10,
    ) {
        let mut window = SlidingWindow::default();
        let mut admitted_ms = times(0, &steps);
        admitted_ms.retain(|&now_ms| window.admit(now_ms, limit(per_minute)).is_admitted());
        for pair in admitted_ms.windows(per_minute as usize + 1) {
            prop_assert!(pair[per_minute as usize] - pair[0] >= MINUTE_MS);
        }
    }

    #[test]
    fn retry_after_is_truthful_to_the_second(
        steps in vec(step_anywhere(), 1..100),
        per_minute in 1_u32..6,
    ) {
        let mut window = SlidingWindow::default();
        for now_ms in times(100_000, &steps) {
            let Admission::Refused { retry_after_seconds } = window.admit(now_ms, limit(per_minute))
            else {
                continue;
            };
            prop_assert!(retry_after_seconds >= 1);
            let later = |seconds: u32| {
                window.clone().admit(now_ms + u64::from(seconds) * 1000, limit(per_minute))
            };
            prop_assert!(later(retry_after_seconds).is_admitted());
            prop_assert!(!later(retry_after_seconds - 1).is_admitted());
        }
    }

    #[test]
    fn reset_is_the_second_in_which_more_becomes_available(
        steps in vec(step_forward(), 1..100),
        per_minute in 1_u32..6,
    ) {
        let mut window = SlidingWindow::default();
        for now_ms in times(0, &steps) {
            let Admission::Admitted { remaining, reset_seconds } =
                window.admit(now_ms, limit(per_minute))
            else {
                continue;
            };
            // Looked at through one more request, which itself takes one.
            let left_after = |seconds: u32| {
                let at = now_ms + u64::from(seconds) * 1000;
                window.clone().admit(at, limit(per_minute + 1)).remaining()
            };
            prop_assert!(left_after(reset_seconds) > remaining);
            prop_assert_eq!(left_after(reset_seconds - 1), remaining);
        }
    }

    #[test]
    fn a_refused_request_takes_nothing_from_the_window(
        refused_after_ms in vec(0_u64..60_000, 1..20),
    ) {
        let mut window = SlidingWindow::default();
        window.admit(0, limit(1));
        let mut refused_after_ms = refused_after_ms;
        refused_after_ms.sort_unstable();
        for now_ms in refused_after_ms {
            prop_assert!(!window.admit(now_ms, limit(1)).is_admitted());
        }
        prop_assert!(window.admit(MINUTE_MS, limit(1)).is_admitted());
    }

    #[test]
    fn no_time_at_all_makes_it_panic(
        times in vec(any::<u64>(), 1..50),
        per_minute in 1_u32..4,
    ) {
        let mut window = SlidingWindow::default();
        for now_ms in times {
            window.admit(now_ms, limit(per_minute));
            window.is_idle(now_ms);
        }
    }
}

#[test]
fn a_request_leaves_the_window_exactly_sixty_seconds_later() {
    let mut window = SlidingWindow::default();
    let first = window.admit(1_000, limit(1));
    assert_eq!(first, Admission::Admitted { remaining: 0, reset_seconds: 60 });
    let a_millisecond_early = window.admit(60_999, limit(1));
    assert_eq!(a_millisecond_early, Admission::Refused { retry_after_seconds: 1 });
    assert!(!window.is_idle(60_999));
    assert!(window.is_idle(61_000));
    assert_eq!(window.admit(61_000, limit(1)), first);
}

#[test]
fn a_lowered_limit_counts_what_was_let_in_before() {
    let mut window = SlidingWindow::default();
    for second in 0..5 {
        window.admit(second * 1000, limit(5));
    }
    // Two are left when the third has gone, at 62 s; then, with a limit of 3, there is room.
    assert_eq!(window.admit(10_000, limit(3)), Admission::Refused { retry_after_seconds: 52 });
}

#[test]
fn a_clock_set_back_by_an_hour_shuts_nobody_out_for_an_hour() {
    let mut window = SlidingWindow::default();
    let noon_ms = 12 * 60 * MINUTE_MS;
    window.admit(noon_ms, limit(1));
    assert_eq!(window.admit(noon_ms - 60 * MINUTE_MS, limit(1)), Admission::Refused { retry_after_seconds: 60 });
}
