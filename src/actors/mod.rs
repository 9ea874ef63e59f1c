//! What is owned by an actor: rate windows and quota notes of keys, the counting of hits, the delivery of webhooks. The
//! only user of actix.

pub mod hit_counter;
pub mod keeper;
pub mod key_shard;
mod webhook_desk;
pub mod webhook_dispatcher;
mod webhook_failures;
mod webhook_flow;
mod webhook_hosts;
mod webhook_intake;
mod webhook_ledger;
mod webhook_preparation;
mod webhook_queue;
mod webhook_refusals;
pub mod webhook_sender;
mod webhook_standing;
pub mod webhook_worker;
