//! All tables of the store.

use std::sync::Arc;

use fjall::Snapshot;

use super::children::ChildTable;
use super::counts::CountTable;
use super::deliveries::DeliveryTable;
use super::engine::Engine;
use super::hits::HitTable;
use super::key_uses::KeyUseTable;
use super::keys::KeyTable;
use super::link_remains::LinkRemains;
use super::links::LinkTable;
use super::names::NameTable;
use super::once::OnceTable;
use super::usage::UsageTable;

/// The tables, a field each, and the engine that has their rows.
pub struct EmbeddedTables {
    pub names: NameTable,
    pub links: LinkTable,
    pub link_remains: LinkRemains,
    pub once: OnceTable,
    pub usage: UsageTable,
    pub keys: KeyTable,
    pub children: ChildTable,
    pub key_uses: KeyUseTable,
    pub counts: CountTable,
    pub deliveries: DeliveryTable,
    pub hits: HitTable,
    /// Dropped last: it reports that everything is closed.
    pub engine: Arc<Engine>,
}

impl EmbeddedTables {
    pub fn new(engine: Engine) -> Self {
        let usage = UsageTable::new(&engine);
        let keys = KeyTable::new(&engine);
        let counts = CountTable::new(&engine, engine.sheet_days);
        let deliveries = DeliveryTable::new(&engine, &usage);
        Self {
            names: NameTable::new(&engine),
            links: LinkTable::new(&engine, &usage),
            link_remains: LinkRemains::new(&engine, &counts),
            once: OnceTable::new(&engine),
            children: ChildTable::new(&engine, &keys),
            key_uses: KeyUseTable::new(&engine),
            hits: HitTable::new(&engine, &counts, &usage, &deliveries),
            usage,
            keys,
            counts,
            deliveries,
            engine: Arc::new(engine),
        }
    }

    /// The tables of a new or existing store, and a receiver that resolves once they are closed.
    #[cfg(test)]
    pub fn open(directory: &std::path::Path) -> (Self, super::engine::Gone) {
        let (engine, gone) = Engine::open(directory, 1 << 20).unwrap();
        (Self::new(engine), gone)
    }

    /// The rows as they are now.
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshots.take()
    }
}
