//! The intervals of a series.

use chrono::{Datelike, Days, Months, NaiveDate};

use crate::domain::calendar::{Day, Timestamp};
use crate::domain::quarters::QUARTER_MILLIS;
use crate::domain::time_zone::{OffsetChange, TimeZone};

/// The length of intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interval {
    Hour,
    #[default]
    Day,
    /// From Monday on.
    Week,
    Month,
}

impl Interval {
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::Month];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|interval| interval.name() == text)
    }

    /// The first date of the interval after that of a date. Hours have none.
    fn date_after(self, date: Day) -> Option<Day> {
        let date = NaiveDate::from_epoch_days(i32::try_from(date.0).ok()?)?;
        let next = match self {
            Self::Hour => return None,
            Self::Day => date.succ_opt()?,
            Self::Week => date.checked_add_days(Days::new(7 - u64::from(date.weekday().num_days_from_monday())))?,
            Self::Month => date.with_day(1)?.checked_add_months(Months::new(1))?,
        };
        u32::try_from(next.to_epoch_days()).ok().map(Day)
    }
}

/// When the intervals of a range begin: `from`, then each time after it at which an interval begins, until `until`.
///
/// An hour ends where the clock shows a full one, or is set. So an hour that a clock shows twice is two intervals.
pub struct IntervalStarts<'a> {
    zone: &'a TimeZone,
    interval: Interval,
    next: Timestamp,
    until: Timestamp,
    /// When the clock is set next, as far as it is known: up to `known_until`.
    change: Option<OffsetChange>,
    known_until: Timestamp,
}

impl<'a> IntervalStarts<'a> {
    pub fn new(zone: &'a TimeZone, interval: Interval, from: Timestamp, until: Timestamp) -> Self {
        Self { zone, interval, next: from, until, change: None, known_until: from }
    }

    fn after(&mut self, at: Timestamp) -> Timestamp {
        if self.interval == Interval::Hour {
            return self.hour_after(at);
        }
        let mut date = self.zone.date_at(at);
        loop {
            let Some(next) = self.interval.date_after(date) else { return self.until };
            let start = on_quarter(self.zone.start_of(next));
            // A date that the zone skips has no length.
            if start > at {
                return start;
            }
            date = next;
        }
    }

    fn hour_after(&mut self, at: Timestamp) -> Timestamp {
        if self.known_until <= at {
            self.change = self.zone.next_change(at);
            self.known_until = self.change.map_or(self.until, |change| change.at);
        }
        let full = Timestamp(at.0 - at.0 % 1_000 + (3_600 - self.zone.seconds_into_hour(at)) * 1_000);
        let end = self.change.map_or(full, |change| full.min(change.at));
        let end = on_quarter(end);
        if end > at { end } else { on_quarter(Timestamp(at.0 + QUARTER_MILLIS)) }
    }
}

/// Hits are known by quarters. All changes of today's zones are at one; this is for zones to come.
fn on_quarter(time: Timestamp) -> Timestamp {
    Timestamp(time.0 - time.0 % QUARTER_MILLIS)
}

impl Iterator for IntervalStarts<'_> {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        let start = self.next;
        (start < self.until).then(|| {
            self.next = self.after(start);
            start
        })
    }
}
