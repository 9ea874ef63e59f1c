//! Durable creations, grouped into one fsynced commit by one writer thread.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    data::{add, id, row},
    engines::{Engine, Id},
};

/// Creations under way at once.
const IN_FLIGHT: usize = 64;

struct Create {
    id: Id,
    row: Vec<u8>,
    answer: SyncSender<bool>,
}

#[derive(Default)]
pub struct Created {
    pub latencies: Vec<Duration>,
    pub commits: u64,
}

/// The group commit: whatever waits goes into one transaction, then all are answered.
fn write_links(engine: &dyn Engine, inbox: &Receiver<Create>) -> u64 {
    let mut commits = 0;
    while let Ok(first) = inbox.recv() {
        let batch: Vec<Create> = std::iter::once(first).chain(inbox.try_iter()).collect();
        let mut free = vec![false; batch.len()];
        engine.commit(&mut |rows| {
            for (create, free) in batch.iter().zip(&mut free) {
                *free = !rows.has_link(&create.id);
                if *free {
                    rows.put_link(&create.id, &create.row);
                    let mut month = *b"key-0000/2026-11";
                    month[4..8].copy_from_slice(&create.row[..4]);
                    add(rows, &month, [1, 0, 0]);
                }
            }
        });
        commits += 1;
        for (create, free) in batch.into_iter().zip(free) {
            let _ = create.answer.send(free);
        }
    }
    commits
}

/// Creates links from `next` on until `stop`; `acknowledged` hears of each.
pub fn create_links(
    engine: &dyn Engine,
    next: &AtomicU64,
    stop: &AtomicBool,
    acknowledged: &(dyn Fn(u64) + Sync),
) -> Created {
    let (outbox, inbox) = sync_channel::<Create>(256);
    thread::scope(|scope| {
        let writer = scope.spawn(move || write_links(engine, &inbox));
        let clients: Vec<_> = (0..IN_FLIGHT)
            .map(|_| {
                let outbox = outbox.clone();
                scope.spawn(move || {
                    let (answer, answered) = sync_channel(1);
                    let mut latencies = Vec::new();
                    while !stop.load(Relaxed) {
                        let index = next.fetch_add(1, Relaxed);
                        let begun = Instant::now();
                        let create = Create { id: id(index), row: row(index), answer: answer.clone() };
                        outbox.send(create).unwrap();
                        if answered.recv().unwrap() {
                            latencies.push(begun.elapsed());
                            acknowledged(index);
                        }
                    }
                    latencies
                })
            })
            .collect();
        drop(outbox);
        let latencies = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        Created { latencies, commits: writer.join().unwrap() }
    })
}
