//! Webhooks under load with `kill -9` and restarts: no delivery of an answered redirect is lost, none is made up, and
//! repeated ones have the same id.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::load::{Random, Visits, visit_until_the_end};
use crate::support::process::{Process, Program};
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::server::ROOT_KEY;
use crate::support::signature::Verifier;

const ROUNDS: usize = 20;
/// Redirects in a round that is not killed before its end.
const HITS: usize = 2_000;
const VISITORS: usize = 8;
const RECEIVERS: usize = 4;
/// The number of webhooks of each link, except the one whose key's quota is used up.
const WEBHOOKS: [usize; 6] = [1, 1, 2, 1, 3, 1];
/// The longest wait before a kill: the load, or the deliveries after it, take longer.
const LONGEST_WAIT_MS: u64 = 300;
/// The monthly delivery quota of the third key: less than the hits of its link.
const FREE_QUOTA: u64 = 500;
/// If a link had no delivery for this time, it gets none any more.
const STILL: Duration = Duration::from_secs(15);
/// One of this many deliveries is refused at its first attempt.
const ONE_REFUSED_OF: u32 = 16;
/// The largest number of deliveries that a receiver has accepted and whose outcomes are not written yet: those in
/// flight (one for each worker), those being written, and those that wait for the next write.
const UNSETTLED: usize = 1_024;

#[test]
fn every_answered_redirect_reaches_every_webhook_whatever_kill_9_interrupts() {
    let began = Instant::now();
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random::seeded();
    let mut scene = Scene::set(program(directory.path()).serve());
    // One in three visits is to the link whose key has a quota, so that most of its deliveries are refused.
    let weight = |link: &HookedLink| if link.limited { 3 } else { 1 };
    let ids: Vec<String> =
        scene.links.iter().flat_map(|link| std::iter::repeat_n(link.id.clone(), weight(link))).collect();

    let mut visits = Visits::default();
    let mut next = scene.first.take();
    for round in 0..ROUNDS {
        let process = next.take().unwrap_or_else(|| program(directory.path()).serve());
        let wait = Duration::from_millis(random.below(LONGEST_WAIT_MS));
        std::thread::scope(|scope| {
            let address = process.address;
            let mut visitors = Vec::new();
            for random in (0..VISITORS).map(|_| random.fork()) {
                let ids = &ids;
                let visit = move || visit_until_the_end(address, ids, HITS / VISITORS, Duration::ZERO, random);
                visitors.push(scope.spawn(visit));
            }
            let mut join = || visitors.drain(..).for_each(|visitor| visits.merge(visitor.join().unwrap()));
            if round % 2 == 1 {
                // During the remaining deliveries, not during the redirects.
                join();
            }
            std::thread::sleep(wait);
            process.kill();
            join();
        });
        scene.process_ended();
        if round % 4 == 3 {
            // Also during recovery, when deliveries go on before the first request is answered.
            let starting = program(directory.path()).spawn();
            std::thread::sleep(Duration::from_millis(random.below(200)));
            starting.kill();
            scene.process_ended();
        }
    }
    let load = began.elapsed();
    assert!(visits.total().unanswered <= (ROUNDS * VISITORS) as u64, "{visits:?}");

    let drained_from = Instant::now();
    let process = program(directory.path()).serve();
    let ended = scene.drain(&process, &visits);
    let drained = drained_from.elapsed();
    let stopped = process.terminate();
    assert!(stopped.code() == Some(0) && !stopped.stderr.contains("ERROR"), "{stopped:?}");
    scene.process_ended();

    let checked_from = Instant::now();
    let account = Account::of(&scene);
    for (link, status) in scene.links.iter().zip(&ended.statuses) {
        check_link(link, status, &account, &visits);
    }
    for (owner, used) in scene.owners.iter().zip(&ended.used) {
        let own: HashSet<&str> = scene.links.iter().filter(|link| link.owner == owner.index).map(|l| &*l.id).collect();
        let delivered = account.deliveries.values().filter(|delivery| own.contains(&*delivery.link)).count() as u64;
        assert_eq!(*used, delivered, "a delivery counts once, whatever its tries: key {}", owner.index);
    }

    let (repeats, deliveries) = (account.repeats_by_process.values().sum::<usize>(), account.deliveries.len());
    let most = account.repeats_by_process.values().max().copied().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    let share = 100.0 * repeats as f64 / deliveries as f64;
    eprintln!(
        "{ROUNDS} rounds, {:?}: {deliveries} deliveries, {} requests; repeated after a kill {repeats} ({share:.2} %), \
         at most {most} after one; load {load:.1?}, drained in {drained:.1?}, checked in {:.1?}",
        visits.total(),
        account.requests,
        checked_from.elapsed(),
    );
    assert!(most <= UNSETTLED, "{most} came again after one kill");
}

