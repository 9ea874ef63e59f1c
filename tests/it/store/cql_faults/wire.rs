//! The way between a store and the cluster, on which one chosen request goes wrong.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use scylla_proxy::{
    Action, Condition, Node, Proxy, Reaction, RequestFrame, RequestOpcode, RequestReaction, RequestRule, ResponseFrame,
    ResponseOpcode, ResponseReaction, ResponseRule, RunningProxy, ShardAwareness,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::eventually;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never gets to the cluster.
    Lost,
    /// It gets there when the store has long given it up.
    Late,
    /// It is done, and the answer is lost.
    AnswerLost,
    /// It is done, and the answer comes when the store has long given it up.
    AnswerLate,
    /// It is done and answered, and then done and answered once more.
    Twice,
    /// It is done, and the connection ends in place of the answer.
    Cut,
}

impl Fault {
    pub const ALL: [Self; 6] = [Self::Lost, Self::Late, Self::AnswerLost, Self::AnswerLate, Self::Twice, Self::Cut];
}

/// Whether a fault came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    Yes,
    /// Fewer requests were made.
    No,
    /// The request was made, and its answer did not come in time by itself.
    NotAnswered,
}

/// A stream that the driver does not come to use: it takes the lowest that is free.
const NOBODYS_STREAM: i16 = i16::MAX;
/// What may take long on a machine that compiles meanwhile.
const LONG: Duration = Duration::from_secs(20);

/// A proxy in front of a cluster's one node.
pub struct Wire {
    proxy: RunningProxy,
    /// Where the store is to connect to.
    pub address: SocketAddr,
    /// How long what is late takes: longer than the store waits for it.
    late: Duration,
    faults: Faults,
}

/// What tells whether the fault that was asked for has come about.
#[derive(Default)]
struct Faults {
    /// Requests until then, the one that meets it among them.
    number: usize,
    /// Those that were made, where it is an answer that meets it.
    made: Option<Arc<AtomicUsize>>,
    of_requests: Option<UnboundedReceiver<(RequestFrame, Option<u16>)>>,
    of_answers: Option<UnboundedReceiver<(ResponseFrame, Option<u16>)>>,
    /// Whether what was late is there by now.
    arrived: Option<Arc<AtomicBool>>,
}

