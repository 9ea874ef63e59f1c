//! `GET /links/{short_id}/analytics` and `…/summary`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::hits::mmdb::{self, Value::Map, Value::Text};
use crate::support::client::Client;
use crate::support::links::faults;
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};
use crate::support::visits::{CRAWLER, DESKTOP, PHONE, TOOL, labels, of, visit_with};
use crate::support::{SOON, eventually, middle};

const TABLET: &str = "Mozilla/5.0 (iPad; CPU OS 12_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                      Version/12.1 Mobile/15E148 Safari/604.1";

fn at(time: &str) -> Clock {
    Clock::standing_at(Timestamp::parse(time).unwrap())
}

/// Waits until `count` hits are shown.
async fn analytics_of(client: &Client, id: &str, count: u64) -> Value {
    eventually("hits in the analytics", SOON, async || {
        let record = client.get(&format!("/links/{id}/analytics")).await.expect(200).json();
        (record["total_hits"] == count).then_some(record)
    })
    .await
}

async fn hit(client: &Client, id: &str, headers: &[(&str, &str)], times: usize) {
    for _ in 0..times {
        client.get_with(&format!("/{id}"), headers).await.expect(302);
    }
}

#[apply(on_each_store)]
async fn a_link_without_hits_has_a_whole_record() {
    let server = Server::builder().clock(at("2026-03-01T00:00:00Z")).start();
    let root = server.root();
    let id = root.any_link().await;
    let record = root.get(&format!("/links/{id}/analytics")).await.expect(200).json();
    let daily = record["daily"].as_array().unwrap().clone();
    assert_eq!(daily.len(), 30);
    assert_eq!(
        (&daily[0], &daily[29]),
        (&json!({"date": "2026-01-31", "count": 0}), &json!({"date": "2026-03-01", "count": 0}))
    );
    assert_eq!(
        record,
        json!({
            "total_hits": 0, "last_7_days": 0, "daily": daily, "referrers": [],
            "countries": [], "regions": [], "cities": [],
            "devices": [
                {"label": "desktop", "count": 0}, {"label": "mobile", "count": 0}, {"label": "tablet", "count": 0},
            ],
        })
    );
    let summary = root.get(&format!("/links/{id}/analytics/summary")).await.expect(200).json();
    assert_eq!(summary, json!({"short_id": id, "total_hits": 0, "last_7_days": 0, "last_30_days": 0}));
}

#[apply(on_each_store)]
async fn hits_are_counted_by_their_day_over_months() {
    let clock = at("2026-01-30T23:59:59.999Z");
    let server = Server::builder().clock(clock.clone()).start();
    let (root, visitor) = (server.root(), server.anonymous());
    let id = root.any_link().await;
    hit(&visitor, &id, &[], 5).await;
    // Day after day: the first of the last 30, the last before the last 7, the first of those, and today.
    for (step, hits) in
        [(Duration::from_millis(1), 4), (Duration::from_hours(22 * 24), 3), (Duration::from_hours(24), 2)]
    {
        clock.advance(step);
        hit(&visitor, &id, &[], hits).await;
    }
    clock.advance(Duration::from_hours(6 * 24));
    hit(&visitor, &id, &[], 1).await;

    let record = analytics_of(&root, &id, 15).await;
    let daily = record["daily"].as_array().unwrap();
    let mut expected = [0; 30];
    (expected[0], expected[22], expected[23], expected[29]) = (4, 3, 2, 1);
    assert_eq!(daily.iter().map(|day| day["count"].as_u64().unwrap()).collect::<Vec<_>>(), expected);
    assert_eq!((&daily[0]["date"], &daily[29]["date"]), (&json!("2026-01-31"), &json!("2026-03-01")));
    assert_eq!(record["last_7_days"], 3);
    assert_eq!(labels(&record["devices"]), of(&[("desktop", 15), ("mobile", 0), ("tablet", 0)]));
    let summary = root.get(&format!("/links/{id}/analytics/summary")).await.expect(200).json();
    assert_eq!(summary, json!({"short_id": id, "total_hits": 15, "last_7_days": 3, "last_30_days": 10}));

    // A lifetime is as long as it is, and outlives a restart.
    clock.advance(Duration::from_hours(24 * 400));
    let server = Server::builder().clock(clock).directory(server.stop()).start();
    let record = analytics_of(&server.root(), &id, 15).await;
    assert_eq!(record["last_7_days"], 0);
    assert_eq!(labels(&record["devices"])[0].1, 15);
}

#[apply(on_each_store)]
async fn hits_are_shown_within_two_seconds() {
    let server = Server::start();
    let root = server.root();
    let id = root.any_link().await;
    let mut took = Vec::new();
    for count in 1..=3 {
        hit(&server.anonymous(), &id, &[], 1).await;
        let began = Instant::now();
        analytics_of(&root, &id, count).await;
        took.push(began.elapsed());
    }
    assert!(middle(&took) < Duration::from_secs(2), "{took:?}");
}

