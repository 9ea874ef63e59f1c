//! Clients beside the traffic. Each sends one request after the other and waits for its answer, so that it can tell from each
//! answer what has to hold from then on.

mod bulk;
mod edits;
mod replays;
mod streams;

use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use loadtests::http::{self, Answer};

use super::scene::Scene;

pub use bulk::Bulk;
pub use edits::{Counts, EDITED, Edits, edited_target};
pub use replays::{HITS, Replays};
pub use streams::Stream;

/// What a client does not expect is told by the first few.
const MOST_ODD: usize = 20;
/// Before a request is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// A request that is sent again and again is answered within this: longer than any fault lasts.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);

/// What all of them have seen.
pub struct Seen {
    pub edits: Edits,
    pub bulk: Bulk,
    pub replays: Replays,
    /// Of a link with webhooks, and of all links of the root key.
    pub streams: [Stream; 2],
}

/// All of them under way.
pub struct Beside {
    stop: Arc<AtomicBool>,
    edits: Arc<edits::Shared>,
    editing: Vec<JoinHandle<()>>,
    bulk: JoinHandle<Bulk>,
    replays: JoinHandle<Replays>,
    streams: Vec<streams::Listener>,
}

impl Beside {
    /// To be called before the traffic begins: streams tell of all of it.
    pub fn begin(address: SocketAddr, scene: &Scene) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let streams = streams::listen(address, scene);
        let replays = replays::begin(address, scene, &stop);
        let edits = edits::Shared::of(scene);
        let editing = edits::begin(address, &edits, &stop);
        let bulk = bulk::begin(address, &stop);
        Self { stop, edits, editing, bulk, replays, streams }
    }

    /// Ends those that send requests. Streams go on until all is counted.
    pub fn end(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.editing {
            thread.join().unwrap();
        }
        let edits = Arc::into_inner(self.edits).expect("all have ended").end();
        Ended { edits, bulk: self.bulk.join().unwrap(), replays: self.replays.join().unwrap(), streams: self.streams }
    }
}

/// Only streams are still under way.
pub struct Ended {
    edits: Edits,
    bulk: Bulk,
    replays: Replays,
    streams: Vec<streams::Listener>,
}

impl Ended {
    pub fn end(self) -> Seen {
        let streams: Vec<_> = self.streams.into_iter().map(streams::Listener::end).collect();
        let streams = streams.try_into().ok().expect("two");
        Seen { edits: self.edits, bulk: self.bulk, replays: self.replays, streams }
    }
}

/// What came of a request.
enum Asked {
    Answered(Answer),
    /// Sent, and not answered.
    Cut,
    /// There was no connection.
    NotSent,
}

fn ask(address: SocketAddr, request: &str) -> Asked {
    let Ok(stream) = TcpStream::connect(address) else { return Asked::NotSent };
    http::exchange_over(stream, request).map_or(Asked::Cut, Asked::Answered)
}

/// Sends a request until its answer is none of those that tell nothing: 503, `also`, or no answer. Counts the tries in `tries`.
/// `None` where there is no such answer for long.
fn settle(address: SocketAddr, request: &str, also: &[u16], tries: &mut u64) -> Option<Answer> {
    let begun = Instant::now();
    while begun.elapsed() < SETTLED_WITHIN {
        *tries += 1;
        match ask(address, request) {
            Asked::Answered(answer) if answer.status != 503 && !also.contains(&answer.status) => return Some(answer),
            _ => thread::sleep(AGAIN_AFTER),
        }
    }
    None
}

/// Calls `act` with 0, 1, 2 and so on, each `every` after the one before or when that has ended.
fn at_pace(stop: &AtomicBool, every: Duration, mut act: impl FnMut(u64)) {
    for number in 0.. {
        let begun = Instant::now();
        if stop.load(Ordering::Relaxed) {
            return;
        }
        act(number);
        thread::sleep(every.saturating_sub(begun.elapsed()));
    }
}

/// What speaks against a claim, as it was noticed.
#[derive(Debug, Default)]
pub struct Odd(pub Vec<String>);

impl Odd {
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.0.len() < MOST_ODD {
            self.0.push(what());
        }
    }

    fn note_answer(&mut self, to: &str, answer: &Answer) {
        self.note(|| format!("{to}: {} {}", answer.status, String::from_utf8_lossy(&answer.body)));
    }
}
