//! A supervisor restarts an actor whenever it ends.
//!
//! actix's own `Supervisor` lives inside the future of its actor, so a panic takes both: the mailbox
//! is closed and stays so. A [`Supervisor`] holds what is needed to make the actor again, and watches
//! its task from outside. State that must outlive a panic is owned by the supervisor's factory (an
//! `Arc` in its closure), and every new actor is given it.
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

/// How long an [`ask`](Handle::ask) waits, restarts of the actor included. A time in which the whole process stands still counts as
/// a quarter of it at most.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// A message that may be handled twice: where an actor ended without answering, the message is sent
/// to the next one, though the first may have acted on it.
pub trait Resend: Message + Clone {}

/// Why a message was not put into the actor's mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// As many messages wait as the mailbox holds. Shed load.
    #[error("the actor's mailbox is full")]
    Full,
    /// The actor has ended and the next one is not there yet. Try again within about a second.
    #[error("the actor is being restarted")]
    Restarting,
    /// The supervisor was told to stop; there will be no next actor.
    #[error("the actor was stopped")]
    Closed,
}

/// Why a question was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// As many messages wait as the mailbox holds; nothing was sent. Shed load.
    #[error("the actor's mailbox is full")]
    Overloaded,
    /// The actor ended or was silent, and no answer came within [`ASK_TIMEOUT`]; or it was stopped
    /// for good. Whether it acted on the message is not known.
    #[error("the actor did not answer")]
    Unavailable,
}

/// One restart, as told to a [`RestartHook`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The name the supervisor was given.
    pub actor: &'static str,
    /// Whether it panicked; otherwise it stopped by itself.
    pub panicked: bool,
    /// How long the supervisor waits before it starts the next one.
    pub pause: Duration,
}

/// Called at every restart, on the actor's arbiter; counts and logs it. It must not panic or block.
pub type RestartHook = Arc<dyn Fn(Restart) + Send + Sync>;

/// What a [`Supervisor`] needs to know besides how to make the actor.
#[derive(Clone)]
pub struct KeeperOptions {
    /// Names the actor's role in metrics and logs.
    pub actor: &'static str,
    /// How many messages may wait.
    pub mailbox_capacity: NonZeroUsize,
    pub on_restart: RestartHook,
}

/// Whether a sender that filled the mailbox is held off until a message has been taken from it;
/// without that the mailbox has no bound at all.
const PARK_WHEN_FULL: bool = true;

/// Where the life of an actor stands.
enum Phase<A: Actor> {
    Running {
        /// Counts the actors made before this one.
        generation: u64,
        mailbox: Arc<AddressSender<A>>,
    },
    Restarting,
    /// The supervisor was told to stop; the actor may still be finishing.
    Stopping,
    Ended,
}

/// Keeps one actor running until it is [stopped](Self::stop) or dropped.
pub struct Supervisor<A: Actor> {
    phase: Arc<watch::Sender<Phase<A>>>,
    stop: watch::Sender<bool>,
}

impl<A: Actor<Context = Context<A>>> Supervisor<A> {
    /// Starts the actor that `factory` makes on `arbiter`, and the next one whenever it ends.
    ///
    /// Messages may be sent at once. Those that wait in the mailbox of an actor that panics are
    /// lost with it; [`Handle::ask`] sends its message again.
    pub fn start<F>(arbiter: &ArbiterHandle, options: KeeperOptions, factory: F) -> Self
    where
        F: Fn(&mut Context<A>) -> A + Send + Sync + 'static,
    {
        let (mailbox, receiver) = channel(options.mailbox_capacity.get());
        let phase = Arc::new(watch::Sender::new(Phase::Running { generation: 0, mailbox: Arc::new(mailbox) }));
        let (stop, stop_asked) = watch::channel(false);
        let life = Life { options, factory: Arc::new(factory), phase: EndedOnDrop(Arc::clone(&phase)), stop_asked };
        // A dead arbiter drops `life` unrun, and with it the phase becomes `Ended`.
        arbiter.spawn_fn(move || {
            actix::spawn(life.keep(receiver));
        });
        Self { phase, stop }
    }

    /// A handle for those who send to the actor.
    pub fn handle(&self) -> Handle<A> {
        Handle { phase: Arc::clone(&self.phase) }
    }

