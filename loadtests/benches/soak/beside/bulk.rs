//! A client that makes many links with one request, sends that again until it has an answer, and deletes some of them.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    thread::JoinHandle,
    time::Duration,
};

use loadtests::{http::Answer, operator::ROOT_KEY, requests::browser, seed::target};
use serde_json::{Value, json};

use super::{Odd, at_pace, settle};
use crate::mix::BULK;
use crate::scene::{request, request_with};

const EVERY: Duration = Duration::from_secs(1);
const LINKS: usize = 20;
/// Of these, and of one call in so many the answer is asked for once more.
const DELETED: usize = 4;
const REPEATED_EVERY: u64 = 10;
const CLIENT: u64 = 3 << 20;

/// What was seen.
#[derive(Default)]
pub struct Bulk {
    /// Target and id of each link that was answered.
    pub made: Vec<(String, String)>,
    pub deleted: HashSet<String>,
    pub calls: u64,
    /// Calls that were sent again until they had an answer.
    pub again: u64,
    pub replayed: u64,
    pub odd: Odd,
}

pub fn begin(address: SocketAddr, stop: &Arc<AtomicBool>) -> JoinHandle<Bulk> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut bulk = Bulk::default();
        at_pace(&stop, EVERY, |number| bulk.call(address, number));
        bulk
    })
}

impl Bulk {
    fn call(&mut self, address: SocketAddr, number: u64) {
        let targets: Vec<_> = (0..LINKS as u64).map(|place| target(BULK + number * LINKS as u64 + place)).collect();
        let links: Vec<_> = targets.iter().map(|target| json!({"redirect_url": target})).collect();
        let field = format!("Idempotency-Key: soak-{number}\r\n");
        let text = request_with(ROOT_KEY, "POST", "/shorten/bulk", &field, Some(&json!({"links": links})));
        let mut tries = 0;
        // 409: the first one is still under way.
        let Some(answer) = settle(address, &text, &[409], &mut tries) else {
            return self.odd.note(|| format!("bulk creation {number} was not answered in {tries} tries"));
        };
        self.calls += 1;
        self.again += u64::from(tries > 1);
        let Some(ids) = self.ids(&answer) else { return };
        if number.is_multiple_of(REPEATED_EVERY) {
            let Some(repeated) = settle(address, &text, &[409], &mut tries) else {
                return self.odd.note(|| format!("bulk creation {number} was not answered again"));
            };
            let is_replayed = repeated.field("idempotent-replayed").is_some();
            if !is_replayed || self.ids(&repeated).as_ref() != Some(&ids) {
                self.odd.note_answer("a call that was answered, again", &repeated);
            }
            self.replayed += 1;
        }
        self.made.extend(targets.into_iter().zip(ids.iter().cloned()));
        for id in ids.into_iter().take(DELETED) {
            self.delete(address, number, id);
        }
    }

    /// The ids in an answer, which has a link for each.
    fn ids(&mut self, answer: &Answer) -> Option<Vec<String>> {
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let results = document["results"].as_array();
        let id = |result: &Value| result["link"]["short_id"].as_str().map(ToOwned::to_owned);
        let ids = results.and_then(|results| results.iter().map(id).collect::<Option<Vec<_>>>());
        let ids = ids.filter(|ids| answer.status == 200 && ids.len() == LINKS);
        if ids.is_none() {
            self.odd.note_answer("a bulk creation", answer);
        }
        ids
    }

    fn delete(&mut self, address: SocketAddr, number: u64, id: String) {
        let mut tries = 0;
        let text = request(ROOT_KEY, "DELETE", &format!("/links/{id}"), None);
        let Some(answer) = settle(address, &text, &[], &mut tries) else {
            return self.odd.note(|| format!("the deletion of {id} was not answered"));
        };
        // One without an answer may have deleted it.
        if answer.status != 204 && !(answer.status == 404 && tries > 1) {
            return self.odd.note_answer("a deletion", &answer);
        }
        let text = browser(&format!("/{id}"), number, CLIENT + number % (1 << 18), "");
        match settle(address, &text, &[], &mut tries) {
            Some(followed) if followed.status == 404 => {}
            Some(followed) => self.odd.note_answer("a redirect of a deleted link", &followed),
            None => self.odd.note(|| format!("the redirect of the deleted link {id} was not answered")),
        }
        self.deleted.insert(id);
    }
}
