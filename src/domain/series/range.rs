//! The range of a series.

use std::ops::RangeInclusive;

use super::intervals::{Interval, IntervalStarts};
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::quarters::QUARTER_MILLIS;
use crate::domain::range_end::{RangeEnd, RangeFault};
use crate::domain::time_zone::TimeZone;

/// The most points of a series.
pub const MAX_POINTS: usize = 2_000;
/// The days before today whose quarters of an hour can be asked for.
pub const QUARTERS_DAYS: u32 = 35;
/// The days of a series without a range, with today.
const DEFAULT_DAYS: u32 = 30;

/// When the quarters of a day may be dropped.
///
/// The first of [`QUARTERS_DAYS`] may be another day in UTC than in the zone, and have an hour more.
pub fn quarters_kept_until(day: Day) -> Timestamp {
    Day(day.0.saturating_add(QUARTERS_DAYS + 3)).start()
}

/// The parameters of a request for a series. Those that it doesn't have are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeriesParameters<'a> {
    pub from: Option<&'a str>,
    pub until: Option<&'a str>,
    pub interval: Option<&'a str>,
    pub timezone: Option<&'a str>,
}

/// The range of a series: at least one interval, all at full quarters of an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRange {
    interval: Interval,
    zone: TimeZone,
    /// When each interval begins.
    starts: Vec<Timestamp>,
    until: Timestamp,
}

/// The ends of a range, of which one or both may have been left out, at full quarters of an hour: times in between take the
/// whole quarter in.
struct Ends {
    from: Timestamp,
    until: Timestamp,
}

impl Ends {
    fn of(from: Option<RangeEnd>, until: Option<RangeEnd>, zone: &TimeZone, now: Timestamp) -> Self {
        let time_of = |end| match end {
            RangeEnd::Date(date) => zone.start_of(date),
            RangeEnd::Time(time) => time,
        };
        let until = until.map_or_else(|| zone.start_of(Day(zone.date_at(now).0 + 1)), time_of);
        let from = from.map_or_else(
            || zone.start_of(zone.date_at(Timestamp(until.0.saturating_sub(1))).minus(DEFAULT_DAYS - 1)),
            time_of,
        );
        let until = until.0.div_ceil(QUARTER_MILLIS).saturating_mul(QUARTER_MILLIS);
        Self { from: Timestamp(from.0 - from.0 % QUARTER_MILLIS), until: Timestamp(until) }
    }

    fn fault(&self, interval: Interval, zone: &TimeZone, now: Timestamp) -> Option<RangeFault> {
        let fault = |detail: &'static str| Some(RangeFault::new("from", detail));
        if self.from >= self.until {
            return fault("must be before `until`, which is the end of today where it is left out");
        }
        let oldest = zone.start_of(zone.date_at(now).minus(QUARTERS_DAYS));
        if interval == Interval::Hour || !zone.is_utc() {
            if self.from < oldest {
                return fault("must be within the last 35 days for hours, and for other time zones than UTC");
            }
        } else if [self.from, self.until].into_iter().any(|end| end < oldest && end.day().start() != end) {
            return fault("and `until` must be dates: times of the day are known for the last 35 days");
        }
        None
    }
}

