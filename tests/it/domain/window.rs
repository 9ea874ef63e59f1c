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
    /// Of other nodes: what was told last.
    elsewhere_ms: Vec<u64>,
    /// The same, with each one's time as it was told.
    told: Vec<(u64, u64)>,
    latest_ms: u64,
}

impl NaiveWindow {
    fn counted_at(&self, now_ms: u64) -> usize {
        let counts = |&&at: &&u64| at + MINUTE_MS > now_ms;
        self.admitted_ms.iter().chain(&self.elsewhere_ms).filter(counts).count()
    }

    fn look_at_the_clock(&mut self, now_ms: u64) {
        if now_ms + MINUTE_MS < self.latest_ms {
            // What had left before the clock was set back is over for good.
            let latest_ms = self.latest_ms;
            for times in [&mut self.admitted_ms, &mut self.elsewhere_ms] {
                times.retain(|at| at + MINUTE_MS > latest_ms);
                for at in times {
                    *at = (*at).min(now_ms);
                }
            }
            self.latest_ms = now_ms;
        }
        self.latest_ms = self.latest_ms.max(now_ms);
    }

    fn count_elsewhere(&mut self, now_ms: u64, told_ms: &[u64]) {
        self.look_at_the_clock(now_ms);
        let counted_as_of = |told: u64| {
            let before = self.told.iter().find(|(known, _)| *known == told);
            before.map_or(told, |(_, counted)| *counted).min(now_ms)
        };
        self.told = told_ms.iter().map(|told| (*told, counted_as_of(*told))).collect();
        self.elsewhere_ms = self.told.iter().map(|(_, counted)| *counted).collect();
        let latest_ms = self.latest_ms;
        self.elsewhere_ms.retain(|at| at + MINUTE_MS > latest_ms);
    }

    fn admit(&mut self, now_ms: u64, limit: u32) -> bool {
        self.look_at_the_clock(now_ms);
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

/// What other nodes tell of, in milliseconds from now: some of it gone, some in the future.
fn told() -> impl Strategy<Value = Vec<i64>> {
    let time = prop_oneof![
        6 => -60_010_i64..=10,
        1 => prop_oneof![Just(-60_000_i64), Just(-59_999), Just(0)],
        1 => -200_000_i64..200_000,
    ];
    vec(time, 0..10)
}

/// The highest limit that [`ask`] asks with.
const HIGHEST: u32 = 8;

#[derive(Clone, Debug)]
enum Event {
    Ask {
        limit: u32,
    },
    Told(Vec<i64>),
    /// What was told last is told again, as it is when the other node has gone.
    ToldAgain,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..=HIGHEST).prop_map(|limit| Event::Ask { limit }),
        3 => told().prop_map(Event::Told),
        1 => Just(Event::ToldAgain),
    ]
}

/// A window that some requests were let in to, here and elsewhere.
fn window_after(times: &[u64], told: &[i64], per_minute: u32) -> SlidingWindow {
    let mut window = SlidingWindow::default();
    for &now_ms in times {
        window.admit(now_ms, limit(per_minute));
    }
    let now_ms = times.last().copied().unwrap_or(100_000);
    window.count_elsewhere(now_ms, from_now(now_ms, told));
    window
}

fn from_now(now_ms: u64, steps: &[i64]) -> Vec<u64> {
    steps.iter().map(|&step| now_ms.saturating_add_signed(step)).collect()
}

fn times(start_ms: u64, steps: &[i64]) -> Vec<u64> {
    let mut now_ms = start_ms;
    let mut advance = |&step: &i64| {
        now_ms = now_ms.saturating_add_signed(step);
        now_ms
    };
    steps.iter().map(&mut advance).collect()
}

