//! What nodes tell each other for live streams of hits: who listens, and which hits there were.
//!
//! A life of a node writes its rows one after another, with growing numbers; what failed is written again under further
//! numbers. So whoever has read up to a number misses nothing below it: a row that appears later holds what a later row
//! holds, too. All rows expire by themselves.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use uuid::Uuid;

use super::ScyllaStore;
use super::cluster::{AT_ONCE, Cluster};
use super::outcome::CqlError;
use crate::domain::hit::{HitSubject, NodeId};
use crate::domain::key::KeyId;
use crate::domain::live_hit::LiveEntry;
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::hit_streams::{HitStreamStore, NotedHits, NotesReadUpto};
use crate::store::records::live_hits;

/// Entries in one row: at most some 100 KB.
const IN_A_ROW: usize = 200;
/// How often a life that notes hits makes itself known again.
const KNOWN_AGAIN_AFTER: Duration = Duration::from_mins(1);

pub struct HitStreams {
    cluster: Arc<Cluster>,
    /// The number of the last row of this life.
    last: AtomicI64,
    /// When this life made itself known.
    known_at: Mutex<Option<Instant>>,
}

impl HitStreams {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), last: AtomicI64::new(0), known_at: Mutex::default() }
    }

    pub async fn note_listeners(&self, to: Vec<HitSubject>) -> Result<(), StoreError> {
        let (cluster, statement) = (&self.cluster, &self.cluster.statements.put_hit_listener);
        let note = |subject: HitSubject| async move {
            let values = (live_hits::encode_subject(subject), cluster.process);
            Ok(cluster.cql.write(statement, values).await?)
        };
        cluster.all(to, note).await
    }

    pub async fn subjects(&self) -> Result<Vec<HitSubject>, StoreError> {
        let rows: Vec<(Vec<u8>,)> = self.cluster.cql.read(&self.cluster.statements.hit_listeners, ()).await?;
        // A subject that only a later release knows is passed over.
        let mut subjects: Vec<_> =
            rows.iter().filter_map(|(subject,)| live_hits::decode_subject(subject).ok()).collect();
        subjects.dedup();
        Ok(subjects)
    }

    pub async fn note(&self, node: NodeId, entries: Vec<LiveEntry>) -> Result<(), StoreError> {
        let (cluster, statements) = (&self.cluster, &self.cluster.statements);
        if !self.is_known() {
            cluster.cql.write(&statements.put_live_hit_life, (cluster.process,)).await?;
            *lock(&self.known_at) = Some(Instant::now());
        }
        let mut rest = entries.into_iter().peekable();
        while rest.peek().is_some() {
            let row = live_hits::encode(node, rest.by_ref().take(IN_A_ROW).collect())?;
            let number = self.last.fetch_add(1, Ordering::AcqRel) + 1;
            cluster.cql.write(&statements.put_live_hits, (cluster.process, number, row)).await?;
        }
        Ok(())
    }

    fn is_known(&self) -> bool {
        let known_at = lock(&self.known_at);
        known_at.is_some_and(|at| at.elapsed() < KNOWN_AGAIN_AFTER)
    }

    pub async fn noted(&self, after: &[NotesReadUpto]) -> Result<Vec<NotedHits>, StoreError> {
        let lives: Vec<(Uuid,)> = self.cluster.cql.read(&self.cluster.statements.live_hit_lives, ()).await?;
        let others = lives.into_iter().filter(|(life,)| *life != self.cluster.process);
        let reads = others.map(|(life,)| {
            let upto = after.iter().find(|read| read.life == life).map_or(0, |read| read.number);
            self.noted_by(NotesReadUpto { life, number: upto })
        });
        let noted: Vec<Vec<NotedHits>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok(noted.into_iter().flatten().collect())
    }

    async fn noted_by(&self, after: NotesReadUpto) -> Result<Vec<NotedHits>, StoreError> {
        let NotesReadUpto { life, number } = after;
        let rows: Vec<(i64, Option<Vec<u8>>)> =
            self.cluster.cql.read(&self.cluster.statements.live_hits, (life, number)).await?;
        let mut noted = Vec::with_capacity(rows.len());
        for (number, hits) in rows {
            // Rows that only a later release can read are passed over.
            if let Ok((node, entries)) = live_hits::decode(&hits.unwrap_or_default()) {
                noted.push(NotedHits { node, upto: NotesReadUpto { life, number }, entries });
            }
        }
        Ok(noted)
    }

    pub async fn share_open(&self, owner: KeyId, open: u32) -> Result<(), StoreError> {
        let open = i32::try_from(open).unwrap_or(i32::MAX);
        let values = (owner.0, self.cluster.process, open);
        Ok(self.cluster.cql.write(&self.cluster.statements.put_open_hit_streams, values).await?)
    }

    pub async fn open_elsewhere(&self, owner: KeyId) -> Result<u32, StoreError> {
        let rows: Result<Vec<(Uuid, Option<i32>)>, CqlError> =
            self.cluster.cql.read(&self.cluster.statements.open_hit_streams, (owner.0,)).await;
        let others = rows?.into_iter().filter(|(life, _)| *life != self.cluster.process);
        let open = others.map(|(_, open)| u32::try_from(open.unwrap_or(0)).unwrap_or(0));
        Ok(open.fold(0, u32::saturating_add))
    }
}

#[async_trait]
impl HitStreamStore for ScyllaStore {
    async fn note_listeners(&self, to: Vec<HitSubject>) -> Result<(), StoreError> {
        self.open_tables()?.hit_streams.note_listeners(to).await
    }

    async fn listened_subjects(&self) -> Result<Vec<HitSubject>, StoreError> {
        self.open_tables()?.hit_streams.subjects().await
    }

    async fn note_live_hits(&self, node: NodeId, entries: Vec<LiveEntry>) -> Result<(), StoreError> {
        self.open_tables()?.hit_streams.note(node, entries).await
    }

    async fn live_hits(&self, after: Vec<NotesReadUpto>) -> Result<Vec<NotedHits>, StoreError> {
        self.open_tables()?.hit_streams.noted(&after).await
    }

    async fn share_open_streams(&self, owner: KeyId, open: u32) -> Result<(), StoreError> {
        self.open_tables()?.hit_streams.share_open(owner, open).await
    }

    async fn streams_elsewhere(&self, owner: KeyId) -> Result<u32, StoreError> {
        self.open_tables()?.hit_streams.open_elsewhere(owner).await
    }
}
