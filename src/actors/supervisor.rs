//! A supervisor restarts an actor whenever it ends.
//!
//! actix's own `Supervisor` is part of the actor's future, so a panic ends both, and the mailbox stays closed. A
//! [`Supervisor`] holds what is needed to create the actor again, and watches its task from outside. State that must
//! survive a panic belongs to the supervisor's factory (an `Arc` in its closure), which passes it to every new actor.
//!
//! Panics are caught at the actor's task, so the program must not be built with `panic = "abort"`.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::channel::{AddressReceiver, AddressSender, channel};
use actix::dev::{ContextFut, SendError as MailboxError, ToEnvelope};
use actix::{Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

/// How long an [`ask`](Handle::ask) waits, including restarts of the actor. If the whole process is suspended, that
/// uses up at most a quarter of this time.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// A message that may be handled twice: if an actor ended without an answer, the message is sent to the next one, even
/// if the first one may have acted on it.
pub trait Resend: Message + Clone {}

/// Why a message was not put into the actor's mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The mailbox is full. The caller should shed load.
    #[error("the actor's mailbox is full")]
    Full,
    /// The actor has ended and the next one is not running yet. Retry within about a second.
    #[error("the actor is being restarted")]
    Restarting,
    /// The supervisor was stopped; there is no next actor.
    #[error("the actor was stopped")]
    Closed,
}

/// Why a message was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The mailbox is full; nothing was sent. The caller should shed load.
    #[error("the actor's mailbox is full")]
    Overloaded,
    /// The actor ended or did not answer within [`ASK_TIMEOUT`], or it was stopped. Whether it acted on the message is
    /// not known.
    #[error("the actor did not answer")]
    Unavailable,
}

/// One restart, as passed to a [`RestartHook`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The actor's name in [`SupervisorOptions`].
    pub actor: &'static str,
    /// Whether the actor panicked; otherwise it stopped its own context.
    pub panicked: bool,
    /// How long the supervisor waits before the restart.
    pub pause: Duration,
}

/// Called at every restart, on the actor's arbiter, to count and log it. It must not panic or block.
pub type RestartHook = Arc<dyn Fn(Restart) + Send + Sync>;

/// The options of a [`Supervisor`].
#[derive(Clone)]
pub struct SupervisorOptions {
    /// The actor's name in metrics and logs.
    pub actor: &'static str,
    /// The largest number of waiting messages.
    pub mailbox_capacity: NonZeroUsize,
    pub on_restart: RestartHook,
}

/// Whether a sender that filled the mailbox is parked until a message is taken from it; otherwise the mailbox has no
/// bound.
const PARK_WHEN_FULL: bool = true;

/// The state of a supervised actor.
enum Phase<A: Actor> {
    Running {
        /// The number of earlier actors.
        generation: u64,
        mailbox: Arc<AddressSender<A>>,
    },
    Restarting,
    /// `stop` was called; the actor may still be finishing.
    Stopping,
    Ended,
}

/// Keeps one actor running until [`stop`](Self::stop) or drop.
pub struct Supervisor<A: Actor> {
    phase: Arc<watch::Sender<Phase<A>>>,
    stop: watch::Sender<bool>,
}

impl<A: Actor<Context = Context<A>>> Supervisor<A> {
    /// Starts the actor that `factory` creates on `arbiter`, and the next one whenever it ends.
    ///
    /// Messages may be sent at once. Messages in the mailbox of an actor that panics are lost with it; [`Handle::ask`]
    /// sends its message again.
    pub fn start<F>(arbiter: &ArbiterHandle, options: SupervisorOptions, factory: F) -> Self
    where
        F: Fn(&mut Context<A>) -> A + Send + Sync + 'static,
    {
        let (mailbox, receiver) = channel(options.mailbox_capacity.get());
        let phase = Arc::new(watch::Sender::new(Phase::Running { generation: 0, mailbox: Arc::new(mailbox) }));
        let (stop, stop_asked) = watch::channel(false);
        let supervision =
            Supervision { options, factory: Arc::new(factory), phase: EndedOnDrop(Arc::clone(&phase)), stop_asked };
        // An arbiter that has ended drops `supervision` without running it, which sets the phase to `Ended`.
        arbiter.spawn_fn(move || {
            actix::spawn(supervision.run(receiver));
        });
        Self { phase, stop }
    }

    /// A handle to send messages to the actor.
    pub fn handle(&self) -> Handle<A> {
        Handle { phase: Arc::clone(&self.phase) }
    }

    /// Stops the actor without a restart, and returns when it has ended.
    ///
    /// The actor takes no new messages, handles those in its mailbox (unless it has paused the mailbox with
    /// `Context::wait`), and then stops. An actor with work to finish returns `Running::Continue` from `stopping` and
    /// stops its context when done; there is no time limit here. Any number of calls may wait.
    pub async fn stop(&self) {
        self.ask_to_stop();
        let ended = |phase: &Phase<A>| matches!(phase, Phase::Ended);
        // This can't fail: `self` holds the sender.
        let _ = self.phase.subscribe().wait_for(ended).await;
    }
}

