//! Hits on their way from the redirect to the counters: the journal, and what is made of its records.

pub mod append_log;
pub mod counter;
pub mod enrich;
pub mod format;
pub mod journal;
pub mod keeper;
pub mod pages;
pub mod places;
pub mod reader;
pub mod record;
pub mod recovery;
mod refusal;
pub mod segment;
mod stats;
pub mod urgency;
