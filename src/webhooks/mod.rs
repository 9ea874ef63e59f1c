//! Delivery of hits to the webhooks of links: scheduling, attempts and outcomes.

pub mod client;
pub mod connector;
pub mod dispatcher;
mod failures;
mod first_tries;
mod flow;
mod health;
mod in_flight;
mod maps;
mod outcomes;
mod poller;
mod preparation;
mod queue;
mod refusals;
mod scheduler;
pub mod sender;
mod suspended;
mod test_slots;
pub mod tester;
pub mod worker;