impl<A: Actor> Supervisor<A> {
    fn ask_to_stop(&self) {
        self.phase.send_modify(|phase| {
            if !matches!(phase, Phase::Ended) {
                *phase = Phase::Stopping;
            }
        });
        self.stop.send_replace(true);
    }
}

impl<A: Actor> Drop for Supervisor<A> {
    fn drop(&mut self) {
        self.ask_to_stop();
    }
}

/// Sends messages to the actor that its supervisor is running.
pub struct Handle<A: Actor> {
    phase: Arc<watch::Sender<Phase<A>>>,
}

impl<A: Actor> Clone for Handle<A> {
    fn clone(&self) -> Self {
        Self { phase: Arc::clone(&self.phase) }
    }
}

impl<A: Actor<Context = Context<A>>> Handle<A> {
    /// Whether an actor can take messages, as far as its supervisor knows.
    pub fn is_running(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Running { .. })
    }

    /// Puts a message into the mailbox without waiting. Its result is dropped.
    ///
    /// The message is lost if the actor panics before it handles it.
    pub fn try_send<M>(&self, message: M) -> Result<(), SendError>
    where
        A: Handler<M>,
        M: Message<Result: Send> + Send + 'static,
        Context<A>: ToEnvelope<A, M>,
    {
        let mailbox = match &*self.phase.borrow() {
            Phase::Running { mailbox, .. } => Arc::clone(mailbox),
            Phase::Restarting => return Err(SendError::Restarting),
            Phase::Stopping | Phase::Ended => return Err(SendError::Closed),
        };
        mailbox.try_send(message, PARK_WHEN_FULL).map_err(|error| match error {
            MailboxError::Full(_) => SendError::Full,
            MailboxError::Closed(_) => SendError::Restarting,
        })
    }

    /// Sends a message and waits for its answer, through restarts of the actor, for at most [`ASK_TIMEOUT`]; a full
    /// mailbox is an error at once.
    ///
    /// If this future is dropped before the actor starts with the message, the message is not handled.
    pub async fn ask<M>(&self, message: M) -> Result<M::Result, AskError>
    where
        A: Handler<M>,
        M: Resend<Result: Send> + Send + 'static,
        Context<A>: ToEnvelope<A, M>,
    {
        within_ask_timeout(async {
            let mut generation = 0;
            loop {
                let answer = self.deliver(message.clone(), &mut generation).await?;
                if let Ok(answer) = answer.await {
                    return Ok(answer);
                }
            }
        })
        .await
    }

    /// As [`ask`](Self::ask), for a message that must not be handled twice: it waits for a running actor, but sends the
    /// message only once.
    pub async fn ask_once<M>(&self, message: M) -> Result<M::Result, AskError>
    where
        A: Handler<M>,
        M: Message<Result: Send> + Send + 'static,
        Context<A>: ToEnvelope<A, M>,
    {
        within_ask_timeout(async {
            let answer = self.deliver(message, &mut 0).await?;
            answer.await.map_err(|_| AskError::Unavailable)
        })
        .await
    }

    /// Waits for the actor of `generation` or a later one, and puts a message into its mailbox. Sets `generation` to
    /// the first one that was not tried.
    async fn deliver<M>(&self, mut message: M, generation: &mut u64) -> Result<oneshot::Receiver<M::Result>, AskError>
    where
        A: Handler<M>,
        M: Message<Result: Send> + Send + 'static,
        Context<A>: ToEnvelope<A, M>,
    {
        loop {
            let mailbox = self.mailbox_since(generation).await?;
            match mailbox.send(message) {
                Ok(answer) => return Ok(answer),
                Err(MailboxError::Full(_)) => return Err(AskError::Overloaded),
                // That actor has just ended, and its supervisor has not noticed yet.
                Err(MailboxError::Closed(unsent)) => message = unsent,
            }
        }
    }

    async fn mailbox_since(&self, generation: &mut u64) -> Result<Arc<AddressSender<A>>, AskError> {
        let mut phases = self.phase.subscribe();
        let settled = phases.wait_for(|phase| match phase {
            Phase::Running { generation: running, .. } => running >= generation,
            Phase::Restarting => false,
            Phase::Stopping | Phase::Ended => true,
        });
        match settled.await.as_deref() {
            Ok(Phase::Running { generation: running, mailbox }) => {
                *generation = running + 1;
                Ok(Arc::clone(mailbox))
            }
            _ => Err(AskError::Unavailable),
        }
    }
}

async fn within_ask_timeout<T>(answered: impl Future<Output = Result<T, AskError>>) -> Result<T, AskError> {
    // Four short waits: if the whole process is suspended, for example with its machine, that uses up one of them, and
    // the actor still has time to answer.
    let timeout = async {
        for _ in 0..4 {
            sleep(ASK_TIMEOUT / 4).await;
        }
    };
    tokio::select! {
        biased;
        answer = answered => answer,
        () = timeout => Err(AskError::Unavailable),
    }
}