#[apply(on_each_store)]
async fn devices_are_told_apart_and_add_up() {
    let server = Server::start();
    let (root, visitor) = (server.root(), server.anonymous());
    let id = root.any_link().await;
    hit(&visitor, &id, &[("User-Agent", PHONE)], 3).await;
    hit(&visitor, &id, &[("User-Agent", TABLET)], 2).await;
    hit(&visitor, &id, &[("User-Agent", "curl/8.5.0")], 1).await;
    hit(&visitor, &id, &[("User-Agent", "")], 1).await;
    hit(&visitor, &id, &[], 2).await;
    visitor.head(&format!("/{id}")).await.expect(302);
    let record = analytics_of(&root, &id, 9).await;
    assert_eq!(labels(&record["devices"]), of(&[("desktop", 4), ("mobile", 3), ("tablet", 2)]));
}

#[apply(on_each_store)]
async fn equal_counts_stand_in_the_order_of_their_labels() {
    let server = Server::start();
    let (root, visitor) = (server.root(), server.anonymous());
    let id = root.any_link().await;
    hit(&visitor, &id, &[("User-Agent", TABLET), ("Referer", "https://b.example/")], 1).await;
    hit(&visitor, &id, &[("User-Agent", PHONE), ("Referer", "https://a.example/")], 1).await;
    let record = analytics_of(&root, &id, 2).await;
    assert_eq!(labels(&record["devices"]), of(&[("mobile", 1), ("tablet", 1), ("desktop", 0)]));
    assert_eq!(labels(&record["referrers"]), of(&[("a.example", 1), ("b.example", 1)]));
}

#[apply(on_each_store)]
async fn referrers_are_hosts_and_this_service_is_none() {
    let server = Server::builder().set("SIGNPOST_HTTP__BASE_URL", "https://sho.rt").start();
    let (root, visitor) = (server.root(), server.anonymous());
    let id = root.any_link().await;
    for referer in [
        "https://www.Example.com/page?q=1",
        "http://example.com:8080/",
        "https://news.example.org",
        "https://sho.rt/abc",
        "https://www.sho.rt:443/",
        "about:blank",
        "no url",
        "",
    ] {
        hit(&visitor, &id, &[("Referer", referer)], 1).await;
    }
    hit(&visitor, &id, &[], 1).await;
    let record = analytics_of(&root, &id, 9).await;
    assert_eq!(labels(&record["referrers"]), of(&[("example.com", 2), ("news.example.org", 1)]));
}

#[apply(on_each_store)]
async fn top_lists_hold_ten_over_the_links_lifetime() {
    let clock = at("2026-01-15T12:00:00Z");
    let server = Server::builder().clock(clock.clone()).start();
    let (root, visitor) = (server.root(), server.anonymous());
    let id = root.any_link().await;
    for number in 0..12 {
        hit(&visitor, &id, &[("Referer", &format!("https://site{number:02}.example/"))], 1).await;
    }
    clock.advance(Duration::from_hours(24 * 60));
    hit(&visitor, &id, &[("Referer", "https://site11.example/")], 1).await;
    let record = analytics_of(&root, &id, 13).await;
    let mut expected = vec![("site11.example".to_owned(), 2)];
    expected.extend((0..9).map(|number| (format!("site{number:02}.example"), 1)));
    assert_eq!(labels(&record["referrers"]), expected);
}

#[apply(on_each_store)]
async fn a_database_gives_places() {
    let low = Map(vec![("city", Text("San Francisco")), ("country", Text("US")), ("region", Text("California"))]);
    let high = Map(vec![("country_code", Text("FR")), ("country", Text("France"))]);
    let database = mmdb::write("analytics.mmdb", &low, &high);
    let server = Server::builder()
        .set("SIGNPOST_GEO__DATABASE", database.to_str().unwrap())
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
        .start();
    let (root, visitor) = (server.root(), server.anonymous());
    let id = root.any_link().await;
    hit(&visitor, &id, &[("X-Forwarded-For", "8.8.8.8")], 2).await;
    hit(&visitor, &id, &[("X-Forwarded-For", "200.160.2.3")], 1).await;
    hit(&visitor, &id, &[("X-Forwarded-For", "2001:db8::1")], 1).await;
    let record = analytics_of(&root, &id, 4).await;
    assert_eq!(labels(&record["countries"]), of(&[("US", 2), ("FR", 1)]));
    assert_eq!(labels(&record["regions"]), of(&[("California, US", 2)]));
    assert_eq!(labels(&record["cities"]), of(&[("San Francisco, California, US", 2)]));
}

