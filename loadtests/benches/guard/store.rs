//! Writes of the embedded store, from the call to the commit, on one thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::{HitBatch, HitId, HitStamp, NodeId, Position};
use signpost::domain::key::KeyId;
use signpost::domain::link::{BaseUrl, Link, NewLink, Revision, ShortId, TargetUrl};
use signpost::domain::webhook::{AttemptOutcome, DeliveryId, NewDelivery};
use signpost::store::embedded::{EmbeddedStore, ManualWriter, Opened};
use signpost::store::{CountStore, DeliveryStore, LinkStore, NewLinks, QuotaClaim, Settlement};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::START;

const LIMIT: Option<u64> = Some(1_000_000);
const CACHE_BYTES: u64 = 16 << 20;
/// Deliveries of one batch of hits, one claim and one write of outcomes.
const TOGETHER: u64 = 64;

/// A store that commits when it is told to.
pub struct Writes {
    store: EmbeddedStore,
    writer: ManualWriter,
    runtime: Runtime,
    _directory: tempfile::TempDir,
}

impl Writes {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let opened = Opened::in_directory(&directory.path().join("store"), CACHE_BYTES).unwrap();
        let (store, writer) = EmbeddedStore::with_manual_writer(opened).unwrap();
        store.keep_first_tries(20_000);
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        Self { store, writer, runtime, _directory: directory }
    }

    /// What `write` answers once it is committed.
    fn committed<'a, F: Future>(&'a mut self, write: impl FnOnce(&'a EmbeddedStore) -> F) -> F::Output {
        let Self { store, writer, runtime, .. } = self;
        let write = write(store);
        runtime.block_on(async {
            let mut write = pin!(write);
            assert!(poll!(&mut write).is_pending());
            assert_eq!(writer.commit(), 1);
            write.await
        })
    }

    fn create(&mut self, links: Vec<Link>) {
        let made = self.committed(|store| store.create_links(NewLinks { links, ..NewLinks::default() }, LIMIT));
        assert!(made.unwrap().links.iter().all(Result::is_ok));
    }
}

fn uuid(n: u64) -> Uuid {
    Uuid::from_u64_pair(0x0194_0000_0000_7000, n)
}

fn owner() -> KeyId {
    KeyId(uuid(1))
}

/// Links of one key, each with a target of its own.
fn links(numbers: std::ops::Range<u32>) -> Vec<Link> {
    let own = BaseUrl::new("https://sign.example".parse().unwrap());
    let link = |n: u32| {
        let target = TargetUrl::parse(&format!("https://example.com/a/page/{n}?with=query"), &own).unwrap();
        let id = ShortId::parse(&format!("{:07}", n * 7_919 % 10_000_000)).unwrap();
        NewLink::to(target).made(id, owner(), START)
    };
    numbers.map(link).collect()
}

/// Links that are created in one call.
pub struct BulkCreation(Writes, Vec<Link>);

impl BulkCreation {
    /// After others like them.
    pub fn ready(count: u32) -> Self {
        let mut writes = Writes::new();
        writes.create(links(0..count));
        Self(writes, links(count..2 * count))
    }

    pub fn create(&mut self) {
        let links = std::mem::take(&mut self.1);
        self.0.create(links);
    }
}

/// Links that get another target, each in a transaction of its own.
pub struct Edits(Writes, Vec<Link>);

impl Edits {
    pub fn ready(count: u32) -> Self {
        let (mut writes, before, other) = (Writes::new(), links(0..count), links(count..2 * count));
        writes.create(before.clone());
        let changed = |(before, other): (Link, Link)| Link {
            target: other.target,
            revision: before.revision.next(),
            updated_at: before.updated_at.plus(Duration::from_mins(1)),
            ..before
        };
        Self(writes, before.into_iter().zip(other).map(changed).collect())
    }

    pub fn write(&mut self) {
        for link in std::mem::take(&mut self.1) {
            self.0.committed(|store| store.update_link(link)).unwrap();
        }
    }
}

/// Deliveries that succeed at their first try: found in a batch of hits, counted in their key's quota, and written down.
pub struct Deliveries(Writes, u64);

impl Deliveries {
    /// After as many.
    pub fn ready(count: u64) -> Self {
        let mut deliveries = Self(Writes::new(), 0);
        deliveries.deliver(count);
        deliveries
    }

    pub fn deliver(&mut self, count: u64) {
        for _ in 0..count / TOGETHER {
            self.deliver_some();
        }
    }

    fn deliver_some(&mut self) {
        let (from, upto) = (self.1, self.1 + TOGETHER);
        let link = ShortId::parse("AbCdEf1").unwrap();
        let at = |n: u64| Timestamp(START.0 + n);
        let delivery = |n: u64| NewDelivery {
            id: DeliveryId { link, hit: HitStamp { id: HitId(uuid(n)), at: at(n) }, url_index: 0 },
            owner: owner(),
            revision: Revision::FIRST,
            bot: None,
        };
        let batch = HitBatch {
            writer: NodeId(uuid(1)),
            from: Position(from),
            upto: Position(upto),
            days: Vec::new(),
            served: Vec::new(),
            deliveries: (from..upto).map(delivery).collect(),
        };
        self.0.committed(|store| store.apply_hits(Arc::new(batch))).unwrap();
        let found = self.0.store.take_first_tries();
        assert_eq!(found.len() as u64, TOGETHER);
        let claim = |id: DeliveryId| QuotaClaim { id, round: 0, month: START.month(), limit: LIMIT };
        let claims = found.iter().map(|due| claim(due.id)).collect();
        let granted = self.0.committed(|store| store.claim_delivery_quota(claims)).unwrap();
        assert!(granted.into_iter().all(|granted| granted));
        let outcome = |id: DeliveryId| Settlement {
            id,
            round: 0,
            attempt: 1,
            outcome: AttemptOutcome::Delivered { response_status: 200 },
            at: at(upto),
        };
        let outcomes = found.iter().map(|due| outcome(due.id)).collect();
        self.0.committed(|store| store.settle_deliveries(outcomes)).unwrap();
        self.1 = upto;
    }
}
