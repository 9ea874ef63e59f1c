//! All integration tests, in one binary: it links once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod actors;
mod api;
mod cache;
mod config;
mod dns;
mod domain;
mod faults;
mod formats;
mod fuzz;
mod hits;
mod http;
mod layering;
mod limits;
mod link_upkeep;
mod log_events;
mod memory;
mod notices;
mod process;
mod scripts;
mod security;
mod store;
mod support;
mod transfer;
