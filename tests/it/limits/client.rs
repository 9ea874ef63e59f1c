//! The limit by client: its window compared with a simple model of the same estimate, its table, and both under many
//! threads.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use proptest::prelude::*;
use signpost::limits::client::{ClientKey, ClientLimiter, MAX_LIMIT_PER_MINUTE, RetryAfter};

const MINUTE: u64 = 60_000;
/// A time like that of a real clock, so that the wrap-around of the start is exercised.
const NOW: u64 = 1_795_272_582_028;

fn client(address: &str) -> ClientKey {
    ClientKey::from(address.parse::<IpAddr>().unwrap())
}

fn nth_client(n: u32) -> ClientKey {
    ClientKey::from(IpAddr::from(n.to_be_bytes()))
}

fn limiter(limit: u32) -> ClientLimiter {
    ClientLimiter::new(limit, 64, 1)
}

/// How many of `count` concurrent requests are admitted.
fn burst(limiter: &ClientLimiter, client: ClientKey, now: u64, count: u32) -> u32 {
    (0..count).map(|_| u32::from(limiter.admit(client, now).is_ok())).sum()
}

// --- The window ---

#[test]
fn a_burst_of_exactly_the_limit_is_let_in() {
    for limit in [1, 2, 3, 7, 60, 100, 1_000, 65_535, 65_536, 1_000_000, MAX_LIMIT_PER_MINUTE] {
        for now in [0, 1, 59_999, MINUTE, NOW, u64::MAX] {
            let limiter = limiter(limit);
            let me = client("192.0.2.1");
            assert_eq!(burst(&limiter, me, now, limit), limit, "limit {limit} at {now}");
            assert_eq!(limiter.admit(me, now), Err(RetryAfter(60)), "limit {limit} at {now}");
            if limit > 1_000 {
                break;
            }
        }
    }
}

#[test]
fn a_burst_may_take_any_time_below_a_minute() {
    for spread in [1, 100, 599] {
        let limiter = limiter(100);
        let me = client("192.0.2.1");
        for n in 0..100 {
            assert_eq!(limiter.admit(me, NOW + n * spread), Ok(()));
        }
        assert!(limiter.admit(me, NOW + 99 * spread).is_err());
    }
}

#[test]
fn after_a_burst_nothing_is_let_in_until_it_is_a_minute_old() {
    let limiter = limiter(100);
    let me = client("192.0.2.1");
    burst(&limiter, me, NOW, 100);
    assert_eq!(limiter.admit(me, NOW + 500), Err(RetryAfter(60)));
    assert_eq!(limiter.admit(me, NOW + 58_999), Err(RetryAfter(2)));
    assert_eq!(limiter.admit(me, NOW + 59_999), Err(RetryAfter(1)));
    assert_eq!(limiter.admit(me, NOW + 60_000), Ok(()));
}

#[test]
fn steady_sending_at_the_limit_is_never_refused() {
    let limiter = limiter(100);
    for n in 0..1_000 {
        assert_eq!(limiter.admit(client("192.0.2.1"), NOW + n * 600), Ok(()), "request {n}");
    }
}

#[test]
fn after_two_quiet_minutes_a_whole_burst_is_let_in() {
    let me = client("192.0.2.1");
    for gap in [119_999, 120_000, 7 * 24 * 60 * MINUTE] {
        let limiter = limiter(100);
        assert_eq!(burst(&limiter, me, NOW, 200), 100);
        assert_eq!(burst(&limiter, me, NOW + gap, 200), 100, "{gap} ms later");
    }
}

#[test]
fn a_refused_request_takes_nothing_from_the_window() {
    let (refused, left_alone) = (limiter(100), limiter(100));
    let me = client("192.0.2.1");
    for now in (0..600_000).step_by(250) {
        let expected = left_alone.admit(me, now);
        assert_eq!(refused.admit(me, now), expected, "at {now}");
        // Sends further requests only where they are refused already.
        if expected.is_err() {
            assert_eq!(burst(&refused, me, now, 50), 0);
        }
    }
}

#[test]
fn a_limit_of_0_is_none() {
    let limiter = ClientLimiter::new(0, 524_288, 1);
    assert_eq!(burst(&limiter, client("192.0.2.1"), NOW, 10_000), 10_000);
}

