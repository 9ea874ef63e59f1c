//! Delivery of hits to the webhooks of links: which delivery is next, its attempts, and what became of them.

pub mod dispatcher;
mod failures;
mod flow;
mod in_flight;
mod outcomes;
mod poller;
mod preparation;
mod queue;
mod refusals;
mod scheduler;
pub mod sender;
mod standing;
pub mod worker;
