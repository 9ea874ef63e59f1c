//! Actors that panic, stop, do not answer or are stopped, and the results for their callers.

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use actix::{Actor, ActorContext, Arbiter, AsyncContext, Context, Handler, Message, Running, System, WrapFuture};
use signpost::actors::supervisor::{
    ASK_TIMEOUT, AskError, Handle, Resend, Restart, SendError, Supervisor, SupervisorOptions,
};
use tokio::sync::oneshot;

use crate::support::middle;

/// Counts in a state that survives it.
struct Counter {
    count: Arc<AtomicU32>,
    /// Whether it finishes something in the background before it stops.
    finishes_slowly: bool,
}

impl Actor for Counter {
    type Context = Context<Self>;

    fn stopping(&mut self, context: &mut Self::Context) -> Running {
        if !std::mem::take(&mut self.finishes_slowly) {
            return Running::Stop;
        }
        let finish = async { tokio::task::yield_now().await }.into_actor(self);
        context.spawn(actix::ActorFutureExt::map(finish, |(), counter, context| {
            counter.count.fetch_add(100, Ordering::SeqCst);
            context.stop();
        }));
        Running::Continue
    }
}

/// Adds one, and returns the sum.
#[derive(Clone)]
struct Add;

impl Message for Add {
    type Result = u32;
}

impl Resend for Add {}

impl Handler<Add> for Counter {
    type Result = u32;

    fn handle(&mut self, _: Add, _: &mut Self::Context) -> u32 {
        self.count.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// Adds one and panics before it answers.
struct AddAndPanic;

impl Message for AddAndPanic {
    type Result = ();
}

impl Handler<AddAndPanic> for Counter {
    type Result = ();

    fn handle(&mut self, _: AddAndPanic, _: &mut Self::Context) {
        self.count.fetch_add(1, Ordering::SeqCst);
        panic!("a test asked this actor to panic");
    }
}

struct StopYourself;

impl Message for StopYourself {
    type Result = ();
}

impl Handler<StopYourself> for Counter {
    type Result = ();

    fn handle(&mut self, _: StopYourself, context: &mut Self::Context) {
        context.stop();
    }
}

/// Blocks the actor's thread from when it signals `held` until `release` is dropped.
struct Hold {
    held: oneshot::Sender<()>,
    release: mpsc::Receiver<()>,
}

impl Message for Hold {
    type Result = ();
}

impl Handler<Hold> for Counter {
    type Result = ();

    fn handle(&mut self, hold: Hold, _: &mut Self::Context) {
        let _ = hold.held.send(());
        let _ = hold.release.recv();
    }
}

struct Kit {
    supervisor: Supervisor<Counter>,
    handle: Handle<Counter>,
    count: Arc<AtomicU32>,
    restarts: Arc<Mutex<Vec<Restart>>>,
    arbiter: Arbiter,
}

impl Kit {
    fn start(mailbox_capacity: usize) -> Self {
        Self::start_with(mailbox_capacity, false)
    }

    fn start_with(mailbox_capacity: usize, finishes_slowly: bool) -> Self {
        let arbiter = Arbiter::new();
        let count = Arc::new(AtomicU32::new(0));
        let restarts = Arc::new(Mutex::new(Vec::new()));
        let options = SupervisorOptions {
            actor: "counter",
            mailbox_capacity: NonZeroUsize::new(mailbox_capacity).unwrap(),
            on_restart: Arc::new({
                let restarts = Arc::clone(&restarts);
                move |restart| restarts.lock().unwrap().push(restart)
            }),
        };
        let supervisor = Supervisor::start(&arbiter.handle(), options, {
            let count = Arc::clone(&count);
            move |_| Counter { count: Arc::clone(&count), finishes_slowly }
        });
        Self { handle: supervisor.handle(), supervisor, count, restarts, arbiter }
    }

    /// Blocks the actor until the returned sender is dropped.
    async fn hold(&self) -> mpsc::Sender<()> {
        let (started, is_held) = oneshot::channel();
        let (hold, release) = mpsc::channel();
        self.handle.try_send(Hold { held: started, release }).unwrap();
        is_held.await.unwrap();
        hold
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    fn restarts(&self) -> Vec<Restart> {
        self.restarts.lock().unwrap().clone()
    }
}

fn in_system<T>(test: impl Future<Output = T>) -> T {
    System::new().block_on(test)
}

/// The result of a future that is polled once; `None` if it is pending.
async fn polled_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    })
    .await
}