impl SeriesRange {
    /// Reads the range of a series at the time `now`. Without parameters: today and the 29 days before, by day, in UTC.
    ///
    /// # Errors
    /// All faults.
    pub fn parse(parameters: SeriesParameters<'_>, now: Timestamp) -> Result<Self, Vec<RangeFault>> {
        let mut faults = Vec::new();
        let zone = parameters.timezone.map_or(Some(TimeZone::UTC), TimeZone::parse);
        if zone.is_none() {
            faults.push(RangeFault::new("timezone", "must be the name of a time zone, such as `Europe/Berlin`"));
        }
        let interval = parameters.interval.map_or(Some(Interval::Day), Interval::parse);
        if interval.is_none() {
            faults.push(RangeFault::new("interval", "must be one of `hour`, `day`, `week` and `month`"));
        }
        let mut end = |parameter, text: Option<&str>| {
            let end = text.map(RangeEnd::parse);
            if end == Some(None) {
                let detail = "must be a date such as `2026-11-26`, or a time with its offset, such as \
                              `2026-11-26T12:00:00Z`, from 1970 to 9998";
                faults.push(RangeFault::new(parameter, detail));
            }
            end.flatten()
        };
        let (from, until) = (end("from", parameters.from), end("until", parameters.until));
        let (Some(zone), Some(interval), true) = (zone, interval, faults.is_empty()) else { return Err(faults) };

        let ends = Ends::of(from, until, &zone, now);
        if let Some(fault) = ends.fault(interval, &zone, now) {
            return Err(vec![fault]);
        }
        let starts: Vec<Timestamp> =
            IntervalStarts::new(&zone, interval, ends.from, ends.until).take(MAX_POINTS + 1).collect();
        if starts.len() > MAX_POINTS {
            let detail = format!("must be longer, or the range shorter: a series has at most {MAX_POINTS} points");
            return Err(vec![RangeFault::new("interval", detail)]);
        }
        Ok(Self { interval, zone, starts, until: ends.until })
    }

