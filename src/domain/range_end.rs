//! The ends of a range, as requests write them: dates or times.

use std::borrow::Cow;
use std::fmt;

use chrono::NaiveDate;

use super::calendar::{Day, Timestamp};

/// A parameter of a range that is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeFault {
    /// `from`, `until`, `interval` or `timezone`.
    pub parameter: &'static str,
    pub detail: Cow<'static, str>,
}

impl RangeFault {
    pub fn new(parameter: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { parameter, detail: detail.into() }
    }
}

impl fmt::Display for RangeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.parameter, self.detail)
    }
}

/// Calendars of time zones are computed up to the end of this year.
const LAST_YEAR: &str = "9998";

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// The beginning of a date.
    Date(Day),
    Time(Timestamp),
}

impl RangeEnd {
    /// Reads `2026-11-26`, or an RFC 3339 time. `None` for other texts, and for years before 1970 and after 9998.
    pub fn parse(text: &str) -> Option<Self> {
        if text.get(..4)? > LAST_YEAR {
            return None;
        }
        let is_date = text.len() == "2026-11-26".len()
            && text
                .bytes()
                .enumerate()
                .all(|(at, byte)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() });
        if !is_date {
            return Timestamp::parse(text).map(Self::Time);
        }
        let days = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.to_epoch_days();
        u32::try_from(days).ok().map(|days| Self::Date(Day(days)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_date_or_a_time() {
        assert_eq!(RangeEnd::parse("1970-01-02"), Some(RangeEnd::Date(Day(1))));
        assert_eq!(RangeEnd::parse("1970-01-02T00:00:00+00:15"), Some(RangeEnd::Time(Timestamp(85_500_000))));
        assert!(RangeEnd::parse("9998-12-31").is_some() && RangeEnd::parse("9998-12-31T23:59:59Z").is_some());
        for text in [
            "",
            "today",
            "2026",
            "2026-1-01",
            "2026-02-30",
            "2026-00-01",
            "+026-01-01",
            "1969-12-31",
            "9999-01-01",
            "9999-01-01T00:00:00Z",
            "2026-11-26T00:00:00",
            "2026-11-26 ",
            "２０２６-11-26",
        ] {
            assert_eq!(RangeEnd::parse(text), None, "{text}");
        }
    }
}
