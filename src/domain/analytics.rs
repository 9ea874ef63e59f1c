//! Analytics of a link's hits.

use std::cmp::Ordering;

use super::breakdown::Dimension;
use super::calendar::Day;
use super::device::Device;
use super::hit::{LinkHits, OTHER_LABEL};
use super::tally::BotFilter;

/// `daily` covers this many days, including today.
pub const DAILY_DAYS: u32 = 30;
/// The number of entries of a top list.
pub const TOP: usize = 10;

/// A label and its number of hits.
pub type Labelled = (String, u64);

/// The full analytics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analytics {
    pub total_hits: u64,
    pub last_7_days: u64,
    /// 30 entries, oldest first, ending today; days without hits are 0.
    pub daily: Vec<(Day, u64)>,
    pub referrers: Vec<Labelled>,
    pub countries: Vec<Labelled>,
    pub regions: Vec<Labelled>,
    pub cities: Vec<Labelled>,
    /// Always all three labels.
    pub devices: Vec<Labelled>,
}

/// The summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub total_hits: u64,
    pub last_7_days: u64,
    pub last_30_days: u64,
}

/// The hits of a link in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitsOfList {
    pub total: u64,
    pub last_7_days: u64,
    /// As [`Analytics::daily`].
    pub daily: Vec<u64>,
}

/// What a list shows of `hits` on the day `today`.
pub fn hits_of_list(hits: &LinkHits, today: Day) -> HitsOfList {
    let daily = daily(hits, today, BotFilter::Include);
    HitsOfList {
        total: total(hits, BotFilter::Include),
        last_7_days: last_7(&daily),
        daily: daily.into_iter().map(|(_, count)| count).collect(),
    }
}

/// The summary of those of `hits` that `bots` means, on the day `today`.
pub fn summarize(hits: &LinkHits, today: Day, bots: BotFilter) -> Summary {
    let daily = daily(hits, today, bots);
    Summary {
        total_hits: total(hits, bots),
        last_7_days: last_7(&daily),
        last_30_days: daily.iter().map(|(_, count)| count).sum(),
    }
}

/// The full analytics of those of `hits` that `bots` means, on the day `today`. The labels are theirs.
pub fn analyze(mut hits: LinkHits, today: Day, bots: BotFilter) -> Analytics {
    let daily = daily(&hits, today, bots);
    let mut devices = [0; 3];
    for (_, counts) in &hits.days {
        for (sum, tally) in devices.iter_mut().zip(counts.0) {
            *sum += bots.of(tally);
        }
    }
    let devices = Device::ALL.iter().zip(devices).map(|(device, count)| (device.label().to_owned(), count)).collect();
    let mut top = |dimension| {
        let at = hits.labels.iter().position(|(of, _)| *of == dimension);
        at.map(|at| ranked(std::mem::take(&mut hits.labels[at].1), TOP)).unwrap_or_default()
    };
    let (referrers, countries) = (top(Dimension::Referrer), top(Dimension::Country));
    let (regions, cities) = (top(Dimension::Region), top(Dimension::City));
    Analytics {
        total_hits: total(&hits, bots),
        last_7_days: last_7(&daily),
        daily,
        referrers,
        countries,
        regions,
        cities,
        devices: ranked(devices, Device::ALL.len()),
    }
}

fn total(hits: &LinkHits, bots: BotFilter) -> u64 {
    hits.days.iter().map(|(_, devices)| bots.of(devices.total())).sum()
}

fn last_7(daily: &[(Day, u64)]) -> u64 {
    daily.iter().rev().take(7).map(|(_, count)| count).sum()
}

fn daily(hits: &LinkHits, today: Day, bots: BotFilter) -> Vec<(Day, u64)> {
    let first = today.minus(DAILY_DAYS - 1);
    let mut daily: Vec<_> = (first.0..=today.0).map(|day| (Day(day), 0)).collect();
    for (day, devices) in hits.days.iter().filter(|(day, _)| (first..=today).contains(day)) {
        daily[(day.0 - first.0) as usize].1 += bots.of(devices.total());
    }
    daily
}

/// The order of top lists: by count, then by label.
pub fn by_count(a: (&str, u64), b: (&str, u64)) -> Ordering {
    b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0))
}

