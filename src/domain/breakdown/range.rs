//! The range of a breakdown, and what of it is read from months and what from days.

use std::ops::Range;

use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::range_end::{RangeEnd, RangeFault};

/// The days whose sheets are kept, unless it is set otherwise.
pub const DEFAULT_SHEET_DAYS: u32 = 90;

/// When the sheet of a day may be dropped.
///
/// A range that ends within the last `sheet_days` takes the whole beginning of the month of its end from sheets: so
/// those of a month are kept until its last day is too old to be an end.
pub fn sheet_kept_until(day: Day, sheet_days: u32) -> Timestamp {
    let next_month = Month(day.month().0 + 1).start().day();
    Day(next_month.0.saturating_add(sheet_days).saturating_add(1)).start()
}

/// The first day whose sheet is kept at the time `now`.
pub fn first_sheet_day(now: Timestamp, sheet_days: u32) -> Day {
    // Those of a month go together.
    let newest_gone = now.day().minus(sheet_days.saturating_add(1));
    Day(newest_gone.month().start().day().0)
}

/// The days of a breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakdownRange {
    /// `None`: since the first hit.
    from: Option<Day>,
    /// Exclusive. `None`: until now.
    until: Option<Day>,
    today: Day,
}

/// Months one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonthSpan {
    /// `None`: since the first hit.
    pub first: Option<Month>,
    /// Exclusive. `None`: with the current month.
    pub end: Option<Month>,
}

impl MonthSpan {
    pub fn has(&self, month: Month) -> bool {
        self.first.is_none_or(|first| first <= month) && self.end.is_none_or(|end| month < end)
    }
}

/// Where the labels of a range are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakdownReads {
    /// Months that lie within the range: their lists.
    pub months: Option<MonthSpan>,
    /// All other days of the range, in order: their sheets.
    pub days: Vec<Range<Day>>,
}

impl BreakdownReads {
    pub fn has_sheet(&self, day: Day) -> bool {
        self.days.iter().any(|days| days.contains(&day))
    }
}

fn first_of(month: Month) -> Day {
    month.start().day()
}

fn is_first_of_month(day: Day) -> bool {
    first_of(day.month()) == day
}

impl BreakdownRange {
    /// Reads the range of a breakdown at the time `now`. Without parameters: the lifetime.
    ///
    /// Days that are not the first of a month must be within the last `sheet_days`; with 0, there are none.
    ///
    /// # Errors
    /// All faults.
    pub fn parse(
        from: Option<&str>,
        until: Option<&str>,
        now: Timestamp,
        sheet_days: u32,
    ) -> Result<Self, Vec<RangeFault>> {
        let today = now.day();
        let mut faults = Vec::new();
        let mut end = |parameter, text: Option<&str>, latest: Day| {
            let day = match RangeEnd::parse(text?) {
                Some(RangeEnd::Date(day)) => Some(day),
                Some(RangeEnd::Time(time)) => Some(time.day()).filter(|day| day.start() == time),
                None => None,
            };
            let Some(day) = day else {
                faults.push(RangeFault::new(parameter, "must be a date (UTC) such as `2026-11-26`, from 1970 to 9998"));
                return None;
            };
            let has_sheets = sheet_days > 0 && today.minus(sheet_days) <= day && day <= latest;
            // The end of today is the end of all hits.
            let is_now = day == latest && parameter == "until";
            if !(has_sheets || is_now || is_first_of_month(day)) {
                let detail = match sheet_days {
                    0 => "must be the first day of a month".to_owned(),
                    days => format!("must be within the last {days} days, or the first day of a month"),
                };
                faults.push(RangeFault::new(parameter, detail));
            }
            Some(day)
        };
        let tomorrow = Day(today.0 + 1);
        let (from, until) = (end("from", from, today), end("until", until, tomorrow));
        let until = until.filter(|until| *until < tomorrow);
        if from.is_some_and(|from| from >= until.unwrap_or(tomorrow)) {
            faults.push(RangeFault::new("from", "must be before `until`, and not after today"));
        }
        if faults.is_empty() { Ok(Self { from, until, today }) } else { Err(faults) }
    }

    /// Whether the hits of a day count.
    pub fn has(&self, day: Day) -> bool {
        self.from.is_none_or(|from| from <= day) && self.until.is_none_or(|until| day < until)
    }

    /// `None`: since the first hit.
    pub fn from(&self) -> Option<Day> {
        self.from
    }

    /// Exclusive. `None`: until now.
    pub fn until(&self) -> Option<Day> {
        self.until
    }

    /// Where the labels are read.
    pub fn reads(&self) -> BreakdownReads {
        let mut days = Vec::new();
        // The month of the first whole one, and the end of the last.
        let first = self.from.map(|from| {
            if is_first_of_month(from) {
                return from.month();
            }
            let next = Month(from.month().0 + 1);
            let end = self.until.unwrap_or(Day(self.today.0 + 1)).min(first_of(next));
            days.push(from..end);
            next
        });
        let end = self.until.map(|until| {
            let start = first_of(until.month());
            // Days before the first whole month are there already.
            if start < until && first.is_none_or(|first| first <= until.month()) {
                days.push(start..until);
            }
            until.month()
        });
        let last = end.unwrap_or(Month(self.today.month().0 + 1));
        let months = first.is_none_or(|first| first < last).then_some(MonthSpan { first, end });
        BreakdownReads { months, days }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: &str = "2026-11-26T12:34:56.789Z";

    fn parse(from: &str, until: &str, sheet_days: u32) -> Result<BreakdownRange, Vec<RangeFault>> {
        let given = |text| Some(text).filter(|text: &&str| !text.is_empty());
        BreakdownRange::parse(given(from), given(until), Timestamp::parse(NOW).unwrap(), sheet_days)
    }

    fn faulty(from: &str, until: &str, sheet_days: u32) -> Vec<&'static str> {
        parse(from, until, sheet_days)
            .map_or_else(|faults| faults.iter().map(|fault| fault.parameter).collect(), |_| vec![])
    }

