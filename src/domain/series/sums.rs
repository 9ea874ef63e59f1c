//! The hits of a series.

use super::intervals::Interval;
use super::range::SeriesRange;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::quarters::QuarterHits;
use crate::domain::tally::{BotFilter, Tally};
use crate::domain::time_zone::TimeZone;

/// The hits of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesPoint {
    pub start: Timestamp,
    pub count: u64,
}

/// A series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesAnswer {
    pub from: Timestamp,
    /// Exclusive.
    pub until: Timestamp,
    pub interval: Interval,
    pub timezone: TimeZone,
    /// The sum of the points.
    pub total: u64,
    /// All intervals, also those without hits.
    pub points: Vec<SeriesPoint>,
}

/// The hits of a range while its days are read.
///
/// Days may come in any order and in any number of parts, such as one for each node that counts. Of each day, the hits
/// or their quarters are counted, and the other is left out.
#[derive(Debug)]
pub struct SeriesSums<'a> {
    range: &'a SeriesRange,
    bots: BotFilter,
    counts: Vec<u64>,
}

impl<'a> SeriesSums<'a> {
    pub fn new(range: &'a SeriesRange, bots: BotFilter) -> Self {
        Self { range, bots, counts: vec![0; range.starts().len()] }
    }

    /// Counts the hits of a day that lies within one interval.
    pub fn add_day(&mut self, day: Day, hits: Tally) {
        if let Some(at) = self.range.of_whole_day(day) {
            self.add(at, hits);
        }
    }

    /// Counts the hits of a day that does not.
    pub fn add_quarters(&mut self, day: Day, hits: &QuarterHits) {
        if self.range.of_whole_day(day).is_some() {
            return;
        }
        for (slot, tally) in hits.slots() {
            if let Some(at) = self.range.at(QuarterHits::start_of(day, slot)) {
                self.add(at, tally);
            }
        }
    }

    fn add(&mut self, at: usize, hits: Tally) {
        self.counts[at] = self.counts[at].saturating_add(self.bots.of(hits));
    }

    pub fn answer(self) -> SeriesAnswer {
        let points = self.range.starts().iter().zip(&self.counts);
        SeriesAnswer {
            from: self.range.from(),
            until: self.range.until(),
            interval: self.range.interval(),
            timezone: self.range.zone().clone(),
            total: self.counts.iter().fold(0, |total, count| total.saturating_add(*count)),
            points: points.map(|(start, count)| SeriesPoint { start: *start, count: *count }).collect(),
        }
    }
}
