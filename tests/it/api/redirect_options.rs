//! What a redirect answers for the fields of a link: status, caching, times, fallback, and its name.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::Answer;
use crate::support::keys::standing;
use crate::support::links::{TARGET, changing};
use crate::support::raw::Raw;
use crate::support::server::{ServerBuilder, count};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const BROWSER: &str = "text/html,*/*;q=0.8";

/// A server on which the tests may send any number of requests, at the time of `clock`.
fn at(clock: &Clock) -> ServerBuilder {
    changing().clock(clock.clone())
}

fn link(options: &Value) -> Value {
    let mut body = json!({"redirect_url": TARGET});
    body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    body
}

#[track_caller]
fn leads_to(answer: Answer, status: u16, location: &str, cache_control: &str) {
    let answer = answer.expect(status);
    assert_eq!((answer.header("location"), answer.header("cache-control")), (location, cache_control));
    assert!(answer.body.is_empty());
}

#[track_caller]
fn is_refused(answer: Answer, status: u16, slug: &str) {
    let answer = answer.expect(status);
    answer.problem(slug);
    assert_eq!((answer.header("cache-control"), answer.header("location")), ("no-store", ""));
}

#[apply(on_each_store)]
async fn a_link_redirects_with_its_status_and_is_kept_by_browsers_as_long_as_it_says() {
    let server = changing().start();
    let (root, anyone) = (server.root(), server.anonymous());
    for (status, seconds, cache_control) in [
        (301, 0, "private, no-store"),
        (302, 60, "private, max-age=60"),
        (307, 86_400, "private, max-age=86400"),
        (308, 1, "private, max-age=1"),
    ] {
        let id = root.shorten(link(&json!({"redirect_status": status, "cache_seconds": seconds}))).await;
        for _ in 0..2 {
            leads_to(anyone.get(&format!("/{id}")).await, status, TARGET, cache_control);
            leads_to(anyone.head(&format!("/{id}")).await, status, TARGET, cache_control);
        }
    }
    assert_eq!(count(&server.metrics().await, "signpost_journal_hits_appended_total"), 8, "HEAD is no hit");
}

#[apply(on_each_store)]
async fn no_browser_keeps_a_redirect_beyond_the_end_of_its_link() {
    let clock = standing();
    let server = at(&clock).start();
    let options = json!({"cache_seconds": 60, "expires_at": "2026-11-21T12:01:30Z"});
    let id = server.root().shorten(link(&options)).await;
    let path = format!("/{id}");
    for (passed, left) in [(0, 60), (30, 60), (10, 50), (49, 1)] {
        clock.advance(Duration::from_secs(passed));
        let expected = format!("private, max-age={left}");
        leads_to(server.anonymous().get(&path).await, 302, TARGET, &expected);
    }
    clock.advance(Duration::from_millis(500));
    leads_to(server.anonymous().get(&path).await, 302, TARGET, "private, max-age=0");
}

#[apply(on_each_store)]
async fn from_its_end_on_a_link_leads_to_its_fallback_or_nowhere_and_has_no_hits() {
    let clock = standing();
    let server = at(&clock).start();
    let (root, anyone) = (server.root(), server.anonymous());
    let end = "2026-11-21T12:00:10Z";
    let with_fallback = json!({"expires_at": end, "fallback_url": "https://example.org/over", "redirect_status": 301});
    let paths = [root.shorten(link(&json!({"expires_at": end}))).await, root.shorten(link(&with_fallback)).await]
        .map(|id| format!("/{id}"));
    clock.advance(Duration::from_millis(9_999));
    leads_to(anyone.get(&paths[0]).await, 302, TARGET, "private, no-store");
    leads_to(anyone.get(&paths[1]).await, 301, TARGET, "private, no-store");
    clock.advance(Duration::from_millis(1));
    for _ in 0..2 {
        is_refused(anyone.get(&paths[0]).await, 410, "link-expired");
        leads_to(anyone.get(&paths[1]).await, 302, "https://example.org/over", "no-store");
        leads_to(anyone.head(&paths[1]).await, 302, "https://example.org/over", "no-store");
        is_refused(anyone.get(&format!("{}+", paths[0])).await, 410, "link-expired");
        is_refused(anyone.get(&format!("{}+", paths[1])).await, 410, "link-expired");
    }
    let metrics = server.metrics().await;
    for (name, expected) in [
        ("signpost_journal_hits_appended_total", 2),
        ("signpost_redirects_total{outcome=\"found\"}", 2),
        ("signpost_redirects_total{outcome=\"expired\"}", 6),
        ("signpost_http_requests_total{route=\"/{short_id}\",status=\"3xx\"}", 6),
        ("signpost_http_requests_total{route=\"/{short_id}\",status=\"4xx\"}", 2),
    ] {
        assert_eq!(count(&metrics, name), expected, "{name}");
    }
    // With a later end it goes on.
    root.patch_link(&paths[0][1..], json!({"expires_at": null})).await.expect(200);
    leads_to(anyone.get(&paths[0]).await, 302, TARGET, "private, no-store");
}

