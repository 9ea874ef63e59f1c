//! The change feed: each life of a node appends the names of the links that it changes, and every node reads the changes
//! of all other lives twice a second.
//!
//! A life appends one group after another: the next one is sent when the one before is acknowledged, and what is sent
//! again keeps its numbers. Readers stop at the first gap. So no entry is passed over. A node begins with the end of each
//! life's changes that it finds at its start: it has cached nothing before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::cluster::{ASK_AGAIN_AFTER, Cluster};
use super::outcome::CqlError;
use super::watch::uptime;
use crate::domain::link::{LinkName, ShortId};
use crate::store::records::columns::short_id;
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
/// Entries in one group: they are written atomically.
const GROUP: usize = 100;
/// Entries that wait to be appended.
const MAX_WAITING: usize = 10_000;

struct WaitingEntry {
    name: LinkName,
    id: ShortId,
    appended: oneshot::Sender<()>,
}

pub struct LinkFeed {
    cluster: Arc<Cluster>,
    /// The number of the last entry that this life has appended.
    last: AtomicI64,
    waiting: Mutex<Vec<WaitingEntry>>,
    added: Notify,
    /// By life: the number of the last entry that was read.
    read: Mutex<HashMap<Uuid, i64>>,
    /// When the changes of all lives were last read, by the clock of [`uptime`], in milliseconds.
    complete_at: AtomicI64,
    has_old_nodes: AtomicBool,
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
            complete_at: AtomicI64::new(millis(uptime())),
            has_old_nodes: AtomicBool::new(false),
            hook: OnceLock::new(),
        }
    }

    /// Makes this life known and finds the ends of all others. Before that, the node must cache no link.
    pub async fn begin(&self) -> Result<(), StoreError> {
        self.renew().await?;
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
            let reason = "a node of release 0.1.0 is running: links can be changed, and created with a slug or options, once it has stopped";
            return Err(StoreError::Unavailable(reason.into()));
        }
        Ok(())
    }

    /// Tells all other nodes that this link changes or has changed. Once it returns, they will read it.
    pub async fn append(&self, name: LinkName, id: ShortId) -> Result<(), StoreError> {
        let (appended, done) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Appends what waits, one group after another.
    pub(super) async fn append_loop(feed: Weak<Self>) {
        loop {
            let Some(feed) = feed.upgrade().filter(|feed| feed.cluster.check_open().is_ok()) else { return };
            let group: Vec<WaitingEntry> = {
                let mut waiting = feed.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let count = waiting.len().min(GROUP);
                waiting.drain(..count).collect()
            };
            if group.is_empty() {
                let _ = tokio::time::timeout(READ_EVERY, feed.added.notified()).await;
                continue;
            }
            feed.append_group(group).await;
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
        loop {
            match self.cluster.cql.write_partition(&self.cluster.statements.put_link_change, rows()).await {
                Ok(()) => break,
                Err(error) if self.cluster.check_open().is_err() => {
                    tracing::debug!(%error, "changes of links are not in the change feed");
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "can't append to the change feed: retrying");
                    tokio::time::sleep(ASK_AGAIN_AFTER).await;
                }
            }
        }
        self.last.fetch_add(i64::try_from(group.len()).unwrap_or(0), Ordering::AcqRel);
        for entry in group {
            // A caller that was cancelled needs no answer.
            let _ = entry.appended.send(());
        }
    }

    /// Reads the changes of other lives.
    pub(super) async fn read_loop(feed: Weak<Self>) {
        let (mut renewed, mut checked) = (uptime(), uptime());
        loop {
            tokio::time::sleep(READ_EVERY).await;
            let Some(feed) = feed.upgrade().filter(|feed| feed.cluster.check_open().is_ok()) else { return };
            let now = uptime();
            if let Err(error) = feed.read_all(now).await {
                tracing::debug!(%error, "can't read the change feed");
            }
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
            // Entries may have expired unread.
            self.report(LinkChange::Unknown);
            self.find_ends().await?;
            self.report(LinkChange::Unknown);
        } else {
            let lives = self.lives().await?;
            for (life, _) in &lives {
                self.read_life(*life).await?;
            }
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            read.retain(|life, _| lives.iter().any(|(there, _)| there == life));
        }
        self.complete_at.store(millis(now), Ordering::Release);
        Ok(())
    }

    async fn read_life(&self, life: Uuid) -> Result<(), StoreError> {
        loop {
            let last = *self.read.lock().unwrap_or_else(PoisonError::into_inner).entry(life).or_insert(0);
            let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
            let rows: Vec<(i64, Option<String>, Option<String>)> =
                cql.read(&statements.link_changes, (life, last)).await?;
            let mut next = last;
            for (seq, name, link) in rows {
                if seq != next + 1 {
                    break;
                }
                next = seq;
                let name = name.as_deref().and_then(LinkName::parse);
                let id = link.as_deref().map(|link| short_id("link_changes", link)).transpose()?;
                if let (Some(name), Some(id)) = (name, id) {
                    self.report(LinkChange::Link { name, id });
                }
            }
            if next == last {
                return Ok(());
            }
            self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(life, next);
        }
    }

    /// Finds the end of each life's changes.
    async fn find_ends(&self) -> Result<(), StoreError> {
        let mut ends = HashMap::new();
        for (life, noted) in self.lives().await? {
            let statement = &self.cluster.statements.last_link_change;
            let last = self.cluster.cql.read_one::<(i64,)>(statement, (life,)).await?;
            ends.insert(life, last.map_or(noted, |(seq,)| seq.max(noted)));
        }
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = ends;
        Ok(())
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
        let has_old_nodes = queues.into_iter().any(|(_, _, holder, ..)| is_old(holder));
        if has_old_nodes != self.has_old_nodes.swap(has_old_nodes, Ordering::AcqRel) {
            let state = if has_old_nodes { "refused while a node of release 0.1.0 is running" } else { "possible" };
            tracing::info!("changes of links are {state}");
        }
        Ok(())
    }

    fn report(&self, change: LinkChange) {
        if let Some(hook) = self.hook.get() {
            hook(change);
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