impl Wire {
    pub async fn to(node: SocketAddr, late: Duration) -> Self {
        // On the node's own address: there the driver looks for the node, at the port on which it first met one.
        let free = TcpListener::bind((node.ip(), 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let proxy = Proxy::new([Node::new(node, address, ShardAwareness::Unaware, None, None)]);
        Self { proxy: proxy.run().await.unwrap(), address, late, faults: Faults::default() }
    }

    /// From now on the request of this number, counted from 1, meets the fault, or its answer does. What the driver asks
    /// for itself does not count.
    pub fn disturb(&mut self, number: usize, fault: Fault) {
        self.faults = Faults { number, ..Faults::default() };
        match fault {
            Fault::Lost => self.disturb_request(number, RequestReaction::drop_frame()),
            Fault::Late => {
                let reaction = self.late_request();
                self.disturb_request(number, reaction);
            }
            Fault::AnswerLost => self.disturb_answer(number, ResponseReaction::drop_frame()),
            Fault::AnswerLate => self.disturb_answer(number, ResponseReaction::delay(self.late)),
            Fault::Cut => self.disturb_answer(number, ResponseReaction::drop_connection()),
            Fault::Twice => {
                let asked = Arc::<Mutex<HashMap<i16, RequestFrame>>>::default();
                let notes = Arc::clone(&asked);
                self.watch_requests(move |request| {
                    notes.lock().unwrap().insert(request.params.stream, request.clone());
                });
                let ask_again = move |answer: ResponseFrame| {
                    let request = asked.lock().unwrap().get(&answer.params.stream).cloned();
                    // One from before the notes began is of the store's own: then it is the driver's question that comes.
                    let options =
                        || RequestFrame::new(answer.params.for_request(), RequestOpcode::Options, Bytes::new());
                    let mut request = request.unwrap_or_else(options);
                    request.params.stream = NOBODYS_STREAM;
                    request
                };
                let again = Action { delay: None, msg_processor: Some(Arc::new(ask_again) as _) };
                let reaction = ResponseReaction { to_sender: Some(again), ..ResponseReaction::noop() };
                self.answers_meet(number, reaction);
            }
        }
    }

    /// From now on the batch of this number, counted from 1, is late, and all after it are lost if `then_lost`.
    pub fn delay_batch(&mut self, number: usize, then_lost: bool) {
        let (met, faults) = unbounded_channel();
        self.faults = Faults { number, of_requests: Some(faults), ..Faults::default() };
        let late = self.late_request().with_feedback_when_performed(met);
        let rest = if then_lost { RequestReaction::drop_frame() } else { RequestReaction::noop() };
        let rules = [(number - 1, RequestReaction::noop()), (1, late), (usize::MAX, rest)];
        let rules = rules.map(|(times, reaction)| RequestRule(first(times, a_batch()), reaction));
        self.proxy.running_nodes[0].change_request_rules(Some(rules.into()));
    }

    /// From now on the answer of this number, counted from 1, and all after it are lost.
    pub fn lose_answers_from(&mut self, number: usize) {
        let rules = [(number - 1, ResponseReaction::noop()), (usize::MAX, ResponseReaction::drop_frame())];
        let rules = rules.map(|(times, reaction)| ResponseRule(first(times, an_answer()), reaction));
        self.proxy.running_nodes[0].change_response_rules(Some(rules.into()));
    }

    /// Waits until what was late is there.
    pub async fn late_has_arrived(&self) {
        let arrived = self.faults.arrived.as_ref().expect("something is late");
        eventually("what was late is there", LONG, async || arrived.load(Ordering::SeqCst).then_some(())).await;
    }

    fn late_request(&mut self) -> RequestReaction {
        let arrived = Arc::new(AtomicBool::new(false));
        self.faults.arrived = Some(Arc::clone(&arrived));
        let pass = move |request| {
            arrived.store(true, Ordering::SeqCst);
            request
        };
        let later = Action { delay: Some(self.late), msg_processor: Some(Arc::new(pass)) };
        RequestReaction { to_addressee: Some(later), ..RequestReaction::noop() }
    }

    /// Everything goes through as it is again. Answers whether the fault came about; what was late is there then.
    pub async fn mend(&mut self) -> Met {
        self.proxy.turn_off_rules();
        let Faults { number, made, of_requests, of_answers, arrived } = std::mem::take(&mut self.faults);
        let came = of_requests.is_some_and(|mut faults| faults.try_recv().is_ok())
            || of_answers.is_some_and(|mut faults| faults.try_recv().is_ok());
        if let (true, Some(arrived)) = (came, arrived) {
            let has_arrived = async || arrived.load(Ordering::SeqCst).then_some(());
            eventually("what was late is there", LONG, has_arrived).await;
        }
        match made {
            _ if came => Met::Yes,
            Some(made) if made.load(Ordering::SeqCst) >= number => Met::NotAnswered,
            _ => Met::No,
        }
    }

    fn disturb_request(&mut self, number: usize, reaction: RequestReaction) {
        let (met, faults) = unbounded_channel();
        self.faults.of_requests = Some(faults);
        let rules = [(number - 1, RequestReaction::noop()), (1, reaction.with_feedback_when_performed(met))];
        let rules = rules.map(|(times, reaction)| RequestRule(first(times, a_request()), reaction));
        self.proxy.running_nodes[0].change_request_rules(Some(rules.into()));
    }

    fn disturb_answer(&mut self, number: usize, reaction: ResponseReaction) {
        self.watch_requests(|_| ());
        self.answers_meet(number, reaction);
    }

    fn answers_meet(&mut self, number: usize, reaction: ResponseReaction) {
        let (met, faults) = unbounded_channel();
        self.faults.of_answers = Some(faults);
        let rules = [(number - 1, ResponseReaction::noop()), (1, reaction.with_feedback_when_performed(met))];
        let rules = rules.map(|(times, reaction)| ResponseRule(first(times, an_answer()), reaction));
        self.proxy.running_nodes[0].change_response_rules(Some(rules.into()));
    }

    /// Counts requests from now on, and shows them to `watch`.
    fn watch_requests(&mut self, watch: impl Fn(&RequestFrame) + Send + Sync + 'static) {
        let made = Arc::<AtomicUsize>::default();
        self.faults.made = Some(Arc::clone(&made));
        let note = move |request: RequestFrame| {
            made.fetch_add(1, Ordering::SeqCst);
            watch(&request);
            request
        };
        let pass = Action { delay: None, msg_processor: Some(Arc::new(note) as _) };
        let reaction = RequestReaction { to_addressee: Some(pass), ..RequestReaction::noop() };
        self.proxy.running_nodes[0].change_request_rules(Some(vec![RequestRule(a_request(), reaction)]));
    }
}

/// Holds for the first so many of those for which `condition` holds.
fn first(times: usize, condition: Condition) -> Condition {
    Condition::And(condition.into(), Condition::TrueForLimitedTimes(times).into())
}

fn a_request() -> Condition {
    let [execute, batch, query] = [RequestOpcode::Execute, RequestOpcode::Batch, RequestOpcode::Query]
        .map(|opcode| Box::new(Condition::RequestOpcode(opcode)));
    not_the_drivers_own(Condition::Or(execute, Condition::Or(batch, query).into()))
}

fn a_batch() -> Condition {
    not_the_drivers_own(Condition::RequestOpcode(RequestOpcode::Batch))
}

fn an_answer() -> Condition {
    let [result, error] =
        [ResponseOpcode::Result, ResponseOpcode::Error].map(|opcode| Box::new(Condition::ResponseOpcode(opcode)));
    not_the_drivers_own(Condition::Or(result, error))
}

/// The driver learns of the cluster over a connection of its own, on which it has itself told of events.
fn not_the_drivers_own(condition: Condition) -> Condition {
    Condition::And(Condition::Not(Condition::ConnectionRegisteredAnyEvent.into()).into(), condition.into())
}
