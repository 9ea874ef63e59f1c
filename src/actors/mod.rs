//! Actors, and what restarts them: rate windows and quota notes of keys, the counting of hits. With `webhooks`, the only user
//! of actix.

pub mod hit_counter;
pub mod key_shard;
pub mod supervisor;
pub mod wake;
