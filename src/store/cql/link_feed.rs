//! The change feed: each life of a node appends the names of the links that it changes, and every node reads the changes
//! of all other lives twice a second.
//!
//! A life appends one group after another: the next one is sent when the one before is acknowledged, and what is sent
//! again keeps its numbers. Readers stop at the first gap. So no entry is passed over. A node begins with the end of each
//! life's changes that it finds at its start: it has cached nothing before.
//!
//! A gap that stays is of entries that have expired: then all that the node knows may be out of date.
//!
//! Before a node takes over the queue of a life that has ended, it appends the last changes of that life again: an LWT that
//! the life had sent may have been applied after its entry was read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::cluster::{ASK_AGAIN_AFTER, AT_ONCE, Cluster};
use super::outcome::CqlError;
use crate::clock::uptime;
use crate::domain::link::{LinkName, ShortId};
use crate::locks::lock;
use crate::store::{LinkChange, LinkChangeHook, StoreError};

/// What this release can do with links: 1 is to change them.
const LEVEL: i32 = 1;
/// How often the changes of other lives are read.
const READ_EVERY: Duration = Duration::from_millis(500);
/// How often the row of this life is written: its time to live is 2 h.
const RENEW_EVERY: Duration = Duration::from_mins(10);
/// How often it is checked that all nodes know of changes.
const CHECK_EVERY: Duration = Duration::from_secs(3);
/// A node that has read no changes for so long forgets all links.
const FORGET_AFTER: Duration = Duration::from_mins(30);
/// How long a gap in the changes of a life may stay: what was acknowledged is readable at once.
const GAP_STAYS: Duration = Duration::from_secs(5);
/// Entries in one group: they are written atomically.
const GROUP: usize = 100;
/// The last entries of a life that has ended, behind whose changes an LWT may still be under way.
const MOST_UNSETTLED: i64 = 1_000;
/// Entries that wait to be appended.
const MAX_WAITING: usize = 10_000;

struct WaitingEntry {
    name: LinkName,
    id: ShortId,
    appended: oneshot::Sender<()>,
}

/// How far the changes of a life are read.
#[derive(Clone, Copy, Default)]
struct ReadUpto {
    /// The number of the last entry that was read.
    last: i64,
    /// Since when the next one is missing though there are later ones.
    gap_since: Option<Duration>,
}

pub struct LinkFeed {
    cluster: Arc<Cluster>,
    /// The number of the last entry that this life has appended.
    last: AtomicI64,
    waiting: Mutex<Vec<WaitingEntry>>,
    added: Notify,
    /// How far the changes of each other life are read.
    read: Mutex<HashMap<Uuid, ReadUpto>>,
    /// Whether a change of this life may be applied later.
    has_unsettled: AtomicBool,
    /// When the changes of all lives were last read, by the clock of [`uptime`], in milliseconds.
    complete_at: AtomicI64,
    has_old_nodes: AtomicBool,
    /// The queues of processes of 0.1.0 with their beats when they were last looked at.
    old_beats: Mutex<HashMap<Uuid, i64>>,
    old_node_works: AtomicBool,
    hook: OnceLock<LinkChangeHook>,
}