#[test]
fn a_panicked_actor_is_restarted_with_its_state() {
    in_system(async {
        let kit = Kit::start(16);
        assert_eq!(kit.handle.ask(Add).await, Ok(1));
        kit.handle.try_send(AddAndPanic).unwrap();
        assert_eq!(kit.handle.ask(Add).await, Ok(3));
        let at_once = Restart { actor: "counter", panicked: true, pause: Duration::ZERO };
        assert_eq!(kit.restarts(), [at_once]);
    });
}

#[test]
fn an_actor_that_stops_its_context_is_restarted() {
    in_system(async {
        let kit = Kit::start(16);
        kit.handle.try_send(StopYourself).unwrap();
        assert_eq!(kit.handle.ask(Add).await, Ok(1));
        assert_eq!(kit.restarts().len(), 1);
        assert!(!kit.restarts()[0].panicked);
    });
}

#[test]
fn what_waits_in_the_mailbox_of_a_panicking_actor_is_answered_by_the_next() {
    in_system(async {
        let kit = Kit::start(16);
        let hold = kit.hold().await;
        kit.handle.try_send(AddAndPanic).unwrap();
        let mut first = pin!(kit.handle.ask(Add));
        let mut second = pin!(kit.handle.ask(Add));
        assert_eq!(polled_once(first.as_mut()).await, None);
        assert_eq!(polled_once(second.as_mut()).await, None);
        drop(hold);
        let mut answers = [first.await.unwrap(), second.await.unwrap()];
        answers.sort_unstable();
        assert_eq!(answers, [2, 3]);
    });
}

#[test]
fn a_message_that_is_not_safe_to_send_again_is_sent_once() {
    in_system(async {
        let kit = Kit::start(16);
        let answer = kit.handle.ask_once(AddAndPanic).await;
        assert_eq!(answer, Err(AskError::Unavailable));
        assert_eq!(kit.handle.ask(Add).await, Ok(2));
    });
}

#[test]
fn an_actor_that_panics_again_and_again_is_back_within_the_time_of_an_ask() {
    in_system(async {
        let kit = Kit::start(16);
        for round in 0..4 {
            assert_eq!(kit.handle.ask(Add).await, Ok(2 * round + 1));
            kit.handle.try_send(AddAndPanic).unwrap();
        }
        assert_eq!(kit.handle.ask(Add).await, Ok(9));
        let pauses_ms: Vec<_> = kit.restarts().iter().map(|it| it.pause.as_millis()).collect();
        assert_eq!(pauses_ms, [0, 50, 100, 200]);
    });
}

#[test]
fn a_full_mailbox_is_an_error_at_once_and_takes_messages_again_later() {
    in_system(async {
        let kit = Kit::start(2);
        let hold = kit.hold().await;
        let mut first = pin!(kit.handle.ask(Add));
        let mut second = pin!(kit.handle.ask(Add));
        assert_eq!(polled_once(first.as_mut()).await, None);
        assert_eq!(polled_once(second.as_mut()).await, None);

        let one_too_many = polled_once(pin!(kit.handle.ask(Add))).await;
        assert_eq!(one_too_many, Some(Err(AskError::Overloaded)));
        assert_eq!(kit.handle.try_send(StopYourself), Err(SendError::Full));

        drop(hold);
        assert_eq!(first.await, Ok(1));
        assert_eq!(second.await, Ok(2));
        assert_eq!(kit.handle.ask(Add).await, Ok(3));
    });
}

