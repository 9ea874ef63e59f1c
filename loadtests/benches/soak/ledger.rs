//! The outcome of every request, as its client saw it.

use std::{ops::AddAssign, time::Duration};

/// Requests for one link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Answered 302: each is a hit.
    pub answered: u64,
    /// Sent, and the connection was cut before the answer: each may be a hit.
    pub unanswered: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.unanswered += other.unanswered;
    }
}

impl Tally {
    pub fn allows(self, counted: u64) -> bool {
        (self.answered..=self.answered + self.unanswered).contains(&counted)
    }
}

/// The outcome of a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// Answered 200, with this id.
    Made([u8; 7]),
    /// Answered 403, 429, or 503 before its time was up: nothing is to come of it.
    Refused(u16),
    /// Never answered, or 503 when its time was up: the link may have been made.
    Unanswered,
}

/// A request under a limit per minute, in time since the traffic began.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub sent: Duration,
    pub ended: Duration,
    /// `None` where it was not answered.
    pub let_in: Option<bool>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// By the index of the link.
    pub links: Vec<Tally>,
    /// By the number of the creation, with the index of the key.
    pub creations: Vec<(u8, Creation)>,
    /// Of the key and of the client that ask for more than they may.
    pub limited_key: Vec<Asked>,
    pub limited_client: Vec<Asked>,
    /// Answers that nothing explains, the first few of them in words.
    pub odd: u64,
    pub odd_samples: Vec<String>,
}

impl Ledger {
    pub fn total(&self) -> Tally {
        self.links.iter().fold(Tally::default(), |sum, tally| Tally {
            answered: sum.answered + tally.answered,
            unanswered: sum.unanswered + tally.unanswered,
        })
    }

    pub fn note_odd(&mut self, what: impl FnOnce() -> String) {
        self.odd += 1;
        if self.odd_samples.len() < 5 {
            self.odd_samples.push(what());
        }
    }
}