#[apply(on_each_store)]
async fn expired_links_without_a_fallback_lead_to_that_of_the_operator() {
    let clock = standing();
    let server = at(&clock).set("SIGNPOST_FALLBACKS__EXPIRED", "https://b\u{fc}cher.example/over").start();
    let root = server.root();
    let end = "2026-11-21T12:00:10Z";
    let id = root.shorten(link(&json!({"expires_at": end}))).await;
    let own = root.shorten(link(&json!({"expires_at": end, "fallback_url": "https://example.org/"}))).await;
    clock.advance(Duration::from_secs(10));
    let get = async |id: &str| server.anonymous().get(&format!("/{id}")).await;
    leads_to(get(&id).await, 302, "https://xn--bcher-kva.example/over", "no-store");
    leads_to(get(&own).await, 302, "https://example.org/", "no-store");
    is_refused(get("zzzzzzz").await, 404, "not-found");
}

#[apply(on_each_store)]
async fn before_its_time_a_link_is_unknown() {
    let clock = standing();
    let begin = json!({"not_before": "2026-11-21T12:00:10Z", "fallback_url": "https://example.org/over"});
    for lost in [None, Some("https://example.org/lost")] {
        let clock = clock.clone();
        let server = match lost {
            Some(lost) => at(&clock).set("SIGNPOST_FALLBACKS__NOT_FOUND", lost).start(),
            None => at(&clock).start(),
        };
        let begin = if lost.is_none() { begin.clone() } else { json!({"not_before": "2026-11-21T12:00:20Z"}) };
        let path = format!("/{}", server.root().shorten(link(&begin)).await);
        clock.advance(Duration::from_millis(9_999));
        for _ in 0..2 {
            let answer = server.anonymous().get(&path).await;
            match lost {
                None => is_refused(answer, 404, "not-found"),
                Some(lost) => leads_to(answer, 302, lost, "no-store"),
            }
            is_refused(server.anonymous().get(&format!("{path}+")).await, 404, "not-found");
        }
        let metrics = server.metrics().await;
        assert_eq!(count(&metrics, "signpost_journal_hits_appended_total"), 0);
        assert_eq!(count(&metrics, "signpost_redirects_total{outcome=\"scheduled\"}"), 2);
        let class = if lost.is_some() { "3xx" } else { "4xx" };
        let name = format!("signpost_http_requests_total{{route=\"/{{short_id}}\",status=\"{class}\"}}");
        assert_eq!(count(&metrics, &name), 2);
        clock.advance(Duration::from_millis(1));
        leads_to(server.anonymous().get(&path).await, 302, TARGET, "private, no-store");
    }
}

