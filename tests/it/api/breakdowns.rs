//! `GET /links/{short_id}/analytics/breakdown` and `GET /analytics/breakdown`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::breakdown::{Dimension, MAX_SHEET_TEXTS};
use signpost::domain::hit::MAX_LABELS;

use crate::hits::mmdb::{self, Value::Map, Value::Text};
use crate::support::client::Client;
use crate::support::links::{TARGET, changing, faults, free_key};
use crate::support::server::ServerBuilder;
use crate::support::stores::{apply, on_each_store};
use crate::support::visits::{
    CRAWLER, DESKTOP, PHONE, TOOL, counted, counted_in_all, labels, move_to, of, time, visit, visit_with,
};

const OF_KEY: &str = "/analytics/breakdown";

fn of_link(id: &str) -> String {
    format!("/links/{id}/analytics/breakdown")
}

fn number(breakdown: &Value, name: &str) -> u64 {
    breakdown[name].as_u64().unwrap_or_else(|| panic!("{name} of {breakdown}"))
}

async fn breakdown(client: &Client, path: &str, dimension: &str, query: &str) -> Value {
    let answer = client.get(&format!("{path}?dimension={dimension}&{query}")).await.expect(200);
    assert_eq!((answer.header("content-type"), answer.header("vary")), ("application/json", "Accept"));
    let breakdown = answer.json();
    let labelled: u64 = labels(&breakdown["labels"]).iter().map(|(_, count)| count).sum();
    let others: u64 = ["other", "none", "private", "more"].map(|name| number(&breakdown, name)).iter().sum();
    assert_eq!(
        (number(&breakdown, "total"), &breakdown["dimension"]),
        (labelled + others, &json!(dimension)),
        "{query}"
    );
    breakdown
}

#[apply(on_each_store)]
async fn a_link_without_hits_has_a_whole_breakdown_of_each_dimension() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    for dimension in Dimension::ALL.map(Dimension::name) {
        for path in [of_link(&id), OF_KEY.to_owned()] {
            let expected = json!({
                "dimension": dimension, "total": 0, "other": 0, "none": 0, "private": 0, "more": 0, "labels": [],
            });
            assert_eq!(breakdown(&root, &path, dimension, "").await, expected);
        }
    }
}

struct Visitor {
    headers: &'static [(&'static str, &'static str)],
    is_bot: bool,
    /// By dimension.
    labels: &'static [(&'static str, &'static str)],
}

static VISITORS: [Visitor; 4] = [
    Visitor {
        headers: &[("User-Agent", DESKTOP), ("Referer", "https://www.news.example/a"), ("X-Forwarded-For", "8.8.8.8")],
        is_bot: false,
        labels: &[
            ("device", "desktop"),
            ("browser", "chrome"),
            ("os", "windows"),
            ("referrer", "news.example"),
            ("country", "US"),
            ("region", "California, US"),
            ("city", "San Francisco, California, US"),
            ("destination", "default"),
        ],
    },
    Visitor {
        headers: &[("User-Agent", PHONE), ("X-Forwarded-For", "200.160.2.3")],
        is_bot: false,
        labels: &[
            ("device", "mobile"),
            ("browser", "safari"),
            ("os", "ios"),
            ("country", "FR"),
            ("destination", "default"),
        ],
    },
    Visitor {
        headers: &[("User-Agent", CRAWLER), ("Referer", "https://search.example/"), ("X-Forwarded-For", "8.8.4.4")],
        is_bot: true,
        labels: &[
            ("device", "desktop"),
            ("browser", "other"),
            ("os", "other"),
            ("referrer", "search.example"),
            ("country", "US"),
            ("region", "California, US"),
            ("city", "San Francisco, California, US"),
            ("destination", "default"),
            ("bot", "crawler"),
        ],
    },
    Visitor {
        headers: &[("User-Agent", TOOL), ("X-Forwarded-For", "2001:db8::1")],
        is_bot: true,
        labels: &[
            ("device", "desktop"),
            ("browser", "other"),
            ("os", "other"),
            ("destination", "default"),
            ("bot", "tool"),
        ],
    },
];

/// A server behind a proxy, which knows where two addresses are.
fn with_places() -> ServerBuilder {
    let low = Map(vec![("city", Text("San Francisco")), ("country", Text("US")), ("region", Text("California"))]);
    let high = Map(vec![("country_code", Text("FR")), ("country", Text("France"))]);
    let database = mmdb::write("breakdowns.mmdb", &low, &high);
    changing()
        .set("SIGNPOST_GEO__DATABASE", database.to_str().unwrap())
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
}

