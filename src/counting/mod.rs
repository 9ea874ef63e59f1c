//! What is counted of hits: their visitors' devices, referrers and places, added up into rows for the store.

pub mod aggregator;
pub mod enrich;
pub mod places;
