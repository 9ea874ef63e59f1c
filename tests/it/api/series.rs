//! `GET /links/{short_id}/analytics/series` and `GET /analytics/series`.

use std::collections::BTreeMap;

use jiff::tz::TimeZone as LibraryZone;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::domain::series::Interval;

use crate::domain::series::stepped;
use crate::support::client::Client;
use crate::support::keys::text;
use crate::support::links::{TARGET, changing, faults, free_key};
use crate::support::stores::{apply, on_each_store};
use crate::support::visits::{CRAWLER, DESKTOP, TOOL, counted, counted_in_all, move_to, time, visit};

const OF_KEY: &str = "/analytics/series";

fn of_link(id: &str) -> String {
    format!("/links/{id}/analytics/series")
}

async fn series(client: &Client, path: &str, query: &str) -> Value {
    let answer = client.get(&format!("{path}?{query}")).await.expect(200);
    assert_eq!((answer.header("content-type"), answer.header("vary")), ("application/json", "Accept"));
    let series = answer.json();
    let points = series["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| point["count"].as_u64().unwrap()).sum::<u64>(), series["total"], "{query}");
    assert_eq!(points[0]["start"], series["from"], "{query}");
    series
}

fn starts(series: &Value) -> Vec<&str> {
    series["points"].as_array().unwrap().iter().map(|point| text(&point["start"])).collect()
}

fn counts(series: &Value) -> Vec<u64> {
    series["points"].as_array().unwrap().iter().map(|point| point["count"].as_u64().unwrap()).collect()
}

#[apply(on_each_store)]
async fn a_series_without_parameters_has_a_point_for_each_of_the_last_30_days() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    for path in [of_link(&id), OF_KEY.to_owned()] {
        let series = series(&root, &path, "").await;
        let points: Vec<Value> = (0..30)
            .map(|day| {
                let start = Timestamp(time("2026-10-23T00:00:00Z").0 + day * 86_400_000);
                json!({"start": start.to_string(), "count": 0})
            })
            .collect();
        let expected = json!({
            "from": "2026-10-23T00:00:00.000Z",
            "until": "2026-11-22T00:00:00.000Z",
            "interval": "day",
            "timezone": "UTC",
            "total": 0,
            "points": points,
        });
        assert_eq!(series, expected);
    }
}

/// A zone for each minute of the hour at which offsets are, with clocks that are set within the hits, and at the ends of
/// the world.
const ZONES: [&str; 7] = [
    "UTC",
    "Europe/Berlin",
    "America/Havana",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "Etc/GMT+12",
];

/// A hit, and whether it is a bot's.
type Hit = (Timestamp, bool);

/// Hits of two links, each at another time, the first a millisecond before an hour ends: in the night in which clocks are set
/// in Europe, in that of America, and on the days after it.
fn hits() -> [Vec<Hit>; 2] {
    let first = time("2026-10-24T20:59:59.999Z").0;
    let mut hits: [Vec<Hit>; 2] = Default::default();
    for number in 0..60_u64 {
        // Nearly an hour apart at first, then more and more hours.
        let at = Timestamp(first + number * 3_300_000 + number.pow(3) * 11_500);
        hits[usize::from(number % 3 == 0)].push((at, number % 4 == 0));
    }
    hits
}

/// The points that a series has.
fn expected(hits: &[Hit], bots: &str, starts: &[Timestamp], until: Timestamp) -> Vec<u64> {
    let ends = starts.iter().skip(1).chain([&until]);
    let is_counted = |is_bot: bool| match bots {
        "exclude" => !is_bot,
        "only" => is_bot,
        _ => true,
    };
    let within = |from: Timestamp, until: Timestamp| {
        hits.iter().filter(|(at, is_bot)| is_counted(*is_bot) && from <= *at && *at < until).count() as u64
    };
    starts.iter().zip(ends).map(|(from, until)| within(*from, *until)).collect()
}

