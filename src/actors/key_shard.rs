//! The actors that count requests by API key.
//!
//! Each key belongs to one of a few shards, by a hash of its id. A shard owns, for its keys, the sliding windows of all
//! rate limits and a note of the month's links. So one message admits a request, and cores share no lock. The state
//! survives a panic of the actor, but not the process: a restarted process starts with empty windows.
//!
//! If several nodes use one store, their shards exchange the requests that they admit: see [`exchange`].

pub mod exchange;
/// Public so that benchmarks can measure a shard without its thread.
#[doc(hidden)]
pub mod state;

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};

use actix::fut::wrap_future;
use actix::{Actor, Arbiter, AsyncContext, Context, Handler, Message, Response, ResponseActFuture, System};

use self::exchange::Sharing;
use self::state::ShardState;
use super::supervisor::{AskError, Handle, Resend, RestartHook, Supervisor, SupervisorOptions};
use crate::domain::calendar::{Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::rate_limit::RateLimitId;
use crate::domain::window::Admission;
use crate::locks::lock;
use crate::telemetry::metrics::actors::ActorMeters;

/// The default number of shards.
///
/// One shard is enough for the load: it admits some hundred thousand requests a second, many more than the store
/// creates links. With four, a panic delays a quarter of the keys by some milliseconds instead of all, and so does a
/// busy core. More shards would only be more idle threads.
// Neither `unwrap` can fail at run time: constants are evaluated by the compiler.
pub const DEFAULT_SHARDS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// How many messages may wait for one shard before it is overloaded.
///
/// A message takes a few microseconds, so the last of these waits about 20 ms: long for a burst, short compared to the
/// timeout of a second. At some 200 bytes each, a full mailbox takes less than a megabyte.
const MAILBOX_CAPACITY: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Admits a request at a rate limit and counts it, or refuses it.
#[derive(Clone, Copy, Debug)]
pub struct AdmitRequest {
    pub key: KeyId,
    pub rate_limit: RateLimitId,
    /// The key's limit in requests a minute; 0 for no limit.
    pub limit: u32,
    pub now: Timestamp,
}

/// The result of [`AdmitRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitting {
    /// `None` without a limit: the request is admitted, and there are no values for the client.
    pub admission: Option<Admission>,
    /// How many links the key has created in the month of `now`, if the shard was notified of it within the last
    /// minute. At the quota, the store need not be asked.
    pub links_created: Option<u64>,
}

impl Message for AdmitRequest {
    type Result = Admitting;
}

/// A shard that counts a request answers it, because nothing after the counting can panic. So a shard that ended
/// without an answer has not counted the request.
impl Resend for AdmitRequest {}

/// Notes how many links the store has counted for a key.
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

/// Exchanges windows with the other nodes at once, instead of at the next interval. The answer comes when the exchange
/// is done; at once if one is in progress or there is nothing to exchange.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ExchangeWindows;

impl Message for ExchangeWindows {
    type Result = ();
}

/// Makes a shard panic while it holds the lock. For tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Panic;

impl Message for Panic {
    type Result = ();
}

/// One shard. Only its thread uses its state.
pub struct KeyShard {
    /// An actor that panics leaves it whole: everything that can panic in an update comes before the first change.
    state: Arc<Mutex<ShardState>>,
    sharing: Option<Arc<Sharing>>,
}

impl KeyShard {
    fn state(&self) -> MutexGuard<'_, ShardState> {
        lock(&self.state)
    }

    /// Publishes the requests that were admitted here and counts those of the other nodes, unless an exchange is in
    /// progress.
    fn exchange(&self) -> impl Future<Output = ()> + use<> {
        let (state, sharing) = (Arc::clone(&self.state), self.sharing.clone());
        async move {
            let Some(sharing) = sharing else { return };
            let request = lock(&state).begin_exchange(sharing.clock.now());
            if let Some(request) = request {
                // The lock is not held meanwhile, so requests are still admitted.
                let answer = sharing.exchange(request).await;
                lock(&state).end_exchange(answer, sharing.clock.now());
            }
        }
    }

    /// Reads the requests of the other nodes for the window of `request`, once for all concurrent requests, and then
    /// admits or refuses the request.
    fn read_others_and_admit(&self, sharing: &Arc<Sharing>, request: AdmitRequest) -> Response<Admitting> {
        let (mut read, reader) = self.state().join_read((request.key, request.rate_limit));
        if let Some(reader) = reader {
            let (state, sharing) = (Arc::clone(&self.state), Arc::clone(sharing));
            actix::spawn(async move {
                let answer = sharing.read_others((request.key, request.rate_limit)).await;
                lock(&state).end_read(&request, answer, sharing.clock.now());
                drop(reader);
            });
        }
        let state = Arc::clone(&self.state);
        Response::fut(async move {
            // This returns an error when the sender is dropped; no value is ever sent.
            let _ = read.changed().await;
            lock(&state).admit(&request)
        })
    }
}

