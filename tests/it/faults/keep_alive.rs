//! Many connections that stay open.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::Random;
use crate::support::process::{Process, Program};
use crate::support::receiver::Receiver;
use crate::support::server::ROOT_KEY;
use crate::support::wire::{Connection, WireAnswer};

const CONNECTIONS: usize = 200;
const FOR: Duration = Duration::from_secs(10);
/// A window of the keys' limits is longer than the test runs: what is let in of it is exact.
const _: () = assert!(FOR.as_secs() < 50);
/// How often a Free key may ask for its usage in a window; less than the crowd does.
const USAGE_LIMIT: u64 = 20;
/// How many links a Free key may make in a month; less than the crowd does.
const LINKS_LIMIT: u64 = 20;
/// High enough to let all in, so that keys' windows are kept and refuse nothing.
const ENOUGH: &str = "1000000";
/// Within this, what the first process has left undone is delivered by the second.
const DELIVERED_WITHIN: Duration = Duration::from_mins(1);

/// Whose key a connection sends, and a link of that key.
struct Caller {
    key: String,
    key_id: String,
    link: String,
    is_root: bool,
    is_limited: bool,
}

/// What callers share.
struct Scene {
    callers: Vec<Caller>,
    /// A link whose hits go to the receiver.
    hooked: String,
    webhook: String,
}

/// The outcome of the requests of one connection, or of several.
#[derive(Clone, Copy, Default)]
struct Tally {
    requests: u64,
    /// For a limit or a quota.
    refused: u64,
    hits: u64,
    hooked_hits: u64,
    usage_asked: u64,
    usage_told: u64,
    links_asked: u64,
    links_made: u64,
}

#[test]
fn two_hundred_connections_of_mixed_work_see_no_5xx_and_no_reset() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let receiver = runtime.block_on(Receiver::start());
    let directory = tempfile::tempdir().unwrap();
    let program = || with_limits(Program::under_load(directory.path()));
    let process = program().serve();
    let scene = Scene::set(&process, receiver.url("/hook"));
    let mut random = Random::seeded();

    let end = Instant::now() + FOR;
    let mut tallies = vec![Tally::default(); scene.callers.len()];
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let client = Client::new(&scene, number, process.connect().unwrap(), random.fork());
                (number % scene.callers.len(), scope.spawn(move || client.work_until(end)))
            })
            .collect();
        // While they are in use: the older secrets go on working.
        let mut root = process.connect().unwrap();
        for caller in scene.callers.iter().filter(|caller| !caller.is_root) {
            let path = format!("/api-keys/{}/rotate", caller.key_id);
            root.post(&path, ROOT_KEY, r#"{"grace_seconds":3600}"#).unwrap().expect(200);
        }
        for (caller, client) in clients {
            let tally = client.join().unwrap();
            assert!(tally.requests > 0, "a connection was starved");
            tallies[caller].add(tally);
        }
    });
    let mut total = Tally::default();
    for tally in &tallies {
        total.add(*tally);
    }
    eprintln!("{} requests, {} hits, {} refused", total.requests, total.hits + total.hooked_hits, total.refused);
    assert!(total.refused * 4 < total.requests, "most is let in");
    crate::support::soon("all hits are counted", || process.has_counted_all());
    let ended = drained(process);
    assert!(!ended.contains("ERROR") && !ended.contains("panicked"), "{ended}");

    let process = program().serve();
    let mut connection = process.connect().unwrap();
    let mut get = |path: &str, key: &str| connection.get(path, &[("X-API-Key", key)]).unwrap().expect(200).json();
    for (caller, tally) in scene.callers.iter().zip(&tallies) {
        let summary = get(&format!("/links/{}/analytics/summary", caller.link), &caller.key);
        assert_eq!(summary["total_hits"], tally.hits);
        let allowed = |limit: u64| if caller.is_limited { limit } else { u64::MAX };
        assert_eq!(tally.usage_told, tally.usage_asked.min(allowed(USAGE_LIMIT)));
        // The one of the scene is of the month too.
        assert_eq!(tally.links_made, tally.links_asked.min(allowed(LINKS_LIMIT) - 1));
        if !caller.is_root {
            let usage = get("/usage", &caller.key);
            assert_eq!(usage["usage"]["links_created"]["current"], tally.links_made + 1);
        }
    }
    let summary = get(&format!("/links/{}/analytics/summary", scene.hooked), ROOT_KEY);
    assert_eq!(summary["total_hits"], total.hooked_hits);
    // One may come twice: then its success was not written down before the end.
    let ids = || -> HashSet<String> {
        receiver.received().iter().map(|request| request.header("webhook-id").to_owned()).collect()
    };
    let deliveries = usize::try_from(total.hooked_hits).unwrap();
    runtime.block_on(crate::support::eventually("every hit is delivered", DELIVERED_WITHIN, async || {
        (ids().len() >= deliveries).then_some(())
    }));
    assert_eq!(ids().len(), deliveries);
}

