//! Bots: what webhooks are told of them, which links do not notify of them, and the operator's networks.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder, metric};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const TARGET: &str = "https://example.com/";
const CHROME: &str =
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36";
/// A change of a file is in force within this time.
const IN_FORCE: Duration = Duration::from_secs(5);

/// The fields of a visit, and the kind of bot that it is taken for.
const VISITS: [(&[(&str, &str)], &str); 5] = [
    (&[("User-Agent", CHROME)], ""),
    (&[("User-Agent", CHROME), ("Sec-Purpose", "prefetch;prerender")], "prefetch"),
    (&[("User-Agent", "Googlebot/2.1")], "crawler"),
    (&[("User-Agent", "curl/8.5.0")], "tool"),
    (&[], "tool"),
];

fn quick() -> ServerBuilder {
    Server::builder().set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "10ms,10ms")
}

async fn visit_all(server: &Server, link: &str) {
    for (headers, _) in VISITS {
        server.anonymous().get_with(&format!("/{link}"), headers).await.expect(302);
    }
}

async fn deliveries_used(client: &Client) -> Value {
    client.get("/usage").await.expect(200).json()["usage"]["webhook_deliveries"]["current"].clone()
}

#[apply(on_each_store)]
async fn deliveries_of_bots_tell_their_kind_at_each_attempt_and_links_may_skip_them() {
    let (server, receiver) = (quick().start(), Receiver::start().await);
    let root = server.root();
    receiver.decide_with(|request| Reply::Status(if request.path == "/all" { 500 } else { 200 }));
    let link = async |path: &str, skip_bots: bool, tracked: bool| {
        let webhooks = [receiver.url(path)];
        let body = json!({"redirect_url": TARGET, "webhooks": webhooks, "skip_bots": skip_bots, "tracked": tracked});
        root.shorten(body).await
    };
    let all = link("/all", false, true).await;
    let [persons, untracked] = [link("/persons", true, true).await, link("/untracked", true, false).await];
    for link in [&all, &persons, &untracked] {
        visit_all(&server, link).await;
    }
    let told = async |path: &str, count: usize| {
        let what = format!("{count} attempts at {path}");
        let requests = eventually(&what, SOON, async || {
            let requests: Vec<_> = receiver.received().into_iter().filter(|request| request.path == path).collect();
            (requests.len() >= count).then_some(requests)
        });
        let mut told: Vec<_> = requests.await.iter().map(|request| request.header("signpost-bot").to_owned()).collect();
        told.sort_unstable();
        told
    };
    let mut expected: Vec<_> =
        VISITS.iter().flat_map(|(_, kind)| [(*kind).to_owned(), (*kind).into(), (*kind).into()]).collect();
    expected.sort_unstable();
    assert_eq!(told("/all", 15).await, expected, "three attempts of each");
    assert_eq!((told("/persons", 1).await, told("/untracked", 1).await), (vec![String::new()], vec![String::new()]));
    assert_eq!(deliveries_used(&root).await, 7);

    // From then on, also for the links that are in caches.
    root.patch_link(&persons, json!({"skip_bots": false})).await.expect(200);
    visit_all(&server, &persons).await;
    let mut expected: Vec<_> = VISITS.iter().map(|(_, kind)| (*kind).to_owned()).chain([String::new()]).collect();
    expected.sort_unstable();
    assert_eq!(told("/persons", 6).await, expected);
    assert_eq!(deliveries_used(&root).await, 12);
}

#[apply(on_each_store)]
async fn a_replayed_delivery_tells_the_kind_of_its_bot() {
    let (server, receiver) = (quick().start(), Receiver::start().await);
    let root = server.root();
    let link = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.anonymous().get_with(&format!("/{link}"), &[("User-Agent", "Googlebot/2.1")]).await.expect(302);
    receiver.wait_for(1, SOON).await;
    eventually("it can be replayed", SOON, async || {
        let body = json!({"status": "delivered"});
        let queued = root.post(&format!("/{link}/webhooks/replay"), body).await.expect(202).json();
        (queued["queued"] == 1).then_some(())
    })
    .await;
    let requests = receiver.wait_for(2, SOON).await;
    assert!(requests.iter().all(|request| request.header("signpost-bot") == "crawler"), "{requests:?}");
    // A test is of no hit.
    root.post(&format!("/{link}/webhooks/test"), json!({})).await.expect(200);
    let requests = receiver.wait_for(3, SOON).await;
    assert_eq!((requests[2].header("signpost-test"), requests[2].header("signpost-bot")), ("true", ""));
}

#[tokio::test]
async fn counted_hits_of_bots_are_in_the_metrics_by_kind() {
    let server = Server::start();
    let link = server.root().any_link().await;
    visit_all(&server, &link).await;
    let of = |metrics: &str, kind: &str| {
        metric(metrics, &format!("signpost_bot_hits_counted_total{{kind=\"{kind}\"}}")).unwrap()
    };
    let expected =
        [("prefetch", 1.0), ("preview", 0.0), ("crawler", 1.0), ("monitor", 0.0), ("scanner", 0.0), ("tool", 2.0)];
    // A scrape reads counters one by one, while hits are being counted: it may have the total before the kinds.
    let by_kind = eventually("hits are counted", SOON, async || {
        let metrics = server.metrics().await;
        let by_kind = expected.map(|(kind, _)| (kind, of(&metrics, kind)));
        let of_bots: f64 = by_kind.iter().map(|(_, count)| count).sum();
        (metric(&metrics, "signpost_hits_counted_total") == Some(5.0) && of_bots >= 4.0).then_some(by_kind)
    })
    .await;
    assert_eq!(by_kind, expected);
}

#[test]
fn the_metrics_have_a_series_for_each_kind_in_their_order() {
    use signpost::domain::bots::BotKind;
    assert_eq!(signpost::telemetry::metrics::hits::BOT_KINDS, BotKind::ALL.map(BotKind::label));
}

/// As an editor saves a file.
fn write(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

#[tokio::test]
async fn clients_of_the_operators_networks_are_scanners_and_the_file_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks");
    write(&file, "# ours\n192.0.2.0/24\nnonsense\n");
    let receiver = Receiver::start().await;
    let server = Server::builder()
        .set("SIGNPOST_BOTS__NETWORKS", file.to_str().unwrap())
        .set("SIGNPOST_PRIVACY__RESPECT", "gpc")
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
        .start();
    let link = server.root().link_with_webhooks(&[receiver.url("/")]).await;
    // What the next visit of this client is taken for. Private hits are told apart at the redirect.
    let kind = async |is_private: bool| {
        receiver.take_received();
        let signal = if is_private { "1" } else { "0" };
        let headers = [("User-Agent", CHROME), ("X-Forwarded-For", "192.0.2.7"), ("Sec-GPC", signal)];
        server.anonymous().get_with(&format!("/{link}"), &headers).await.expect(302);
        receiver.wait_for(1, SOON).await[0].header("signpost-bot").to_owned()
    };
    assert_eq!((kind(false).await, kind(true).await), ("scanner".to_owned(), "scanner".to_owned()));
    for (text, expected) in [("198.51.100.0/24", ""), ("192.0.2.7", "scanner")] {
        write(&file, text);
        for is_private in [false, true] {
            let is_taken_for = async || (kind(is_private).await == expected).then_some(());
            eventually("the networks are in force", IN_FORCE, is_taken_for).await;
        }
    }
}
