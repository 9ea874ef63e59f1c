//! The client limiter under every interleaving of two threads that `loom` finds. It found two races that eight busy
//! threads did not show.

use std::net::IpAddr;

use loom::sync::Arc;
use loom::thread;

use client::{ClientKey, ClientLimiter};

mod atomics {
    pub use loom::sync::atomic::AtomicU64;

    pub type Table = Box<[AtomicU64]>;

    pub fn zeros(count: usize) -> Table {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    /// The model has no caches.
    pub fn prefetch(_: &AtomicU64) {}
}

// The source of the service, with the atomics of the model.
#[allow(dead_code, reason = "the model asks for less than the service does")]
#[path = "../../../src/limits/client.rs"]
mod client;

const NOW: u64 = 1_795_272_582_028;

fn client_number(number: u32) -> ClientKey {
    ClientKey::from(IpAddr::from(number.to_be_bytes()))
}

/// Two threads send requests of the clients of `plan` into one line of four cells. `used` cells belong to clients whose
/// windows have ended, `live` ones to clients whose windows have just started. Each client of the plan is admitted up
/// to the limit.
fn each_client_gets_its_limit(limit: u32, [used, live]: [u32; 2], plan: [&'static [u32]; 2], preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let limiter = Arc::new(ClientLimiter::new(limit, 4, 1));
        for number in 0..used {
            limiter.admit(client_number(100 + number), NOW - 500_000 - u64::from(number)).unwrap();
        }
        for number in 0..live {
            limiter.admit(client_number(200 + number), NOW + 1).unwrap();
        }
        let send = |limiter: &ClientLimiter, clients: &[u32], now| -> Vec<(u32, bool)> {
            clients.iter().map(|number| (*number, limiter.admit(client_number(*number), now).is_ok())).collect()
        };
        // The clocks of threads differ a little.
        let shared = Arc::clone(&limiter);
        let other = thread::spawn(move || send(&shared, plan[0], NOW + 2));
        let mut answers = send(&limiter, plan[1], NOW);
        answers.extend(other.join().unwrap());
        for client in [1, 2] {
            let asked = answers.iter().filter(|(number, _)| *number == client).count();
            let let_in = answers.iter().filter(|answer| **answer == (client, true)).count();
            assert_eq!(let_in, asked.min(limit as usize), "client {client}");
        }
    });
}

#[test]
fn one_client_from_two_threads_finds_one_free_cell() {
    each_client_gets_its_limit(3, [0, 0], [&[1, 1], &[1, 1]], 3);
}

#[test]
fn one_client_from_two_threads_takes_one_cell_that_is_over() {
    each_client_gets_its_limit(3, [4, 0], [&[1, 1], &[1, 1]], 3);
}

#[test]
fn two_clients_never_share_a_free_cell() {
    each_client_gets_its_limit(1, [0, 0], [&[1, 2], &[2, 1]], 3);
}

#[test]
fn two_clients_never_share_a_cell_that_is_over() {
    each_client_gets_its_limit(1, [4, 0], [&[1, 2], &[2, 1]], 3);
}

#[test]
fn a_look_that_is_out_of_date_empties_no_window() {
    each_client_gets_its_limit(3, [0, 3], [&[1, 1], &[1, 1]], 3);
    each_client_gets_its_limit(1, [1, 3], [&[1, 1], &[1]], 3);
}
