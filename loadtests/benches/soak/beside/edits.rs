//! An editor that gives links new targets, and followers that ask for the links meanwhile.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread::JoinHandle,
    time::Duration,
};

use loadtests::{http::Answer, operator::ROOT_KEY, requests::browser};
use serde_json::json;

use super::{Asked, Odd, ask, at_pace};
use crate::ledger::Tally;
use crate::scene::{Scene, request};

/// Each may be edited 1,000 times within 33 days.
pub const EDITED: usize = 100;
const EVERY: Duration = Duration::from_millis(100);
const FOLLOWERS: u64 = 2;
const FOLLOWED_EVERY: Duration = Duration::from_millis(8);
/// Clients of the followers: from here on, none is another's.
const CLIENT: u64 = 2 << 20;

/// Where the link with this index leads after so many edits.
pub fn edited_target(index: usize, number: u64) -> String {
    format!("https://edited.example.com/{index}/{number}")
}

/// The link and the number that a target is of.
fn number_in(target: &str) -> Option<(usize, u64)> {
    let (index, number) = target.strip_prefix("https://edited.example.com/")?.split_once('/')?;
    Some((index.parse().ok()?, number.parse().ok()?))
}

#[derive(Debug, Default)]
struct Link {
    id: String,
    /// How many edits were sent.
    sent: u64,
    /// The latest edit that was answered, or seen by a follower: nothing older may be seen from then on.
    known: u64,
    followed: Tally,
}

/// What was seen of all links.
#[derive(Debug, Default)]
pub struct Counts {
    pub answered: u64,
    /// Edits that were not answered, or 503: each may have been made.
    pub open: u64,
    pub followed: u64,
    pub odd: Odd,
}

/// What the editor and the followers share.
#[derive(Debug, Default)]
pub struct Shared {
    links: Vec<Mutex<Link>>,
    counts: Mutex<Counts>,
}

/// What was seen of a link.
pub struct Read {
    pub id: String,
    /// The latest edit may be any of these.
    pub latest: std::ops::RangeInclusive<u64>,
    pub followed: Tally,
}

/// What was seen.
pub struct Edits {
    pub links: Vec<Read>,
    pub counts: Counts,
}

impl Shared {
    pub fn of(scene: &Scene) -> Arc<Self> {
        let links = scene.edited().iter().map(|link| Mutex::new(Link { id: link.id.clone(), ..Link::default() }));
        Arc::new(Self { links: links.collect(), ..Self::default() })
    }

    fn with<T>(&self, index: usize, act: impl FnOnce(&mut Link) -> T) -> T {
        act(&mut self.links[index].lock().unwrap())
    }

    fn count(&self, act: impl FnOnce(&mut Counts)) {
        act(&mut self.counts.lock().unwrap());
    }

    fn edit(&self, address: SocketAddr, turn: u64) {
        let index = (turn % EDITED as u64) as usize;
        let (id, number) = self.with(index, |link| {
            link.sent += 1;
            (link.id.clone(), link.sent)
        });
        let body = json!({"redirect_url": edited_target(index, number)});
        match ask(address, &request(ROOT_KEY, "PATCH", &format!("/links/{id}"), Some(&body))) {
            Asked::Answered(answer) if answer.status == 200 => {
                self.with(index, |link| link.known = link.known.max(number));
                self.count(|counts| counts.answered += 1);
            }
            Asked::Answered(answer) if answer.status != 503 => {
                self.count(|counts| counts.odd.note_answer("an edit", &answer));
            }
            Asked::Answered(_) | Asked::Cut => self.count(|counts| counts.open += 1),
            Asked::NotSent => {}
        }
    }

    fn follow(&self, address: SocketAddr, turn: u64, follower: u64) {
        let index = (loadtests::seed::mix(turn ^ follower << 50) % EDITED as u64) as usize;
        let (id, known) = self.with(index, |link| (link.id.clone(), link.known));
        let client = CLIENT + (turn << 1 | follower) % (1 << 18);
        match ask(address, &browser(&format!("/{id}"), turn, client, "")) {
            Asked::Cut => self.with(index, |link| link.followed.unanswered += 1),
            Asked::Answered(answer) if answer.status == 302 => self.see(index, known, &answer),
            // Where the store does not answer.
            Asked::Answered(answer) if answer.status == 503 => {}
            Asked::NotSent => {}
            Asked::Answered(answer) => self.count(|counts| counts.odd.note_answer("a follower", &answer)),
        }
    }

    fn see(&self, index: usize, known: u64, answer: &Answer) {
        let target = answer.field("location").unwrap_or_default();
        let seen = number_in(target).filter(|(link, _)| *link == index).map(|(_, number)| number);
        let sent = self.with(index, |link| {
            link.followed.answered += 1;
            link.known = link.known.max(seen.unwrap_or_default());
            link.sent
        });
        self.count(|counts| {
            counts.followed += 1;
            if !seen.is_some_and(|seen| (known..=sent).contains(&seen)) {
                counts.odd.note(|| format!("link {index} leads to {target:?} after edit {known} of {sent}"));
            }
        });
    }

    pub fn end(self) -> Edits {
        let links = self.links.into_iter().map(|link| {
            let Link { id, sent, known, followed } = link.into_inner().unwrap();
            Read { id, latest: known..=sent, followed }
        });
        Edits { links: links.collect(), counts: self.counts.into_inner().unwrap() }
    }
}

pub fn begin(address: SocketAddr, shared: &Arc<Shared>, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let editor = {
        let (shared, stop) = (Arc::clone(shared), Arc::clone(stop));
        std::thread::spawn(move || at_pace(&stop, EVERY, |turn| shared.edit(address, turn)))
    };
    let follower = |number| {
        let (shared, stop) = (Arc::clone(shared), Arc::clone(stop));
        std::thread::spawn(move || at_pace(&stop, FOLLOWED_EVERY, |turn| shared.follow(address, turn, number)))
    };
    std::iter::once(editor).chain((0..FOLLOWERS).map(follower)).collect()
}
