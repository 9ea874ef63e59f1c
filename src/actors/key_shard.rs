//! The actors that count requests per API key.
//!
//! Every key belongs to one of a few shards, chosen by a hash of its id. A shard owns, for its
//! keys, the sliding windows of all rate limits and what is known of the month's links, so that one
//! message admits a request and no lock is shared between cores. What it owns outlives a panic of
//! the actor, but not the process: a restarted process starts all windows anew.
//!
//! Where several nodes serve from one store, the shards of each tell those of the others what they
//! have let in: see [`exchange`].

pub mod exchange;
/// Public so that what a shard does for a message can be measured without its thread.
#[doc(hidden)]
pub mod state;

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::fut::wrap_future;
use actix::{Actor, Arbiter, AsyncContext, Context, Handler, Message, Response, ResponseActFuture, System};

use self::exchange::Sharing;
use self::state::ShardState;
use super::supervisor::{AskError, Handle, KeeperOptions, Resend, RestartHook, Supervisor};
use crate::domain::calendar::{Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::rate_limit::RateLimitId;
use crate::domain::window::Admission;
use crate::telemetry::metrics::actors::ActorMeters;

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

/// Asks for a request to be let in at a rate limit, and counts it if it is.
#[derive(Clone, Copy, Debug)]
pub struct AdmitRequest {
    pub key: KeyId,
    pub rate_limit: RateLimitId,
    /// How many requests a minute that is for the key; 0 for no limit.
    pub limit: u32,
    pub now: Timestamp,
}

/// The answer to [`AdmitRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitting {
    /// `None` where there is no limit: let in, and there is nothing to tell the client.
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

/// Makes a shard exchange windows with the other nodes, as it does by itself about once a second.
/// Answered when that is done; at once where one is under way or there is nothing to tell.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ExchangeWindows;

impl Message for ExchangeWindows {
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
    sharing: Option<Arc<Sharing>>,
}

fn lock(state: &Mutex<ShardState>) -> MutexGuard<'_, ShardState> {
    // Poisoned by an actor that panicked. What it left is sound: whatever could panic in an
    // update comes before its first change.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KeyShard {
    fn state(&self) -> MutexGuard<'_, ShardState> {
        lock(&self.state)
    }

    /// Tells the other nodes what was let in here, and counts what they tell, unless that is under way.
    fn exchange(&self) -> impl Future<Output = ()> + use<> {
        let (state, sharing) = (Arc::clone(&self.state), self.sharing.clone());
        async move {
            let Some(sharing) = sharing else { return };
            let begun = lock(&state).begin_exchange(sharing.clock.now());
            if let Some(telling) = begun {
                // The state is not held meanwhile: requests go on.
                let answer = sharing.exchange(telling).await;
                lock(&state).end_exchange(answer, sharing.clock.now());
            }
        }
    }

    /// Hears what the other nodes have let in at the window that `request` asks for, once for all who ask
    /// meanwhile; then the request is answered.
    fn hear_and_admit(&self, sharing: &Arc<Sharing>, request: AdmitRequest) -> Response<Admitting> {
        let (mut hearing, reader) = self.state().join_hearing((request.key, request.rate_limit));
        if let Some(reader) = reader {
            let (state, sharing) = (Arc::clone(&self.state), Arc::clone(sharing));
            actix::spawn(async move {
                let answer = sharing.hear((request.key, request.rate_limit)).await;
                lock(&state).end_hearing(&request, answer, sharing.clock.now());
                drop(reader);
            });
        }
        let state = Arc::clone(&self.state);
        Response::fut(async move {
            // It ends with an error: nothing is ever sent.
            let _ = hearing.changed().await;
            lock(&state).admit(&request)
        })
    }
}

impl Actor for KeyShard {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let Some(sharing) = &self.sharing else { return };
        // That of an earlier life ended with it.
        self.state().give_up_exchange();
        context.run_interval(sharing.every, |shard, context| {
            context.spawn(wrap_future(shard.exchange()));
        });
    }
}

impl Handler<AdmitRequest> for KeyShard {
    type Result = Response<Admitting>;

