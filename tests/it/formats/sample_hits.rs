//! Hits of the sample: by day, by quarter of an hour and by all dimensions.

use std::sync::Arc;

use signpost::domain::breakdown::{BreakdownRange, Dimension};
use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::{DeviceHits, HitBatch, HitSubject, LinkHits, OTHER_LABEL};
use signpost::domain::series::{SeriesParameters, SeriesRange};
use signpost::domain::tally::BotFilter;
use signpost::store::Store;

use super::sample::{BUSY, LINKS};
use crate::store::samples::{
    DAY, batch, bots, by_key, counted, day, day_of, devices, key_id, label, label_of, noon, persons, private_of,
    short_id,
};

const DAYS: u32 = 100;
const CITIES: u32 = 120;
/// Hits of the busy link for its cities.
const CITY_HITS: u64 = 7_500;
/// What 0.1.0 wrote has none of what came with later releases.
const OLD: &str = "0.1.0";

fn october() -> Timestamp {
    noon().minus(30 * DAY)
}

/// The first hits, of links and of a key.
pub fn first() -> HitBatch {
    let of_links = (1..=LINKS)
        .map(|n| day(n, noon(), [n.into(), 1, 0]))
        .chain((1..DAYS).map(|n| day(BUSY, noon().minus(n * DAY), [0, n.into(), 7])))
        .chain([day(BUSY, noon(), [CITY_HITS, 0, 0]), day(1, october(), [1, 0, 0])]);
    let of_key = HitSubject::Key(key_id(2));
    let of_keys = [day_of(of_key, noon(), [persons(300), bots(20), persons(0)])];
    let listed = |n| {
        let labels = [(Dimension::Referrer, "a.example"), (Dimension::Region, "Region a"), (Dimension::City, "City a")];
        let labels = labels.into_iter().chain([(Dimension::Country, "DE"), (Dimension::Language, "pt-br")]);
        labels.map(move |(dimension, text)| label(n, noon(), dimension, text, 2))
    };
    let labels = (1..=LINKS)
        .flat_map(listed)
        .chain((0..CITIES).map(|n| label(BUSY, noon(), Dimension::City, &format!("a city {n}"), u64::from(n) + 3)))
        .chain([
            label(1, october(), Dimension::Country, "CH", 1),
            label_of(of_key, noon(), Dimension::Browser, "safari", persons(200)),
            label_of(of_key, noon(), Dimension::Bot, "crawler", bots(20)),
            label_of(of_key, noon(), Dimension::UtmSource, "news", persons(7)),
            label_of(of_key, noon(), Dimension::Destination, "default", persons(300)),
            private_of(of_key, noon(), persons(50)),
        ]);
    HitBatch { days: counted(of_links.chain(of_keys), labels), ..batch(0, 50) }
}

/// Further hits.
pub fn second() -> HitBatch {
    let of_bots = day_of(HitSubject::Link(short_id(1)), noon(), [bots(10), persons(0), persons(100)]);
    let days = [by_key(2, &of_bots), of_bots, day(2, noon().minus(DAY), [0, 0, 5])];
    let labels = [
        label(1, noon(), Dimension::Country, "CH", 9),
        label(1, noon(), Dimension::Referrer, OTHER_LABEL, 2),
        label_of(HitSubject::Link(short_id(1)), noon(), Dimension::Bot, "tool", bots(10)),
    ];
    HitBatch { days: counted(days, labels), ..batch(50, 90) }
}

fn top(labels: &[(&str, u64)]) -> Vec<(String, u64)> {
    labels.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect()
}