/// What a breakdown shows of hits, each with its day.
fn expected(hits: &[(&str, &Visitor)], dimension: &str, bots: &str, [from, until]: [&str; 2]) -> Value {
    let is_counted = |is_bot: bool| bots == "include" || (bots == "only") == is_bot;
    let counts = |day: &str| (from.is_empty() || from <= day) && (until.is_empty() || day < until);
    let hits: Vec<_> = hits.iter().filter(|(day, visitor)| counts(day) && is_counted(visitor.is_bot)).collect();
    let mut sums = BTreeMap::<&str, u64>::new();
    for (_, visitor) in &hits {
        for (_, label) in visitor.labels.iter().filter(|(of, _)| *of == dimension) {
            *sums.entry(label).or_default() += 1;
        }
    }
    let none = hits.len() as u64 - sums.values().sum::<u64>();
    let mut labels: Vec<(&str, u64)> = sums.into_iter().collect();
    labels.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let labels: Vec<Value> = labels.into_iter().map(|(label, count)| json!({"label": label, "count": count})).collect();
    json!({
        "dimension": dimension, "total": hits.len(), "other": 0, "none": none, "private": 0, "more": 0, "labels": labels,
    })
}

#[apply(on_each_store)]
async fn hits_of_each_range_add_up_by_each_dimension_with_and_without_bots() {
    let clock = Clock::standing_at(time("2026-08-01T12:00:00Z"));
    let server = with_places().clock(clock.clone()).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let links = [owner.any_link().await, owner.any_link().await];
    let (mut of_first, mut of_all) = (Vec::new(), Vec::new());
    // Some of the first days are older than those that single days are kept of.
    let days = [
        "2026-08-01",
        "2026-08-30",
        "2026-09-01",
        "2026-10-15",
        "2026-10-31",
        "2026-11-01",
        "2026-11-20",
        "2026-11-21",
    ];
    for (number, day) in days.into_iter().enumerate() {
        move_to(&clock, time(&format!("{day}T12:00:00Z")));
        for (visitor, times) in VISITORS.iter().zip([1 + number % 3, number % 2, 2, 1 + number % 2]) {
            for at in 0..times {
                visit_with(&server, &links[at % 2], visitor.headers).await;
                of_all.push((day, visitor));
                if at % 2 == 0 {
                    of_first.push((day, visitor));
                }
            }
        }
        // They are counted on their day.
        counted(&owner, &links[0], of_first.len() as u64).await;
        counted_in_all(&owner, of_all.len() as u64).await;
    }
    for ends in [
        ["", ""],
        ["2026-11-01", ""],
        ["2026-10-01", "2026-11-01"],
        ["2026-11-20", ""],
        ["2026-11-21", "2026-11-22"],
        ["2026-10-31", "2026-11-21"],
        ["", "2026-10-15"],
        ["2026-08-30", "2026-09-02"],
        ["2026-08-30", "2026-11-01"],
        ["2026-08-01", "2026-08-30"],
    ] {
        let [from, until] = ends;
        let range = [("from", from), ("until", until)]
            .map(|(name, end)| if end.is_empty() { String::new() } else { format!("&{name}={end}") });
        for dimension in Dimension::ALL.map(Dimension::name) {
            for (path, hits) in [(of_link(&links[0]), &of_first), (OF_KEY.to_owned(), &of_all)] {
                let mut totals = Vec::new();
                for bots in ["include", "exclude", "only"] {
                    let query = format!("bots={bots}{}", range.concat());
                    let shown = breakdown(&owner, &path, dimension, &query).await;
                    assert_eq!(shown, expected(hits, dimension, bots, ends), "{path} {dimension} {query}");
                    totals.push(number(&shown, "total"));
                }
                assert_eq!(totals[0], totals[1] + totals[2]);
            }
        }
    }
}

