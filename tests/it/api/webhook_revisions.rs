//! Deliveries of links that were changed or deleted since the hit: they tell of the link as it was, at the URLs that it
//! had.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::link::{Link, LinkData, LinkName};
use signpost::store::Store;

use crate::store::samples::{noon, target};
use crate::support::client::Client;
use crate::support::process::{Process, Program};
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::server::{ROOT_KEY, Server, ServerBuilder};
use crate::support::stores::{Home, apply, on_each_store};
use crate::support::{SOON, eventually};

/// A server whose clock stands: a failed delivery is tried again once the test moves it.
fn server_with(clock: &Clock) -> ServerBuilder {
    Server::builder().clock(clock.clone())
}

fn standing() -> Clock {
    Clock::standing_at(noon())
}

async fn link_in(store: &dyn Store, name: &str) -> Link {
    store.link(LinkName::parse(name).unwrap()).await.unwrap().unwrap()
}

/// The next revision of a link, with another target, other data and these webhooks.
fn changed(link: &Link, webhooks: &[String]) -> Link {
    let number = link.revision.next().0;
    Link {
        target: target(&format!("https://example.com/{number}")),
        data: LinkData::from_json_object(&format!(r#"{{"revision":{number}}}"#)).unwrap(),
        webhooks: link.webhooks.changed_to(webhooks.to_vec()).unwrap(),
        revision: link.revision.next(),
        ..link.clone()
    }
}

async fn new_link(client: &Client, webhooks: &[String]) -> String {
    let body = json!({"redirect_url": "https://example.com/1", "data": {"revision": 1}, "webhooks": webhooks});
    client.shorten(body).await
}

/// What a request tells of the link: the revision in its target and in its data.
fn told(request: &Received) -> (String, Value) {
    let body = request.json();
    (body["redirect_url"].as_str().unwrap().to_owned(), body["data"]["revision"].clone())
}

fn of_revision(number: u32) -> (String, Value) {
    (format!("https://example.com/{number}"), json!(number))
}

async fn wait_until_delivered(server: &Server, id: &str, count: usize) -> Value {
    eventually("all are delivered", SOON, async || {
        let status = server.root().get(&format!("/{id}/webhooks/status?limit=100")).await.expect(200).json();
        let deliveries = status["deliveries"].as_array().unwrap();
        let all = deliveries.len() == count && deliveries.iter().all(|one| one["status"] == "delivered");
        all.then_some(status)
    })
    .await
}

/// Stops the server, lets `change` work on its store, and starts another one on the same data when failed deliveries are
/// due again.
async fn restarted(server: Server, clock: &Clock, change: impl AsyncFnOnce(Arc<dyn Store>)) -> Server {
    let home: Arc<Home> = server.stop();
    let store = home.open_store().await;
    change(Arc::clone(&store)).await;
    store.close().await;
    drop(store);
    clock.advance(Duration::from_secs(2));
    server_with(clock).directory(home).start()
}

#[apply(on_each_store)]
async fn a_late_delivery_tells_of_the_link_as_it_was_at_the_hit() {
    let clock = standing();
    let (server, receiver) = (server_with(&clock).start(), Receiver::start().await);
    receiver.reply_with([Reply::Status(500); 2]);
    let [a, b, c] = ["/a", "/b", "/c"].map(|path| receiver.url(path));
    let id = new_link(&server.root(), &[a.clone(), b.clone()]).await;
    server.click(&id, 1).await;
    receiver.wait_for(2, SOON).await;
    let first = receiver.take_received();
    assert!(first.iter().all(|request| told(request) == of_revision(1)), "{first:?}");

    let server = restarted(server, &clock, async |store| {
        let link = changed(&link_in(&*store, &id).await, &[c.clone(), b.clone()]);
        store.update_link(link).await.unwrap();
    })
    .await;
    receiver.wait_for(2, SOON).await;
    let mut late = receiver.take_received();
    late.sort_by(|one, other| one.path.cmp(&other.path));
    assert_eq!(late.iter().map(|request| &*request.path).collect::<Vec<_>>(), ["/a", "/b"]);
    assert!(late.iter().all(|request| told(request) == of_revision(1)), "{late:?}");
    for request in &late {
        let before = first.iter().find(|other| other.path == request.path).unwrap();
        assert_eq!((&request.body, request.header("webhook-id")), (&before.body, before.header("webhook-id")));
    }

    // What comes now tells of the new state, at the new URLs.
    server.click(&id, 1).await;
    receiver.wait_for(2, SOON).await;
    let mut new = receiver.take_received();
    new.sort_by(|one, other| one.path.cmp(&other.path));
    assert_eq!(new.iter().map(|request| &*request.path).collect::<Vec<_>>(), ["/b", "/c"]);
    assert!(new.iter().all(|request| told(request) == of_revision(2)), "{new:?}");

    // The status shows each delivery at its URL, also one that the link does not have any more.
    let status = wait_until_delivered(&server, &id, 4).await;
    let mut urls: Vec<_> =
        status["deliveries"].as_array().unwrap().iter().map(|one| one["url"].as_str().unwrap().to_owned()).collect();
    urls.sort_unstable();
    assert_eq!(urls, [a, b.clone(), b.clone(), c.clone()]);
    let sums: Vec<_> = status["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|url| (url["url"].clone(), url["delivered"].clone()))
        .collect();
    assert_eq!(sums, [(json!(c), json!(1)), (json!(b), json!(2))]);
}

#[apply(on_each_store)]
async fn deliveries_of_a_deleted_link_are_still_sent() {
    let clock = standing();
    let (server, receiver) = (server_with(&clock).start(), Receiver::start().await);
    receiver.reply_with([Reply::Status(500)]);
    let id = new_link(&server.root(), &[receiver.url("/a")]).await;
    server.click(&id, 1).await;
    receiver.wait_for(1, SOON).await;
    let first = receiver.take_received();
    let _server = restarted(server, &clock, async |store| {
        let link = changed(&link_in(&*store, &id).await, &[]);
        store.update_link(link.clone()).await.unwrap();
        store.delete_link(link).await.unwrap();
    })
    .await;
    receiver.wait_for(1, SOON).await;
    assert_eq!(receiver.received()[0].body, first[0].body);
}

/// Neither the hits that are in the journal alone when the process is killed, nor the deliveries that wait, know of the
/// change that follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_of_a_killed_process_keep_the_link_that_they_met() {
    const HITS: usize = 20;
    let home = Home::new();
    let program = || Program::under_load(home.path()).set("SIGNPOST_DATA_DIR", home.data_dir().to_str().unwrap());
    let receiver = Receiver::start().await;
    receiver.holds_answers(true);
    let process = program().serve();
    let id = made_by(&process, &receiver.url("/a"));
    visit(&process, &id, HITS);
    receiver.wait_for(1, SOON).await;
    visit(&process, &id, HITS);
    process.kill();
    receiver.holds_answers(false);
    receiver.read_to_the_end().await;
    receiver.take_received();

    let store = home.open_store().await;
    let link = changed(&link_in(&*store, &id).await, &[receiver.url("/b")]);
    store.update_link(link.clone()).await.unwrap();
    store.delete_link(link).await.unwrap();
    store.close().await;
    drop(store);

    let process = program().serve();
    for request in receiver.wait_for(2 * HITS, SOON).await {
        assert_eq!((&*request.path, told(&request)), ("/a", of_revision(1)));
    }
    let stopped = process.terminate();
    assert!(stopped.code() == Some(0) && !stopped.stderr.contains("ERROR"), "{stopped:?}");
    let ids: HashSet<_> = receiver.received().iter().map(|one| one.header("webhook-id").to_owned()).collect();
    assert_eq!((ids.len(), receiver.received().len()), (2 * HITS, 2 * HITS));
}

fn made_by(process: &Process, url: &str) -> String {
    let body = json!({"redirect_url": "https://example.com/1", "data": {"revision": 1}, "webhooks": [url]});
    let made = process.connect().unwrap().post("/shorten", ROOT_KEY, &body.to_string()).unwrap().expect(200).json();
    made["short_id"].as_str().unwrap().to_owned()
}

fn visit(process: &Process, id: &str, times: usize) {
    let mut connection = process.connect().unwrap();
    for _ in 0..times {
        connection.get(&format!("/{id}"), &[]).unwrap().expect(302);
    }
}