pub async fn check(store: &Arc<dyn Store>, version: &str) {
    let is_old = version == OLD;
    let hits = store.link_hits(short_id(1), Some(BotFilter::Include)).await.unwrap();
    let (mut last, october) = (devices([1, 1, 100]), (october().day(), devices([1, 0, 0])));
    if is_old {
        last.0[0] = persons(11);
    } else {
        last.0[0].bots = 10;
    }
    let (referrer, country) = if is_old { ("Referrer a", "Country a") } else { ("a.example", "DE") };
    let expected = LinkHits {
        days: if is_old { vec![(noon().day(), last)] } else { vec![october, (noon().day(), last)] },
        labels: vec![
            (Dimension::Referrer, top(&[(referrer, 2), (OTHER_LABEL, 2)])),
            // A text that is no country is not known to later releases.
            (
                Dimension::Country,
                if is_old { top(&[("CH", 10), (OTHER_LABEL, 2)]) } else { top(&[("CH", 10), (country, 2)]) },
            ),
            (Dimension::Region, top(&[("Region a", 2)])),
            (Dimension::City, top(&[("City a", 2)])),
        ],
    };
    assert_eq!(hits, expected);
    let hits = store.link_hits(short_id(2), None).await.unwrap();
    assert_eq!(hits.days, [(noon().minus(DAY).day(), devices([0, 0, 5])), (noon().day(), devices([2, 1, 0]))]);
    let hits = store.link_hits(short_id(BUSY), Some(BotFilter::Include)).await.unwrap();
    let days: Vec<_> = (1..DAYS).rev().map(|n| (noon().minus(n * DAY).day(), devices([0, n.into(), 7]))).collect();
    assert_eq!(hits.days, [&days[..], &[(noon().day(), busy(version, 0))]].concat());
    let (_, cities) = hits.labels.iter().find(|(dimension, _)| *dimension == Dimension::City).unwrap();
    let first: Vec<_> = (CITIES - 10..CITIES).rev().map(|n| (format!("a city {n}"), u64::from(n) + 3)).collect();
    assert_eq!(cities, &first);
    if !is_old {
        check_ranges(store).await;
    }
}

/// The last day of the busy link, and so many more hits.
fn busy(version: &str, more: u64) -> DeviceHits {
    let cities = if version == OLD { 0 } else { CITY_HITS };
    devices([u64::from(BUSY) + cities + more, 1, 0])
}

/// Series and breakdowns, of a link and of a key.
async fn check_ranges(store: &Arc<dyn Store>) {
    let of_key = HitSubject::Key(key_id(2));
    let now = noon().plus(DAY / 4);
    let parameters = SeriesParameters {
        from: Some("2026-11-21"),
        interval: Some("hour"),
        timezone: Some("Asia/Kathmandu"),
        ..SeriesParameters::default()
    };
    let range = SeriesRange::parse(parameters, now).unwrap();
    for (bots, count) in BotFilter::ALL.into_iter().zip([430, 400, 30]) {
        let series = store.series(of_key, range.clone(), bots).await.unwrap();
        assert_eq!(series.total, count);
        let points: Vec<_> = series.points.iter().filter(|point| point.count > 0).collect();
        assert_eq!(points.len(), 1);
        assert_eq!((points[0].start.to_string(), points[0].count), ("2026-11-21T11:15:00.000Z".into(), count));
    }
    // From the sheet of the day, and from the lists of the month.
    for from in ["2026-11-21", "2026-11-01"] {
        let range = BreakdownRange::parse(Some(from), None, now, 90).unwrap();
        let breakdown = async |of, dimension| {
            let answer = store.breakdown(of, dimension, range).await.unwrap().answer(BotFilter::Include, 10);
            (answer.labels, answer.other, answer.none, answer.private)
        };
        assert_eq!(breakdown(of_key, Dimension::Browser).await, (top(&[("safari", 200)]), 0, 180, 50));
        assert_eq!(breakdown(of_key, Dimension::UtmSource).await, (top(&[("news", 7)]), 0, 373, 50));
        assert_eq!(breakdown(of_key, Dimension::Destination).await, (top(&[("default", 300)]), 0, 130, 0));
        assert_eq!(breakdown(of_key, Dimension::Bot).await, (top(&[("crawler", 20)]), 0, 410, 0));
        let of_link = HitSubject::Link(short_id(1));
        assert_eq!(breakdown(of_link, Dimension::Referrer).await, (top(&[("a.example", 2)]), 2, 108, 0));
        assert_eq!(breakdown(of_link, Dimension::Bot).await, (top(&[("tool", 10)]), 0, 102, 0));
    }
}

/// Hits are added to those that are there.
pub async fn go_on(store: &Arc<dyn Store>, version: &str) {
    let days = counted([day(BUSY, noon(), [1, 0, 0]), day(3, noon(), [1, 0, 0])], []);
    store.apply_hits(Arc::new(HitBatch { days, ..batch(90, 91) })).await.unwrap();
    let last = async |n| store.link_hits(short_id(n), None).await.unwrap().days.pop();
    assert_eq!(last(BUSY).await, Some((noon().day(), busy(version, 1))));
    assert_eq!(last(3).await, Some((noon().day(), devices([4, 1, 0]))));
}
