//! Counts hits: determines their visitors' devices, referrers and places, and adds them up into rows for the store.

pub mod aggregator;
pub mod bot_rules_file;
pub mod enrich;
pub mod places;
pub mod profile;
