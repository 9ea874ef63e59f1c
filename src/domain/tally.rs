//! Hits of persons and of bots, apart.

use std::iter::Sum;
use std::ops::AddAssign;

/// A number of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub persons: u64,
    /// Bots, prefetches and scanners.
    pub bots: u64,
}

impl Tally {
    /// One hit.
    pub const fn of_hit(is_bot: bool) -> Self {
        if is_bot { Self { persons: 0, bots: 1 } } else { Self { persons: 1, bots: 0 } }
    }

    /// `bots` of `all` hits are those of bots. A program that does not tell them apart counts all hits only.
    pub const fn of_total(all: u64, bots: u64) -> Self {
        Self { persons: all.saturating_sub(bots), bots }
    }

    pub const fn all(self) -> u64 {
        self.persons.saturating_add(self.bots)
    }

    pub const fn is_zero(self) -> bool {
        self.persons == 0 && self.bots == 0
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.persons = self.persons.saturating_add(other.persons);
        self.bots = self.bots.saturating_add(other.bots);
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |mut sum, tally| {
            sum += tally;
            sum
        })
    }
}

/// Which hits an answer counts: the parameter `bots`. `Exclude` and `Only` add up to `Include`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BotFilter {
    #[default]
    Include,
    Exclude,
    Only,
}

impl BotFilter {
    pub const ALL: [Self; 3] = [Self::Include, Self::Exclude, Self::Only];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Include => "include",
            Self::Exclude => "exclude",
            Self::Only => "only",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|filter| filter.name() == text)
    }

    /// The hits that are counted.
    pub const fn of(self, tally: Tally) -> u64 {
        match self {
            Self::Include => tally.all(),
            Self::Exclude => tally.persons,
            Self::Only => tally.bots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persons_and_bots_add_up_to_all_hits() {
        let tally = Tally::of_total(7, 3);
        let [all, persons, bots] = BotFilter::ALL.map(|filter| filter.of(tally));
        assert_eq!((all, persons, bots), (7, 4, 3));
        assert_eq!([Tally::of_hit(true), Tally::of_hit(false), tally].into_iter().sum::<Tally>().all(), 9);
        assert_eq!(BotFilter::ALL.map(|filter| BotFilter::parse(filter.name())), BotFilter::ALL.map(Some));
        assert_eq!(BotFilter::parse("Only"), None);
    }
}
