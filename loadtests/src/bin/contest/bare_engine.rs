//! The two engines behind what the store needs of one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

pub const CACHE_BYTES: usize = 128 * 1024 * 1024;

pub type Id = [u8; 7];
pub type Counter = [u8; 24];

/// What the store needs of an engine.
pub trait Engine: Send + Sync {
    /// Runs `work` as one transaction that reads its own writes; durable when it returns.
    fn commit(&self, work: &mut dyn FnMut(&mut dyn Rows));
    /// The length of the link's row, outside any transaction.
    fn link(&self, id: &Id) -> Option<usize>;
    /// Waits until work in the background has ended.
    fn settle(&self) {}
}

/// The rows, as a write transaction sees them.
pub trait Rows {
    fn has_link(&mut self, id: &Id) -> bool;
    fn put_link(&mut self, id: &Id, row: &[u8]);
    fn counter(&mut self, key: &[u8]) -> Option<Counter>;
    fn put_counter(&mut self, key: &[u8], value: &Counter);
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Fjall,
    Redb,
    RedbQuickRepair,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Fjall, Self::Redb, Self::RedbQuickRepair];
    /// Those with a database of their own: the two redb kinds differ only in how they commit.
    pub const LOADED: [Self; 2] = [Self::Fjall, Self::Redb];

    pub fn name(self) -> &'static str {
        ["fjall", "redb", "redb quick_repair"][self as usize]
    }

    pub fn path(self, base: &Path) -> PathBuf {
        base.join(if self == Self::Fjall { "fjall" } else { "links.redb" })
    }

    pub fn open(self, base: &Path) -> Box<dyn Engine> {
        match self {
            Self::Fjall => Box::new(Fjall::open(&self.path(base))),
            _ => Box::new(Redb {
                db: Arc::new(Redb::open(&self.path(base))),
                quick_repair: self == Self::RedbQuickRepair,
            }),
        }
    }

    pub fn open_all(base: &Path) -> [Box<dyn Engine>; 3] {
        let db = Arc::new(Redb::open(&Self::Redb.path(base)));
        [
            Self::Fjall.open(base),
            Box::new(Redb { db: Arc::clone(&db), quick_repair: false }),
            Box::new(Redb { db, quick_repair: true }),
        ]
    }
}

struct Fjall {
    links: fjall::SingleWriterTxKeyspace,
    counters: fjall::SingleWriterTxKeyspace,
    db: fjall::SingleWriterTxDatabase,
}

impl Fjall {
    fn open(path: &Path) -> Self {
        let db = fjall::SingleWriterTxDatabase::builder(path)
            .cache_size(CACHE_BYTES as u64)
            .max_journaling_size(256 * 1024 * 1024)
            .worker_threads(4)
            .open()
            .unwrap();
        let options = fjall::KeyspaceCreateOptions::default;
        Self { links: db.keyspace("links", options).unwrap(), counters: db.keyspace("counters", options).unwrap(), db }
    }
}

impl Engine for Fjall {
    fn commit(&self, work: &mut dyn FnMut(&mut dyn Rows)) {
        let tx = self.db.write_tx().durability(Some(fjall::PersistMode::SyncData));
        let mut rows = FjallRows { tx, store: self };
        work(&mut rows);
        rows.tx.commit().unwrap();
    }

    fn link(&self, id: &Id) -> Option<usize> {
        self.links.get(id).unwrap().map(|row| row.len())
    }

    fn settle(&self) {
        let db = self.db.inner();
        let mut quiet = 0;
        while quiet < 20 {
            let busy = db.outstanding_flushes() > 0 || db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            thread::sleep(Duration::from_millis(25));
        }
    }
}

struct FjallRows<'a> {
    tx: fjall::SingleWriterWriteTx<'a>,
    store: &'a Fjall,
}

impl Rows for FjallRows<'_> {
    fn has_link(&mut self, id: &Id) -> bool {
        fjall::Readable::contains_key(&self.tx, &self.store.links, id).unwrap()
    }
    fn put_link(&mut self, id: &Id, row: &[u8]) {
        self.tx.insert(&self.store.links, *id, row);
    }
    fn counter(&mut self, key: &[u8]) -> Option<Counter> {
        let row = fjall::Readable::get(&self.tx, &self.store.counters, key).unwrap();
        row.map(|row| row[..].try_into().unwrap())
    }
    fn put_counter(&mut self, key: &[u8], value: &Counter) {
        self.tx.insert(&self.store.counters, key, *value);
    }
}

const LINKS: redb::TableDefinition<&Id, &[u8]> = redb::TableDefinition::new("links");
const COUNTERS: redb::TableDefinition<&[u8], &Counter> = redb::TableDefinition::new("counters");

struct Redb {
    db: Arc<redb::Database>,
    quick_repair: bool,
}

impl Redb {
    fn open(path: &Path) -> redb::Database {
        redb::Builder::new().set_cache_size(CACHE_BYTES).create(path).unwrap()
    }
}

impl Engine for Redb {
    fn commit(&self, work: &mut dyn FnMut(&mut dyn Rows)) {
        let mut tx = self.db.begin_write().unwrap();
        tx.set_durability(redb::Durability::Immediate).unwrap();
        tx.set_quick_repair(self.quick_repair);
        work(&mut RedbRows { links: tx.open_table(LINKS).unwrap(), counters: tx.open_table(COUNTERS).unwrap() });
        tx.commit().unwrap();
    }

    fn link(&self, id: &Id) -> Option<usize> {
        use redb::ReadableDatabase;
        let links = self.db.begin_read().unwrap().open_table(LINKS).unwrap();
        links.get(id).unwrap().map(|row| row.value().len())
    }
}

struct RedbRows<'a> {
    links: redb::Table<'a, &'static Id, &'static [u8]>,
    counters: redb::Table<'a, &'static [u8], &'static Counter>,
}

impl Rows for RedbRows<'_> {
    fn has_link(&mut self, id: &Id) -> bool {
        redb::ReadableTable::get(&self.links, id).unwrap().is_some()
    }
    fn put_link(&mut self, id: &Id, row: &[u8]) {
        self.links.insert(id, row).unwrap();
    }
    fn counter(&mut self, key: &[u8]) -> Option<Counter> {
        redb::ReadableTable::get(&self.counters, key).unwrap().map(|row| *row.value())
    }
    fn put_counter(&mut self, key: &[u8], value: &Counter) {
        self.counters.insert(key, value).unwrap();
    }
}
