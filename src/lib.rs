//! Signpost: a link shortening service. Short links, redirects, QR codes, click webhooks, API keys, analytics, rate
//! limits and quotas, counted exactly.
//!
//! The binary is in `main.rs`; everything it is made of is here, for it and for the tests. `ARCHITECTURE.md` explains
//! the code.

pub mod actors;
pub mod app;
pub mod cache;
pub mod caller;
pub mod cli;
pub mod clock;
pub mod config;
pub mod counting;
pub mod dns;
pub mod domain;
pub mod feed;
pub mod http;
pub mod journal;
pub mod limits;
pub mod locks;
pub mod memory;
pub mod readiness;
pub mod service;
pub mod store;
pub mod telemetry;
pub mod threads;
mod tls;
pub mod transfer;
pub mod webhooks;