    /// Ends the actor for good, and returns when it is gone.
    ///
    /// It takes no new messages, handles those that wait in its mailbox (unless it has paused the
    /// mailbox with `Context::wait`), and is then told to stop. An actor with work to finish
    /// returns `Running::Continue` from `stopping` and stops its context when done; there is no
    /// time limit here. Any number of calls may wait.
    pub async fn stop(&self) {
        self.ask_to_stop();
        let ended = |phase: &Phase<A>| matches!(phase, Phase::Ended);
        // It can't fail: `self` holds the sender.
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

/// Sends to whichever actor its supervisor has running at the time.
pub struct Handle<A: Actor> {
    phase: Arc<watch::Sender<Phase<A>>>,
}

impl<A: Actor> Clone for Handle<A> {
    fn clone(&self) -> Self {
        Self { phase: Arc::clone(&self.phase) }
    }
}

impl<A: Actor<Context = Context<A>>> Handle<A> {
    /// Whether an actor is there to take messages, as far as its supervisor knows.
    pub fn is_running(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Running { .. })
    }

    /// Puts a message into the mailbox without waiting for anything. Its result is dropped.
    ///
    /// A message that was put there is still lost if the actor panics before it gets to it.
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

    /// Sends a message and waits for its answer, through restarts of the actor, for at most
    /// [`ASK_TIMEOUT`]; a full mailbox is told at once.
    ///
    /// If this future is dropped before the actor gets to the message, it is not handled.
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

    /// As [`ask`](Self::ask), for a message that must not be handled twice: it waits for an actor
    /// to be running, but once sent it is not sent again.
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

    /// Puts a message into the mailbox of the actor of `generation` or a later one, waiting for it
    /// to be made. Leaves in `generation` the first one that has not been tried.
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
                // That actor has just ended, and its supervisor has yet to notice.
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
    // In parts: if the whole process stands still, as with its machine, that takes up one of them, and there is time left for
    // who is asked to answer.
    let patience = async {
        for _ in 0..4 {
            sleep(ASK_TIMEOUT / 4).await;
        }
    };
    tokio::select! {
        biased;
        answer = answered => answer,
        () = patience => Err(AskError::Unavailable),
    }
}

/// The lives of one supervisor's actors, one after the other, on their arbiter.
struct Life<A: Actor, F> {
    options: KeeperOptions,
    factory: Arc<F>,
    phase: EndedOnDrop<A>,
    stop_asked: watch::Receiver<bool>,
}

impl<A, F> Life<A, F>
where
    A: Actor<Context = Context<A>>,
    F: Fn(&mut Context<A>) -> A + Send + Sync + 'static,
{
    async fn keep(mut self, first: AddressReceiver<A>) {
        let mut receiver = first;
        let mut backoff = Backoff::default();
        for generation in 1.. {
            let born = Instant::now();
            let life = live(Arc::clone(&self.factory), receiver, self.stop_asked.clone());
            // A task of its own: a panic ends that task and not this one.
            let panicked = actix::spawn(life).await.is_err();

            if *self.stop_asked.borrow() {
                return;
            }
            self.phase.enter(Phase::Restarting);
            let pause = backoff.next_pause(born.elapsed());
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

/// One life of an actor, until it ends by itself or has been stopped.
async fn live<A, F>(factory: Arc<F>, receiver: AddressReceiver<A>, mut stop_asked: watch::Receiver<bool>)
where
    A: Actor<Context = Context<A>>,
    F: Fn(&mut Context<A>) -> A,
{
    let mut context = Context::with_receiver(receiver);
    // An actor that nobody can send to stops by itself; here only its supervisor decides that.
    let _address: Addr<A> = context.address();
    let actor = factory(&mut context);
    let mut running = TerminatedByPanic(context.into_future(actor));
    tokio::select! {
        // The actor first: when it is asked to stop, it first handles what waits in its mailbox.
        biased;
        () = &mut running.0 => return,
        _ = stop_asked.wait_for(|asked| *asked) => {}
    }
    running.0.ctx().stop();
    (&mut running.0).await;
}

/// Polls a dropped actor no more if it panicked: actix would otherwise run its `stopping`, and
/// perhaps handlers, during unwinding, where a second panic aborts the process.
struct TerminatedByPanic<A: Actor<Context = Context<A>>>(ContextFut<A, Context<A>>);

impl<A: Actor<Context = Context<A>>> Drop for TerminatedByPanic<A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ctx().terminate();
        }
    }
}

/// Says that there will be no more actors, however their supervisor's task ends: those who wait for an
/// answer then need not wait for their time to be up.
struct EndedOnDrop<A: Actor>(Arc<watch::Sender<Phase<A>>>);

impl<A: Actor> EndedOnDrop<A> {
    /// Enters a phase, unless stopping has begun.
    fn enter(&self, next: Phase<A>) {
        self.0.send_if_modified(|phase| {
            let going_on = matches!(phase, Phase::Running { .. } | Phase::Restarting);
            if going_on {
                *phase = next;
            }
            going_on
        });
    }
}

impl<A: Actor> Drop for EndedOnDrop<A> {
    fn drop(&mut self) {
        self.0.send_replace(Phase::Ended);
    }
}

/// How long to wait before the next restart, so that an actor that can't live costs little.
#[derive(Debug, Default)]
struct Backoff {
    short_lives: u32,
}

impl Backoff {
    /// The pause before the second of several restarts; it doubles from there.
    const SECOND: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);
    /// An actor that has lived as long as this is sound: its end is the first again.
    const SOUND: Duration = Duration::from_secs(10);

    /// The pause after an actor that lived for `lived`: none after the first short life.
    fn next_pause(&mut self, lived: Duration) -> Duration {
        if lived >= Self::SOUND {
            self.short_lives = 0;
        }
        let doublings = self.short_lives.checked_sub(1);
        self.short_lives = self.short_lives.saturating_add(1);
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
    fn restarts_come_at_once_then_ever_later_until_an_actor_has_lived() {
        let mut backoff = Backoff::default();
        let mut pause_ms = |lived| backoff.next_pause(Duration::from_secs(lived)).as_millis();
        let pauses: Vec<_> = (0..8).map(|_| pause_ms(0)).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pause_ms(10), 0);
        assert_eq!(pause_ms(9), 50);
    }
}