#[apply(on_each_store)]
async fn hits_are_in_the_interval_of_their_local_time() {
    let clock = Clock::standing_at(time("2026-10-24T12:00:00Z"));
    let server = changing().clock(clock.clone()).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let (links, hits) = ([owner.any_link().await, owner.any_link().await], hits());
    let mut in_order: Vec<(Hit, &String)> =
        links.iter().zip(&hits).flat_map(|(link, hits)| hits.iter().map(move |hit| (*hit, link))).collect();
    in_order.sort();
    for ((at, is_bot), link) in &in_order {
        move_to(&clock, *at);
        visit(&server, link, if *is_bot { CRAWLER } else { DESKTOP }).await;
    }
    assert!(
        time("2026-11-22T00:00:00Z") < clock.now() && clock.now() < time("2026-11-27T00:00:00Z"),
        "{}",
        clock.now()
    );
    for (link, hits) in links.iter().zip(&hits) {
        counted(&owner, link, hits.len() as u64).await;
    }
    counted_in_all(&owner, 60).await;

    let all: Vec<Hit> = in_order.iter().map(|(hit, _)| *hit).collect();
    let (link, of_first) = (of_link(&links[0]), &hits[0]);
    // In the middle of an hour, and of a day in most zones.
    let (from, until) = (time("2026-10-24T21:15:00Z"), time("2026-11-21T17:45:00Z"));
    for zone in ZONES {
        let starts_of_all = stepped(&LibraryZone::get(zone).unwrap(), from, until);
        for (interval, starts_of) in Interval::ALL.into_iter().zip(&starts_of_all) {
            for bots in ["include", "exclude", "only"] {
                let (interval, zone) = (interval.name(), zone.replace('+', "%2B"));
                let query = format!("from={from}&until={until}&interval={interval}&timezone={zone}&bots={bots}");
                for (path, hits) in [(link.as_str(), of_first), (OF_KEY, &all)] {
                    let series = series(&owner, path, &query).await;
                    let expected_starts: Vec<String> = starts_of.iter().map(Timestamp::to_string).collect();
                    assert_eq!(starts(&series), expected_starts, "{query}");
                    assert_eq!(counts(&series), expected(hits, bots, starts_of, until), "{path} {query}");
                    let named = ["from", "until", "interval", "timezone"].map(|name| text(&series[name]).to_owned());
                    let (from, until) = (from.to_string(), until.to_string());
                    assert_eq!(named, [&*from, &until, interval, &zone.replace("%2B", "+")]);
                }
            }
        }
    }
}

#[apply(on_each_store)]
async fn days_of_utc_are_counted_for_years() {
    let clock = Clock::standing_at(time("2024-02-29T23:59:59.999Z"));
    let server = changing().clock(clock.clone()).start();
    let root = server.root();
    let id = root.any_link().await;
    let times = ["2024-02-29T23:59:59.999Z", "2024-03-01T00:00:00Z", "2025-12-31T12:00:00Z", "2026-11-20T12:00:00Z"];
    for (number, at) in times.into_iter().enumerate() {
        move_to(&clock, time(at));
        visit(&server, &id, [DESKTOP, TOOL][number % 2]).await;
        counted(&root, &id, number as u64 + 1).await;
        counted_in_all(&root, number as u64 + 1).await;
    }
    for path in [of_link(&id), OF_KEY.to_owned()] {
        let months = series(&root, &path, "from=2024-02-01&interval=month").await;
        let mut expected = vec![0; 34];
        (expected[0], expected[1], expected[22], expected[33]) = (1, 1, 1, 1);
        assert_eq!((counts(&months), &months["until"]), (expected, &json!("2026-11-21T00:00:00.000Z")));
        let days = series(&root, &path, "from=2024-02-29&until=2024-03-02&bots=exclude").await;
        assert_eq!(counts(&days), [1, 0]);
        let weeks = series(&root, &path, "from=2024-02-28&until=2024-03-12&interval=week&bots=only").await;
        let mondays = ["2024-02-28T00:00:00.000Z", "2024-03-04T00:00:00.000Z", "2024-03-11T00:00:00.000Z"];
        assert_eq!((starts(&weeks), counts(&weeks)), (mondays.to_vec(), vec![1, 0, 0]));
    }
}

#[apply(on_each_store)]
async fn all_faults_of_a_query_are_told_at_once() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    for (query, expected) in [
        ("interval=year", vec!["interval"]),
        ("interval=Day", vec!["interval"]),
        ("timezone=Mars/Base", vec!["timezone"]),
        ("timezone=%2B01:00", vec!["timezone"]),
        ("timezone=", vec!["timezone"]),
        ("from=yesterday", vec!["from"]),
        ("from=", vec!["from"]),
        ("from=2026-02-30", vec!["from"]),
        ("until=2026-11-21T12:00:00", vec!["until"]),
        ("from=2026-11-20&until=2026-11-20", vec!["from"]),
        ("from=2026-11-22", vec!["from"]),
        ("from=2020-01-01", vec!["interval"]),
        ("interval=hour&from=2026-10-16", vec!["from"]),
        ("timezone=Europe/Berlin&interval=month&from=2026-10-16", vec!["from"]),
        ("from=2026-01-01&until=2026-02-01T06:00:00Z", vec!["from"]),
        ("bots=yes", vec!["bots"]),
        ("format=xml", vec!["format"]),
        ("days=3&limit=10", vec!["days", "limit"]),
        ("from=2026-11-01&from=2026-11-02", vec!["from"]),
        (
            "from=x&until=y&interval=z&timezone=?&bots=&format=&dimension=browser",
            vec!["bots", "dimension", "format", "from", "interval", "timezone", "until"],
        ),
    ] {
        for path in [of_link(&id), of_link("unknown"), OF_KEY.to_owned()] {
            assert_eq!(faults(root.get(&format!("{path}?{query}")).await), expected, "{query}");
        }
    }
    for query in [
        "interval=hour&from=2026-10-17",
        "timezone=Pacific/Kiritimati&from=2026-10-18",
        "timezone=europe/berlin",
        "from=2026-11-21T13:00:00%2B01:00&until=2026-11-21T12:15:00Z",
        "until=2027-12-31",
        "from=2021-06-01",
    ] {
        root.get(&format!("{OF_KEY}?{query}")).await.expect(200);
    }
    assert_eq!(series(&root, OF_KEY, "timezone=europe/berlin").await["timezone"], "Europe/Berlin");
}

