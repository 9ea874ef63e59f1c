//! Hits as a list of them, of which each number is counted anew.

use std::collections::BTreeMap;

use proptest::prelude::*;
use signpost::domain::breakdown::{BreakdownAnswer, BreakdownRange, Dimension};
use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::device::Device;
use signpost::domain::hit::{DayHits, DeviceHits, HitSubject};
use signpost::domain::series::{SeriesAnswer, SeriesPoint, SeriesRange};
use signpost::domain::tally::{BotFilter, Tally};

use super::samples::{DAY, MINUTE, bots, by_key, counted, day_of, key_id, label_of, persons, private_of, short_id};

/// Links of each of two keys.
pub const LINKS: u32 = 4;

/// The days before today that have hits. Of the later ones, a store keeps the sheets, and the quarters of some of them.
const DAYS_AGO: [u32; 8] = [0, 1, 2, 12, 30, 33, 80, 250];

/// Some hits of one kind at one time.
#[derive(Clone, Debug)]
pub struct SameHits {
    /// From 0 on; its key is the remainder by two.
    link: u32,
    at: Timestamp,
    device: Device,
    tally: Tally,
    is_private: bool,
    labels: Vec<(Dimension, &'static str)>,
}

fn label_texts(dimension: Dimension) -> &'static [&'static str] {
    match dimension {
        Dimension::Referrer => &["direct", "a.example", "b.example", "(other)"],
        Dimension::Country => &["DE", "US", "CH"],
        Dimension::Region => &["Thuringia, DE"],
        Dimension::City => &["Jena, Thuringia, DE", "Zürich, CH"],
        Dimension::Browser => &["chrome", "safari", "other"],
        Dimension::Os => &["ios", "linux"],
        Dimension::Language => &["de", "pt-br"],
        Dimension::UtmSource => &["news", "mail", "shop"],
        Dimension::UtmMedium | Dimension::UtmCampaign | Dimension::UtmTerm | Dimension::UtmContent => &["x"],
        Dimension::Destination => &["default", "1/2"],
        Dimension::Device | Dimension::Bot => &[],
    }
}

/// A label, or none.
fn label(dimension: Dimension) -> impl Strategy<Value = Option<(Dimension, &'static str)>> {
    let texts = label_texts(dimension);
    (0..=texts.len()).prop_map(move |at| texts.get(at).map(|text| (dimension, *text)))
}

/// Hits before `now`.
pub fn same_hits(now: Timestamp) -> impl Strategy<Value = SameHits> {
    let labels: Vec<_> = Dimension::ALL.into_iter().map(label).collect();
    let tally = prop_oneof![3 => (1..5_u64).prop_map(persons), 2 => (1..4_u64).prop_map(bots)];
    let kinds = prop::sample::select(vec!["prefetch", "crawler", "tool"]);
    let place = (0..LINKS, prop::sample::select(DAYS_AGO.to_vec()), 0..24 * 60_u32);
    let device = prop::sample::select(Device::ALL.to_vec());
    (place, device, tally, prop::bool::weighted(0.15), labels, kinds).prop_map(
        move |((link, ago, minute), device, tally, is_private, labels, kind)| {
            let of_visitor = |(dimension, _): &(Dimension, _)| is_private && dimension.is_of_visitor();
            let mut labels: Vec<_> = labels.into_iter().flatten().filter(|label| !of_visitor(label)).collect();
            labels.push((Dimension::Device, device.label()));
            labels.extend((tally.bots > 0).then_some((Dimension::Bot, kind)));
            let at = now.minus(DAY * ago).day().start().plus(MINUTE * minute);
            SameHits { link, at, device, tally, is_private, labels }
        },
    )
}

impl SameHits {
    fn subject(&self, offset: u32) -> HitSubject {
        HitSubject::Link(short_id(offset + self.link))
    }

    fn is_of(&self, of: HitSubject, offset: u32) -> bool {
        of == self.subject(offset) || of == HitSubject::Key(key_id(offset + self.link % 2))
    }