impl Actor for KeyShard {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let Some(sharing) = &self.sharing else { return };
        // An exchange of the actor before this one ended with that actor.
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
            Some(sharing) if !state.is_tracked(&request) => {
                drop(state);
                self.read_others_and_admit(sharing, request)
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
pub enum ShardStartError {
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

/// All shards. To be shared in an `Arc`.
pub struct KeyShards {
    shards: Vec<Shard>,
    /// Emptied by `stop`.
    arbiters: Mutex<Vec<Arbiter>>,
    meters: ActorMeters,
}

struct Shard {
    supervisor: Supervisor<KeyShard>,
    kept: Handle<KeyShard>,
}

impl KeyShards {
    /// Starts `count` shards, a power of two, each on its own thread.
    ///
    /// With `sharing` they share their windows with other nodes. `on_restart` gets the name `key_shard`.
    pub fn start(
        count: NonZeroUsize,
        sharing: Option<Sharing>,
        on_restart: &RestartHook,
    ) -> Result<Self, ShardStartError> {
        if !count.is_power_of_two() {
            return Err(ShardStartError::NotPowerOfTwo(count));
        }
        // `Arbiter::new` panics without a system.
        if System::try_current().is_none() {
            return Err(ShardStartError::NoSystem);
        }
        let mut arbiters = Vec::with_capacity(count.get());
        for _ in 0..count.get() {
            arbiters.push(Arbiter::try_new()?);
        }
        let sharing = sharing.map(Arc::new);
        let start_shard = |arbiter: &Arbiter| {
            let state = if sharing.is_some() { ShardState::sharing() } else { ShardState::default() };
            let (state, sharing) = (Arc::new(Mutex::new(state)), sharing.clone());
            let options = SupervisorOptions {
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

    /// Reports the durations of answers to `meters`.
    #[must_use]
    pub fn with_meters(self, meters: ActorMeters) -> Self {
        Self { meters, ..self }
    }

    /// Admits a request at a rate limit and counts it, or refuses it.
    pub async fn admit(&self, request: AdmitRequest) -> Result<Admitting, AskError> {
        let _asked = self.meters.ask();
        self.shard(request.key).ask(request).await
    }

    /// Passes on what the store has counted. It does not wait; a lost note only costs another call of the store.
    pub fn note_links_created(&self, note: NoteLinksCreated) {
        let _ = self.shard(note.key).try_send(note);
    }

    /// The shard of a key.
    #[doc(hidden)]
    pub fn shard(&self, key: KeyId) -> &Handle<KeyShard> {
        &self.shards[shard_index(key, self.shards.len())].kept
    }

    /// Stops every shard after it has answered the messages in its mailbox, and ends the threads. Later requests return
    /// [`AskError::Unavailable`].
    pub async fn stop(&self) {
        for shard in &self.shards {
            shard.supervisor.stop().await;
        }
        let mut arbiters = lock(&self.arbiters);
        for arbiter in arbiters.drain(..) {
            arbiter.stop();
            // The thread has nothing left to run, so this does not block; a panic of the thread changes nothing.
            let _ = arbiter.join();
        }
    }
}

/// Multiplies the folded id by 2^64 / φ and takes the highest bits, which depend on all bits of the id: ids are UUIDs
/// v7, whose first bits are alike.
fn shard_index(key: KeyId, count: usize) -> usize {
    let (high, low) = key.0.as_u64_pair();
    let mixed = (high ^ low).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let bits = count.trailing_zeros();
    // Fewer than 64 bits remain; a single shard has none.
    let index = mixed.checked_shr(u64::BITS - bits).unwrap_or(0);
    usize::try_from(index).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(number: u64) -> KeyId {
        // A UUID v7 with the same first bits, and here even the same last ones.
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