/// Runs the actors of one supervisor, one after the other, on their arbiter.
struct Supervision<A: Actor, F> {
    options: SupervisorOptions,
    factory: Arc<F>,
    phase: EndedOnDrop<A>,
    stop_asked: watch::Receiver<bool>,
}

impl<A, F> Supervision<A, F>
where
    A: Actor<Context = Context<A>>,
    F: Fn(&mut Context<A>) -> A + Send + Sync + 'static,
{
    async fn run(mut self, first: AddressReceiver<A>) {
        let mut receiver = first;
        let mut backoff = Backoff::default();
        for generation in 1.. {
            let started = Instant::now();
            let actor = run_actor(Arc::clone(&self.factory), receiver, self.stop_asked.clone());
            // The actor has its own task: a panic ends that task and not this one.
            let panicked = actix::spawn(actor).await.is_err();

            if *self.stop_asked.borrow() {
                return;
            }
            self.phase.enter(Phase::Restarting);
            let pause = backoff.next_pause(started.elapsed());
            (self.options.on_restart)(Restart { actor: self.options.actor, panicked, pause });
            tokio::select! {
                biased;
                _ = self.stop_asked.wait_for(|asked| *asked) => return,
                () = sleep(pause) => {}
            }

            let (mailbox, next_receiver) = channel(self.options.mailbox_capacity.get());
            receiver = next_receiver;
            self.phase.enter(Phase::Running { generation, mailbox: Arc::new(mailbox) });
        }
    }
}

/// Runs one actor until it ends or is stopped.
async fn run_actor<A, F>(factory: Arc<F>, receiver: AddressReceiver<A>, mut stop_asked: watch::Receiver<bool>)
where
    A: Actor<Context = Context<A>>,
    F: Fn(&mut Context<A>) -> A,
{
    let mut context = Context::with_receiver(receiver);
    // actix stops an actor without an address; here only the supervisor decides that.
    let _address: Addr<A> = context.address();
    let actor = factory(&mut context);
    let mut running = TerminatedByPanic(context.into_future(actor));
    tokio::select! {
        // The actor is polled first: when it is stopped, it first handles the messages in its mailbox.
        biased;
        () = &mut running.0 => return,
        _ = stop_asked.wait_for(|asked| *asked) => {}
    }
    running.0.ctx().stop();
    (&mut running.0).await;
}

/// Terminates an actor that is dropped by a panic: actix would otherwise run its `stopping`, and perhaps handlers,
/// during unwinding, where a second panic aborts the process.
struct TerminatedByPanic<A: Actor<Context = Context<A>>>(ContextFut<A, Context<A>>);

impl<A: Actor<Context = Context<A>>> Drop for TerminatedByPanic<A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ctx().terminate();
        }
    }
}

/// Sets the phase to `Ended` however the supervisor's task ends, so that callers don't wait for the timeout.
struct EndedOnDrop<A: Actor>(Arc<watch::Sender<Phase<A>>>);

impl<A: Actor> EndedOnDrop<A> {
    /// Enters a phase, unless the actor is being stopped.
    fn enter(&self, next: Phase<A>) {
        self.0.send_if_modified(|phase| {
            let is_active = matches!(phase, Phase::Running { .. } | Phase::Restarting);
            if is_active {
                *phase = next;
            }
            is_active
        });
    }
}

impl<A: Actor> Drop for EndedOnDrop<A> {
    fn drop(&mut self) {
        self.0.send_replace(Phase::Ended);
    }
}

/// How long to wait before the next restart, so that an actor that ends at once costs little.
#[derive(Debug, Default)]
struct Backoff {
    short_runs: u32,
}

impl Backoff {
    /// The delay before the second of several restarts; it doubles from there.
    const SECOND: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);
    /// An actor that has run for this long is stable: its next restart counts as the first.
    const STABLE: Duration = Duration::from_secs(10);

    /// The delay after an actor that ran for `ran_for`: none after the first short run.
    fn next_pause(&mut self, ran_for: Duration) -> Duration {
        if ran_for >= Self::STABLE {
            self.short_runs = 0;
        }
        let doublings = self.short_runs.checked_sub(1);
        self.short_runs = self.short_runs.saturating_add(1);
        doublings.map_or(Duration::ZERO, |doublings| {
            let factor = 2_u32.saturating_pow(doublings);
            Self::SECOND.saturating_mul(factor).min(Self::LONGEST)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_come_at_once_then_ever_later_until_an_actor_has_run_long() {
        let mut backoff = Backoff::default();
        let mut pause_ms = |ran_for| backoff.next_pause(Duration::from_secs(ran_for)).as_millis();
        let pauses: Vec<_> = (0..8).map(|_| pause_ms(0)).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pause_ms(10), 0);
        assert_eq!(pause_ms(9), 50);
    }
}
