//! Puts links into their lists that are created at the same time by requests of their own: together, because most of their
//! rows are in the same few partitions, and a request with rows of one partition costs hardly more than one row.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::link_batches::LINKS_AT_ONCE;
use super::link_lists::LinkListTables;
use crate::domain::link::{Link, ShortId};
use crate::locks::lock;
use crate::store::StoreError;

/// How long a link waits for those before it, and then for the write that it is in. One whose rows are out of reach delays
/// others no longer, but for the one that writes them.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Writes of gathered links at once. With one, a creation would wait for two: that under way, and its own.
const WRITES_AT_ONCE: usize = 4;

/// Links that wait until those before them are in their lists.
pub(super) struct GatheredLinks {
    /// Each with what tells its creation that its rows are written; dropped if they could not be.
    waiting: Mutex<Vec<(Link, oneshot::Sender<()>)>>,
    /// Whoever has a permit writes the rows of links that wait.
    writing: Semaphore,
}

impl Default for GatheredLinks {
    fn default() -> Self {
        Self { waiting: Mutex::default(), writing: Semaphore::new(WRITES_AT_ONCE) }
    }
}

impl GatheredLinks {
    fn waiting(&self) -> MutexGuard<'_, Vec<(Link, oneshot::Sender<()>)>> {
        lock(&self.waiting)
    }

    fn take_first(&self) -> Vec<(Link, oneshot::Sender<()>)> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(LINKS_AT_ONCE);
        waiting.drain(..count).collect()
    }

    /// Returns whether the link still waited.
    fn give_up(&self, id: ShortId) -> bool {
        let mut waiting = self.waiting();
        let place = waiting.iter().position(|(link, _)| link.id == id);
        place.map(|place| waiting.remove(place)).is_some()
    }
}

impl LinkListTables {
    /// Adds a link to its lists with others that are created now, or alone if that fails: rows of another link may be out of
    /// reach.
    pub(super) async fn put_gathered(&self, link: &Link) -> Result<(), StoreError> {
        if self.put_with_others(link).await { Ok(()) } else { self.put(std::slice::from_ref(link)).await }
    }

    /// Whether the rows of the link were written.
    async fn put_with_others(&self, link: &Link) -> bool {
        let (written, mut is_written) = oneshot::channel();
        self.gathered.waiting().push((link.clone(), written));
        let waited = tokio::time::sleep(LONGEST_WAIT);
        tokio::pin!(waited);
        loop {
            let writing = tokio::select! {
                biased;
                is_written = &mut is_written => return is_written.is_ok(),
                () = &mut waited => {
                    let is_under_way = !self.gathered.give_up(link.id);
                    return is_under_way && in_time(is_written).await;
                }
                writing = self.gathered.writing.acquire() => writing,
            };
            let (links, written): (Vec<_>, Vec<_>) = self.gathered.take_first().into_iter().unzip();
            if links.is_empty() {
                // Another creation writes its rows.
                drop(writing);
                return in_time(is_written).await;
            }
            if self.put(&links).await.is_ok() {
                for written in written {
                    // Nobody waits for a link whose creation has ended with the process.
                    let _ = written.send(());
                }
            }
        }
    }
}

/// Whether a write is done soon. One that takes long may be of a link whose rows are out of reach.
async fn in_time(is_written: oneshot::Receiver<()>) -> bool {
    matches!(tokio::time::timeout(LONGEST_WAIT, is_written).await, Ok(Ok(())))
}