    /// `None`: nothing is known, or the visitor wants no tracking.
    fn label(&self, dimension: Dimension) -> Option<&'static str> {
        self.labels.iter().find(|(of, _)| *of == dimension).map(|(_, label)| *label)
    }
}

/// The days of a batch with these hits. Links and keys have the numbers from `offset` on.
pub fn days_of(hits: &[SameHits], offset: u32) -> Vec<DayHits> {
    let mut days = Vec::new();
    for hit in hits {
        let of = hit.subject(offset);
        let mut tallies = [Tally::default(); 3];
        tallies[hit.device as usize] = hit.tally;
        // The device has its label already.
        let labels = hit.labels.iter().filter(|(dimension, _)| *dimension != Dimension::Device);
        let labels = labels.map(|(dimension, label)| label_of(of, hit.at, *dimension, label, hit.tally));
        let private = hit.is_private.then(|| private_of(of, hit.at, hit.tally));
        let of_link = counted([day_of(of, hit.at, tallies)], labels.chain(private));
        days.extend(of_link.iter().map(|day| by_key(offset + hit.link % 2, day)));
        days.extend(of_link);
    }
    counted(days, [])
}

/// All hits that were counted.
#[derive(Default)]
pub struct HitModel {
    pub offset: u32,
    pub hits: Vec<SameHits>,
}

impl HitModel {
    pub fn subjects(&self) -> Vec<HitSubject> {
        let links = (0..LINKS).map(|link| HitSubject::Link(short_id(self.offset + link)));
        links.chain((0..2).map(|key| HitSubject::Key(key_id(self.offset + key)))).collect()
    }

    fn of(&self, of: HitSubject) -> impl Iterator<Item = &SameHits> {
        self.hits.iter().filter(move |hit| hit.is_of(of, self.offset))
    }

    /// By day, oldest first.
    pub fn days(&self, of: HitSubject) -> Vec<(Day, DeviceHits)> {
        let mut days = BTreeMap::<Day, DeviceHits>::new();
        for hit in self.of(of) {
            days.entry(hit.at.day()).or_default().0[hit.device as usize] += hit.tally;
        }
        days.into_iter().collect()
    }

    pub fn series(&self, of: HitSubject, range: &SeriesRange, bots: BotFilter) -> SeriesAnswer {
        let ends = range.starts().iter().skip(1).copied().chain([range.until()]);
        let points: Vec<_> = range
            .starts()
            .iter()
            .zip(ends)
            .map(|(start, end)| {
                let within = self.of(of).filter(|hit| *start <= hit.at && hit.at < end);
                SeriesPoint { start: *start, count: within.map(|hit| bots.of(hit.tally)).sum() }
            })
            .collect();
        SeriesAnswer {
            from: range.from(),
            until: range.until(),
            interval: range.interval(),
            timezone: range.zone().clone(),
            total: points.iter().map(|point| point.count).sum(),
            points,
        }
    }

    /// With all labels.
    pub fn breakdown(
        &self,
        of: HitSubject,
        dimension: Dimension,
        range: &BreakdownRange,
        filter: BotFilter,
    ) -> BreakdownAnswer {
        let mut labels = BTreeMap::<&str, u64>::new();
        let mut answer =
            BreakdownAnswer { dimension, total: 0, other: 0, none: 0, private: 0, more: 0, labels: Vec::new() };
        for hit in self.of(of).filter(|hit| range.has(hit.at.day())) {
            let count = filter.of(hit.tally);
            answer.total += count;
            match hit.label(dimension) {
                Some("(other)") => answer.other += count,
                Some(label) => *labels.entry(label).or_default() += count,
                None if hit.is_private && dimension.is_of_visitor() => answer.private += count,
                None => answer.none += count,
            }
        }
        let known = labels.into_iter().filter(|(_, count)| *count > 0);
        answer.labels = known.map(|(label, count)| (label.to_owned(), count)).collect();
        answer.labels.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        answer
    }
}
