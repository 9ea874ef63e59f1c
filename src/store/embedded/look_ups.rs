//! Look-ups of links, in groups: under load, handing each look-up to a thread of its own would cost more than the
//! look-up.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::readers::{LOOK_UP_THREADS, ThreadPool};
use super::tables::EmbeddedTables;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::locks::lock;
use crate::store::StoreError;

/// Waiting look-ups for each reader before another reader is started.
const FOR_EACH_READER: usize = 16;

type FoundLink = Result<Option<Link>, StoreError>;

/// What is looked up.
#[derive(Clone, Copy, Debug)]
pub enum LinkKey {
    /// The link with this name.
    Name(LinkName),
    /// The link with this id.
    Id(ShortId),
    /// A link as it was at a revision.
    Revision(ShortId, Revision),
}

/// The waiting look-ups, and the readers at work.
#[derive(Clone)]
pub struct LookUps {
    queue: Arc<Mutex<LookUpQueue>>,
    pool: ThreadPool,
}

#[derive(Default)]
struct LookUpQueue {
    waiting: Vec<(LinkKey, oneshot::Sender<FoundLink>)>,
    readers: usize,
}

impl LookUps {
    pub fn new(pool: ThreadPool) -> Self {
        Self { queue: Arc::default(), pool }
    }

    /// Looks a link up on a reading thread.
    pub async fn link(&self, tables: Arc<EmbeddedTables>, key: LinkKey) -> FoundLink {
        let (sender, answer) = oneshot::channel();
        let needs_reader = {
            let mut queue = self.queue();
            queue.waiting.push((key, sender));
            let needs_reader = queue.readers < LOOK_UP_THREADS && queue.waiting.len() > queue.readers * FOR_EACH_READER;
            queue.readers += usize::from(needs_reader);
            needs_reader
        };
        if needs_reader {
            let reader = LookUpReader { look_ups: self.clone(), is_counted: true };
            let start = StartOnDrop { reader: Some(reader), tables };
            // First, the other look-ups of this turn of the event loop are queued. That takes fewer starts of readers,
            // and a worker that shares its core with a reader is interrupted less often. It saves a fifth of the CPU
            // time of a redirect that is not in a cache.
            tokio::task::yield_now().await;
            drop(start);
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::Unavailable("a look-up was aborted".into())))
    }

    fn queue(&self) -> MutexGuard<'_, LookUpQueue> {
        lock(&self.queue)
    }
}

/// Starts a reader when it is dropped, also when its caller is cancelled: other callers rely on the reader already.
struct StartOnDrop {
    reader: Option<LookUpReader>,
    tables: Arc<EmbeddedTables>,
}

impl Drop for StartOnDrop {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            let (tables, pool) = (Arc::clone(&self.tables), reader.look_ups.pool.clone());
            // It ends once no look-up waits.
            pool.begin(move || reader.read(&tables));
        }
    }
}

struct LookUpReader {
    look_ups: LookUps,
    is_counted: bool,
}

impl LookUpReader {
    fn read(mut self, tables: &EmbeddedTables) {
        while let Some(share) = self.next() {
            for (key, caller) in share {
                let found = match key {
                    LinkKey::Name(name) => tables.links.get(&name),
                    LinkKey::Id(id) => tables.links.get_by_id(id),
                    LinkKey::Revision(id, revision) => tables.links.get_at(id, revision),
                };
                // A cancelled caller needs no answer.
                let _ = caller.send(found);
            }
        }
    }

    /// This reader's share of the waiting look-ups, the oldest first. `None` when none waits: the reader has ended
    /// then.
    fn next(&mut self) -> Option<Vec<(LinkKey, oneshot::Sender<FoundLink>)>> {
        let mut queue = self.look_ups.queue();
        if queue.waiting.is_empty() {
            queue.readers -= 1;
            self.is_counted = false;
            return None;
        }
        let share = queue.waiting.len().div_ceil(queue.readers);
        Some(queue.waiting.drain(..share).collect())
    }
}

impl Drop for LookUpReader {
    /// A reader that panics drops its share. If it was the last one, the waiting look-ups are dropped too.
    fn drop(&mut self) {
        if self.is_counted {
            let mut queue = self.look_ups.queue();
            queue.readers -= 1;
            if queue.readers == 0 {
                queue.waiting.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::readers::Readers;
    use super::*;

    /// The reader that the first caller starts is not lost with it.
    #[tokio::test]
    async fn callers_are_answered_if_the_caller_that_starts_the_reader_is_cancelled() {
        let directory = tempfile::tempdir().unwrap();
        let tables = Arc::new(EmbeddedTables::open(&directory.path().join("store")).0);
        let readers = Readers::start().unwrap();
        let look_ups = LookUps::new(readers.look_ups().clone());
        let name = LinkKey::Name(LinkName::parse("Abc1234").unwrap());
        let mut first = Box::pin(look_ups.link(Arc::clone(&tables), name));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(look_ups.link(tables, name));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(look_ups.queue().readers, 1);
        drop(first);
        let answer = tokio::time::timeout(Duration::from_secs(10), second).await.expect("an answer");
        assert_eq!(answer.unwrap(), None);
    }
}