/// Which of the nodes exchange until `now_ms`, and when, in order of time.
fn due_exchanges(next: &mut [u64; 3], now_ms: u64) -> Vec<(u64, usize)> {
    let mut due = Vec::new();
    for (node, next) in next.iter_mut().enumerate() {
        while *next <= now_ms {
            due.push((*next, node));
            *next += 1000;
        }
    }
    due.sort_unstable();
    due
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
    fn what_others_let_in_counts_as_the_naive_model_says(
        steps in vec((step_anywhere(), event()), 1..200),
    ) {
        let (steps, events): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        let (mut window, mut naive) = (SlidingWindow::default(), NaiveWindow::default());
        // No more times are kept than limits were ever asked for.
        prop_assert_eq!(window.admit(0, limit(HIGHEST)).is_admitted(), naive.admit(0, HIGHEST));
        let mut told_ms = Vec::new();
        for (now_ms, event) in times(100_000, &steps).into_iter().zip(events) {
            let told = match event {
                Event::Ask { limit: per_minute } => {
                    let admitted = naive.admit(now_ms, per_minute);
                    let answer = window.admit(now_ms, limit(per_minute));
                    prop_assert_eq!(answer.is_admitted(), admitted);
                    if admitted {
                        let counted = naive.counted_at(naive.latest_ms);
                        prop_assert_eq!(answer.remaining() as usize, per_minute as usize - counted);
                    }
                    continue;
                }
                Event::Told(steps) => from_now(now_ms, &steps),
                Event::ToldAgain => told_ms,
            };
            naive.count_elsewhere(now_ms, &told);
            window.count_elsewhere(now_ms, told.clone());
            told_ms = told;
        }
    }

    #[test]
    fn what_is_told_of_others_is_not_taken_for_its_own(
        steps in vec(step_forward(), 1..50),
        told in told(),
    ) {
        let (mut alone, mut with_others) = (SlidingWindow::default(), SlidingWindow::default());
        let times = times(100_000, &steps);
        for &now_ms in &times {
            with_others.count_elsewhere(now_ms, from_now(now_ms, &told));
            if with_others.admit(now_ms, limit(HIGHEST)).is_admitted() {
                alone.admit(now_ms, limit(HIGHEST));
            }
        }
        let now_ms = times[times.len() - 1];
        prop_assert_eq!(alone.admitted_here(now_ms), with_others.admitted_here(now_ms));
    }

    #[test]
    fn retry_after_and_reset_are_truthful_over_all_nodes(
        steps in vec(step_forward(), 1..30),
        told in told(),
        per_minute in 1_u32..HIGHEST,
        wait_ms in 0_u64..70_000,
    ) {
        let times = times(100_000, &steps);
        let mut window = window_after(&times, &told, HIGHEST);
        let now_ms = times[times.len() - 1] + wait_ms;
        let answer = window.admit(now_ms, limit(per_minute));
        let later = |seconds: u32, limit: NonZeroU32| {
            window.clone().admit(now_ms + u64::from(seconds) * 1000, limit)
        };
        match answer {
            Admission::Refused { retry_after_seconds } => {
                prop_assert!(later(retry_after_seconds, limit(per_minute)).is_admitted());
                prop_assert!(!later(retry_after_seconds - 1, limit(per_minute)).is_admitted());
            }
            Admission::Admitted { remaining, reset_seconds } => {
                // Looked at through one more request, which itself takes one.
                let left_after = |seconds| later(seconds, limit(per_minute + 1)).remaining();
                prop_assert!(left_after(reset_seconds) > remaining);
                prop_assert_eq!(left_after(reset_seconds - 1), remaining);
            }
        }
    }

    /// Each node is asked every second, and then tells and hears what the others have told.
    #[test]
    fn nodes_that_tell_each_other_hold_one_limit_but_for_the_last_two_seconds(
        requests in vec((0_u64..400, 0_usize..3), 1..400),
        per_minute in 1_u32..12,
        offsets in [0_u64..1000, 0_u64..1000, 0_u64..1000],
    ) {
        let mut nodes: [SlidingWindow; 3] = Default::default();
        let mut published: [Vec<u64>; 3] = Default::default();
        // Of a time long gone.
        for node in &mut nodes {
            node.admit(0, limit(per_minute));
        }
        let mut next_exchange = offsets.map(|offset| 200_000 + offset);
        let (mut now_ms, mut asked_ms, mut admitted_ms) = (200_000, Vec::new(), Vec::<u64>::new());
        for (step, node) in requests {
            // Pauses now and then, so that windows also run empty.
            now_ms += if step > 390 { step * 100 } else { step };
            for (at, one) in due_exchanges(&mut next_exchange, now_ms) {
                published[one] = nodes[one].admitted_here(at);
                let others = (0..3).filter(|&other| other != one);
                nodes[one].count_elsewhere(at, others.flat_map(|other| published[other].clone()).collect());
            }
            asked_ms.push(now_ms);
            let in_the_last = |times: &[u64], span_ms| times.iter().filter(|&&at| at + span_ms > now_ms).count();
            let before = in_the_last(&admitted_ms, MINUTE_MS);
            if nodes[node].admit(now_ms, limit(per_minute)).is_admitted() {
                admitted_ms.push(now_ms);
                let untold = in_the_last(&asked_ms, 2_001);
                prop_assert!(before < per_minute as usize + untold, "let in though {before} were, {untold} of late");
            } else {
                prop_assert!(before >= per_minute as usize, "refused though only {before} were let in");
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
        for &now_ms in &times {
            window.admit(now_ms, limit(per_minute));
            window.count_elsewhere(now_ms, times.clone());
            window.admit(now_ms, limit(per_minute));
            window.is_idle(now_ms);
        }
    }
}

#[test]
fn a_request_of_a_node_whose_clock_is_ahead_counts_for_one_window() {
    let mut window = SlidingWindow::default();
    window.expect_limit(1);
    // That clock is ten seconds ahead.
    let (first_told, at) = (100_000, 110_000);
    for now_ms in (first_told..first_told + MINUTE_MS).step_by(1_000) {
        window.count_elsewhere(now_ms, vec![at]);
        let left = (first_told + MINUTE_MS - now_ms) / 1_000;
        let refused = Admission::Refused { retry_after_seconds: u32::try_from(left).unwrap() };
        assert_eq!(window.admit(now_ms, limit(1)), refused);
    }
    window.count_elsewhere(first_told + MINUTE_MS, vec![at]);
    assert!(window.admit(first_told + MINUTE_MS, limit(1)).is_admitted());
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

#[test]
fn what_others_let_in_leaves_the_window_as_its_own_does() {
    let mut window = SlidingWindow::default();
    window.admit(10_000, limit(3));
    window.count_elsewhere(11_000, vec![5_000, 1_000]);
    assert_eq!(window.admit(11_000, limit(3)), Admission::Refused { retry_after_seconds: 50 });
    assert_eq!(window.admit(61_000, limit(3)), Admission::Admitted { remaining: 0, reset_seconds: 4 });
    assert!(!window.is_idle(120_999));
    assert!(window.is_idle(121_000));
}

#[test]
fn a_key_used_elsewhere_alone_is_not_idle_before_that_has_left() {
    let mut window = SlidingWindow::default();
    window.admit(1_000, limit(2));
    window.count_elsewhere(50_000, vec![49_000]);
    assert!(!window.is_idle(108_999));
    assert!(window.is_idle(109_000));
}

#[test]
fn what_others_no_longer_tell_of_is_no_longer_counted() {
    let mut window = SlidingWindow::default();
    window.admit(1_000, limit(2));
    window.count_elsewhere(1_000, vec![1_000]);
    assert!(!window.admit(2_000, limit(2)).is_admitted());
    window.count_elsewhere(2_000, Vec::new());
    assert!(window.admit(2_000, limit(2)).is_admitted());
}

#[test]
fn a_clock_ahead_elsewhere_refuses_for_no_longer_than_a_window() {
    let mut window = SlidingWindow::default();
    window.admit(0, limit(1));
    // An hour ahead, and told again every second for as long as it may be kept.
    let told = || vec![3_600_000 + 100_000];
    for second in 100..160 {
        window.count_elsewhere(second * 1000, told());
        let retry_after_seconds = u32::try_from(160 - second).unwrap();
        assert_eq!(window.admit(second * 1000, limit(1)), Admission::Refused { retry_after_seconds });
    }
    window.count_elsewhere(160_000, told());
    assert!(window.admit(160_000, limit(1)).is_admitted());
}

#[test]
fn no_more_is_kept_of_others_than_the_limit_asked_for() {
    let mut window = SlidingWindow::default();
    window.admit(0, limit(5));
    window.count_elsewhere(200_000, (150_000..200_000).collect());
    assert_eq!(window.admit(200_000, limit(5)), Admission::Refused { retry_after_seconds: 60 });
    // A higher limit finds the five newest, until the others tell again.
    assert_eq!(window.admit(200_000, limit(10)).remaining(), 4);
}
