//! What the nodes of a service tell each other for live streams of hits.

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;
use super::embedded::EmbeddedStore;
use crate::domain::hit::{HitSubject, NodeId};
use crate::domain::key::KeyId;
use crate::domain::live_hit::LiveEntry;

/// For how many seconds others know of a listener after it was made known. A client may come back within 60 s.
pub const LISTENERS_KEPT_SECONDS: u64 = 90;

/// How far the notes of a life of a node are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotesReadUpto {
    pub life: Uuid,
    pub number: i64,
}

/// Hits that a life of a node has noted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedHits {
    pub node: NodeId,
    pub upto: NotesReadUpto,
    pub entries: Vec<LiveEntry>,
}

/// What live streams need of other nodes. The defaults are for stores of one node, which needs nothing: its hits are in
/// its memory.
#[async_trait]
pub trait HitStreamStore: Send + Sync + 'static {
    /// Tells all nodes that somebody listens to these links and keys here. It is forgotten after
    /// [`LISTENERS_KEPT_SECONDS`].
    async fn note_listeners(&self, to: Vec<HitSubject>) -> Result<(), StoreError> {
        drop(to);
        Ok(())
    }

    /// The links and keys that somebody listens to on any node.
    async fn listened_subjects(&self) -> Result<Vec<HitSubject>, StoreError> {
        Ok(Vec::new())
    }

    /// Notes hits for the streams of all nodes. Those of one life are read in the order in which they were noted, if each
    /// call waits for the one before. After an error they may be noted all the same. They are forgotten after
    /// [`LISTENERS_KEPT_SECONDS`].
    async fn note_live_hits(&self, node: NodeId, entries: Vec<LiveEntry>) -> Result<(), StoreError> {
        drop((node, entries));
        Ok(())
    }

    /// The hits that other lives have noted, after what was read before; in order for each life.
    async fn live_hits(&self, after: Vec<NotesReadUpto>) -> Result<Vec<NotedHits>, StoreError> {
        drop(after);
        Ok(Vec::new())
    }

    /// Publishes how many streams of a key are open on this node. It is forgotten after some seconds.
    async fn share_open_streams(&self, owner: KeyId, open: u32) -> Result<(), StoreError> {
        let _ = (owner, open);
        Ok(())
    }

    /// How many streams of a key are open on other nodes.
    async fn streams_elsewhere(&self, owner: KeyId) -> Result<u32, StoreError> {
        let _ = owner;
        Ok(0)
    }
}

impl HitStreamStore for EmbeddedStore {}
