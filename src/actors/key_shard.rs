//! The actors that count requests per API key.
//!
//! Every key belongs to one of a few shards, chosen by a hash of its id. A shard owns, for its
//! keys, the sliding windows of all endpoints and what is known of the month's links, so that one
//! message admits a request and no lock is shared between cores. What it owns outlives a panic of
//! the actor, but not the process: a restarted process starts all windows anew.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Actor, Arbiter, Context, Handler, Message, MessageResult, System};

use super::keeper::{AskError, Keeper, KeeperOptions, Kept, Resend, RestartHook};
use crate::domain::calendar::{Month, Timestamp};
use crate::domain::endpoint::Endpoint;
use crate::domain::key::KeyId;
use crate::domain::window::{Admission, SlidingWindow};

/// How many shards there are unless the configuration says otherwise.
///
/// One could carry the load: it admits some hundred thousand requests a second, far more than the
/// store creates links. With four, a panic holds up a quarter of the keys for some milliseconds
/// instead of all, and a core that is busy elsewhere delays a quarter of them. More would only be
/// more threads that sleep.
// Neither `unwrap` can fail at run time: constants are made by the compiler.
pub const DEFAULT_SHARDS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// How many messages wait for one shard before others are told that it is overloaded.
///
/// A message takes a few microseconds, so the last of these waits about 20 ms: long against any
/// burst that clears by itself, short against the second after which its asker gives up. At some
/// 200 bytes each, a full mailbox takes less than a megabyte.
const MAILBOX_CAPACITY: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// How long the shard believes what it was told about a key's links, and the shortest time for
/// which it keeps an unused key, in milliseconds.
const MEMORY_MS: u64 = 60_000;

/// How many keys a message looks at to drop the idle ones. More than one, so that keys are dropped
/// faster than they can come.
const SWEPT_PER_MESSAGE: usize = 2;

/// Asks for a request to be let in at an endpoint, and counts it if it is.
#[derive(Clone, Copy, Debug)]
pub struct AdmitRequest {
    pub key: KeyId,
    pub endpoint: Endpoint,
    /// The key's limit per minute at the endpoint; 0 for none.
    pub limit: u32,
    pub now: Timestamp,
}

/// The answer to [`AdmitRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitting {
    /// `None` where the endpoint has no limit: let in, and there is nothing to tell the client.
    pub admission: Option<Admission>,
    /// How many links the key has created in the month of `now`, as far as the shard was told in
    /// the last minute. Where it reaches the quota, the store need not be asked.
    pub links_created: Option<u64>,
}

impl Message for AdmitRequest {
    type Result = Admitting;
}

/// A shard that counts a request answers it, so one that ended without answering has not counted
/// it: what it does after counting can't panic.
impl Resend for AdmitRequest {}

/// Tells a shard how many links the store has counted for a key.
#[derive(Clone, Copy, Debug)]
pub struct NoteLinksCreated {
    pub key: KeyId,
    pub month: Month,
    pub current: u64,
    pub now: Timestamp,
}

impl Message for NoteLinksCreated {
    type Result = ();
}

/// Makes a shard panic in the middle of an update. For tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Panic;

impl Message for Panic {
    type Result = ();
}

/// One shard: the thread that alone touches its state.
pub struct KeyShard {
    state: Arc<Mutex<ShardState>>,
}

impl KeyShard {
    fn state(&self) -> MutexGuard<'_, ShardState> {
        // Poisoned by an actor that panicked. What it left is sound: whatever could panic in an
        // update comes before its first change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Actor for KeyShard {
    type Context = Context<Self>;
}

impl Handler<AdmitRequest> for KeyShard {
    type Result = MessageResult<AdmitRequest>;

    fn handle(&mut self, request: AdmitRequest, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.state().admit(&request))
    }
}

impl Handler<NoteLinksCreated> for KeyShard {
    type Result = ();

    fn handle(&mut self, note: NoteLinksCreated, _: &mut Self::Context) {
        self.state().note_links_created(&note);
    }
}

impl Handler<Panic> for KeyShard {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        let _held = self.state();
        panic!("a test asked this shard to panic");
    }
}

/// What a shard knows of its keys.
#[derive(Default)]
struct ShardState {
    keys: HashMap<KeyId, KeyState>,
    /// Every key in `keys` once, with the time in milliseconds at which to see whether it is idle.
    checks: VecDeque<(u64, KeyId)>,
}