#[test]
fn a_silent_actor_is_unavailable_when_the_time_of_an_ask_is_up() {
    in_system(async {
        let kit = Kit::start(16);
        let hold = kit.hold().await;
        let asked = Instant::now();
        assert_eq!(kit.handle.ask(Add).await, Err(AskError::Unavailable));
        assert!(asked.elapsed() >= ASK_TIMEOUT);
        drop(hold);
        // The message of the dropped caller was not handled.
        assert_eq!(kit.handle.ask(Add).await, Ok(1));
    });
}

#[test]
fn a_stopped_actor_handles_what_waits_and_takes_nothing_more() {
    in_system(async {
        let kit = Kit::start(16);
        let hold = kit.hold().await;
        let mut waiting = pin!(kit.handle.ask(Add));
        assert_eq!(polled_once(waiting.as_mut()).await, None);
        let mut stopped = pin!(kit.supervisor.stop());
        assert_eq!(polled_once(stopped.as_mut()).await, None);

        assert_eq!(kit.handle.try_send(StopYourself), Err(SendError::Closed));
        let too_late = polled_once(pin!(kit.handle.ask(Add))).await;
        assert_eq!(too_late, Some(Err(AskError::Unavailable)));

        drop(hold);
        assert_eq!(waiting.await, Ok(1));
        stopped.await;
        // A second stop is no error.
        kit.supervisor.stop().await;
        assert_eq!(kit.restarts(), []);
        assert_eq!(Arc::strong_count(&kit.count), 1, "the actor and its factory are gone");
    });
}

#[test]
fn stopping_waits_for_an_actor_that_has_work_to_finish() {
    in_system(async {
        let kit = Kit::start_with(16, true);
        assert_eq!(kit.handle.ask(Add).await, Ok(1));
        kit.supervisor.stop().await;
        assert_eq!(kit.count(), 101);
    });
}

#[test]
fn no_actor_is_started_while_its_supervisor_is_stopping() {
    in_system(async {
        let kit = Kit::start(16);
        let hold = kit.hold().await;
        kit.handle.try_send(AddAndPanic).unwrap();
        let mut stopped = pin!(kit.supervisor.stop());
        assert_eq!(polled_once(stopped.as_mut()).await, None);
        drop(hold);
        stopped.await;
        assert_eq!(kit.count(), 1);
        assert_eq!(kit.restarts(), []);
    });
}

#[test]
fn dropping_a_supervisor_stops_its_actor() {
    in_system(async {
        let kit = Kit::start(16);
        assert_eq!(kit.handle.ask(Add).await, Ok(1));
        drop(kit.supervisor);
        assert_eq!(kit.handle.try_send(StopYourself), Err(SendError::Closed));
    });
}

#[test]
fn callers_of_an_actor_whose_thread_ends_get_an_error() {
    in_system(async {
        let mut times = Vec::new();
        for _ in 0..3 {
            let kit = Kit::start(16);
            let hold = kit.hold().await;
            let mut waiting = pin!(kit.handle.ask(Add));
            assert_eq!(polled_once(waiting.as_mut()).await, None);
            kit.arbiter.stop();
            drop(hold);
            let asked = Instant::now();
            // The message was either still handled, or it was not.
            assert!(matches!(waiting.await, Ok(1) | Err(AskError::Unavailable)));
            kit.arbiter.join().unwrap();
            assert_eq!(kit.handle.ask(Add).await, Err(AskError::Unavailable));
            assert_eq!(kit.handle.try_send(StopYourself), Err(SendError::Closed));
            kit.supervisor.stop().await;
            times.push(asked.elapsed());
        }
        // The caller does not wait for the timeout.
        assert!(middle(&times) < ASK_TIMEOUT, "{times:?}");
    });
}
