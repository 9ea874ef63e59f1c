//! Look-ups of links, many at once: where they come thick, handing each to a thread of its own would cost more than it does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::engine::Engine;
use super::links;
use crate::domain::link::{Link, ShortId};
use crate::store::StoreError;

/// Threads of the blocking pool that read at once, at the most: a look-up that waits for the disk holds one.
const MAX_READERS: usize = 16;
/// Look-ups that wait for each reader before another one is called.
const FOR_EACH_READER: usize = 8;

type Answer = Result<Option<Link>, StoreError>;

/// What waits to be looked up, and how many readers are at it.
#[derive(Clone, Default)]
pub struct LookUps(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: Vec<(ShortId, oneshot::Sender<Answer>)>,
    readers: usize,
}

impl LookUps {
    /// Looks a link up on the blocking pool.
    pub async fn link(&self, engine: Arc<Engine>, id: ShortId) -> Answer {
        let (sender, answer) = oneshot::channel();
        let needs_reader = {
            let mut queue = self.queue();
            queue.waiting.push((id, sender));
            let needs_reader = queue.readers < MAX_READERS && queue.waiting.len() > queue.readers * FOR_EACH_READER;
            queue.readers += usize::from(needs_reader);
            needs_reader
        };
        if needs_reader {
            let reader = Reader { look_ups: self.clone(), is_counted: true };
            // It ends by itself when nothing waits; whoever waits for an answer waits for it.
            drop(tokio::task::spawn_blocking(move || reader.read(&engine)));
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::Unavailable("a look-up was given up".into())))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while this lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Reader {
    look_ups: LookUps,
    is_counted: bool,
}

impl Reader {
    fn read(mut self, engine: &Engine) {
        while let Some(share) = self.next() {
            for (id, asker) in share {
                // Whoever has gone away needs no answer.
                let _ = asker.send(links::get(engine, id));
            }
        }
    }

    /// This reader's share of what waits, the oldest first; `None` when there is nothing, and then it is no reader any more.
    fn next(&mut self) -> Option<Vec<(ShortId, oneshot::Sender<Answer>)>> {
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

impl Drop for Reader {
    /// A reader that panics takes its share along. Nobody may wait for a reader that is not there.
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
