//! A client that has the deliveries of one link sent again and again.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use loadtests::{operator::ROOT_KEY, requests::browser};
use serde_json::{Value, json};

use super::{AGAIN_AFTER, Asked, Odd, ask, settle};
use crate::scene::{Scene, request};

/// Hits of the link: one request queues their deliveries all.
pub const HITS: u64 = 200;
const EVERY: Duration = Duration::from_secs(3);
const CLIENT: u64 = 4 << 20;

/// What was seen.
#[derive(Default)]
pub struct Replays {
    /// Requests that were answered, and those that were not, or 503: each may have queued all deliveries.
    pub answered: u64,
    pub open: u64,
    /// Those after which all deliveries had been accepted.
    pub whole: u64,
    pub odd: Odd,
}

/// Sums of the link's webhook: pending, delivered, failed.
fn sums(address: SocketAddr, id: &str) -> Option<[u64; 3]> {
    let text = request(ROOT_KEY, "GET", &format!("/{id}/webhooks/status?limit=1"), None);
    let Asked::Answered(answer) = ask(address, &text) else { return None };
    let document: Value = serde_json::from_slice(&answer.body).ok()?;
    let webhook = document["webhooks"].as_array()?.first()?;
    let sums = ["pending", "delivered", "failed"].map(|name| webhook[name].as_u64());
    let [Some(pending), Some(delivered), Some(failed)] = sums else { return None };
    Some([pending, delivered, failed])
}

/// Waits until no delivery is pending; `None` where it is to stop before.
fn settled(address: SocketAddr, id: &str, stop: &AtomicBool) -> Option<[u64; 3]> {
    while !stop.load(Ordering::Relaxed) {
        match sums(address, id) {
            Some(sums @ [0, delivered, failed]) if delivered + failed == HITS => return Some(sums),
            _ => thread::sleep(AGAIN_AFTER),
        }
    }
    None
}

/// Makes the hits, and begins with replays.
pub fn begin(address: SocketAddr, scene: &Scene, stop: &Arc<AtomicBool>) -> JoinHandle<Replays> {
    let id = scene.replayed().id.clone();
    for number in 0..HITS {
        let answer = settle(address, &browser(&format!("/{id}"), number, CLIENT + number, ""), &[], &mut 0);
        assert_eq!(answer.map(|answer| answer.status), Some(302));
    }
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut replays = Replays::default();
        let all = request(ROOT_KEY, "POST", &format!("/{id}/webhooks/replay"), Some(&json!({"status": "any"})));
        while settled(address, &id, &stop).is_some() {
            replays.round(address, &id, &all, &stop);
            thread::sleep(EVERY);
        }
        replays
    })
}

impl Replays {
    fn round(&mut self, address: SocketAddr, id: &str, all: &str, stop: &AtomicBool) {
        match ask(address, all) {
            Asked::Answered(answer) if answer.status == 202 => {
                let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let queued = document["queued"].as_u64().unwrap_or_default();
                self.answered += 1;
                if queued != HITS {
                    self.odd.note_answer("a replay of settled deliveries", &answer);
                }
                self.whole += u64::from(settled(address, id, stop) == Some([0, HITS, 0]));
            }
            Asked::Answered(answer) if answer.status != 503 => self.odd.note_answer("a replay", &answer),
            Asked::Answered(_) | Asked::Cut => self.open += 1,
            Asked::NotSent => {}
        }
    }
}