fn with_limits(mut program: Program) -> Program {
    for limit in ["SHORTEN", "ANALYTICS", "SUMMARY", "USAGE", "STATUS", "LINK", "API_KEYS"] {
        for tier in ["FREE", "PRO"] {
            program = program.set(&format!("SIGNPOST_TIERS__{tier}__{limit}_PER_MINUTE"), ENOUGH);
        }
    }
    // Each connection has at most one child of its key.
    for tier in ["FREE", "PRO"] {
        program = program.set(&format!("SIGNPOST_TIERS__{tier}__CHILD_KEYS"), &CONNECTIONS.to_string());
    }
    program
        .set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", &USAGE_LIMIT.to_string())
        .set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", &LINKS_LIMIT.to_string())
}

fn drained(process: Process) -> String {
    let ended = process.terminate();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    ended.stderr
}

fn text(answer: &WireAnswer, member: &str) -> String {
    answer.json()[member].as_str().unwrap().to_owned()
}

impl Scene {
    /// The root's link, and those of scoped keys of both tiers, some of which may make keys.
    fn set(process: &Process, webhook: String) -> Self {
        let mut connection = process.connect().unwrap();
        let mut shorten = |key: &str, body: serde_json::Value| {
            text(&connection.post("/shorten", key, &body.to_string()).unwrap().expect(200), "short_id")
        };
        let target = "https://example.com/";
        let hooked = shorten(ROOT_KEY, json!({"redirect_url": target, "webhooks": [webhook]}));
        let link = shorten(ROOT_KEY, json!({"redirect_url": target}));
        let root = Caller { key: ROOT_KEY.into(), key_id: String::new(), link, is_root: true, is_limited: false };
        let mut callers = vec![root];
        let mut operator = process.connect().unwrap();
        for tier in ["Free", "Pro", "Free", "Pro", "Pro", "Pro", "Pro"] {
            let scopes = ["links:write", "links:read", "analytics:read", "usage:read", "webhooks:read", "keys:manage"];
            let body = json!({"name": "one of a crowd", "tier": tier, "scopes": scopes}).to_string();
            let made = operator.post("/api-keys", ROOT_KEY, &body).unwrap().expect(201);
            let (key, key_id) = (text(&made, "key"), text(&made, "key_id"));
            let link = shorten(&key, json!({"redirect_url": target}));
            callers.push(Caller { key, key_id, link, is_root: false, is_limited: tier == "Free" });
        }
        Self { callers, hooked, webhook }
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        let Self { requests, refused, hits, hooked_hits, usage_asked, usage_told, links_asked, links_made } = other;
        self.requests += requests;
        self.refused += refused;
        self.hits += hits;
        self.hooked_hits += hooked_hits;
        self.usage_asked += usage_asked;
        self.usage_told += usage_told;
        self.links_asked += links_asked;
        self.links_made += links_made;
    }
}

/// One connection and what it does.
struct Client<'a> {
    scene: &'a Scene,
    caller: &'a Caller,
    connection: Connection,
    random: Random,
    tally: Tally,
    /// The last that it made.
    made: Option<String>,
}

impl<'a> Client<'a> {
    fn new(scene: &'a Scene, number: usize, connection: Connection, random: Random) -> Self {
        let caller = &scene.callers[number % scene.callers.len()];
        Self { scene, caller, connection, random, tally: Tally::default(), made: None }
    }