/// The request came in time, but its answer would not.
#[tokio::test]
async fn a_link_that_ends_while_it_is_looked_up_is_expired() {
    let (clock, switch) = (standing(), FaultSwitch::default());
    let first = at(&clock).start();
    let id = first.root().shorten(link(&json!({"expires_at": "2026-11-21T12:00:10Z"}))).await;
    let around = switch.clone();
    let server =
        at(&clock).wrap_store(|store| Arc::new(FaultyStore::new(store, around))).directory(first.stop()).start();
    switch.holds_calls(true);
    let mut raw = Raw::connect(server.address).await;
    raw.send(format!("GET /{id} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    switch.held(1).await;
    clock.advance(Duration::from_secs(10));
    switch.holds_calls(false);
    is_refused(raw.answer().await.unwrap(), 410, "link-expired");
    assert_eq!(count(&server.metrics().await, "signpost_journal_hits_appended_total"), 0);
}

#[apply(on_each_store)]
async fn browsers_get_a_page_for_links_that_lead_nowhere() {
    let clock = standing();
    let server = at(&clock).start();
    let root = server.root();
    let expired = root.shorten(link(&json!({"expires_at": "2026-11-21T12:00:10Z"}))).await;
    let blocked = root.shorten(link(&json!({"slug": "bad-one", "fallback_url": "https://example.org/"}))).await;
    clock.advance(Duration::from_secs(10));
    root.post(&format!("/links/{blocked}/block"), json!({"reason": "phishing"})).await.expect(200);
    for (name, slug, heading) in
        [(&expired, "link-expired", "Link expired"), (&blocked, "link-blocked", "Link blocked")]
    {
        for path in [format!("/{name}"), format!("/{name}+")] {
            let answer = server.anonymous().get_with(&path, &[("Accept", BROWSER)]).await.expect(410);
            assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
            assert_eq!((answer.header("cache-control"), answer.header("x-robots-tag")), ("no-store", "noindex"));
            assert!(answer.header("content-security-policy").starts_with("default-src 'none'"));
            let text = answer.text();
            assert!(text.contains(&format!("<h1>{heading}</h1>")) && !text.contains(TARGET), "{text}");
            assert!(!text.contains("phishing"), "the reason is for the owner and root");
            is_refused(server.anonymous().get(&path).await, 410, slug);
        }
    }
    let metrics = server.metrics().await;
    assert_eq!(count(&metrics, "signpost_redirects_total{outcome=\"blocked\"}"), 2);
    assert_eq!(count(&metrics, "signpost_journal_hits_appended_total"), 0);
}

#[apply(on_each_store)]
async fn the_preview_of_a_link_has_its_title_unless_the_link_has_none() {
    let server = changing().start();
    let root = server.root();
    let name = root.shorten(link(&json!({"slug": "Summer_sale-2026", "title": "Summer <sale>"}))).await;
    let path = format!("/{name}+");
    let preview = server.anonymous().get(&path).await.expect(200).json();
    let short_url = format!("http://{}/{name}", server.address);
    let expected = json!({"short_id": name, "short_url": short_url, "redirect_url": TARGET, "title": "Summer <sale>"});
    assert_eq!(preview, expected);
    let page = server.anonymous().get_with(&path, &[("Accept", BROWSER)]).await.expect(200).text();
    assert!(page.contains("<title>Summer &lt;sale&gt;</title>"), "{page}");
    root.patch_link(&name, json!({"title": null})).await.expect(200);
    assert_eq!(server.anonymous().get(&path).await.expect(200).json()["title"], Value::Null);
    root.patch_link(&name, json!({"preview": false})).await.expect(200);
    is_refused(server.anonymous().get(&path).await, 404, "not-found");
    leads_to(server.anonymous().get(&format!("/{name}")).await, 302, TARGET, "private, no-store");
    // That it is over is not told either.
    root.post(&format!("/links/{name}/block"), json!({"reason": "x"})).await.expect(200);
    is_refused(server.anonymous().get(&path).await, 404, "not-found");
    assert_eq!(count(&server.metrics().await, "signpost_journal_hits_appended_total"), 1);
}

#[apply(on_each_store)]
async fn names_of_1_to_64_characters_are_followed_on_kept_connections() {
    let server = changing().start();
    let root = server.root();
    let longest = "x".repeat(64);
    let mut raw = Raw::connect(server.address).await;
    for (number, name) in ["a", "_", "0-_-0", "Summer", "summer", "sevench", longest.as_str()].iter().enumerate() {
        let target = format!("https://example.com/{number}");
        root.shorten(json!({"redirect_url": target, "slug": name})).await;
        let request = format!("GET /{name}?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        raw.send(request.repeat(3).as_bytes()).await;
        for _ in 0..3 {
            leads_to(raw.answer().await.unwrap(), 302, &target, "private, no-store");
        }
    }
    // Escaped, a path has the same name.
    leads_to(server.anonymous().get("/%53ummer").await, 302, "https://example.com/3", "private, no-store");
    for other in ["SUMMER", "summer-", "-summer", "b", &format!("{longest}x")] {
        is_refused(server.anonymous().get(&format!("/{other}")).await, 404, "not-found");
    }
    // Hits of a name belong to its link.
    eventually("the hits are counted", SOON, async || {
        let record = root.get(&format!("/links/{longest}/analytics/summary")).await.expect(200).json();
        (record["total_hits"] == 3).then_some(())
    })
    .await;
}