#[test]
fn a_limit_over_the_highest_works_as_the_highest() {
    let limiter = limiter(u32::MAX);
    let let_in = burst(&limiter, client("192.0.2.1"), NOW, MAX_LIMIT_PER_MINUTE + 10);
    assert_eq!(let_in, MAX_LIMIT_PER_MINUTE);
}

#[test]
fn a_clock_set_back_by_up_to_a_minute_opens_no_new_window() {
    for back in [1, 30, 1_000, 59_999, 60_000] {
        let limiter = limiter(100);
        let me = client("192.0.2.1");
        burst(&limiter, me, NOW, 100);
        let Err(RetryAfter(seconds)) = limiter.admit(me, NOW - back) else {
            panic!("let in after {back} ms back");
        };
        assert_eq!(u64::from(seconds), (MINUTE + back).div_ceil(1000));
        let retry = NOW - back + u64::from(seconds) * 1000;
        assert!(limiter.admit(me, retry - 1000).is_err());
        assert!(limiter.admit(me, retry).is_ok());
    }
}

#[test]
fn a_clock_set_back_by_more_begins_a_new_window() {
    let limiter = limiter(100);
    let me = client("192.0.2.1");
    burst(&limiter, me, NOW, 100);
    assert_eq!(burst(&limiter, me, NOW - 60_001, 200), 100);
}

// --- Clients ---

#[test]
fn a_client_is_an_ipv4_address_or_an_ipv6_slash_64() {
    let same = [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::2"),
        ("2001:db8:1:2::", "2001:db8:1:2:ffff:ffff:ffff:ffff"),
    ];
    for (one, other) in same {
        assert_eq!(client(one), client(other), "{one} and {other}");
    }
    let different = [
        ("192.0.2.1", "192.0.2.2"),
        ("192.0.2.1", "193.0.2.1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2"),
        ("2001:db8:0:1::1", "2001:db8:0:2::1"),
        ("2001:db8::1", "2001:db9::1"),
        // A /64 network with the number of an IPv4 address.
        ("192.0.2.1", "0:0:c000:201::"),
        ("0.0.0.0", "::"),
        ("127.0.0.1", "::1"),
    ];
    for (one, other) in different {
        assert_ne!(client(one), client(other), "{one} and {other}");
    }
}

#[test]
fn clients_do_not_share_a_window() {
    let limiter = ClientLimiter::new(3, 4_096, 7);
    for n in 0..200 {
        assert_eq!(burst(&limiter, nth_client(n), NOW, 5), 3, "client {n}");
    }
}

// --- The table ---

#[test]
fn a_full_line_gives_the_client_whose_minute_began_first_a_new_window() {
    let limiter = ClientLimiter::new(5, 4, 1);
    for n in 0..4 {
        assert_eq!(burst(&limiter, nth_client(n), NOW + u64::from(n), 9), 5);
    }
    for n in 0..4 {
        assert_eq!(burst(&limiter, nth_client(n), NOW + 10, 9), 0, "all four are kept");
    }
    assert_eq!(burst(&limiter, nth_client(4), NOW + 20, 9), 5, "the fifth has a window of its own");
    for n in 1..5 {
        assert_eq!(burst(&limiter, nth_client(n), NOW + 30, 9), 0, "client {n} is kept");
    }
    assert_eq!(burst(&limiter, nth_client(0), NOW + 30, 9), 5, "the first was forgotten");
}

#[test]
fn a_window_that_has_ended_is_replaced_before_a_live_one() {
    let limiter = ClientLimiter::new(5, 4, 1);
    burst(&limiter, nth_client(0), NOW, 5);
    let later = NOW + 2 * MINUTE;
    for n in 1..5 {
        assert_eq!(burst(&limiter, nth_client(n), later, 9), 5);
    }
    for n in 1..5 {
        assert_eq!(burst(&limiter, nth_client(n), later, 9), 0, "client {n} is kept");
    }
}

