//! The webhook worker makes one attempt at a time.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, AsyncContext, Context, Handler, Message, WrapFuture};

use super::in_flight::{AttemptDelivery, AttemptEnd, AttemptWorker};
use super::preparation::{Draft, Preparation};
use super::sender::{SendFailure, WebhookSender};
use crate::actors::supervisor::{Handle, RestartHook, Supervisor, SupervisorOptions};
use crate::telemetry::traces::{Traces, Tried};

/// The actor. It gets the next attempt after the last one has ended.
pub struct WebhookWorker {
    sender: WebhookSender,
    preparation: Arc<Preparation>,
    traces: Option<Arc<Traces>>,
}

impl WebhookWorker {
    pub fn start(
        arbiter: &actix::ArbiterHandle,
        sender: WebhookSender,
        preparation: Arc<Preparation>,
        traces: Option<Arc<Traces>>,
        on_restart: &RestartHook,
    ) -> Supervisor<Self> {
        let options = SupervisorOptions {
            actor: "webhook_worker",
            // One attempt at a time; the second slot lets the next one arrive while the actor cleans up the first.
            mailbox_capacity: NonZeroUsize::MIN.saturating_add(1),
            on_restart: Arc::clone(on_restart),
        };
        Supervisor::start(arbiter, options, move |_| Self {
            sender: sender.clone(),
            preparation: Arc::clone(&preparation),
            traces: traces.clone(),
        })
    }
}

impl Actor for WebhookWorker {
    type Context = Context<Self>;
}

impl AttemptWorker for Handle<WebhookWorker> {
    fn is_running(&self) -> bool {
        Handle::is_running(self)
    }

    fn begin(&self, attempt: AttemptDelivery) {
        // If the worker was lost just now, the ticket reports that no attempt began.
        let _ = self.try_send(attempt);
    }
}

impl Message for AttemptDelivery {
    type Result = ();
}

impl Handler<AttemptDelivery> for WebhookWorker {
    type Result = ();

    fn handle(&mut self, attempt: AttemptDelivery, context: &mut Context<Self>) {
        let AttemptDelivery { draft, mut ticket } = attempt;
        ticket.begin();
        let (sender, preparation, traces) = (self.sender.clone(), Arc::clone(&self.preparation), self.traces.clone());
        let began = Instant::now();
        let sending = async move {
            let end = match preparation.request(&draft).await {
                Ok(request) => sender.send(request).await.map_or_else(AttemptEnd::Failed, AttemptEnd::Answered),
                Err(_) => AttemptEnd::Failed(SendFailure::Other),
            };
            if let Some(traces) = traces {
                export_span(&traces, &draft, end, began);
            }
            ticket.report(end);
        };
        context.spawn(sending.into_actor(self));
    }
}

fn export_span(traces: &Traces, draft: &Draft, end: AttemptEnd, began: Instant) {
    let id = draft.id();
    let (status, error) = match end {
        AttemptEnd::Answered(status) => (Some(status), None),
        AttemptEnd::Failed(SendFailure::Status(status)) => (Some(status), Some(status.to_string())),
        AttemptEnd::Failed(failure) => (None, Some(failure.to_string())),
        AttemptEnd::WorkerLost => (None, None),
    };
    let (host, port) = draft.flow().host.rsplit_once(':').unwrap_or((&draft.flow().host, ""));
    traces.tried(Tried {
        hit: id.hit.id.0.as_u128(),
        host,
        port: port.parse().unwrap_or_default(),
        attempt: draft.attempts_before() + 1,
        url_index: id.url_index,
        status,
        error,
        took: began.elapsed(),
    });
}

/// Makes a worker panic, for tests of the supervisor.
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
