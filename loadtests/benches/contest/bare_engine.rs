//! What a creation writes, on the engine alone: whatever waits goes into one durable commit, by one writer thread.

use std::{
    io::Write,
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use fjall::{KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace};
use loadtests::seed::mix;

/// Creations under way at once.
const IN_FLIGHT: usize = 64;
const CACHE_BYTES: u64 = 128 * 1024 * 1024;

type Id = [u8; 7];

pub struct Engine {
    links: SingleWriterTxKeyspace,
    counters: SingleWriterTxKeyspace,
    db: SingleWriterTxDatabase,
}

struct Create {
    id: Id,
    row: Vec<u8>,
    answer: SyncSender<bool>,
}

impl Engine {
    pub fn open(path: &Path) -> Self {
        let db = SingleWriterTxDatabase::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(256 * 1024 * 1024)
            .worker_threads(4)
            .open()
            .unwrap();
        let options = KeyspaceCreateOptions::default;
        Self { links: db.keyspace("links", options).unwrap(), counters: db.keyspace("counters", options).unwrap(), db }
    }

    /// Creates links from `next` on until `stop`, and answers how long each took.
    pub fn create_links(&self, next: &AtomicU64, stop: &AtomicBool) -> Vec<Duration> {
        let (outbox, inbox) = sync_channel::<Create>(256);
        thread::scope(|scope| {
            scope.spawn(move || self.write_links(&inbox));
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
                            }
                        }
                        latencies
                    })
                })
                .collect();
            drop(outbox);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    }

    /// One transaction for all that waits, then all are answered: whether the id was free.
    fn write_links(&self, inbox: &Receiver<Create>) {
        while let Ok(first) = inbox.recv() {
            let batch: Vec<Create> = std::iter::once(first).chain(inbox.try_iter()).collect();
            let mut free = Vec::with_capacity(batch.len());
            let mut tx = self.db.write_tx().durability(Some(PersistMode::SyncData));
            for create in &batch {
                let is_free = !tx.contains_key(&self.links, create.id).unwrap();
                if is_free {
                    tx.insert(&self.links, create.id, create.row.as_slice());
                    let mut month = *b"key-0000/2026-11";
                    month[4..8].copy_from_slice(&create.row[..4]);
                    let count = tx.get(&self.counters, month).unwrap();
                    let count = count.map_or(0, |row| u64::from_be_bytes(row[..8].try_into().unwrap()));
                    let mut row = [0; 24];
                    row[..8].copy_from_slice(&(count + 1).to_be_bytes());
                    tx.insert(&self.counters, month, row);
                }
                free.push(is_free);
            }
            tx.commit().unwrap();
            for (create, free) in batch.into_iter().zip(free) {
                let _ = create.answer.send(free);
            }
        }
    }
}

/// In random order, as the program's ids are.
fn id(index: u64) -> Id {
    const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = mix(index) % 62u64.pow(7);
    [(); 7].map(|()| {
        let digit = BASE62[(rest % 62) as usize];
        rest /= 62;
        digit
    })
}

/// About 180 bytes that compress as links do: an owner, a time, and a URL with random parts.
fn row(index: u64) -> Vec<u8> {
    let (a, b, c) = (mix(index ^ 1 << 50), mix(index ^ 2 << 50), mix(index ^ 3 << 50));
    let mut row = Vec::with_capacity(192);
    row.extend_from_slice(&mix(a % 5_000).to_be_bytes());
    row.extend_from_slice(&mix(a % 5_000 + 5_000).to_be_bytes());
    row.extend_from_slice(&(1_790_000_000_000 + index).to_be_bytes());
    let _ = write!(
        row,
        "https://shop{}.example.com/catalogue/{b:016x}/item-{}?utm_source=newsletter&utm_medium=email\
         &utm_campaign=autumn-{}&ref={c:016x}&session={:016x}",
        a % 997,
        b % 100_000,
        c % 53,
        b ^ c
    );
    row
}
