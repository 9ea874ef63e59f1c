mod agents;
mod bots;
mod devices;
mod journal;
pub mod mmdb;
mod places;
mod segment_model;