#[derive(Default)]
struct KeyState {
    windows: [SlidingWindow; Endpoint::ALL.len()],
    links: Option<LinksNote>,
}

#[derive(Clone, Copy)]
struct LinksNote {
    month: Month,
    current: u64,
    noted_ms: u64,
}

impl ShardState {
    fn admit(&mut self, request: &AdmitRequest) -> Admitting {
        let now_ms = request.now.0;
        self.sweep(now_ms);
        let limit = NonZeroU32::new(request.limit);
        if limit.is_none() && !self.keys.contains_key(&request.key) {
            return Admitting { admission: None, links_created: None };
        }
        let key = self.key(request.key, now_ms);
        // Before the request is counted: once it is, nothing may keep the answer back.
        let links_created = key.links_created(request.now);
        let window = &mut key.windows[request.endpoint.index()];
        Admitting { admission: limit.map(|limit| window.admit(now_ms, limit)), links_created }
    }

    fn note_links_created(&mut self, note: &NoteLinksCreated) {
        let now_ms = note.now.0;
        self.sweep(now_ms);
        let key = self.key(note.key, now_ms);
        // Answers may overtake each other at the turn of the month.
        if key.links.is_none_or(|known| known.month <= note.month) {
            // The latest word, not the highest: where it is too low, the store is asked once more;
            // where it were too high, a link that is due would be refused.
            key.links = Some(LinksNote { month: note.month, current: note.current, noted_ms: now_ms });
        }
    }

    fn key(&mut self, key: KeyId, now_ms: u64) -> &mut KeyState {
        let checks = &mut self.checks;
        self.keys.entry(key).or_insert_with(|| {
            checks.push_back((now_ms.saturating_add(MEMORY_MS), key));
            KeyState::default()
        })
    }

    /// Drops idle keys, a few at each call, so that no message waits for a sweep over all keys.
    fn sweep(&mut self, now_ms: u64) {
        for _ in 0..SWEPT_PER_MESSAGE {
            let Some(&(check_ms, key)) = self.checks.front() else {
                return;
            };
            // A check further ahead than any is ever set was set before the clock was set back.
            let is_due = check_ms <= now_ms || check_ms - now_ms > MEMORY_MS;
            if !is_due {
                return;
            }
            self.checks.pop_front();
            if self.keys.get(&key).is_none_or(|state| state.is_idle(now_ms)) {
                self.keys.remove(&key);
            } else {
                let next_check_ms = now_ms.saturating_add(MEMORY_MS);
                self.checks.push_back((next_check_ms, key));
            }
        }
    }
}

impl KeyState {
    fn links_created(&self, now: Timestamp) -> Option<u64> {
        let note = self.links.filter(|note| note.is_fresh(now.0))?;
        (note.month == now.month()).then_some(note.current)
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        let no_note = self.links.is_none_or(|note| !note.is_fresh(now_ms));
        no_note && self.windows.iter().all(|window| window.is_idle(now_ms))
    }
}

impl LinksNote {
    /// Also not fresh when it lies in the future: the clock was set back, its age is unknown.
    fn is_fresh(self, now_ms: u64) -> bool {
        now_ms.abs_diff(self.noted_ms) < MEMORY_MS
    }
}

/// Why the shards could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// [`KeyShards::start`] was called outside an actix `System`.
    #[error("no actix system runs on this thread")]
    NoSystem,
    /// The number of shards is not a power of two.
    #[error("{0} is not a power of two")]
    NotPowerOfTwo(NonZeroUsize),
    /// The thread of a shard could not be started.
    #[error("could not start the thread of a key shard")]
    Thread(#[from] io::Error),
}

/// All shards. Share it in an `Arc`.
pub struct KeyShards {
    shards: Vec<Shard>,
    /// Taken out when they are stopped.
    arbiters: Mutex<Vec<Arbiter>>,
}

struct Shard {
    keeper: Keeper<KeyShard>,
    kept: Kept<KeyShard>,
}