/// The numbers of an analytics record or a summary, each with its place.
fn numbers(record: &Value) -> BTreeMap<String, u64> {
    let mut numbers = BTreeMap::new();
    for (field, value) in record.as_object().unwrap() {
        match value {
            Value::Number(number) => _ = numbers.insert(field.clone(), number.as_u64().unwrap()),
            Value::Array(entries) => {
                for entry in entries {
                    let name = entry.get("label").or(entry.get("date")).unwrap();
                    numbers.insert(format!("{field} {name}"), entry["count"].as_u64().unwrap());
                }
            }
            _ => {}
        }
    }
    numbers
}

#[apply(on_each_store)]
async fn the_numbers_of_persons_and_of_bots_add_up_to_all() {
    let clock = at("2026-01-15T12:00:00Z");
    let low = Map(vec![("city", Text("San Francisco")), ("country", Text("US")), ("region", Text("California"))]);
    let high = Map(vec![("country_code", Text("FR")), ("country", Text("France"))]);
    let database = mmdb::write("bots.mmdb", &low, &high);
    let server = Server::builder()
        .set("SIGNPOST_GEO__DATABASE", database.to_str().unwrap())
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
        .clock(clock.clone())
        .start();
    let root = server.root();
    let id = root.any_link().await;
    let mut hits = 0;
    for (day, agents) in [(0, [DESKTOP, CRAWLER, PHONE]), (10, [TOOL, TOOL, DESKTOP]), (5, [CRAWLER, TABLET, PHONE])] {
        clock.advance(Duration::from_hours(24 * day));
        for (number, agent) in agents.into_iter().enumerate() {
            let referer = format!("https://site{}.example/", number % 2);
            let from = ["8.8.8.8", "200.160.2.3", "2001:db8::1"][number];
            let headers = [("User-Agent", agent), ("Referer", &*referer), ("X-Forwarded-For", from)];
            visit_with(&server, &id, &headers).await;
        }
        hits += 3;
        analytics_of(&root, &id, hits).await;
    }
    for path in ["analytics", "analytics/summary"] {
        let mut of_filter = Vec::new();
        for bots in ["include", "exclude", "only"] {
            let record = root.get(&format!("/links/{id}/{path}?bots={bots}")).await.expect(200).json();
            of_filter.push(numbers(&record));
        }
        let [all, persons, bots] = [&of_filter[0], &of_filter[1], &of_filter[2]];
        for (place, count) in all {
            let sum = [persons, bots].iter().filter_map(|numbers| numbers.get(place)).sum::<u64>();
            assert_eq!(sum, *count, "{place}");
        }
        assert!(persons.keys().chain(bots.keys()).all(|place| all.contains_key(place)));
        assert_eq!([all, persons, bots].map(|numbers| numbers["total_hits"]), [9, 5, 4]);
        assert_eq!([all, persons, bots].map(|numbers| numbers["last_7_days"]), [6, 3, 3]);
        let without = root.get(&format!("/links/{id}/{path}")).await.expect(200).json();
        assert_eq!(&numbers(&without), all);
    }
    let only = root.get(&format!("/links/{id}/analytics?bots=only")).await.expect(200).json();
    assert_eq!(labels(&only["referrers"]), of(&[("site0.example", 2), ("site1.example", 2)]));
    assert_eq!(labels(&only["devices"]), of(&[("desktop", 4), ("mobile", 0), ("tablet", 0)]));
}

#[apply(on_each_store)]
async fn top_lists_without_bots_are_those_of_persons() {
    let server = Server::start();
    let (root, visitor) = (server.root(), server.anonymous());
    let id = root.any_link().await;
    // Eleven sites that bots come from more often than persons from any.
    for site in 0..11 {
        let referer = format!("https://bots{site:02}.example/");
        hit(&visitor, &id, &[("User-Agent", CRAWLER), ("Referer", &referer)], 3).await;
    }
    for (site, times) in [("a", 1), ("b", 2)] {
        let referer = format!("https://{site}.example/");
        hit(&visitor, &id, &[("User-Agent", DESKTOP), ("Referer", &referer)], times).await;
    }
    analytics_of(&root, &id, 36).await;
    let persons = root.get(&format!("/links/{id}/analytics?bots=exclude")).await.expect(200).json();
    assert_eq!(labels(&persons["referrers"]), of(&[("b.example", 2), ("a.example", 1)]));
    let bots = root.get(&format!("/links/{id}/analytics?bots=only")).await.expect(200).json();
    assert_eq!((labels(&bots["referrers"]).len(), &bots["total_hits"]), (10, &json!(33)));
}

#[apply(on_each_store)]
async fn an_unknown_parameter_is_a_fault() {
    let server = Server::start();
    let id = server.root().any_link().await;
    for path in ["analytics", "analytics/summary"] {
        let problem = server.root().get(&format!("/links/{id}/{path}?days=3")).await.expect(422).problem("validation");
        assert_eq!(problem["errors"][0]["parameter"], "days");
        for query in ["bots=x", "bots=", "bots=Only", "bots=only&bots=only"] {
            assert_eq!(faults(server.root().get(&format!("/links/{id}/{path}?{query}")).await), ["bots"], "{query}");
        }
    }
}
