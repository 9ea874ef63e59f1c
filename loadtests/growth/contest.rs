//! What the contest of redirects has too: the program as a process, and stores that are filled from a file.
#![allow(dead_code, clippy::cast_possible_wrap, reason = "shared with another load test")]

use crate::measure;

#[path = "../contest/head.rs"]
pub mod head;
#[path = "../contest/http.rs"]
pub mod http;
#[path = "../contest/plot.rs"]
pub mod plot;
#[path = "../contest/requests.rs"]
pub mod requests;
#[path = "../contest/seed.rs"]
pub mod seed;
#[path = "../contest/server.rs"]
pub mod server;
#[path = "../contest/signpost.rs"]
pub mod signpost;
#[path = "../contest/way.rs"]
pub mod way;
