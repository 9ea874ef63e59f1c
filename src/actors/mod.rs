//! What is owned by an actor: rate windows and quota notes of keys, the counting of hits, the delivery of webhooks. The
//! only user of actix.

pub mod hit_counter;
pub mod keeper;
pub mod key_shard;
pub mod webhook_dispatcher;
mod webhook_preparation;
mod webhook_queue;
pub mod webhook_sender;
pub mod webhook_worker;