impl LinkFeed {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            last: AtomicI64::new(0),
            waiting: Mutex::default(),
            added: Notify::new(),
            read: Mutex::default(),
            has_unsettled: AtomicBool::new(false),
            complete_at: AtomicI64::new(millis(uptime())),
            has_old_nodes: AtomicBool::new(false),
            old_beats: Mutex::default(),
            old_node_works: AtomicBool::new(false),
            hook: OnceLock::new(),
        }
    }

    /// Makes this life known. A process that has a queue and is not known counts as one of 0.1.0.
    pub async fn make_known(&self) -> Result<(), StoreError> {
        Ok(self.renew().await?)
    }

    /// Finds the ends of all other lives' changes. Before that, the node must cache no link.
    pub async fn begin(&self) -> Result<(), StoreError> {
        self.check_levels().await?;
        self.find_ends().await
    }

    pub fn set_hook(&self, hook: LinkChangeHook) {
        // There is one cache.
        let _ = self.hook.set(hook);
    }

    /// How long ago all changes of other nodes were known.
    pub fn age(&self) -> Duration {
        let age = millis(uptime()) - self.complete_at.load(Ordering::Acquire);
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }

    /// # Errors
    /// While a node of a release is alive that knows no changes.
    pub fn check_all_nodes_know_changes(&self) -> Result<(), StoreError> {
        if self.has_old_nodes.load(Ordering::Acquire) {
            let reason = "a node of release 0.1.0 is running: links can be changed, and created with a slug or options, and deliveries replayed, once it has stopped";
            return Err(StoreError::Unavailable(reason.into()));
        }
        Ok(())
    }

    /// Whether a node of 0.1.0 was at work since this was asked last. It makes links that are in no list.
    pub fn takes_old_node_worked(&self) -> bool {
        self.old_node_works.swap(false, Ordering::AcqRel)
    }

    /// Tells all other nodes that this link changes or has changed. Once it returns, they will read it.
    pub async fn append(&self, name: LinkName, id: ShortId) -> Result<(), StoreError> {
        let (appended, done) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.len() >= MAX_WAITING {
                return Err(StoreError::Unavailable("too many changes of links are under way".into()));
            }
            waiting.push(WaitingEntry { name, id, appended });
        }
        self.added.notify_one();
        let unavailable = |reason: &str| StoreError::Unavailable(reason.into());
        match tokio::time::timeout(self.cluster.cql.patience(), done).await {
            Ok(appended) => appended.map_err(|_| unavailable("the change feed was stopped")),
            Err(_) => Err(unavailable("the cluster did not take the change feed's entry in time")),
        }
    }

    /// Appends what waits, one group after another. It ends with the store: changes that are under way while it closes
    /// are appended too.
    pub(super) async fn append_loop(feed: Weak<Self>) {
        while let Some(feed) = feed.upgrade() {
            let group: Vec<WaitingEntry> = {
                let mut waiting = lock(&feed.waiting);
                let count = waiting.len().min(GROUP);
                waiting.drain(..count).collect()
            };
            if group.is_empty() {
                let _ = tokio::time::timeout(READ_EVERY, feed.added.notified()).await;
            } else {
                feed.append_group(group).await;
            }
        }
    }

    /// Sends a group until it is acknowledged: a later one must not be readable before it.
    async fn append_group(&self, group: Vec<WaitingEntry>) {
        let first = self.last.load(Ordering::Acquire) + 1;
        let life = self.cluster.process;
        let rows = || {
            let row = |(seq, entry): (i64, &WaitingEntry)| (life, seq, entry.name.to_string(), entry.id.to_string());
            (first..).zip(&group).map(row).collect::<Vec<_>>()
        };
        while let Err(error) = self.cluster.cql.write_partition(&self.cluster.statements.put_link_change, rows()).await
        {
            tracing::debug!(%error, "can't append to the change feed: retrying");
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
        self.last.fetch_add(i64::try_from(group.len()).unwrap_or(0), Ordering::AcqRel);
        for entry in group {
            // A caller that was cancelled needs no answer.
            let _ = entry.appended.send(());
        }
    }

    /// A change of this life is given up though it may be applied later: another node has to append it again.
    pub fn leave_unsettled(&self) {
        self.has_unsettled.store(true, Ordering::Release);
    }

    pub fn has_unsettled(&self) -> bool {
        self.has_unsettled.load(Ordering::Acquire)
    }

    /// Appends the last changes of a life that has ended. Two nodes that do so do no harm.
    pub async fn append_again(&self, life: Uuid) -> Result<(), StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let lives = self.lives().await?;
        // A life whose row has expired has made no change for long.
        let Some((_, noted)) = lives.into_iter().find(|(there, _)| *there == life) else { return Ok(()) };
        // Older entries have expired, most of them: an engine refuses to read over too many that have.
        let values = (life, noted - MOST_UNSETTLED);
        let rows: Vec<(Option<String>, Option<String>)> = cql.read(&statements.recent_link_changes, values).await?;
        let mut links = HashMap::new();
        for (name, link) in rows {
            if let Some((name, id)) = entry_of(name, link) {
                links.insert(id, name);
            }
        }
        let again = stream::iter(links).map(|(id, name)| async move {
            // An LWT that has begun is completed by this read, or will not be.
            cql.read_one::<(Option<Uuid>, Option<i64>, Option<Vec<Uuid>>)>(&statements.link_edits, (id.as_str(),))
                .await?;
            self.append(name, id).await?;
            self.report_here(name, id);
            Ok(())
        });
        again.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Reads the changes of other lives.
    pub(super) async fn read_loop(feed: Weak<Self>) {
        loop {
            tokio::time::sleep(READ_EVERY).await;
            let Some(feed) = feed.upgrade().filter(|feed| feed.cluster.check_open().is_ok()) else { return };
            if let Err(error) = feed.read_all(uptime()).await {
                tracing::debug!(%error, "can't read the change feed");
            }
        }
    }

    /// Renews the row of this life, and checks those of others. It is separate, so that reading changes never waits for it.
    pub(super) async fn level_loop(feed: Weak<Self>) {
        let (mut renewed, mut checked) = (uptime(), uptime());
        loop {
            tokio::time::sleep(READ_EVERY).await;
            let Some(feed) = feed.upgrade().filter(|feed| feed.cluster.check_open().is_ok()) else { return };
            let now = uptime();
            if now.saturating_sub(renewed) >= RENEW_EVERY && feed.renew().await.is_ok() {
                renewed = now;
            }
            if now.saturating_sub(checked) >= CHECK_EVERY && feed.check_levels().await.is_ok() {
                checked = now;
            }
        }
    }

    async fn read_all(&self, now: Duration) -> Result<(), StoreError> {
        if self.age() >= FORGET_AFTER {
            // Entries may have expired unread. What was cached before the ends are found is forgotten after that.
            self.find_ends().await?;
            self.report(LinkChange::Unknown);
        } else {
            let lives = self.lives().await?;
            // One life that can't be read does not keep others from being read.
            let read = join_all(lives.iter().map(|(life, noted)| self.read_life(*life, *noted, now))).await;
            self.read_upto().retain(|life, _| lives.iter().any(|(there, _)| there == life));
            read.into_iter().collect::<Result<Vec<()>, _>>()?;
        }
        self.complete_at.store(millis(now), Ordering::Release);
        Ok(())
    }

    /// Reads the changes of a life, of which `noted` had been made when its row was written.
    async fn read_life(&self, life: Uuid, noted: i64, now: Duration) -> Result<(), StoreError> {
        loop {
            let ReadUpto { last, gap_since } = *self.read_upto().entry(life).or_default();
            let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
            let rows: Vec<(i64, Option<String>, Option<String>)> =
                cql.read(&statements.link_changes, (life, last)).await?;
            let (mut next, mut highest) = (last, noted);
            for (seq, name, link) in rows {
                highest = highest.max(seq);
                if seq != next + 1 {
                    break;
                }
                next = seq;
                if let Some((name, id)) = entry_of(name, link) {
                    self.report(LinkChange::Link { name, id });
                }
            }
            if next > last {
                self.read_upto().insert(life, ReadUpto { last: next, gap_since: None });
                continue;
            }
            if highest <= last {
                return Ok(());
            }
            let since = gap_since.unwrap_or(now);
            if now.saturating_sub(since) < GAP_STAYS {
                self.read_upto().insert(life, ReadUpto { last, gap_since: Some(since) });
                return Err(StoreError::Unavailable("an entry of the change feed is missing".into()));
            }
            tracing::warn!(%life, last, "entries of the change feed are missing: all cached links are forgotten");
            let end = self.end_of(life, highest).await?;
            self.read_upto().insert(life, ReadUpto { last: end, gap_since: None });
            self.report(LinkChange::Unknown);
            return Ok(());
        }
    }

    fn read_upto(&self) -> MutexGuard<'_, HashMap<Uuid, ReadUpto>> {
        lock(&self.read)
    }

    /// Finds the end of each life's changes.
    async fn find_ends(&self) -> Result<(), StoreError> {
        let ends = self.lives().await?.into_iter().map(|(life, noted)| async move {
            let last = self.end_of(life, noted).await?;
            Ok::<_, StoreError>((life, ReadUpto { last, gap_since: None }))
        });
        let ends = try_join_all(ends).await?.into_iter().collect();
        *self.read_upto() = ends;
        Ok(())
    }

    /// The number of a life's last entry, at least `noted`.
    async fn end_of(&self, life: Uuid, noted: i64) -> Result<i64, CqlError> {
        let statement = &self.cluster.statements.last_link_change;
        // Only those behind `noted`, none of which has expired: an engine refuses to read over too many that have.
        let last = self.cluster.cql.read_one::<(i64,)>(statement, (life, noted)).await?;
        Ok(last.map_or(noted, |(seq,)| seq))
    }

    /// The other lives, with the numbers of their last changes when they were noted.
    async fn lives(&self) -> Result<Vec<(Uuid, i64)>, CqlError> {
        let rows: Vec<(Uuid, Option<i32>, Option<i64>)> =
            self.cluster.cql.read(&self.cluster.statements.lives, ()).await?;
        let others = rows.into_iter().filter(|(life, ..)| *life != self.cluster.process);
        Ok(others.map(|(life, _, seq)| (life, seq.unwrap_or(0))).collect())
    }

    async fn renew(&self) -> Result<(), CqlError> {
        let values = (self.cluster.process, LEVEL, self.last.load(Ordering::Acquire));
        self.cluster.cql.write(&self.cluster.statements.put_life, values).await
    }

    /// Looks whether there are processes that have a queue and no life: they are of 0.1.0.
    async fn check_levels(&self) -> Result<(), CqlError> {
        let queues: Vec<(Uuid, Uuid, Uuid, Uuid, i64, i64)> =
            self.cluster.cql.read(&self.cluster.statements.queues, ()).await?;
        let lives = self.lives().await?;
        let is_old = |holder: Uuid| {
            !holder.is_nil() && holder != self.cluster.process && !lives.iter().any(|(life, _)| *life == holder)
        };
        let old: HashMap<Uuid, i64> = queues
            .into_iter()
            .filter(|(_, _, holder, ..)| is_old(*holder))
            .map(|(queue, _, _, _, beat, _)| (queue, beat))
            .collect();
        let has_old_nodes = !old.is_empty();
        self.note_beats(old);
        if has_old_nodes != self.has_old_nodes.swap(has_old_nodes, Ordering::AcqRel) {
            let state = if has_old_nodes { "refused while a node of release 0.1.0 is running" } else { "possible" };
            tracing::info!("changes of links are {state}");
        }
        Ok(())
    }

    /// Notes the beats of processes without a life. One whose beat moves is at work; others may have ended hours ago, and
    /// their lives have expired since.
    fn note_beats(&self, old: HashMap<Uuid, i64>) {
        let mut known = lock(&self.old_beats);
        if old.iter().any(|(queue, beat)| known.get(queue).is_some_and(|before| before != beat)) {
            self.old_node_works.store(true, Ordering::Release);
        }
        *known = old;
    }

    /// Reports a change of this node that the caller was not told of.
    pub fn report_here(&self, name: LinkName, id: ShortId) {
        self.report(LinkChange::Link { name, id });
    }

    fn report(&self, change: LinkChange) {
        if let Some(hook) = self.hook.get() {
            hook(change);
        }
    }
}

/// The link of an entry; `None` for one that a later release has written.
fn entry_of(name: Option<String>, link: Option<String>) -> Option<(LinkName, ShortId)> {
    name.and_then(|name| LinkName::of_form(&name)).zip(link.and_then(|link| ShortId::parse(&link)))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
