//! The same through the product: its store, and for redirects the whole program.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use loadtests::engine::Engine;
use loadtests::product::Product;
use loadtests::program::Program;
use ring::rand::SystemRandom;
use signpost::clock::Clock;
use signpost::domain::breakdown::{Dimension, Sheet, SheetLabel};
use signpost::domain::calendar::Day;
use signpost::domain::hit::{DayHits, DeviceHits, HitBatch, HitSubject, NodeId, Position};
use signpost::domain::key::KeyId;
use signpost::domain::link::{BaseUrl, Link, LinkData, NewLink, ShortId, TargetUrl};
use signpost::domain::quarters::QuarterHits;
use signpost::domain::tally::Tally;
use signpost::store::cql::session::{ScyllaSettings, connect};
use signpost::store::cql::{ScyllaStore, migrate};
use signpost::store::{CountStore, Lifecycle, LinkStore, NewLinks};
use uuid::Uuid;

use super::{Done, IN_FLIGHT};

pub const KEYSPACE: &str = "loadtest";
/// Links of one bulk creation.
const BULK: u32 = 500;
/// Links that redirects ask for, far more than the program's cache holds in this test.
const ASKED_FOR: u32 = 20_000;

pub struct Through {
    store: Arc<ScyllaStore>,
    program: Product,
    owners: Vec<KeyId>,
    clock: Clock,
    links: Vec<ShortId>,
    random: SystemRandom,
    counted: Mutex<u64>,
}

impl Through {
    pub async fn open(program: &Program, engine: &Engine, home: &Path, keys: u8) -> Self {
        let settings = ScyllaSettings::new(engine.nodes().to_vec(), KEYSPACE.to_owned());
        let session = connect(&settings).await.unwrap();
        migrate::migrate(&session, KEYSPACE, engine.replication_factor(), None).await.unwrap();
        let store = Arc::new(ScyllaStore::open(&settings, NodeId(Uuid::now_v7())).await.unwrap());
        // So that next to nothing is answered from memory.
        let no_cache = ("SIGNPOST_CACHE__LINKS".to_owned(), "1".to_owned());
        let settings = engine.settings_of_program(KEYSPACE).into_iter().chain([no_cache]).collect::<Vec<_>>();
        let program = Product::start(program, home, &settings);
        let owners = (0..keys).map(|_| KeyId(Uuid::now_v7())).collect();
        let mut through = Self {
            store,
            program,
            owners,
            clock: Clock::system(),
            links: Vec::new(),
            random: SystemRandom::new(),
            counted: Mutex::new(0),
        };
        through.make_links().await;
        through
    }

    pub fn links(&self) -> &[ShortId] {
        &self.links
    }

    pub async fn close(&self) {
        self.store.close().await;
    }

    async fn make_links(&mut self) {
        let next = AtomicU64::new(0);
        let (this, made) = (&*self, Mutex::new(Vec::new()));
        let worker = async || {
            while next.fetch_add(1, Ordering::Relaxed) < u64::from(ASKED_FOR) {
                let link = this.link();
                let id = link.id;
                this.store.create_link(link, None).await.unwrap();
                made.lock().unwrap().push(id);
            }
        };
        join_all((0..IN_FLIGHT).map(|_| worker())).await;
        self.links = made.into_inner().unwrap();
    }

    fn link(&self) -> Link {
        let base = BaseUrl::new(url::Url::parse("https://sign.example/").unwrap());
        let id = ShortId::generate(&self.random).unwrap();
        let target = format!("https://shop.example.com/autumn/sale/{}?utm_source=mail", id.as_str());
        let target = TargetUrl::parse(&target, &base).unwrap();
        let data = LinkData::from_json_object("{\"campaign\":\"autumn\"}").unwrap();
        let owner = self.owners[usize::from(id.0[0]) % self.owners.len()];
        NewLink { data, ..NewLink::to(target) }.made(id, owner, self.clock.now())
    }

    /// Creations a second.
    pub async fn create(&self, seconds: f64) -> Done {
        let (done, begun) = (AtomicU64::new(0), Instant::now());
        let end = Duration::from_secs_f64(seconds);
        let worker = async || {
            while begun.elapsed() < end {
                self.store.create_link(self.link(), None).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        join_all((0..IN_FLIGHT).map(|_| worker())).await;
        Done::since(begun, done.into_inner())
    }

    /// Creations a second of one client, which waits for each.
    pub async fn create_one_by_one(&self, seconds: f64) -> Done {
        let (mut done, begun, end) = (0_u64, Instant::now(), Duration::from_secs_f64(seconds));
        while begun.elapsed() < end {
            self.store.create_link(self.link(), None).await.unwrap();
            done += 1;
        }
        Done::since(begun, done)
    }

    /// Links a second of one client that makes many at once, each time for one key.
    pub async fn create_in_bulk(&self, seconds: f64) -> Done {
        let (mut done, begun, end) = (0_u64, Instant::now(), Duration::from_secs_f64(seconds));
        while begun.elapsed() < end {
            let links = (0..BULK).map(|_| Link { owner: self.owners[0], ..self.link() }).collect();
            let made = self.store.create_links(NewLinks { links, ..NewLinks::default() }, None).await.unwrap();
            assert!(made.links.iter().all(Result::is_ok));
            done += u64::from(BULK);
        }
        Done::since(begun, done)
    }

    /// Redirects a second of links that are not in the program's cache, each over a connection that is kept.
    pub fn redirect(&self, seconds: f64) -> Done {
        let (next, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..IN_FLIGHT {
                scope.spawn(|| {
                    let mut connection = self.program.connect();
                    while !over.load(Ordering::Relaxed) {
                        let link = self.links[next.fetch_add(1, Ordering::Relaxed) as usize % self.links.len()];
                        connection.hit(link.as_str());
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_secs_f64(seconds));
            over.store(true, Ordering::Relaxed);
        });
        Done::since(begun, done.into_inner())
    }

    /// Counter rows a second at a flush: of links that this process has not counted before, if it is the first of its round.
    pub async fn flush(&self, rows: u32, round: u32) -> Done {
        let from = *self.counted.lock().unwrap();
        let upto = from + u64::from(rows);
        let link = |row: u32| ShortId::parse(&format!("{}{row:06}", char::from(b'c' + round as u8))).unwrap();
        let batch = HitBatch {
            writer: NodeId(self.owners[0].0),
            from: Position(from),
            upto: Position(upto),
            days: (0..rows).map(|row| one_hit(HitSubject::Link(link(row)))).collect(),
            served: Vec::new(),
            deliveries: Vec::new(),
        };
        let begun = Instant::now();
        self.store.apply_hits(Arc::new(batch)).await.unwrap();
        *self.counted.lock().unwrap() = upto;
        Done::since(begun, rows.into())
    }
}

/// A hit with the dimensions that every hit has.
fn one_hit(of: HitSubject) -> DayHits {
    let (hit, none) = (Tally::of_hit(false), Tally::default());
    let (mut quarters, mut sheet) = (QuarterHits::default(), Sheet::default());
    quarters.add(40, hit);
    for dimension in [Dimension::Device, Dimension::Browser, Dimension::Os] {
        sheet.add(dimension, SheetLabel::Code(0), hit);
    }
    for (dimension, text) in [(Dimension::Language, "en-us"), (Dimension::Destination, "default")] {
        sheet.add(dimension, SheetLabel::Text(Arc::from(text)), hit);
    }
    DayHits { of, day: Day(20_000), devices: DeviceHits([hit, none, none]), quarters, sheet }
}
