//! Time zones of the tz database (IANA), which is a part of the program: no file of the system is read, and all nodes
//! of one version have the same rules.

use std::fmt;
use std::sync::LazyLock;

use jiff::tz::{self, AmbiguousOffset, Offset, TimeZoneDatabase};

use super::calendar::{Day, Timestamp};

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Names of the database are shorter.
const LONGEST_NAME: usize = 64;
/// In the database, but not places: what a computer has before its zone is set.
const NOT_ZONES: [&str; 2] = ["Factory", "Etc/Unknown"];

/// A time zone.
#[derive(Clone, Debug)]
pub struct TimeZone(tz::TimeZone);

/// A local time differs from UTC by `seconds` from some time on, until the next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetChange {
    pub at: Timestamp,
    /// East of Greenwich.
    pub seconds: i64,
}

impl TimeZone {
    pub const UTC: Self = Self(tz::TimeZone::UTC);

    /// The zone of a name, such as `Europe/Berlin` or `UTC`, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        let is_name = name.len() <= LONGEST_NAME && NOT_ZONES.iter().all(|other| !name.eq_ignore_ascii_case(other));
        is_name.then(|| DATABASE.get(name).ok().map(Self)).flatten()
    }

    /// The names of all zones.
    pub fn names() -> impl Iterator<Item = String> {
        DATABASE.available().map(|name| name.as_str().to_owned()).filter(|name| !NOT_ZONES.contains(&&**name))
    }

    /// The name as the database spells it.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Whether this is UTC under one of its names.
    pub fn is_utc(&self) -> bool {
        self.0.primary_iana_name() == Some("UTC")
    }

    /// How many seconds the local time is before UTC.
    pub fn offset_at(&self, time: Timestamp) -> i64 {
        i64::from(self.0.to_offset(in_library(time)).seconds())
    }

    /// The next time after `time` at which the local time jumps.
    pub fn next_change(&self, time: Timestamp) -> Option<OffsetChange> {
        let now = self.offset_at(time);
        // Some changes are those of a zone's abbreviation alone.
        let changes = self.0.following(in_library(time)).map(|change| OffsetChange {
            at: from_library(change.timestamp()),
            seconds: i64::from(change.offset().seconds()),
        });
        changes.take(MOST_CHANGES).find(|change| change.seconds != now)
    }

    /// The local date; in the days since 1970-01-01 of its calendar, not of UTC's.
    pub fn date_at(&self, time: Timestamp) -> Day {
        Day(u32::try_from(self.local_seconds(time).div_euclid(SECONDS_PER_DAY)).unwrap_or(0))
    }

    /// The first time that has the local date `date`, or a later one if the zone skipped it. Not before 1970.
    pub fn start_of(&self, date: Day) -> Timestamp {
        let Ok(as_utc) = jiff::Timestamp::from_second(i64::from(date.0) * SECONDS_PER_DAY) else {
            return Timestamp(u64::MAX);
        };
        let midnight = self.0.to_ambiguous_timestamp(Offset::UTC.to_datetime(as_utc));
        let is_skipped = matches!(midnight.offset(), AmbiguousOffset::Gap { .. });
        // The earlier one if midnight comes twice; the time after the gap if there is none.
        let Ok(start) = midnight.compatible() else { return Timestamp(u64::MAX) };
        let gap = is_skipped.then(|| self.0.preceding(start.saturating_add(SECOND).unwrap_or(start)).next()).flatten();
        from_library(gap.map_or(start, |gap| gap.timestamp()))
    }

    fn local_seconds(&self, time: Timestamp) -> i64 {
        i64::try_from(time.seconds()).unwrap_or(i64::MAX / 2) + self.offset_at(time)
    }

    /// The seconds since the last full hour of the local time.
    pub fn seconds_into_hour(&self, time: Timestamp) -> u64 {
        u64::try_from(self.local_seconds(time).rem_euclid(3_600)).unwrap_or(0)
    }
}

const SECONDS_PER_DAY: i64 = 86_400;
const SECOND: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);
/// Changes in a row that don't move the local time: the database has at most a few.
const MOST_CHANGES: usize = 16;

impl PartialEq for TimeZone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for TimeZone {}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn in_library(time: Timestamp) -> jiff::Timestamp {
    let millis = i64::try_from(time.0).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX)
}

fn from_library(time: jiff::Timestamp) -> Timestamp {
    Timestamp(u64::try_from(time.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> TimeZone {
        TimeZone::parse(name).unwrap()
    }

    fn time(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn a_zone_is_found_by_its_name_in_any_case_and_has_the_name_of_the_database() {
        assert_eq!(zone("europe/BERLIN").name(), "Europe/Berlin");
        assert_eq!(zone("Asia/Calcutta").to_string(), "Asia/Calcutta");
        let long = "Europe/Berlin".repeat(1_000);
        for text in ["", "+01:00", "CEST", "Berlin", "Europe/", "Factory", "Etc/Unknown", "../etc/localtime", &long] {
            assert!(TimeZone::parse(text).is_none(), "{text}");
        }
        assert!(TimeZone::names().count() > 500);
        assert!(TimeZone::names().all(|name| zone(&name).name() == name && name.len() <= LONGEST_NAME));
    }

    #[test]
    fn utc_has_many_names() {
        let names: Vec<String> = TimeZone::names().filter(|name| zone(name).is_utc()).collect();
        assert!(["UTC", "Etc/UTC", "GMT", "Zulu"].iter().all(|name| names.iter().any(|known| known == name)));
        let now = time("2026-11-26T00:00:00Z");
        assert!(names.iter().all(|name| zone(name).offset_at(now) == 0 && zone(name).next_change(now).is_none()));
        assert!(!zone("Europe/London").is_utc() && !zone("Africa/Abidjan").is_utc());
    }

    #[test]
    fn a_date_begins_with_its_first_moment() {
        for (name, date, start) in [
            ("UTC", "2026-11-26", "2026-11-26T00:00:00Z"),
            ("Asia/Kolkata", "2026-11-26", "2026-11-25T18:30:00Z"),
            ("America/New_York", "2026-11-26", "2026-11-26T05:00:00Z"),
            // At midnight it is 1 o'clock.
            ("Africa/Cairo", "2026-04-24", "2026-04-23T22:00:00Z"),
            // The hour after midnight comes twice.
            ("America/Havana", "2026-11-01", "2026-11-01T04:00:00Z"),
            // A day that was skipped begins with the next one.
            ("Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z"),
            ("Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z"),
        ] {
            let day = Timestamp::parse(&format!("{date}T00:00:00Z")).map_or(Day(0), Timestamp::day);
            assert_eq!(zone(name).start_of(day), time(start), "{name} {date}");
        }
        assert_eq!(zone("Asia/Kolkata").start_of(Day(0)), Timestamp(0), "not before 1970");
        assert_eq!(TimeZone::UTC.start_of(Day(u32::MAX)), Timestamp(u64::MAX));
    }

    #[test]
    fn a_change_is_one_of_the_local_time() {
        let change = zone("Australia/Lord_Howe").next_change(time("2026-11-26T00:00:00Z")).unwrap();
        assert_eq!(change, OffsetChange { at: time("2027-04-03T15:00:00Z"), seconds: 37_800 });
        assert_eq!(zone("Asia/Kolkata").next_change(time("2026-11-26T00:00:00Z")), None);
        assert_eq!(zone("Asia/Kathmandu").date_at(time("2026-11-25T18:15:00Z")), time("2026-11-26T00:00:00Z").day());
        assert_eq!(zone("Asia/Kathmandu").seconds_into_hour(time("2026-11-25T18:15:00Z")), 0);
    }
}