/// Failed attempts are retried soon: the test is about kills.
fn program(directory: &Path) -> Program {
    Program::under_load(directory)
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "50ms,100ms")
        .set("SIGNPOST_TIERS__PRO__WEBHOOK_DELIVERIES_PER_MONTH", "10000000")
        .set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", &FREE_QUOTA.to_string())
}

struct Owner {
    index: usize,
    key: String,
    verifier: Verifier,
}

struct HookedLink {
    id: String,
    /// Index among the owners.
    owner: usize,
    urls: Vec<String>,
    /// Whether its owner's quota ends its deliveries.
    limited: bool,
}

/// Receivers, keys and links, and all requests that were received.
struct Scene {
    runtime: Runtime,
    receivers: Vec<Receiver>,
    owners: Vec<Owner>,
    links: Vec<HookedLink>,
    first: Option<Process>,
    /// By process: what each receiver had got when the process ended.
    processes: Vec<Vec<Vec<Received>>>,
}

/// The state of the service when nothing is pending.
struct Ended {
    /// By link.
    statuses: Vec<Value>,
    /// By owner.
    used: Vec<u64>,
}

impl Scene {
    fn set(process: Process) -> Self {
        let runtime = Runtime::new().unwrap();
        let receivers: Vec<Receiver> = runtime.block_on(async {
            let mut receivers = Vec::new();
            for _ in 0..RECEIVERS {
                let receiver = Receiver::start().await;
                let mut seen = HashSet::new();
                receiver.decide_with(move |request| {
                    let id = request.header("webhook-id");
                    let refused = is_refused_first(id) && seen.insert(id.to_owned());
                    Reply::Status(if refused { 503 } else { 200 })
                });
                receivers.push(receiver);
            }
            receivers
        });
        let mut connection = process.connect().unwrap();
        let owners: Vec<Owner> = ["Pro", "Pro", "Free"]
            .into_iter()
            .enumerate()
            .map(|(index, tier)| {
                let body = json!({"name": format!("owner {index}"), "tier": tier}).to_string();
                let key = connection.post("/api-keys", ROOT_KEY, &body).unwrap().expect(201).json();
                let verifier = Verifier::new(key["webhook_secret"].as_str().unwrap());
                Owner { index, key: key["key"].as_str().unwrap().to_owned(), verifier }
            })
            .collect();
        let links = WEBHOOKS.into_iter().chain([1]).enumerate().map(|(n, count)| {
            let limited = n == WEBHOOKS.len();
            let owner = if limited { 2 } else { n % 2 };
            let urls: Vec<_> =
                (0..count).map(|url| receivers[(n + url) % RECEIVERS].url(&format!("/{n}/{url}"))).collect();
            let body = json!({"redirect_url": "https://example.com/", "data": {"link": n}, "webhooks": urls});
            let made = connection.post("/shorten", &owners[owner].key, &body.to_string()).unwrap().expect(200).json();
            HookedLink { id: made["short_id"].as_str().unwrap().to_owned(), owner, urls, limited }
        });
        let links = links.collect();
        Self { runtime, receivers, owners, links, first: Some(process), processes: Vec::new() }
    }

    /// Called when a process has ended: stores all requests that it sent.
    fn process_ended(&mut self) {
        let receivers = &self.receivers;
        let received = self.runtime.block_on(async {
            let mut received = Vec::new();
            for receiver in receivers {
                let all = receiver.read_to_the_end();
                tokio::time::timeout(Duration::from_secs(10), all).await.expect("connections end with their process");
                received.push(receiver.take_received());
            }
            received
        });
        self.processes.push(received);
    }

