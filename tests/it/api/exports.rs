//! `GET /exports/links`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::client::{Answer, Client};
use crate::support::keys::{standing, text};
use crate::support::links::{TARGET, changing, faults, free_key};
use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server, ServerBuilder};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const HEAD: &str =
    "short_id,short_url,redirect_url,title,tags,created_at,updated_at,expires_at,archived,total_hits\r\n";

async fn export(client: &Client, query: &str) -> Answer {
    client.get(&format!("/exports/links?{query}")).await.expect(200)
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let text = answer.text();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All bytes of an answer, until the server closes.
async fn bytes_of(server: &Server, line: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("{line}\r\nHost: x\r\nX-API-Key: {ROOT_KEY}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[apply(on_each_store)]
async fn a_client_of_http_1_0_gets_an_export_without_chunks() {
    let server = Server::start();
    let id = server.root().any_link().await;
    let answer = bytes_of(&server, "GET /exports/links HTTP/1.0").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
    assert_eq!(serde_json::from_str::<Value>(body).unwrap()["short_id"], id);
}

#[apply(on_each_store)]
async fn the_length_of_an_answer_that_is_made_while_it_is_sent_is_not_told_to_head() {
    let server = Server::start();
    for path in ["/exports/links", "/hits/stream"] {
        let answer = bytes_of(&server, &format!("HEAD {path} HTTP/1.1")).await.to_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert!(!answer.contains("content-length") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
}

#[apply(on_each_store)]
async fn an_export_has_what_a_list_has_in_one_answer() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    assert!(lines(&export(&owner, "").await).is_empty());
    let links: Vec<Value> = (0..80)
        .map(|n| {
            let tag = if n % 2 == 0 { "a" } else { "b" };
            json!({"redirect_url": TARGET, "slug": format!("slug-{n}"), "tags": [tag]})
        })
        .collect();
    owner.post("/shorten/bulk", json!({"links": links})).await.expect(200);
    for query in ["", "order=oldest", "tag=a", "slug_prefix=slug-1", "q=slug-7", "include=hits", "archived=true"] {
        let listed = owner.get(&format!("/links?limit=100&{query}")).await.expect(200).json();
        assert_eq!(json!(lines(&export(&owner, query).await)), listed["links"], "{query}");
    }
    let root = server.root();
    let more: Vec<Value> = vec![json!({"redirect_url": TARGET}); 500];
    root.post("/shorten/bulk", json!({"links": more})).await.expect(200);
    root.post("/shorten/bulk", json!({"links": more})).await.expect(200);
    let mut ids: Vec<String> =
        lines(&export(&root, "").await).iter().map(|link| text(&link["short_id"]).to_owned()).collect();
    assert_eq!(ids.len(), 1_080);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1_080);
    assert_eq!(lines(&export(&root, "q=slug-79").await).len(), 1);
    let (head, answer) = (root.head("/exports/links").await.expect(200), export(&root, "").await);
    for name in ["content-type", "vary", "cache-control"] {
        assert_eq!(head.header(name), answer.header(name));
    }
}

#[apply(on_each_store)]
async fn a_csv_has_a_head_and_no_formulas() {
    let server = changing().set("SIGNPOST_HTTP__BASE_URL", "https://go.example").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    assert_eq!(export(&owner, "format=csv").await.text(), HEAD);
    let body = json!({
        "redirect_url": "https://example.com/a,b",
        "slug": "first",
        "title": "=HYPERLINK(\"x\")",
        "tags": ["a", "-b"],
        "expires_at": "2027-01-01T00:00:00Z",
    });
    owner.shorten(body).await;
    let second = json!({"redirect_url": TARGET, "slug": "second", "title": "@x", "tracked": false, "tags": ["+1"]});
    owner.shorten(second).await;
    server.click("first", 2).await;
    let created = owner.link_record("first").await["created_at"].as_str().unwrap().to_owned();
    let expected = format!(
        "{HEAD}first,https://go.example/first,\"https://example.com/a,b\",\"'=HYPERLINK(\"\"x\"\")\",\"a,-b\",{created},{created},\
         2027-01-01T00:00:00.000Z,false,2\r\nsecond,https://go.example/second,{TARGET},'@x,'+1,{created},{created},,false,\r\n"
    );
    let csv = eventually("hits in the export", SOON, async || {
        let csv = export(&owner, "format=csv&slug_prefix=f").await.text();
        csv.ends_with(",2\r\n").then_some(csv)
    })
    .await;
    assert!(expected.starts_with(&csv), "{csv}");
    for (query, accept) in [("format=csv", "application/x-ndjson"), ("archived=any", "text/csv")] {
        let headers = [("Accept", accept)];
        let whole = owner.get_with(&format!("/exports/links?{query}"), &headers).await.expect(200);
        assert_eq!(whole.header("content-type"), "text/csv; charset=utf-8");
        let mut rows: Vec<&str> = expected.lines().collect();
        let text = whole.text();
        let mut shown: Vec<&str> = text.lines().collect();
        rows.sort_unstable();
        shown.sort_unstable();
        assert_eq!(shown, rows);
    }
    lines(&owner.get_with("/exports/links?format=ndjson", &[("Accept", "text/csv")]).await.expect(200));
}

#[apply(on_each_store)]
async fn an_export_has_filters_but_no_pages() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    for (query, expected) in [
        ("limit=10&cursor=x", vec!["cursor", "limit"]),
        ("format=xml&state=new", vec!["format", "state"]),
        ("tag=a&target=https://example.com/", vec!["target"]),
    ] {
        assert_eq!(faults(owner.get(&format!("/exports/links?{query}")).await), expected, "{query}");
    }
    owner.get("/exports/links?key_id=019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57").await.expect(404).problem("not-found");
}

#[apply(on_each_store)]
async fn exports_have_a_rate_limit_of_their_own() {
    let server = Server::start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    for remaining in ["r=1", "r=0"] {
        let answer = export(&owner, "").await;
        assert!(answer.header("ratelimit").starts_with(&format!("\"exports\";{remaining}")), "{:?}", answer.headers);
    }
    owner.get("/exports/links").await.expect(429).problem("rate-limited");
}

/// A server whose store fails on demand.
fn faulty(server: ServerBuilder) -> (Server, FaultSwitch) {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    (server.wrap_store(move |store| Arc::new(FaultyStore::new(store, faults))).start(), switch)
}

/// Makes links, and lets the store fail after the first part of the next export.
async fn fail_after_a_part(client: &Client, switch: &FaultSwitch) {
    client.post("/shorten/bulk", json!({"links": vec![json!({"redirect_url": TARGET}); 350]})).await.expect(200);
    switch.out_of_reach_after(1, "list_links");
}

fn back_in_reach(switch: &FaultSwitch) {
    switch.out_of_reach_after(usize::MAX, "list_links");
    switch.out_of_reach(false);
}

async fn is_refused(switch: &FaultSwitch) {
    eventually("the export meets the fault", SOON, async || (switch.refused("list_links") > 0).then_some(())).await;
}

#[apply(on_each_store)]
async fn an_export_goes_on_when_the_store_is_back() {
    let (server, switch) = faulty(changing());
    let root = server.root();
    fail_after_a_part(&root, &switch).await;
    let back = async {
        is_refused(&switch).await;
        back_in_reach(&switch);
    };
    let (answer, ()) = join(export(&root, ""), back).await;
    assert_eq!(lines(&answer).len(), 350);
}

/// What comes of an export until the server closes the connection.
async fn bytes_of_export(address: SocketAddr, key: &str) -> Vec<u8> {
    let mut raw = Raw::connect(address).await;
    let request = format!("GET /exports/links HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n");
    raw.send(request.as_bytes()).await;
    let mut bytes = Vec::new();
    // A connection that is reset has ended, too.
    let _ = tokio::time::timeout(SOON, raw.stream.read_to_end(&mut bytes)).await.expect("the export does not end");
    bytes
}

#[track_caller]
fn assert_cut(bytes: &[u8]) {
    assert!(bytes.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(bytes));
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "it has come to its end");
}

#[apply(on_each_store)]
async fn an_export_ends_with_its_key() {
    let clock = standing();
    let (server, switch) = faulty(changing().clock(clock.clone()));
    let expires = json!({"name": "soon over", "tier": "Pro", "expires_at": "2026-11-21T13:00:00Z"});
    let key = server.root().new_key(expires).await;
    fail_after_a_part(&server.with_key(text(&key["key"])), &switch).await;
    let over = async {
        is_refused(&switch).await;
        clock.advance(Duration::from_hours(2));
        // The key can be read, also if the node does not have it in memory any more.
        switch.refuses(Some("list_links"));
        back_in_reach(&switch);
    };
    let (bytes, ()) = join(bytes_of_export(server.address, text(&key["key"])), over).await;
    assert_cut(&bytes);
}

#[apply(on_each_store)]
async fn an_export_ends_when_the_service_drains() {
    let (server, switch) = faulty(changing());
    fail_after_a_part(&server.root(), &switch).await;
    let address = server.address;
    let stop = async {
        is_refused(&switch).await;
        // It goes on while the export ends.
        [tokio::task::spawn_blocking(move || drop(server))]
    };
    let began = Instant::now();
    let (bytes, [stopping]) = join(bytes_of_export(address, ROOT_KEY), stop).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_cut(&bytes);
    back_in_reach(&switch);
    stopping.await.unwrap();
}

#[apply(on_each_store)]
async fn a_key_has_so_many_exports_at_once() {
    let (server, switch) = faulty(changing());
    let (root, other) = (server.root(), free_key(&server, json!({"name": "other"})).await);
    for client in [&root, &other] {
        export(client, "").await;
    }
    switch.holds_calls(true);
    let mut crowd: FuturesUnordered<_> = (0..5).map(|_| other.get("/exports/links")).collect();
    // The others are held.
    let refused = crowd.next().await.unwrap().expect(503);
    refused.problem("unavailable");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
    // The root key may have more.
    crowd.extend((0..5).map(|_| root.get("/exports/links")));
    switch.holds_calls(false);
    while let Some(answer) = crowd.next().await {
        answer.expect(200);
    }
    for client in [&root, &other] {
        export(client, "").await;
    }
}