    pub fn interval(&self) -> Interval {
        self.interval
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    pub fn from(&self) -> Timestamp {
        self.starts.first().copied().unwrap_or(self.until)
    }

    /// Exclusive.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// When each interval begins: the first at [`from`](Self::from).
    pub fn starts(&self) -> &[Timestamp] {
        &self.starts
    }

    /// The days of UTC that have a share in the range.
    pub fn days(&self) -> RangeInclusive<Day> {
        self.from().day()..=Timestamp(self.until.0.saturating_sub(1)).day()
    }

    /// Whether the quarters of a day of [`days`](Self::days) are to be read: it does not lie within one interval.
    pub fn needs_quarters(&self, day: Day) -> bool {
        self.of_whole_day(day).is_none()
    }

    /// The interval that a time is in.
    pub(super) fn at(&self, time: Timestamp) -> Option<usize> {
        let at = self.starts.partition_point(|start| *start <= time).checked_sub(1)?;
        (time < self.until).then_some(at)
    }

    /// The interval that has all of a day.
    pub(super) fn of_whole_day(&self, day: Day) -> Option<usize> {
        let at = self.at(day.start())?;
        let end = self.starts.get(at + 1).copied().unwrap_or(self.until);
        (Day(day.0.saturating_add(1)).start() <= end).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-26T12:34:56.789Z";

    fn parse(query: &str) -> Result<SeriesRange, Vec<RangeFault>> {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let parameters = SeriesParameters {
            from: value("from"),
            until: value("until"),
            interval: value("interval"),
            timezone: value("timezone"),
        };
        SeriesRange::parse(parameters, Timestamp::parse(NOW).unwrap())
    }

    fn faulty(query: &str) -> Vec<&'static str> {
        parse(query).map_or_else(|faults| faults.iter().map(|fault| fault.parameter).collect(), |_| vec![])
    }

    /// From, until, the number of points, and the starts of the first and of the last one.
    fn assert_range(query: &str, ends: [&str; 2], points: usize, second: &str, last: &str) {
        let range = parse(query).unwrap_or_else(|faults| panic!("{query}: {faults:?}"));
        let time = |text: &str| if text.len() > 12 { text.into() } else { format!("{text}T00:00:00.000Z") };
        let starts = range.starts();
        assert_eq!([range.from(), range.until()].map(|end| end.to_string()), ends.map(time), "{query}");
        assert_eq!(starts.len(), points, "{query}");
        assert_eq!([starts[1], starts[points - 1]].map(|start| start.to_string()), [second, last].map(time), "{query}");
    }

    #[test]
    fn without_a_range_it_is_today_and_the_29_days_before() {
        assert_range("", ["2026-10-28", "2026-11-27"], 30, "2026-10-29", "2026-11-26");
        assert_range("interval=week", ["2026-10-28", "2026-11-27"], 5, "2026-11-02", "2026-11-23");
        assert_range("interval=month", ["2026-10-28", "2026-11-27"], 2, "2026-11-01", "2026-11-01");
        let ends = ["2026-10-28", "2026-11-27"];
        assert_range("interval=hour", ends, 720, "2026-10-28T01:00:00.000Z", "2026-11-26T23:00:00.000Z");
        // It is the 27th there already.
        let ends = ["2026-10-28T10:00:00.000Z", "2026-11-27T10:00:00.000Z"];
        let (second, last) = ("2026-10-29T10:00:00.000Z", "2026-11-26T10:00:00.000Z");
        assert_range("timezone=pacific/kiritimati", ends, 30, second, last);
        assert_eq!(parse("timezone=pacific/kiritimati").unwrap().zone().name(), "Pacific/Kiritimati");
    }

    #[test]
    fn times_are_rounded_to_quarters_of_an_hour_so_that_none_is_left_out() {
        let ends = ["2026-11-26T00:00:00.000Z", "2026-11-26T02:30:00.000Z"];
        let (second, last) = ("2026-11-26T01:00:00.000Z", "2026-11-26T02:00:00.000Z");
        assert_range("from=2026-11-26T00:14:59Z&until=2026-11-26T02:15:00.001Z&interval=hour", ends, 3, second, last);
        assert_range("from=2026-11-26T00:00:00Z&until=2026-11-26T02:30:00Z&interval=hour", ends, 3, second, last);
    }

    #[test]
    fn an_end_that_is_left_out_follows_from_the_other_one() {
        assert_range("from=2025-01-15&interval=month", ["2025-01-15", "2026-11-27"], 23, "2025-02-01", "2026-11-01");
        assert_range("until=2025-01-15", ["2024-12-16", "2025-01-15"], 30, "2024-12-17", "2025-01-14");
        let ends = ["2026-10-27", "2026-11-25T18:15:00.000Z"];
        assert_range("until=2026-11-25T18:15:00Z", ends, 30, "2026-10-28", "2026-11-25");
    }

    #[test]
    fn the_first_interval_begins_at_from_and_the_last_one_ends_at_until() {
        let query = "from=2026-11-25T20:45:00%2B01:00&until=2026-11-26T00:15:00Z&interval=hour".replace("%2B", "+");
        let ends = ["2026-11-25T19:45:00.000Z", "2026-11-26T00:15:00.000Z"];
        assert_range(&query, ends, 6, "2026-11-25T20:00:00.000Z", "2026-11-26");
        // Weeks begin on Monday.
        assert_range("from=2026-11-01&interval=week", ["2026-11-01", "2026-11-27"], 5, "2026-11-02", "2026-11-23");
        // Full hours of the zone; clocks were set back at 1 o'clock UTC.
        let query = "from=2026-10-25&until=2026-10-26&interval=hour&timezone=Europe/Berlin";
        let ends = ["2026-10-24T22:00:00.000Z", "2026-10-25T23:00:00.000Z"];
        assert_range(query, ends, 25, "2026-10-24T23:00:00.000Z", "2026-10-25T22:00:00.000Z");
        let query = "from=2026-11-26T00:00:00Z&until=2026-11-26T02:00:00Z&interval=hour&timezone=Asia/Kathmandu";
        let ends = ["2026-11-26", "2026-11-26T02:00:00.000Z"];
        assert_range(query, ends, 3, "2026-11-26T00:15:00.000Z", "2026-11-26T01:15:00.000Z");
    }

    #[test]
    fn each_fault_names_its_parameter() {
        assert_eq!(faulty("timezone=Berlin&interval=year&from=x&until=y"), ["timezone", "interval", "from", "until"]);
        assert_eq!(faulty("timezone=&interval="), ["timezone", "interval"]);
        assert_eq!(faulty("from=2026-11-27"), ["from"]);
        assert_eq!(faulty("from=2026-11-20&until=2026-11-20"), ["from"]);
        assert_eq!(faulty("from=2026-11-20&until=2020-11-20"), ["from"]);
        let faults = parse("timezone=Nowhere").unwrap_err();
        assert!(faults[0].to_string().starts_with("timezone: must be the name of a time zone"));
    }

    #[test]
    fn hours_and_other_zones_than_utc_reach_35_days_back() {
        for query in ["interval=hour", "timezone=Europe/Berlin", "timezone=Europe/London&interval=month"] {
            assert_eq!(faulty(&format!("from=2026-10-22&{query}")), [""; 0], "{query}");
            assert_eq!(faulty(&format!("from=2026-10-21&{query}")), ["from"], "{query}");
        }
        // The day there.
        assert_eq!(faulty("from=2026-10-23&timezone=Pacific/Kiritimati"), [""; 0]);
        assert_eq!(faulty("from=2026-10-22&timezone=Pacific/Kiritimati"), ["from"]);
        assert_eq!(faulty("from=2020-01-01&timezone=Etc/Zulu&interval=month"), [""; 0]);
    }

    #[test]
    fn older_ends_in_utc_are_dates() {
        assert_eq!(faulty("from=2026-10-22T06:00:00Z"), [""; 0]);
        assert_eq!(faulty("from=2026-10-21T06:00:00Z&until=2026-11-01T06:15:00Z"), ["from"]);
        assert_eq!(faulty("from=2026-10-01T02:00:00%2B02:00".replace("%2B", "+").as_str()), [""; 0]);
        assert_eq!(faulty("from=2026-01-01&until=2026-02-01T06:00:00Z"), ["from"]);
    }

    #[test]
    fn a_series_has_at_most_2000_points() {
        assert_eq!(parse("from=2021-06-06").unwrap().starts().len(), 2_000);
        assert_eq!(faulty("from=2021-06-05"), ["interval"]);
        assert_eq!(faulty("from=1970-01-01&until=9998-12-31"), ["interval"]);
        assert_eq!(faulty("from=1970-01-01&until=9998-12-31&interval=month"), ["interval"]);
        assert_eq!(parse("from=2026-11-01&until=2027-01-20T07:45:00Z&interval=hour").unwrap().starts().len(), 1_928);
        assert!(parse("from=9998-11-01&until=9998-12-31T23:45:00Z").is_ok());
    }

    #[test]
    fn days_within_one_interval_need_no_quarters() {
        let range = parse("from=2026-11-20T06:00:00Z&until=2026-11-24T00:15:00Z").unwrap();
        let needs: Vec<_> =
            (range.days().start().0..=range.days().end().0).map(|day| range.needs_quarters(Day(day))).collect();
        assert_eq!(needs, [true, false, false, false, true]);
        let range = parse("from=2026-11-01&timezone=Asia/Tokyo&interval=week").unwrap();
        let needs = (range.days().start().0..=range.days().end().0).filter(|day| range.needs_quarters(Day(*day)));
        // The first and the last one, and each on which a week ends.
        assert_eq!(needs.count(), 6);
        assert!(!parse("from=2020-01-01&interval=month").unwrap().needs_quarters(Day(20_000)));
    }

    #[test]
    fn quarters_are_kept_while_a_series_may_read_them() {
        let now = Timestamp::parse("2026-11-26T00:00:00Z").unwrap();
        for zone in ["UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Australia/Lord_Howe"] {
            for quarter in 0..200 {
                let now = Timestamp(now.0 + quarter * QUARTER_MILLIS);
                let zone_of = TimeZone::parse(zone).unwrap();
                let from = zone_of.date_at(now).minus(QUARTERS_DAYS).to_string();
                let parameters =
                    SeriesParameters { from: Some(&from), timezone: Some(zone), ..SeriesParameters::default() };
                let range = SeriesRange::parse(parameters, now).unwrap();
                assert!(quarters_kept_until(*range.days().start()) > now, "{zone}");
            }
        }
    }
}