#[apply(on_each_store)]
async fn labels_beyond_the_limit_are_told_as_more() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    for (host, times) in [("c.example", 1), ("b.example", 3), ("a.example", 1), ("d.example", 2)] {
        for _ in 0..times {
            visit_with(&server, &id, &[("Referer", &format!("https://{host}/")), ("User-Agent", DESKTOP)]).await;
        }
    }
    visit(&server, &id, DESKTOP).await;
    counted(&root, &id, 8).await;
    counted_in_all(&root, 8).await;
    for path in [of_link(&id), OF_KEY.to_owned()] {
        for (limit, shown, more) in [
            (1, vec![("b.example", 3)], 4),
            (3, vec![("b.example", 3), ("d.example", 2), ("a.example", 1)], 1),
            (4, vec![("b.example", 3), ("d.example", 2), ("a.example", 1), ("c.example", 1)], 0),
            (1000, vec![("b.example", 3), ("d.example", 2), ("a.example", 1), ("c.example", 1)], 0),
        ] {
            for range in ["", "&from=2026-11-21"] {
                let breakdown = breakdown(&root, &path, "referrer", &format!("limit={limit}{range}")).await;
                assert_eq!(labels(&breakdown["labels"]), of(&shown));
                assert_eq!(["total", "more", "none", "other"].map(|name| number(&breakdown, name)), [8, more, 1, 0]);
            }
        }
    }
}

#[apply(on_each_store)]
async fn labels_that_are_too_many_are_told_as_other() {
    let clock = Clock::standing_at(time("2026-11-21T12:00:00Z"));
    let server = changing().clock(clock.clone()).start();
    let root = server.root();
    let id = root.any_link().await;
    let hosts = MAX_LABELS + 7;
    let hosts_of_bots: Vec<u64> = (0..hosts).filter(|host| host % 5 == 0).collect();
    for some in (0..hosts).collect::<Vec<_>>().chunks(50) {
        join_all(some.iter().map(async |host| {
            let referer = format!("https://site{host:04}.example/");
            let agent = if host % 5 == 0 { CRAWLER } else { DESKTOP };
            visit_with(&server, &id, &[("Referer", &referer), ("User-Agent", agent)]).await;
        }))
        .await;
    }
    counted(&root, &id, hosts).await;
    counted_in_all(&root, hosts).await;
    for path in [of_link(&id), OF_KEY.to_owned()] {
        let lifetime = breakdown(&root, &path, "referrer", "limit=1000").await;
        assert_eq!(lifetime["labels"].as_array().unwrap().len() as u64, MAX_LABELS);
        assert_eq!(["total", "other", "more"].map(|name| number(&lifetime, name)), [hosts, 7, 0]);
        let first = breakdown(&root, &path, "referrer", "").await;
        assert_eq!(["total", "other", "more"].map(|name| number(&first, name)), [hosts, 7, MAX_LABELS - 10]);
        let of_day = breakdown(&root, &path, "referrer", "limit=1000&from=2026-11-21").await;
        assert_eq!(of_day["labels"].as_array().unwrap().len(), MAX_SHEET_TEXTS);
        assert_eq!(number(&of_day, "other"), hosts - MAX_SHEET_TEXTS as u64);
        for range in ["", "&from=2026-11-21"] {
            let mut sums = [[0; 2]; 3];
            for (sum, bots) in sums.iter_mut().zip(["include", "exclude", "only"]) {
                let breakdown = breakdown(&root, &path, "referrer", &format!("limit=1000&bots={bots}{range}")).await;
                *sum = ["total", "other"].map(|name| number(&breakdown, name));
            }
            let [all, persons, bots] = sums;
            assert_eq!(all, [persons[0] + bots[0], persons[1] + bots[1]]);
            assert_eq!(bots[0], hosts_of_bots.len() as u64);
        }
    }
    // Another month has a list of its own.
    clock.advance(Duration::from_hours(24 * 20));
    visit_with(&server, &id, &[("Referer", "https://late.example/"), ("User-Agent", DESKTOP)]).await;
    counted(&root, &id, hosts + 1).await;
    let later = breakdown(&root, &of_link(&id), "referrer", "from=2026-12-01").await;
    assert_eq!(labels(&later["labels"]), of(&[("late.example", 1)]));
}

