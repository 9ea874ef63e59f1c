//! Makes one try of one delivery at a time.

use std::num::NonZeroUsize;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, WrapFuture};

use super::keeper::{Keeper, KeeperOptions, RestartHook};
use super::webhook_desk::{AttemptEnd, AttemptTicket};
use super::webhook_preparation::{Draft, Preparation};
use super::webhook_sender::{SendFailure, WebhookSender};

/// Asks for one try.
pub struct AttemptDelivery {
    pub draft: Draft,
    pub ticket: AttemptTicket,
}

/// The actor. It is given the next try when the last one has ended.
pub struct WebhookWorker {
    sender: WebhookSender,
    preparation: Arc<Preparation>,
}

impl WebhookWorker {
    pub fn start(
        arbiter: &actix::ArbiterHandle,
        sender: WebhookSender,
        preparation: Arc<Preparation>,
        on_restart: &RestartHook,
    ) -> Keeper<Self> {
        let options = KeeperOptions {
            actor: "webhook_worker",
            // One at a time; a second place lets it be handed over while the first is being put away.
            mailbox_capacity: NonZeroUsize::MIN.saturating_add(1),
            on_restart: Arc::clone(on_restart),
        };
        Keeper::start(arbiter, options, move |_| Self { sender: sender.clone(), preparation: Arc::clone(&preparation) })
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
        let AttemptDelivery { draft, mut ticket } = attempt;
        ticket.begin();
        let (sender, preparation) = (self.sender.clone(), Arc::clone(&self.preparation));
        let sending = async move {
            let end = match preparation.request(&draft).await {
                Ok(request) => sender.send(request).await.map_or_else(AttemptEnd::Failed, AttemptEnd::Answered),
                Err(_) => AttemptEnd::Failed(SendFailure::Other),
            };
            ticket.tell(end);
        };
        context.spawn(sending.into_actor(self));
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
