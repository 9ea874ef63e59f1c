//! The one way to write rows, and the bound that every row keeps.

use std::ops::Deref;

use fjall::{PersistMode, SingleWriterTxKeyspace as Keyspace, SingleWriterWriteTx, Slice};

use super::engine::{Engine, engine_error};
use super::known_links::NewLink;
use crate::store::StoreError;

/// Bytes of a row, key and value together.
///
/// A power cut may leave any 4 KiB page of the engine's journal unwritten, as zeros. The engine sees that, and drops the
/// unfinished transaction, when the page takes a row's head along. A page that lies wholly within one row is told only by
/// the transaction's checksum, and then the engine refuses to open for good. So no row is as long as a page.
pub const MAX_ROW: usize = 3_900;

/// A transaction of the writing thread. Reads, which it lends from the engine's, see its own changes.
pub struct Transaction<'a> {
    inner: SingleWriterWriteTx<'a>,
    engine: &'a Engine,
    /// Bytes that it adds to the engine's journal.
    bytes: u64,
    new_links: Vec<NewLink>,
}

/// Bytes of a row in the engine's journal besides key and value.
const ROW_HEAD: usize = 21;

impl<'a> Transaction<'a> {
    /// Begins a transaction that is durable once it is committed.
    ///
    /// `fdatasync` is enough for that: it leaves out only what is not needed to read the data back (times, owner, mode),
    /// and a file's size and blocks are needed. The engine allots a new journal its size at once and syncs that file and
    /// its directory before the first use (`fsync`), so nothing else is pending when a transaction is written.
    ///
    /// # Panics
    /// When a panic has unwound through an earlier transaction.
    pub fn begin(engine: &'a Engine) -> Self {
        Self {
            inner: engine.database.write_tx().durability(Some(PersistMode::SyncData)),
            engine,
            bytes: 0,
            new_links: Vec::new(),
        }
    }

    /// Writes a row.
    ///
    /// # Errors
    /// When the row is longer than [`MAX_ROW`]; nothing is written then.
    pub fn insert(
        &mut self,
        keyspace: &Keyspace,
        key: impl Into<Slice>,
        value: impl Into<Slice>,
    ) -> Result<(), StoreError> {
        let (key, value) = (key.into(), value.into());
        let bytes = key.len() + value.len();
        if bytes > MAX_ROW {
            let reason = format!("a new row would have {bytes} bytes, at most {MAX_ROW} are safe");
            return Err(StoreError::Corrupt { table: "new rows", reason });
        }
        self.bytes += (ROW_HEAD + bytes) as u64;
        self.inner.insert(keyspace, key, value);
        Ok(())
    }

    pub fn remove(&mut self, keyspace: &Keyspace, key: impl Into<Slice>) {
        let key = key.into();
        self.bytes += (ROW_HEAD + key.len()) as u64;
        self.inner.remove(keyspace, key);
    }

    /// Has a link known once this is committed, and only then.
    pub fn makes_known(&mut self, link: Option<NewLink>) {
        self.new_links.extend(link);
    }

    pub fn commit(self) -> Result<(), StoreError> {
        self.inner.commit().map_err(|error| engine_error(&error))?;
        self.engine.wrote(self.bytes);
        self.engine.known_links.place(&self.new_links);
        Ok(())
    }
}

/// For reads only: the engine's own `insert` needs a `&mut`, which is not to be had.
impl<'a> Deref for Transaction<'a> {
    type Target = SingleWriterWriteTx<'a>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}