impl KeyShards {
    /// Starts `count` shards, a power of two, each on a thread of its own.
    ///
    /// `on_restart` is told the name `key_shard`.
    pub fn start(count: NonZeroUsize, on_restart: &RestartHook) -> Result<Self, StartError> {
        if !count.is_power_of_two() {
            return Err(StartError::NotPowerOfTwo(count));
        }
        // An arbiter panics without a system.
        if System::try_current().is_none() {
            return Err(StartError::NoSystem);
        }
        let mut arbiters = Vec::with_capacity(count.get());
        for _ in 0..count.get() {
            arbiters.push(Arbiter::try_new()?);
        }
        let start_shard = |arbiter: &Arbiter| {
            let state = Arc::new(Mutex::new(ShardState::default()));
            let options = KeeperOptions {
                actor: "key_shard",
                mailbox_capacity: MAILBOX_CAPACITY,
                on_restart: Arc::clone(on_restart),
            };
            let keeper = Keeper::start(&arbiter.handle(), options, move |_| KeyShard { state: Arc::clone(&state) });
            Shard { kept: keeper.kept(), keeper }
        };
        Ok(Self { shards: arbiters.iter().map(start_shard).collect(), arbiters: Mutex::new(arbiters) })
    }

    /// Asks for a request to be let in, and counts it if it is.
    pub async fn admit(&self, request: AdmitRequest) -> Result<Admitting, AskError> {
        self.shard(request.key).ask(request).await
    }

    /// Passes on what the store has counted. It does not wait, and a note that does not arrive
    /// costs no more than asking the store again.
    pub fn note_links_created(&self, note: NoteLinksCreated) {
        let _ = self.shard(note.key).try_send(note);
    }

    /// The shard that counts for a key.
    #[doc(hidden)]
    pub fn shard(&self, key: KeyId) -> &Kept<KeyShard> {
        &self.shards[shard_index(key, self.shards.len())].kept
    }

    /// Stops every shard once it has answered what waits in its mailbox, and ends their threads.
    /// Later requests are answered [`AskError::Unavailable`].
    pub async fn stop(&self) {
        for shard in &self.shards {
            shard.keeper.stop().await;
        }
        let mut arbiters = self.arbiters.lock().unwrap_or_else(PoisonError::into_inner);
        for arbiter in arbiters.drain(..) {
            arbiter.stop();
            // Nothing runs on it any more, so this takes no time; that it panicked changes nothing.
            let _ = arbiter.join();
        }
    }
}

/// Multiplies the folded id by 2^64 / φ and takes the highest bits, which depend on all of it: ids
/// are UUIDs v7, whose first bits are alike.
fn shard_index(key: KeyId, count: usize) -> usize {
    let (high, low) = key.0.as_u64_pair();
    let mixed = (high ^ low).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let bits = count.trailing_zeros();
    // Fewer than 64 bits remain, and a single shard has none.
    let index = mixed.checked_shr(u64::BITS - bits).unwrap_or(0);
    usize::try_from(index).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(number: u64) -> KeyId {
        // The form of a UUID v7: alike in front, and here even behind.
        KeyId(Uuid::from_u64_pair(0x0194_0000_0000_7000, number))
    }

    fn admit(state: &mut ShardState, key: KeyId, now_ms: u64) {
        state.admit(&AdmitRequest { key, endpoint: Endpoint::Usage, limit: 10, now: Timestamp(now_ms) });
    }

    #[test]
    fn keys_are_spread_evenly_over_the_shards() {
        for count in [1, 2, 4, 64] {
            let mut keys = vec![0_usize; count];
            (0..64_000).for_each(|number| keys[shard_index(key(number), count)] += 1);
            let fair = 64_000 / count;
            assert!(keys.iter().all(|&keys| keys.abs_diff(fair) <= fair / 10));
        }
    }

    #[test]
    fn idle_keys_are_dropped_while_others_ask() {
        let mut state = ShardState::default();
        (0..1000).for_each(|number| admit(&mut state, key(number), number));
        assert_eq!(state.keys.len(), 1000);
        (0..600).for_each(|_| admit(&mut state, key(0), 70_000));
        assert_eq!((state.keys.len(), state.checks.len()), (1, 1));
    }

    #[test]
    fn a_key_in_use_is_not_dropped() {
        let mut state = ShardState::default();
        for second in 0..300 {
            admit(&mut state, key(1), second * 1000);
            admit(&mut state, key(2 + second), second * 1000);
            let window = &state.keys[&key(1)].windows[Endpoint::Usage.index()];
            assert!(!window.is_idle(second * 1000));
            assert!(state.keys.len() < 130);
        }
    }

    #[test]
    fn keys_are_dropped_though_the_clock_was_set_back() {
        let mut state = ShardState::default();
        admit(&mut state, key(1), 10_000_000);
        admit(&mut state, key(2), 1_000_000);
        assert_eq!(state.keys.len(), 2);
        admit(&mut state, key(2), 10_100_000);
        assert_eq!(state.keys.len(), 1);
    }
}
