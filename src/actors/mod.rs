//! Actors and their supervisor: the rate windows and quota notes of keys, and the counting of hits. Only this part and
//! `webhooks` use actix.

pub mod hit_counter;
pub mod key_shard;
pub mod supervisor;
pub mod wake;
