mod devices;
mod journal;
mod mmdb;
mod places;
mod segment_model;