#[apply(on_each_store)]
async fn all_faults_of_a_query_are_told_at_once() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    for (query, expected) in [
        ("", vec!["dimension"]),
        ("dimension=", vec!["dimension"]),
        ("dimension=Browser", vec!["dimension"]),
        ("dimension=os&dimension=city", vec!["dimension"]),
        ("dimension=os&from=yesterday", vec!["from"]),
        ("dimension=os&from=2026-11-21T00:15:00Z", vec!["from"]),
        ("dimension=os&from=2026-08-22&until=2026-08-22", vec!["from", "from", "until"]),
        ("dimension=os&from=2026-08-22", vec!["from"]),
        ("dimension=os&until=2026-11-23", vec!["until"]),
        ("dimension=os&from=2026-11-20&until=2026-11-19", vec!["from"]),
        ("dimension=os&from=2026-12-01", vec!["from"]),
        ("dimension=os&limit=0", vec!["limit"]),
        ("dimension=os&limit=1001", vec!["limit"]),
        ("dimension=os&limit=ten", vec!["limit"]),
        ("dimension=os&bots=none", vec!["bots"]),
        ("dimension=os&format=ndjson", vec!["format"]),
        ("dimension=os&timezone=UTC&interval=day", vec!["interval", "timezone"]),
        (
            "from=x&until=y&limit=z&bots=x&format=x&cursor=x",
            vec!["bots", "cursor", "dimension", "format", "from", "limit", "until"],
        ),
    ] {
        for path in [of_link(&id), of_link("unknown"), OF_KEY.to_owned()] {
            assert_eq!(faults(root.get(&format!("{path}?{query}")).await), expected, "{query}");
        }
    }
    let problem = root.get(OF_KEY).await.expect(422).problem("validation");
    let detail = problem["errors"][0]["detail"].as_str().unwrap();
    assert!(Dimension::ALL.iter().all(|dimension| detail.contains(dimension.name())), "{detail}");
    for range in [
        "from=2026-08-23",
        "from=2026-08-23T02:00:00%2B02:00&until=2026-08-24",
        "from=1970-01-01&until=2026-11-22",
        "until=2027-01-01",
        "limit=1000",
    ] {
        breakdown(&root, OF_KEY, "utm_source", range).await;
    }
}

#[apply(on_each_store)]
async fn a_csv_has_no_formulas_and_ends_with_the_hits_that_no_label_has() {
    let low = Map(vec![("city", Text("=A1,\"B\"")), ("country", Text("US")), ("region", Text("California"))]);
    let high = Map(vec![("city", Text("@Paris")), ("country_code", Text("FR")), ("country", Text("France"))]);
    let database = mmdb::write("formulas.mmdb", &low, &high);
    let server = with_places().set("SIGNPOST_GEO__DATABASE", database.to_str().unwrap()).start();
    let root = server.root();
    let id = root.shorten(json!({"redirect_url": TARGET})).await;
    for address in ["8.8.8.8", "8.8.8.8", "200.160.2.3", "2001:db8::1"] {
        visit_with(&server, &id, &[("X-Forwarded-For", address), ("User-Agent", DESKTOP)]).await;
    }
    counted(&root, &id, 4).await;
    counted_in_all(&root, 4).await;
    let whole = "label,count\r\n\"'=A1,\"\"B\"\", California, US\",2\r\n\"'@Paris, FR\",1\r\n\
                 (other),0\r\n(none),1\r\n(private),0\r\n(more),0\r\n";
    let cut = "label,count\r\n\"'=A1,\"\"B\"\", California, US\",2\r\n\
               (other),0\r\n(none),1\r\n(private),0\r\n(more),1\r\n";
    let empty = "label,count\r\n(other),0\r\n(none),0\r\n(private),0\r\n(more),0\r\n";
    for path in [of_link(&id), OF_KEY.to_owned()] {
        for (query, accept, expected) in [
            ("", "text/csv", whole),
            ("&format=csv", "*/*", whole),
            ("&format=csv&limit=1", "application/json", cut),
            ("&format=csv&from=2026-11-21", "application/json", whole),
            ("&bots=only", "text/csv", empty),
        ] {
            let answer =
                root.get_with(&format!("{path}?dimension=city{query}"), &[("Accept", accept)]).await.expect(200);
            assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
            assert_eq!((answer.header("vary"), answer.text().as_str()), ("Accept", expected), "{query}");
        }
        let json =
            root.get_with(&format!("{path}?dimension=city&format=json"), &[("Accept", "text/csv")]).await.expect(200);
        assert_eq!(json.json()["labels"][1], json!({"label": "@Paris, FR", "count": 1}));
        let head = root.head(&format!("{path}?dimension=city&format=csv")).await.expect(200);
        assert_eq!((head.header("content-type"), head.body.len()), ("text/csv; charset=utf-8", 0));
    }
}