#[test]
fn a_table_of_any_size_works() {
    for cells in [0, 1, 3, 4, 5, 1_000, 4_097] {
        let limiter = ClientLimiter::new(2, cells, u64::MAX);
        for n in 0..100 {
            assert_eq!(burst(&limiter, nth_client(n), NOW, 3), 2, "{cells} cells");
        }
    }
}

#[test]
fn neighbouring_addresses_spread_over_the_table() {
    // A third of the cells is taken: few clients may have lost theirs, whatever the seed.
    for seed in [0, 1, 42, u64::MAX] {
        for spacing in [1, 256, 65_536] {
            let limiter = ClientLimiter::new(1, 3 * 4_096, seed);
            let let_in = || {
                let clients = (0..4_096).map(|n| nth_client(n * spacing));
                clients.filter(|client| limiter.admit(*client, NOW).is_ok()).count()
            };
            // Of 4,096 clients about one in 25,000 shares a window with another.
            assert!(let_in() >= 4_094, "seed {seed}, spacing {spacing}");
            let forgotten = let_in();
            assert!(forgotten < 300, "{forgotten} with seed {seed}, spacing {spacing}");
        }
    }
}

// --- Against the model ---

/// The estimate by its definition, from the times of all admitted requests.
#[derive(Clone)]
struct Model {
    limit: usize,
    /// The start of the minute of the newest admitted request.
    start: u64,
    admitted: VecDeque<u64>,
}

impl Model {
    fn new(limit: u32) -> Self {
        Self { limit: limit as usize, start: 0, admitted: VecDeque::new() }
    }

    /// The start of the minute of `now`; a client without a request in this minute and the previous one starts a new
    /// one.
    fn minute(&self, now: u64) -> u64 {
        match self.admitted.back() {
            Some(_) if now < self.start + MINUTE => self.start,
            Some(_) if now < self.start + 2 * MINUTE => self.start + MINUTE,
            _ => now,
        }
    }

    fn lets_in(&self, now: u64) -> bool {
        let minute = self.minute(now);
        let within = |from: u64, to: u64| self.admitted.iter().filter(|&&at| from <= at && at < to).count() as u128;
        let (previous, current) = (within(minute.saturating_sub(MINUTE), minute), within(minute, minute + MINUTE));
        // The part of the 60,000 ms before this minute that is within the last 60,000 ms.
        let overlap = u128::from((minute + MINUTE).saturating_sub(now + 1));
        previous * overlap + current * u128::from(MINUTE) < self.limit as u128 * u128::from(MINUTE)
    }

    fn admit(&mut self, now: u64) -> Result<(), RetryAfter> {
        if self.lets_in(now) {
            self.start = self.minute(now);
            self.admitted.push_back(now);
            return Ok(());
        }
        let seconds = (1..=60).find(|seconds| self.lets_in(now + seconds * 1000)).unwrap();
        Err(RetryAfter(u32::try_from(seconds).unwrap()))
    }
}

/// Steps of a client: milliseconds to wait, then concurrent requests.
fn steps() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let wait = prop_oneof![
        4 => Just(0),
        4 => 0..1_500_u64,
        4 => 1_000..70_000_u64,
        1 => (0..4_u64).prop_map(|n| n * 30_000),
        1 => 59_990..60_010_u64,
        1 => 119_990..120_010_u64,
    ];
    prop::collection::vec((wait, 0..12_u32), 1..60)
}

