//! Breakdowns by what requests say besides their user agent, and what is not counted under a label.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::links::{changing, faults};
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};
use crate::support::visits::{DESKTOP, PHONE, counted, counted_in_all, labels, of, visit_with};

/// Follows a link once with a query and headers.
async fn follow(server: &Server, path: &str, headers: &[(&str, &str)]) {
    let agent = [("User-Agent", DESKTOP)];
    let headers: Vec<_> = agent
        .iter()
        .filter(|_| headers.iter().all(|(name, _)| *name != "User-Agent"))
        .chain(headers)
        .copied()
        .collect();
    visit_with(server, path, &headers).await;
}

async fn counted_everywhere(client: &Client, id: &str, hits: u64) {
    counted(client, id, hits).await;
    counted_in_all(client, hits).await;
}

/// The breakdowns of a link and of its key, of all days and of today: they are the same.
async fn breakdown(client: &Client, id: &str, dimension: &str) -> Value {
    let mut breakdowns = Vec::new();
    for path in [format!("/links/{id}/analytics/breakdown"), "/analytics/breakdown".to_owned()] {
        for range in ["", "&from=2026-11-21"] {
            breakdowns.push(client.get(&format!("{path}?dimension={dimension}{range}")).await.expect(200).json());
        }
    }
    assert!(breakdowns.iter().all(|breakdown| *breakdown == breakdowns[0]), "{breakdowns:?}");
    breakdowns.remove(0)
}

fn apart(breakdown: &Value) -> [u64; 5] {
    ["total", "other", "none", "private", "more"].map(|name| breakdown[name].as_u64().unwrap())
}

#[apply(on_each_store)]
async fn hits_are_counted_by_language_campaign_and_kind_of_bot() {
    let server = changing().start();
    let root = server.root();
    let id = root.shorten(json!({"redirect_url": "https://example.com/?utm_source=target&utm_medium=link"})).await;
    follow(
        &server,
        &format!("{id}?utm_source=%3Dmail&utm_campaign=summer+sale"),
        &[("Accept-Language", "pt-BR,de;q=0.5")],
    )
    .await;
    follow(&server, &id, &[("Accept-Language", "de;q=0.8, en;q=0.9")]).await;
    follow(&server, &format!("{id}?utm_term=a,b&utm_content=%C3%9C"), &[("Sec-Purpose", "prefetch")]).await;
    counted_everywhere(&root, &id, 3).await;
    for (dimension, expected) in [
        ("language", vec![("en", 1), ("pt-br", 1)]),
        ("utm_source", vec![("target", 2), ("=mail", 1)]),
        ("utm_medium", vec![("link", 3)]),
        ("utm_campaign", vec![("summer sale", 1)]),
        ("utm_term", vec![("a,b", 1)]),
        ("utm_content", vec![("Ü", 1)]),
        ("bot", vec![("prefetch", 1)]),
        ("destination", vec![("default", 3)]),
    ] {
        let breakdown = breakdown(&root, &id, dimension).await;
        let none = 3 - expected.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(labels(&breakdown["labels"]), of(&expected), "{dimension}");
        assert_eq!(apart(&breakdown), [3, 0, none, 0, 0], "{dimension}");
    }
    let path = format!("/links/{id}/analytics/breakdown?dimension=utm_source&format=csv");
    let csv = "label,count\r\ntarget,2\r\n'=mail,1\r\n(other),0\r\n(none),0\r\n(private),0\r\n(more),0\r\n";
    assert_eq!(root.get(&path).await.expect(200).text(), csv);
}

#[apply(on_each_store)]
async fn visitors_who_want_no_tracking_are_private_but_for_their_device() {
    let server = changing().set("SIGNPOST_PRIVACY__RESPECT", "gpc").start();
    let root = server.root();
    let id = root.any_link().await;
    let path = format!("{id}?utm_source=mail");
    let private =
        [("User-Agent", PHONE), ("Sec-GPC", "1"), ("Accept-Language", "de"), ("Referer", "https://a.example/")];
    for headers in [&private[..], &private, &private[2..]] {
        follow(&server, &path, headers).await;
    }
    counted_everywhere(&root, &id, 3).await;
    for dimension in ["referrer", "browser", "os", "language", "utm_source", "utm_medium", "country", "city"] {
        let breakdown = breakdown(&root, &id, dimension).await;
        let labelled = labels(&breakdown["labels"]).iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(apart(&breakdown), [3, 0, 1 - labelled, 2, 0], "{dimension}");
        assert_eq!(labelled, u64::from(!["utm_medium", "country", "city"].contains(&dimension)), "{dimension}");
    }
    assert_eq!(labels(&breakdown(&root, &id, "device").await["labels"]), of(&[("mobile", 2), ("desktop", 1)]));
    assert_eq!(labels(&breakdown(&root, &id, "destination").await["labels"]), of(&[("default", 3)]));
    assert_eq!(apart(&breakdown(&root, &id, "bot").await), [3, 0, 3, 0, 0]);
}

#[apply(on_each_store)]
async fn without_days_of_sheets_ranges_are_whole_months() {
    let server = changing().set("SIGNPOST_ANALYTICS__SHEET_DAYS", "0").start();
    let root = server.root();
    let id = root.any_link().await;
    follow(&server, &id, &[]).await;
    counted_everywhere(&root, &id, 1).await;
    for path in [format!("/links/{id}/analytics/breakdown"), "/analytics/breakdown".to_owned()] {
        for (range, expected) in [
            ("from=2026-11-21", vec!["from"]),
            ("from=2026-11-01&until=2026-11-21", vec!["until"]),
            ("from=2026-11-02&until=2026-11-21", vec!["from", "until"]),
        ] {
            assert_eq!(faults(root.get(&format!("{path}?dimension=os&{range}")).await), expected, "{range}");
        }
        for (range, total) in [("", 1), ("from=2026-11-01", 1), ("until=2026-11-22", 1), ("until=2026-11-01", 0)] {
            let breakdown = root.get(&format!("{path}?dimension=os&{range}")).await.expect(200).json();
            assert_eq!((&breakdown["total"], apart(&breakdown)[2]), (&json!(total), 0), "{range}");
        }
    }
}