    /// Waits until all hits are counted and nothing is pending.
    fn drain(&self, process: &Process, visits: &Visits) -> Ended {
        let (mut before, mut changed) = ([0; 3], Instant::now());
        let mut connection = process.connect().unwrap();
        let mut get = |key: &str, path: &str| connection.get(path, &[("X-API-Key", key)]).unwrap().expect(200).json();
        for link in &self.links {
            loop {
                let status = get(ROOT_KEY, &format!("/{}/webhooks/status?limit=1", link.id));
                let now @ [pending, delivered, failed] = sums(&status);
                let hits = (delivered + failed) / link.urls.len() as u64;
                if pending == 0 && hits >= visits.of(&link.id).answered {
                    break;
                }
                if now != before {
                    (before, changed) = (now, Instant::now());
                }
                // It must make progress, however slow the machine is.
                assert!(changed.elapsed() < STILL, "{status}, {:?}", visits.of(&link.id));
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let statuses = self.links.iter().map(|link| {
            let mut status = get(ROOT_KEY, &format!("/{}/webhooks/status?limit=1", link.id));
            status["total_hits"] =
                get(ROOT_KEY, &format!("/links/{}/analytics/summary", link.id))["total_hits"].clone();
            status
        });
        let statuses = statuses.collect();
        let used =
            |owner: &Owner| get(&owner.key, "/usage")["usage"]["webhook_deliveries"]["current"].as_u64().unwrap();
        Ended { statuses, used: self.owners.iter().map(used).collect() }
    }
}

/// Pending, delivered and failed, over all URLs.
fn sums(status: &Value) -> [u64; 3] {
    let urls = status["webhooks"].as_array().unwrap();
    ["pending", "delivered", "failed"].map(|of| urls.iter().map(|url| url[of].as_u64().unwrap()).sum())
}

fn is_refused_first(webhook_id: &str) -> bool {
    webhook_id.bytes().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % ONE_REFUSED_OF == 0
}

struct Delivery {
    hit_id: String,
    url: String,
    link: String,
    body: Vec<u8>,
    /// The processes whose attempts the receiver accepted.
    accepted_in: Vec<usize>,
}

/// The requests at the receivers, checked one by one.
struct Account {
    requests: usize,
    /// By `webhook-id`.
    deliveries: HashMap<String, Delivery>,
    /// By process: how many repeats its end caused.
    repeats_by_process: BTreeMap<usize, usize>,
}

impl Account {
    fn of(scene: &Scene) -> Self {
        let links: HashMap<&str, &HookedLink> = scene.links.iter().map(|link| (&*link.id, link)).collect();
        let mut deliveries: HashMap<String, Delivery> = HashMap::new();
        let (mut requests, mut repeats_by_process) = (0, BTreeMap::new());
        for (process, by_receiver) in scene.processes.iter().enumerate() {
            let received = by_receiver.iter().zip(&scene.receivers);
            for (request, receiver) in received.flat_map(|(all, receiver)| all.iter().map(move |one| (one, receiver))) {
                requests += 1;
                let (payload, id) = (request.json(), request.header("webhook-id"));
                let text = |field: &str| payload[field].as_str().unwrap().to_owned();
                let (hit_id, link, url) = (text("hit_id"), text("short_id"), receiver.url(&request.path));
                assert!(links[&*link].urls.contains(&url), "{link} has no {url}");
                let verifier = &scene.owners[links[&*link].owner].verifier;
                assert!(verifier.is_signed(request) && verifier.is_standard(request), "{request:?}");
                let Some(known) = deliveries.get_mut(id) else {
                    // The library is slow, so it checks one of this many requests, and all that are refused once.
                    assert!(!is_refused_first(id) || verifier.library_accepts(request), "{request:?}");
                    let accepted_in = if is_refused_first(id) { vec![] } else { vec![process] };
                    let delivery = Delivery { hit_id, url, link, body: request.body.clone(), accepted_in };
                    deliveries.insert(id.to_owned(), delivery);
                    continue;
                };
                assert!(verifier.library_accepts(request), "{request:?}");
                assert_eq!((&known.hit_id, &known.url, &known.body), (&hit_id, &url, &request.body), "{id}");
                if let Some(before) = known.accepted_in.last() {
                    assert_ne!(*before, process, "sent again though it was accepted, and no kill in between: {id}");
                    *repeats_by_process.entry(*before).or_default() += 1;
                }
                known.accepted_in.push(process);
            }
        }
        let pairs: HashSet<_> = deliveries.values().map(|delivery| (&delivery.hit_id, &delivery.url)).collect();
        assert_eq!(pairs.len(), deliveries.len(), "one webhook-id for a hit and a URL");
        let accepted = |delivery: &Delivery| !delivery.accepted_in.is_empty();
        assert!(deliveries.values().all(accepted), "what was refused came again");
        Self { requests, deliveries, repeats_by_process }
    }
}

/// The receivers got every counted hit of the link at every URL, and the service reports the same.
fn check_link(link: &HookedLink, status: &Value, account: &Account, visits: &Visits) {
    let total_hits = status["total_hits"].as_u64().unwrap();
    visits.of(&link.id).allows(total_hits, "total_hits");
    let sent = if link.limited { FREE_QUOTA } else { total_hits };
    assert!(sent <= total_hits, "too few visits for the quota: {total_hits}");
    let mut by_url: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    for delivery in account.deliveries.values().filter(|delivery| delivery.link == link.id) {
        by_url.entry(&delivery.url).or_default().insert(&delivery.hit_id);
    }
    assert_eq!(by_url.len(), link.urls.len());
    let first = &by_url[&*link.urls[0]];
    for (url, hits) in &by_url {
        assert_eq!(hits.len() as u64, sent, "{url}: {status}");
        assert_eq!(hits, first, "each hit went to each URL");
    }
    for (url, told) in link.urls.iter().zip(status["webhooks"].as_array().unwrap()) {
        let told = ["url", "pending", "delivered", "failed"].map(|field| told[field].clone());
        assert_eq!(told, [json!(url), json!(0), json!(sent), json!(total_hits - sent)]);
    }
}
