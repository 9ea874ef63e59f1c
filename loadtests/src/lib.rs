//! What the load tests share: how the program is built, started and asked, load generators, the receiver of webhooks, figures,
//! plots and reports. Each load test is a program of its own, in `../benches`.
//!
//! A failed operation ends the run: `unwrap` is right here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "for measuring programs: they stop at the first fault, and their numbers are small"
)]

pub mod closed_loop;
pub mod engine;
pub mod head;
pub mod home;
pub mod http;
pub mod listeners;
pub mod measure;
pub mod open_loop;
pub mod operator;
pub mod plot;
pub mod product;
pub mod program;
pub mod receiver;
pub mod requests;
pub mod seed;
pub mod server;
pub mod way;
pub mod wrk;