    /// `months 2026-01..2026-03, days 2026-03-01..2026-03-09`.
    fn reads(from: &str, until: &str) -> String {
        let reads = parse(from, until, 90).unwrap().reads();
        let month = |month: Option<Month>| month.map(|month| month.to_string()).unwrap_or_default();
        let months = reads.months.map(|span| format!("months {}..{}", month(span.first), month(span.end)));
        let days = reads.days.iter().map(|days| format!("days {}..{}", days.start, days.end));
        months.into_iter().chain(days).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn whole_months_are_read_as_such_and_other_days_from_sheets() {
        assert_eq!(reads("", ""), "months ..");
        assert_eq!(reads("2020-02-01", ""), "months 2020-02..");
        assert_eq!(reads("2020-02-01", "2020-05-01"), "months 2020-02..2020-05");
        assert_eq!(reads("", "2020-05-01T00:00:00Z"), "months ..2020-05");
        assert_eq!(reads("2026-11-01", ""), "months 2026-11..");
        assert_eq!(reads("2026-11-20", ""), "days 2026-11-20..2026-11-27");
        assert_eq!(reads("2026-11-26", "2026-11-27"), "days 2026-11-26..2026-11-27");
        assert_eq!(reads("2026-11-02", "2026-11-09"), "days 2026-11-02..2026-11-09");
        assert_eq!(reads("2026-11-01", "2026-11-09"), "days 2026-11-01..2026-11-09");
        assert_eq!(reads("2026-09-20", "2026-10-01"), "days 2026-09-20..2026-10-01");
        assert_eq!(reads("2026-09-20", "2026-10-07"), "days 2026-09-20..2026-10-01, days 2026-10-01..2026-10-07");
        assert_eq!(
            reads("2026-09-20", "2026-11-07"),
            "months 2026-10..2026-11, days 2026-09-20..2026-10-01, days 2026-11-01..2026-11-07"
        );
        assert_eq!(reads("", "2026-09-04"), "months ..2026-09, days 2026-09-01..2026-09-04");
        // The end of today is that of all hits.
        assert_eq!(reads("2026-01-01", "2026-11-27"), "months 2026-01..");
        assert_eq!(reads("2026-01-01", "2027-01-01"), "months 2026-01..");
    }

    #[test]
    fn an_end_is_within_the_days_of_sheets_or_the_first_of_a_month() {
        assert_eq!(faulty("2026-08-28", "2026-08-29", 90), [""; 0]);
        assert_eq!(faulty("2026-08-27", "2026-08-28", 90), ["from"]);
        assert_eq!(faulty("2026-08-01", "2026-08-27", 90), ["until"]);
        assert_eq!(faulty("2026-08-26", "2026-08-27", 90), ["from", "until"]);
        assert_eq!(faulty("2026-11-20", "2026-11-28", 90), ["until"]);
        assert_eq!(faulty("2026-08-01", "2026-09-01", 0), [""; 0]);
        assert_eq!(faulty("2026-08-01", "2026-11-27", 0), [""; 0]);
        assert_eq!(faulty("2026-11-26", "", 0), ["from"]);
        assert_eq!(parse("2026-11-26", "", 0).unwrap_err()[0].detail, "must be the first day of a month");
        assert_eq!(faulty("2026-11-01", "2026-11-26", 0), ["until"]);
        for text in ["yesterday", "2026-11-26T00:15:00Z", "2026-11"] {
            assert_eq!(faulty(text, text, 90), ["from", "until"]);
        }
        assert_eq!(faulty("2026-11-01", "2026-11-01", 90), ["from"]);
        assert_eq!(faulty("2026-12-01", "", 90), ["from"]);
        assert_eq!(faulty("2026-12-01", "2027-01-01", 90), ["from"]);
    }

    proptest! {
        #[test]
        fn each_day_of_a_range_is_read_once_while_its_sheet_is_kept(
            now in 20_000_u32..20_800, from in 0_u32..800, until in 0_u32..800, sheet_days in 0_u32..120,
            opens in any::<[bool; 2]>(),
        ) {
            let now = Timestamp(Day(now).start().0 + 1);
            let end = |before: u32, is_open: bool| (!is_open).then(|| Day(now.day().0 + 2 - before).to_string());
            let (from, until) = (end(from, opens[0]), end(until, opens[1]));
            let Ok(range) = BreakdownRange::parse(from.as_deref(), until.as_deref(), now, sheet_days) else {
                return Ok(());
            };
            let reads = range.reads();
            for day in (19_000..=now.day().0).map(Day) {
                let by_month = reads.months.is_some_and(|months| months.has(day.month()));
                let by_day = reads.days.iter().filter(|days| days.contains(&day)).count();
                prop_assert_eq!(by_day + usize::from(by_month), usize::from(range.has(day)), "{}", day);
                prop_assert_eq!(reads.has_sheet(day), by_day == 1);
                prop_assert!(by_day == 0 || sheet_kept_until(day, sheet_days) > now, "{}", day);
            }
        }
    }
}