    fn handle(&mut self, request: AdmitRequest, _: &mut Self::Context) -> Self::Result {
        let mut state = self.state();
        match &self.sharing {
            Some(sharing) if !state.is_at_hand(&request) => {
                drop(state);
                self.hear_and_admit(sharing, request)
            }
            _ => Response::reply(state.admit(&request)),
        }
    }
}

impl Handler<NoteLinksCreated> for KeyShard {
    type Result = ();

    fn handle(&mut self, note: NoteLinksCreated, _: &mut Self::Context) {
        self.state().note_links_created(&note);
    }
}

impl Handler<ExchangeWindows> for KeyShard {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: ExchangeWindows, _: &mut Self::Context) -> Self::Result {
        Box::pin(wrap_future(self.exchange()))
    }
}

impl Handler<Panic> for KeyShard {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        let _held = self.state();
        panic!("a test asked this shard to panic");
    }
}

/// Why the shards could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// [`KeyShards::start`] was called outside an actix `System`.
    #[error("this thread has no actix system")]
    NoSystem,
    /// The number of shards is not a power of two.
    #[error("{0} is not a power of two")]
    NotPowerOfTwo(NonZeroUsize),
    /// The thread of a shard could not be started.
    #[error("can't start the thread of a key shard")]
    Thread(#[from] io::Error),
}

/// All shards. Share it in an `Arc`.
pub struct KeyShards {
    shards: Vec<Shard>,
    /// Taken out when they are stopped.
    arbiters: Mutex<Vec<Arbiter>>,
    meters: ActorMeters,
}

struct Shard {
    supervisor: Supervisor<KeyShard>,
    kept: Handle<KeyShard>,
}

impl KeyShards {
    /// Starts `count` shards, a power of two, each on a thread of its own.
    ///
    /// They share their windows with other nodes where told how. `on_restart` is told the name
    /// `key_shard`.
    pub fn start(count: NonZeroUsize, sharing: Option<Sharing>, on_restart: &RestartHook) -> Result<Self, StartError> {
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
        let sharing = sharing.map(Arc::new);
        let start_shard = |arbiter: &Arbiter| {
            let state = if sharing.is_some() { ShardState::sharing() } else { ShardState::default() };
            let (state, sharing) = (Arc::new(Mutex::new(state)), sharing.clone());
            let options = KeeperOptions {
                actor: "key_shard",
                mailbox_capacity: MAILBOX_CAPACITY,
                on_restart: Arc::clone(on_restart),
            };
            let supervisor = Supervisor::start(&arbiter.handle(), options, move |_| KeyShard {
                state: Arc::clone(&state),
                sharing: sharing.clone(),
            });
            Shard { kept: supervisor.handle(), supervisor }
        };
        let shards = arbiters.iter().map(start_shard).collect();
        Ok(Self { shards, arbiters: Mutex::new(arbiters), meters: ActorMeters::noop() })
    }

    /// Has `meters` show how they answer.
    #[must_use]
    pub fn shown_by(self, meters: ActorMeters) -> Self {
        Self { meters, ..self }
    }

    /// Asks for a request to be let in, and counts it if it is.
    pub async fn admit(&self, request: AdmitRequest) -> Result<Admitting, AskError> {
        let _asked = self.meters.ask();
        self.shard(request.key).ask(request).await
    }

    /// Passes on what the store has counted. It does not wait, and a note that does not arrive
    /// costs no more than asking the store again.
    pub fn note_links_created(&self, note: NoteLinksCreated) {
        let _ = self.shard(note.key).try_send(note);
    }

    /// The shard that counts for a key.
    #[doc(hidden)]
    pub fn shard(&self, key: KeyId) -> &Handle<KeyShard> {
        &self.shards[shard_index(key, self.shards.len())].kept
    }

    /// Stops every shard once it has answered what waits in its mailbox, and ends their threads.
    /// Later requests are answered [`AskError::Unavailable`].
    pub async fn stop(&self) {
        for shard in &self.shards {
            shard.supervisor.stop().await;
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

    #[test]
    fn keys_are_spread_evenly_over_the_shards() {
        for count in [1, 2, 4, 64] {
            let mut keys = vec![0_usize; count];
            (0..64_000).for_each(|number| keys[shard_index(key(number), count)] += 1);
            let fair = 64_000 / count;
            assert!(keys.iter().all(|&keys| keys.abs_diff(fair) <= fair / 10));
        }
    }
}