/// Runs the steps and returns the times of the admitted requests; checks the wait of each refusal.
fn play(limit: u32, from: u64, steps: &[(u64, u32)]) -> Vec<u64> {
    let limiter = limiter(limit);
    let me = client("2001:db8::1");
    let mut now = from;
    let mut let_in = Vec::new();
    for &(wait, count) in steps {
        now += wait;
        let_in.extend((0..count).filter(|_| limiter.admit(me, now).is_ok()).map(|_| now));
    }
    let_in
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_answer_is_the_models(limit in 1..15_u32, from in 0..1_000_000_u64, steps in steps()) {
        let limiter = limiter(limit);
        let mut model = Model::new(limit);
        let me = client("192.0.2.1");
        let mut now = NOW + from;
        for (wait, count) in steps {
            now += wait;
            for _ in 0..count {
                prop_assert_eq!(limiter.admit(me, now), model.admit(now), "at {}", now);
            }
        }
    }

    #[test]
    fn a_retry_after_the_wait_is_let_in_and_a_second_earlier_is_not(
        limit in prop_oneof![1..20_u32, Just(100), Just(1_000)],
        steps in steps(),
        scale in 1..100_u32,
    ) {
        let limiter = limiter(limit);
        let me = client("192.0.2.1");
        let mut now = NOW;
        for (wait, count) in steps {
            now += wait;
            for _ in 0..count * scale {
                if let Err(RetryAfter(seconds)) = limiter.admit(me, now) {
                    prop_assert!((1..=60).contains(&seconds));
                    now += u64::from(seconds - 1) * 1000;
                    prop_assert!(limiter.admit(me, now).is_err());
                    now += 1000;
                    prop_assert!(limiter.admit(me, now).is_ok());
                    break;
                }
            }
        }
    }

    #[test]
    fn in_n_minutes_at_most_n_plus_1_limits_are_let_in(limit in 1..15_u32, steps in steps()) {
        let let_in = play(limit, NOW, &steps);
        for (first, &from) in let_in.iter().enumerate() {
            for minutes in 1..5 {
                let end = let_in.partition_point(|&at| at < from + minutes * MINUTE);
                let most = (minutes + 1) * u64::from(limit);
                prop_assert!((end - first) as u64 <= most);
            }
        }
    }

    #[test]
    fn who_sent_less_than_the_limit_in_two_minutes_is_let_in(
        limit in 1..15_u32,
        steps in steps(),
    ) {
        let limiter = limiter(limit);
        let me = client("192.0.2.1");
        let mut let_in: Vec<u64> = Vec::new();
        let mut now = NOW;
        for (wait, count) in steps {
            now += wait;
            for _ in 0..count {
                let recent = let_in.iter().filter(|&&at| at + 2 * MINUTE > now).count();
                let answer = limiter.admit(me, now);
                prop_assert!(answer.is_ok() || recent >= limit as usize);
                let_in.extend(answer.is_ok().then_some(now));
            }
        }
    }

    #[test]
    fn any_time_of_any_clock_is_answered(
        limit in 1..=u32::MAX,
        times in prop::collection::vec(any::<u64>(), 1..50),
    ) {
        let limiter = ClientLimiter::new(limit, 4, 1);
        for (n, now) in (0_u32..).zip(times) {
            if let Err(RetryAfter(seconds)) = limiter.admit(nth_client(n % 7), now) {
                prop_assert!((1..=120).contains(&seconds));
            }
        }
    }
}

// --- Many threads ---

const THREADS: u32 = 8;

/// All threads send `each` requests for every client concurrently; returns the number of admitted requests by client.
fn storm(limiter: &ClientLimiter, clients: &[ClientKey], now: u64, each: u32) -> Vec<u32> {
    let let_in: Vec<AtomicU32> = clients.iter().map(|_| AtomicU32::new(0)).collect();
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (let_in, barrier) = (&let_in, &barrier);
            scope.spawn(move || {
                for (client, let_in) in clients.iter().zip(let_in) {
                    barrier.wait();
                    // The clocks of threads differ a little.
                    let count = burst(limiter, *client, now + u64::from(thread % 3), each);
                    let_in.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
    });
    let_in.into_iter().map(AtomicU32::into_inner).collect()
}

#[test]
fn a_burst_from_many_threads_gets_exactly_the_limit() {
    let limiter = ClientLimiter::new(100, 64, 3);
    let counts = storm(&limiter, &[client("192.0.2.1")], NOW, 5_000);
    assert_eq!(counts, [100]);
}

#[test]
fn many_threads_never_give_one_client_two_cells() {
    // Four cells whose windows have all ended when the next four clients come: each is taken under load.
    let limiter = ClientLimiter::new(20, 4, 3);
    for round in 0..100 {
        let now = NOW + u64::from(round) * 2 * MINUTE + u64::from(round) * 10;
        let clients: Vec<_> = (0..4).map(|n| nth_client(round * 4 + n)).collect();
        let counts = storm(&limiter, &clients, now, 10);
        assert_eq!(counts, [20; 4], "round {round}");
    }
}
