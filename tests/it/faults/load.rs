//! Load on a child process, and an exact count of its outcomes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::support::wire::Connection;

/// A generator whose seed is printed, so that a failure can be had again.
pub struct Random(u64);

impl Random {
    /// `SIGNPOST_TEST_SEED`, or a new seed.
    pub fn seeded() -> Self {
        let chosen = std::env::var("SIGNPOST_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = chosen.unwrap_or_else(|| uuid::Uuid::now_v7().as_u64_pair().1 >> 16);
        eprintln!("seed {seed}: to repeat, SIGNPOST_TEST_SEED={seed}");
        Self(seed)
    }

    pub fn with_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `bound`. `SplitMix64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.below(choices.len() as u64);
        &choices[usize::try_from(index).unwrap()]
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Ends what goes on until this is so, also where the test fails.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Requests that were answered, and those that were sent and never answered: a process that was killed meanwhile may or
/// may not have counted them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub answered: u64,
    pub unanswered: u64,
}

impl Tally {
    /// Checks answered ≤ counted ≤ answered + unanswered.
    #[track_caller]
    pub fn allows(self, counted: u64, what: &str) {
        let allowed = self.answered..=self.answered + self.unanswered;
        assert!(allowed.contains(&counted), "{what}: counted {counted}, {self:?}");
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.unanswered += other.unanswered;
    }
}

/// Device label and user agent.
pub const AGENTS: [(&str, &str); 3] = [
    ("desktop", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    (
        "mobile",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1",
    ),
    ("tablet", "Mozilla/5.0 (iPad; CPU OS 15_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1"),
];

/// Referrer label and what a browser sends.
pub const REFERRERS: [(&str, &str); 3] =
    [("news.example", "https://www.news.example/a?b=c"), ("blog.example", "http://blog.example:8080/"), ("", "")];

/// The outcome of redirects, by link, and by link and label.
#[derive(Debug, Default)]
pub struct Visits {
    pub links: HashMap<String, Tally>,
    pub labels: HashMap<(String, &'static str), Tally>,
    /// Answers that began and did not end.
    pub torn: u64,
}

impl Visits {
    pub fn of(&self, link: &str) -> Tally {
        self.links.get(link).copied().unwrap_or_default()
    }

    pub fn label(&self, link: &str, label: &'static str) -> Tally {
        self.labels.get(&(link.to_owned(), label)).copied().unwrap_or_default()
    }

    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for tally in self.links.values() {
            total += *tally;
        }
        total
    }

    pub fn merge(&mut self, other: Self) {
        for (link, tally) in other.links {
            *self.links.entry(link).or_default() += tally;
        }
        for (label, tally) in other.labels {
            *self.labels.entry(label).or_default() += tally;
        }
        self.torn += other.torn;
    }

    /// Makes one redirect; false where the connection is of no more use.
    pub fn visit(&mut self, connection: &mut Connection, link: &str, random: &mut Random) -> bool {
        let ((device, agent), (referrer, sent)) = (*random.one_of(&AGENTS), *random.one_of(&REFERRERS));
        let mut headers = vec![("User-Agent", agent)];
        if !sent.is_empty() {
            headers.push(("Referer", sent));
        }
        let (tally, goes_on) = match connection.get(&format!("/{link}"), &headers) {
            Ok(answer) => {
                let goes_on = !answer.closes();
                assert!(answer.expect(302).header("location").starts_with("https://example.com/"));
                (Tally { answered: 1, unanswered: 0 }, goes_on)
            }
            Err(unanswered) => {
                self.torn += u64::from(unanswered.is_torn());
                (Tally { answered: 0, unanswered: 1 }, false)
            }
        };
        *self.links.entry(link.to_owned()).or_default() += tally;
        *self.labels.entry((link.to_owned(), device)).or_default() += tally;
        *self.labels.entry((link.to_owned(), referrer)).or_default() += tally;
        goes_on
    }
}

/// Redirects over one keep-alive connection until it ends, or `most` of them, with `pause` after each.
pub fn visit_until_the_end(
    address: SocketAddr,
    links: &[String],
    most: usize,
    pause: Duration,
    mut random: Random,
) -> Visits {
    let mut visits = Visits::default();
    let Ok(mut connection) = Connection::open(address) else { return visits };
    for _ in 0..most {
        let link = random.one_of(links);
        if !visits.visit(&mut connection, link, &mut random) {
            break;
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    visits
}
