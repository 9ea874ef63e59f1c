//! Timestamps, days and months, all in UTC.
//!
//! Nothing here reads a clock: callers pass the current [`Timestamp`].

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, SecondsFormat};

const MILLIS_PER_DAY: u64 = 86_400_000;

/// A time in milliseconds since 1970-01-01T00:00:00Z.
///
/// Displayed and parsed as ISO 8601 with milliseconds and `Z`: `2026-11-21T07:49:42.028Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The last time with a four-digit year.
    const LATEST: u64 = 253_402_300_799_999;

    /// The day of this time.
    pub fn day(self) -> Day {
        // A timestamp is at most `LATEST`, whose day number is below 3 million.
        Day(u32::try_from(self.0 / MILLIS_PER_DAY).unwrap_or(u32::MAX))
    }

    /// The calendar month of this time.
    pub fn month(self) -> Month {
        self.day().month()
    }

    /// Whole seconds since the epoch.
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }

    /// This time plus `duration`.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis).min(Self::LATEST))
    }

    /// This time minus `duration`, at least the epoch.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// The time from `earlier` to this time; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Parses any RFC 3339 time. `None` for other text and for times before 1970.
    pub fn parse(text: &str) -> Option<Self> {
        let parsed = DateTime::parse_from_rfc3339(text).ok()?;
        u64::try_from(parsed.timestamp_millis()).ok().filter(|millis| *millis <= Self::LATEST).map(Self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0.min(Self::LATEST)).unwrap_or(0);
        let time = DateTime::from_timestamp_millis(millis).unwrap_or_default();
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

/// A calendar day, in days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

impl Day {
    /// The first millisecond of this day.
    pub fn start(self) -> Timestamp {
        Timestamp(u64::from(self.0) * MILLIS_PER_DAY)
    }

    /// The day `days` earlier, at least the epoch.
    #[must_use]
    pub fn minus(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }

    /// The month of this day.
    pub fn month(self) -> Month {
        let date = self.date();
        // Years since the epoch are positive and small.
        Month(u32::try_from(date.year()).unwrap_or(0) * 12 + date.month0())
    }

    fn date(self) -> NaiveDate {
        NaiveDate::from_epoch_days(i32::try_from(self.0).unwrap_or(i32::MAX)).unwrap_or(NaiveDate::MAX)
    }
}

/// `YYYY-MM-DD`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.date().format("%Y-%m-%d"))
    }
}

/// A calendar month: year × 12 + month counted from 0, so that months can be sorted and subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(pub u32);

impl Month {
    /// The first millisecond of this month.
    pub fn start(self) -> Timestamp {
        let year = i32::try_from(self.0 / 12).unwrap_or(i32::MAX);
        let first = NaiveDate::from_ymd_opt(year, self.0 % 12 + 1, 1).unwrap_or(NaiveDate::MAX);
        Day(u32::try_from(first.to_epoch_days()).unwrap_or(0)).start()
    }
}

/// `YYYY-MM`.
impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0 / 12, self.0 % 12 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_shown_with_milliseconds_and_z() {
        let time = Timestamp::parse("2026-11-21T07:49:42.028Z").unwrap();
        assert_eq!(time.to_string(), "2026-11-21T07:49:42.028Z");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn days_and_months_follow_the_utc_calendar() {
        let last = Timestamp::parse("2024-02-29T23:59:59.999Z").unwrap();
        let next = Timestamp(last.0 + 1);
        assert_eq!((last.day().to_string(), last.month().to_string()), ("2024-02-29".into(), "2024-02".into()));
        assert_eq!((next.day().to_string(), next.month().to_string()), ("2024-03-01".into(), "2024-03".into()));
        assert_eq!(next.month().0 - last.month().0, 1);
        assert_eq!((next.day().start(), next.month().start()), (next, next));
    }

    #[test]
    fn an_offset_is_taken_into_account_and_times_before_1970_are_refused() {
        assert_eq!(Timestamp::parse("1970-01-01T01:00:00+01:00"), Some(Timestamp(0)));
        assert_eq!(Timestamp::parse("1969-12-31T23:59:59Z"), None);
        assert_eq!(Timestamp::parse("tomorrow"), None);
    }
}