    fn work_until(mut self, end: Instant) -> Tally {
        while Instant::now() < end {
            self.do_something();
        }
        self.tally
    }

    fn do_something(&mut self) {
        let (link, hooked) = (&self.caller.link, &self.scene.hooked);
        match self.random.below(26) {
            0..8 => {
                self.get(&format!("/{link}"), 302);
                self.tally.hits += 1;
            }
            8..10 => {
                self.get(&format!("/{hooked}"), 302);
                self.tally.hooked_hits += 1;
            }
            10 => self.get("/nowhere", 404),
            11 => self.get("/a/b/c", 404),
            12 => self.get(&format!("/{link}/qr?scale=2"), 200),
            13 => {
                let drawn = self.made.as_ref().unwrap_or(hooked).clone();
                self.get(&format!("/{drawn}/qr?format=svg&scale=1&dark=000080"), 200);
            }
            14 => self.get(&format!("/links/{link}/analytics"), 200),
            15 => self.get(&format!("/links/{link}/analytics/summary"), 200),
            16 => self.ask_for_usage(),
            17 => self.get(&format!("/{link}/webhooks/status"), 200),
            18 => self.get("/api-keys?limit=5", 200),
            19 => drop(self.request("HEAD", &format!("/{link}"), &self.caller.key, "").expect(302)),
            20 => drop(self.post("/shorten", r#"{"redirect_url":"ftp://x"}"#).expect(422)),
            21 => self.get("/", 200),
            22 => self.get("/docs", 200),
            23 => self.get("/openapi.json", 200),
            24 => self.live_the_life_of_a_key(),
            _ => self.make_a_link(),
        }
    }

    fn ask_for_usage(&mut self) {
        self.tally.usage_asked += 1;
        let answer = self.request("GET", "/usage", &self.caller.key, "");
        if answer.status == 429 && self.caller.is_limited {
            assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
            self.tally.refused += 1;
        } else {
            // That of a scoped key tells what its window has left.
            assert_eq!(answer.header("ratelimit").is_empty(), self.caller.is_root, "{answer:?}");
            answer.expect(200);
            self.tally.usage_told += 1;
        }
    }

    fn make_a_link(&mut self) {
        self.tally.links_asked += 1;
        let body =
            json!({"redirect_url": "https://example.com/made", "data": {"a": 1}, "webhooks": [self.scene.webhook]});
        let answer = self.post("/shorten", &body.to_string());
        if answer.status == 403 && self.caller.is_limited {
            assert!(answer.json()["type"].as_str().unwrap().ends_with(":link-quota-exceeded"), "{answer:?}");
            self.tally.refused += 1;
        } else {
            self.made = Some(text(&answer.expect(200), "short_id"));
            self.tally.links_made += 1;
        }
    }

    /// A key below the caller's: it works, its new secret works in the place of the old one, and it ends.
    fn live_the_life_of_a_key(&mut self) {
        let made = self.post("/api-keys", r#"{"name":"a child of the crowd"}"#).expect(201);
        let (old, path) = (text(&made, "key"), format!("/api-keys/{}", text(&made, "key_id")));
        self.request("GET", "/usage", &old, "").expect(200);
        let new = text(&self.post(&format!("{path}/rotate"), "{}").expect(200), "key");
        self.request("GET", "/usage", &old, "").expect(401);
        self.request("GET", "/usage", &new, "").expect(200);
        self.request("DELETE", &path, &self.caller.key, "").expect(204);
        self.request("GET", "/usage", &new, "").expect(401);
    }

    fn get(&mut self, path: &str, expected: u16) {
        self.request("GET", path, &self.caller.key, "").expect(expected);
    }

    fn post(&mut self, path: &str, body: &str) -> WireAnswer {
        self.request("POST", path, &self.caller.key, body)
    }

    fn request(&mut self, method: &str, path: &str, key: &str, body: &str) -> WireAnswer {
        let headers = [("X-API-Key", key), ("Content-Type", "application/json")];
        let answer = self.connection.request(method, path, &headers, body);
        let answer = answer.unwrap_or_else(|end| panic!("a connection ended: {end:?}"));
        assert!(answer.status < 500 && !answer.closes(), "{answer:?}");
        self.tally.requests += 1;
        answer
    }
}
