//! Hits of tests at given times, by persons and by bots, and waiting until they are counted.

use serde_json::Value;
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use super::client::Client;
use super::server::Server;
use super::{SOON, eventually};

pub const DESKTOP: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36";
pub const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                         Version/17.0 Mobile/15E148 Safari/604.1";
pub const CRAWLER: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
pub const TOOL: &str = "curl/8.5.0";

pub fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap_or_else(|| panic!("{text}"))
}

/// Moves a clock that stands forward to a time.
pub fn move_to(clock: &Clock, to: Timestamp) {
    clock.advance(to.since(clock.now()));
}

/// Follows a link once as a visitor with this user agent.
pub async fn visit(server: &Server, id: &str, agent: &str) {
    visit_with(server, id, &[("User-Agent", agent)]).await;
}

/// Follows a link once, with these headers.
pub async fn visit_with(server: &Server, id: &str, headers: &[(&str, &str)]) {
    server.anonymous().get_with(&format!("/{id}"), headers).await.expect(302);
}

/// Waits until so many hits of a link are counted.
pub async fn counted(client: &Client, id: &str, hits: u64) {
    let path = format!("/links/{id}/analytics/summary");
    eventually("hits of the link", SOON, async || {
        (client.get(&path).await.expect(200).json()["total_hits"] == hits).then_some(())
    })
    .await;
}

/// Waits until so many hits of the key's links are counted.
pub async fn counted_in_all(client: &Client, hits: u64) {
    let path = "/analytics/breakdown?dimension=device";
    eventually("hits of the key", SOON, async || {
        (client.get(path).await.expect(200).json()["total"] == hits).then_some(())
    })
    .await;
}

/// The numbers of a list, by label.
pub fn labels(list: &Value) -> Vec<(String, u64)> {
    let entries = list.as_array().unwrap().iter();
    entries
        .map(|entry| {
            assert_eq!(entry.as_object().unwrap().len(), 2);
            (entry["label"].as_str().unwrap().to_owned(), entry["count"].as_u64().unwrap())
        })
        .collect()
}

pub fn of(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect()
}