/// The part of a list that a store returns ([`LinkHits::labels`]), from all of its labels.
pub fn shortened(mut labels: Vec<Labelled>) -> Vec<Labelled> {
    let other = labels.iter().position(|(label, _)| label == OTHER_LABEL).map(|at| labels.swap_remove(at));
    let mut first = ranked(labels, TOP);
    first.extend(other);
    first
}

/// In one pass: most labels come after the last entry, which takes one comparison.
fn ranked(labels: Vec<Labelled>, most: usize) -> Vec<Labelled> {
    let order = |a: &Labelled, b: &Labelled| by_count((&a.0, a.1), (&b.0, b.1));
    let mut first: Vec<Labelled> = Vec::with_capacity(most + 1);
    for labelled in labels {
        let is_among = first.len() < most || first.last().is_some_and(|last| order(&labelled, last).is_lt());
        if is_among && labelled.0 != OTHER_LABEL {
            let at = first.partition_point(|known| order(known, &labelled).is_lt());
            first.insert(at, labelled);
            first.truncate(most);
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hit::DeviceHits;
    use crate::domain::tally::Tally;

    #[test]
    fn hits_of_persons_and_of_bots_add_up_to_all() {
        let mut hits = hits(&[(990, [3, 0, 1]), (1000, [4, 2, 0])]);
        hits.days[1].1.0[0].bots = 9;
        let [all, persons, bots] = BotFilter::ALL.map(|bots| analyze(hits.clone(), Day(1000), bots));
        assert_eq!([all.total_hits, persons.total_hits, bots.total_hits], [19, 10, 9]);
        assert_eq!([all.last_7_days, persons.last_7_days, bots.last_7_days], [15, 6, 9]);
        assert_eq!([all.daily[29].1, persons.daily[29].1, bots.daily[29].1], [15, 6, 9]);
        let desktops = [all, persons, bots].map(|of| of.devices.into_iter().find(|(label, _)| label == "desktop"));
        assert_eq!(desktops.map(|found| found.unwrap().1), [16, 7, 9]);
    }

    fn hits(days: &[(u32, [u64; 3])]) -> LinkHits {
        let devices = |counts: [u64; 3]| DeviceHits(counts.map(|persons| Tally { persons, bots: 0 }));
        LinkHits { days: days.iter().map(|(day, counts)| (Day(*day), devices(*counts))).collect(), labels: Vec::new() }
    }

    #[test]
    fn daily_is_filled_in_and_ends_today() {
        let record = analyze(
            hits(&[
                (100, [1, 2, 3]),
                (970, [0, 5, 0]),
                (971, [7, 0, 0]),
                (993, [1, 0, 0]),
                (994, [0, 0, 2]),
                (1000, [4, 0, 0]),
            ]),
            Day(1000),
            BotFilter::Include,
        );
        assert_eq!(record.daily.len(), 30);
        assert_eq!((record.daily[0], record.daily[29]), ((Day(971), 7), (Day(1000), 4)));
        assert_eq!((record.total_hits, record.last_7_days), (25, 6));
        assert_eq!(record.devices, [("desktop".into(), 13), ("mobile".into(), 7), ("tablet".into(), 5)]);
        let summary =
            summarize(&hits(&[(970, [9, 0, 0]), (971, [7, 0, 0]), (1000, [4, 0, 0])]), Day(1000), BotFilter::Include);
        assert_eq!(summary, Summary { total_hits: 20, last_7_days: 4, last_30_days: 11 });
    }

    #[test]
    fn devices_are_all_there_without_any_hit() {
        assert_eq!(analyze(LinkHits::default(), Day(50), BotFilter::Include).devices.len(), 3);
    }

    #[test]
    fn top_lists_are_sorted_by_count_then_label_without_the_overflow() {
        let labels = (0..20)
            .map(|n| (format!("site{n:02}.example"), 5))
            .chain([("z".into(), 6), (OTHER_LABEL.into(), 99)])
            .collect();
        let hits = LinkHits { days: Vec::new(), labels: vec![(Dimension::Referrer, labels)] };
        let record = analyze(hits, Day(50), BotFilter::Include);
        assert_eq!(record.referrers.len(), 10);
        assert_eq!((record.referrers[0].0.as_str(), record.referrers[1].0.as_str()), ("z", "site00.example"));
        assert!(record.countries.is_empty());
    }
}