#[apply(on_each_store)]
async fn a_csv_has_a_line_for_each_point() {
    let server = changing().start();
    let root = server.root();
    let id = root.shorten(json!({"redirect_url": TARGET})).await;
    server.click(&id, 3).await;
    counted(&root, &id, 3).await;
    counted_in_all(&root, 3).await;
    let range = "from=2026-11-21T09:30:00Z&until=2026-11-21T13:15:00Z&interval=hour&timezone=Asia/Kolkata";
    let csv = "start,count\r\n2026-11-21T09:30:00.000Z,0\r\n2026-11-21T10:30:00.000Z,0\r\n\
               2026-11-21T11:30:00.000Z,3\r\n2026-11-21T12:30:00.000Z,0\r\n";
    for path in [of_link(&id), OF_KEY.to_owned()] {
        let path = format!("{path}?{range}");
        for (format, accept, is_csv) in [
            ("", "text/csv", true),
            ("", "application/json;q=0.5, text/csv", true),
            ("&format=csv", "application/json", true),
            ("&format=json", "text/csv", false),
            ("", "text/csv, application/json", false),
            ("", "*/*", false),
        ] {
            let answer = root.get_with(&format!("{path}{format}"), &[("Accept", accept)]).await.expect(200);
            assert_eq!((answer.header("vary"), answer.header("cache-control")), ("Accept", "no-store"));
            if is_csv {
                assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
                assert_eq!(answer.text(), csv, "{format} {accept}");
            } else {
                assert_eq!(answer.json()["points"][2]["count"], 3, "{format} {accept}");
            }
        }
        let problem = root.get_with(&format!("{path}&bots=x"), &[("Accept", "text/csv")]).await.expect(422);
        problem.problem("validation");
        let head = root.head(&format!("{path}&format=csv")).await.expect(200);
        assert_eq!((head.header("content-type"), head.body.len()), ("text/csv; charset=utf-8", 0));
    }
}

#[apply(on_each_store)]
async fn a_series_of_a_key_is_the_sum_of_those_of_its_links() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let other = free_key(&server, json!({"name": "other"})).await;
    let mut links = Vec::new();
    for number in 0..4 {
        let id = owner.any_link().await;
        for _ in 0..=number {
            visit(&server, &id, DESKTOP).await;
        }
        visit(&server, &id, CRAWLER).await;
        links.push(id);
    }
    let untracked = owner.shorten(json!({"redirect_url": TARGET, "tracked": false})).await;
    server.click(&untracked, 5).await;
    server.click(&other.any_link().await, 2).await;
    counted_in_all(&owner, 14).await;
    counted_in_all(&other, 2).await;
    for (number, id) in links.iter().enumerate() {
        counted(&owner, id, number as u64 + 2).await;
    }
    for bots in ["include", "exclude", "only"] {
        let query = format!("interval=hour&bots={bots}");
        let mut sums = BTreeMap::<String, u64>::new();
        for id in &links {
            let series = series(&owner, &of_link(id), &query).await;
            for (start, count) in starts(&series).into_iter().zip(counts(&series)) {
                *sums.entry(start.to_owned()).or_default() += count;
            }
        }
        let of_key = series(&owner, OF_KEY, &query).await;
        let shown: BTreeMap<String, u64> =
            starts(&of_key).into_iter().map(str::to_owned).zip(counts(&of_key)).collect();
        assert_eq!(shown, sums);
    }
    // The root key has links of its own, and none here.
    assert_eq!(series(&server.root(), OF_KEY, "").await["total"], 0);
}
