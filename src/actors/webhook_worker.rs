//! Makes one try of one delivery at a time.

use std::num::NonZeroUsize;
use std::sync::Arc;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::sync::mpsc;

use super::keeper::{Keeper, KeeperOptions, RestartHook};
use super::webhook_sender::{SendFailure, SignedRequest, WebhookSender};
use crate::domain::webhook::DeliveryId;

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptEnd {
    Answered(u16),
    Failed(SendFailure),
    /// The worker was lost in the middle. Whether the request went out is not known; it counts as a try.
    WorkerLost,
    /// The worker was lost before it came to the request: no try was made.
    NotBegun,
}

/// A try that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FinishedAttempt {
    pub id: DeliveryId,
    pub end: AttemptEnd,
}

/// Tells how a try ended, also when its worker panics or its mailbox goes: then dropping it tells.
pub struct AttemptTicket {
    finished: mpsc::UnboundedSender<FinishedAttempt>,
    id: DeliveryId,
    begun: bool,
    told: bool,
}

impl AttemptTicket {
    /// `finished` holds at most one entry for each try under way, which the dispatcher bounds.
    pub fn new(finished: mpsc::UnboundedSender<FinishedAttempt>, id: DeliveryId) -> Self {
        Self { finished, id, begun: false, told: false }
    }

    fn tell(&mut self, end: AttemptEnd) {
        self.told = true;
        // Without a dispatcher nobody waits; the delivery is still due in the store.
        let _ = self.finished.send(FinishedAttempt { id: self.id, end });
    }
}

impl Drop for AttemptTicket {
    fn drop(&mut self) {
        if !self.told {
            self.tell(if self.begun { AttemptEnd::WorkerLost } else { AttemptEnd::NotBegun });
        }
    }
}

/// Asks for one try.
pub struct AttemptDelivery {
    pub request: SignedRequest,
    pub ticket: AttemptTicket,
}

/// The actor. The dispatcher gives it the next try when the last one has ended.
pub struct WebhookWorker {
    sender: WebhookSender,
}

impl WebhookWorker {
    pub fn start(arbiter: &actix::ArbiterHandle, sender: WebhookSender, on_restart: &RestartHook) -> Keeper<Self> {
        let options = KeeperOptions {
            actor: "webhook_worker",
            // One at a time; a second place lets the dispatcher hand over while the first is being put away.
            mailbox_capacity: NonZeroUsize::MIN.saturating_add(1),
            on_restart: Arc::clone(on_restart),
        };
        Keeper::start(arbiter, options, move |_| Self { sender: sender.clone() })
    }
}

impl Actor for WebhookWorker {
    type Context = Context<Self>;
}

impl Message for AttemptDelivery {
    type Result = ();
}

impl Handler<AttemptDelivery> for WebhookWorker {
    type Result = ();

    fn handle(&mut self, attempt: AttemptDelivery, context: &mut Context<Self>) {
        let AttemptDelivery { request, mut ticket } = attempt;
        ticket.begun = true;
        let sender = self.sender.clone();
        let sending = async move {
            let end = match sender.send(request).await {
                Ok(status) => AttemptEnd::Answered(status),
                Err(failure) => AttemptEnd::Failed(failure),
            };
            ticket.tell(end);
        };
        context.wait(sending.into_actor(self).map(|(), _, _| ()));
    }
}

/// Makes a worker panic, for tests of the keeper.
#[doc(hidden)]
pub struct PanicWorker;

impl Message for PanicWorker {
    type Result = ();
}

impl Handler<PanicWorker> for WebhookWorker {
    type Result = ();

    fn handle(&mut self, _: PanicWorker, _: &mut Context<Self>) {
        panic!("a test asked this worker to panic");
    }
}
