//! The rules of the service: pure functions and types without I/O, actors or a clock. Time and randomness are
//! arguments.

pub mod agent;
pub mod analytics;
pub mod base62;
pub mod blocked_hosts;
pub mod bots;
pub mod breakdown;
pub mod calendar;
pub mod device;
pub mod failure_run;
pub mod guard;
pub mod hit;
pub mod idempotency;
pub mod key;
pub mod language;
pub mod link;
pub mod live_hit;
pub mod plan;
pub mod qr;
pub mod quarters;
pub mod quota;
pub mod range_end;
pub mod rate_limit;
pub mod referrer;
pub mod reserved;
pub mod retry;
pub mod series;
pub mod signature;
pub mod tally;
pub mod time_zone;
pub mod utm;
pub mod vault;
pub mod webhook;
pub mod webhook_event;
pub mod webhook_url;
pub mod window;
