//! Hits of a day by quarter of an hour (UTC).
//!
//! Local times differ from UTC by whole quarters of an hour, so that the hours and days of every zone are made of
//! these.

use super::calendar::{Day, Timestamp};
use super::tally::Tally;

/// The quarters of a day.
pub const SLOTS: u8 = 96;
/// The milliseconds of a quarter.
pub const QUARTER_MILLIS: u64 = 15 * 60 * 1_000;

/// Hits of one day by quarter of an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuarterHits {
    /// In the order of their slots, without quarters that have no hits.
    slots: Vec<(u8, Tally)>,
}

impl QuarterHits {
    /// The quarter of its day in which a time is.
    pub fn slot_of(time: Timestamp) -> u8 {
        // Less than 96.
        u8::try_from((time.0 - time.day().start().0) / QUARTER_MILLIS).unwrap_or(SLOTS - 1)
    }

    /// When a quarter begins.
    pub fn start_of(day: Day, slot: u8) -> Timestamp {
        Timestamp(day.start().0 + u64::from(slot) * QUARTER_MILLIS)
    }

    /// Adds hits to a quarter. A slot that a day does not have is its last one.
    pub fn add(&mut self, slot: u8, tally: Tally) {
        let slot = slot.min(SLOTS - 1);
        if tally.is_zero() {
            return;
        }
        // Hits are in the order of time.
        match self.slots.last_mut() {
            Some((last, sum)) if *last == slot => *sum += tally,
            Some((last, _)) if *last > slot => match self.slots.binary_search_by_key(&slot, |(slot, _)| *slot) {
                Ok(at) => self.slots[at].1 += tally,
                Err(at) => self.slots.insert(at, (slot, tally)),
            },
            _ => self.slots.push((slot, tally)),
        }
    }

    /// Adds the hits of another writer, or of a batch.
    pub fn add_all(&mut self, other: &Self) {
        other.slots.iter().for_each(|(slot, tally)| self.add(*slot, *tally));
    }

    /// The quarters that have hits, in order.
    pub fn slots(&self) -> impl Iterator<Item = (u8, Tally)> {
        self.slots.iter().copied()
    }

    pub fn total(&self) -> Tally {
        self.slots().map(|(_, tally)| tally).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_quarter_that_began_last() {
        let time = |text: &str| Timestamp::parse(text).unwrap();
        for (text, slot) in [
            ("2026-11-26T00:00:00.000Z", 0),
            ("2026-11-26T00:14:59.999Z", 0),
            ("2026-11-26T00:15:00.000Z", 1),
            ("2026-11-26T23:59:59.999Z", 95),
        ] {
            let time = time(text);
            assert_eq!(QuarterHits::slot_of(time), slot, "{text}");
            let start = QuarterHits::start_of(time.day(), slot);
            assert!(start <= time && time.0 < start.0 + QUARTER_MILLIS);
        }
    }

    #[test]
    fn hits_are_added_up_by_slot_whatever_their_order() {
        let mut hits = QuarterHits::default();
        for slot in [5, 5, 95, 0, 5, 40, 200] {
            hits.add(slot, Tally::of_hit(slot == 0));
        }
        hits.add(7, Tally::default());
        let slots: Vec<_> = hits.slots().map(|(slot, tally)| (slot, tally.persons, tally.bots)).collect();
        assert_eq!(slots, [(0, 0, 1), (5, 3, 0), (40, 1, 0), (95, 2, 0)]);
        let mut twice = hits.clone();
        twice.add_all(&hits);
        assert_eq!((twice.total(), hits.total()), (Tally { persons: 12, bots: 2 }, Tally { persons: 6, bots: 1 }));
    }
}
