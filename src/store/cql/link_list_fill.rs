//! Adds the links of 0.1.0 to the lists: one process of all nodes, some links at a time, from where the one before has
//! got to. Doing a part twice changes nothing.
//!
//! A node of 0.1.0 that works again makes links anywhere. Each process that has seen it begins anew once it has
//! stopped.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use scylla::DeserializeRow;
use uuid::Uuid;

use super::cluster::Cluster;
use super::links::CqlLinks;
use super::placed::Placed;
use super::watch::STALE_AFTER;
use crate::clock::uptime;
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::records::links::LinkRow;
use crate::telemetry::log_limit::LogLimit;

/// How often a process that does not add links looks whether they are all there.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Links whose rows are written at once.
const LINKS_AT_ONCE: usize = 8;
/// As many as the statement reads.
const STEP: usize = 500;

/// How far the links are in the lists.
#[derive(Clone, DeserializeRow)]
struct FillRow {
    place: Option<i64>,
    is_done: Option<bool>,
    holder: Option<Uuid>,
    beat: Option<i64>,
}

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FillStep {
    Done,
    /// This process has added some links.
    Moved,
    /// Another process adds them.
    Elsewhere,
}

pub struct LinkListFill {
    links: Arc<CqlLinks>,
    percent: AtomicU8,
    /// Whether a node of 0.1.0 has made links since the links were added.
    is_due_again: AtomicBool,
    /// Another process and its beat, and since when that is unchanged.
    watched: Mutex<Option<(Uuid, i64, Duration)>>,
}

impl LinkListFill {
    pub fn new(links: &Arc<CqlLinks>) -> Self {
        Self {
            links: Arc::clone(links),
            percent: AtomicU8::new(0),
            is_due_again: AtomicBool::new(false),
            watched: Mutex::default(),
        }
    }

    /// How many percent of the links are in the lists.
    pub fn percent(&self) -> u8 {
        self.percent.load(Ordering::Relaxed)
    }

    /// # Errors
    /// While links are not in the lists.
    pub fn check_done(&self) -> Result<(), StoreError> {
        if self.percent() == 100 {
            return Ok(());
        }
        Err(StoreError::Unavailable("links of release 0.1.0 are being added to the lists".into()))
    }

    /// The first step, before this node serves requests. A keyspace with few links has its lists then.
    pub async fn begin(&self) {
        if let Err(error) = self.step().await {
            tracing::debug!(%error, "links are added to the lists later");
        }
    }

    pub(super) async fn fill_loop(fill: Weak<Self>) {
        static LINES: LogLimit = LogLimit::new(Duration::from_mins(1));
        let mut logged = 0;
        while let Some(fill) = fill.upgrade().filter(|fill| fill.cluster().check_open().is_ok()) {
            fill.look_for_old_nodes();
            let percent = fill.percent();
            let step = if percent < 100 { fill.step().await } else { Ok(FillStep::Done) };
            drop(fill);
            match step {
                Ok(FillStep::Done) => {
                    if logged > 0 {
                        tracing::info!("all links are in the lists");
                    }
                    logged = 0;
                }
                Ok(FillStep::Moved) => {
                    if percent / 10 >= logged {
                        logged = percent / 10 + 1;
                        tracing::info!(percent, "links of release 0.1.0 are being added to the lists");
                    }
                    continue;
                }
                Ok(FillStep::Elsewhere) => {}
                Err(error) => {
                    if LINES.admit().is_some() {
                        tracing::warn!(%error, "can't add links of release 0.1.0 to the lists");
                    }
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn look_for_old_nodes(&self) {
        if self.links.feed.takes_old_node_worked() {
            self.is_due_again.store(true, Ordering::Release);
            self.percent.store(0, Ordering::Relaxed);
        }
    }

    fn cluster(&self) -> &Cluster {
        &self.links.cluster
    }

    async fn step(&self) -> Result<FillStep, StoreError> {
        let Cluster { cql, statements, process, .. } = self.cluster();
        let Some(row) = cql.read_one::<FillRow>(&statements.link_list_fill, ()).await? else {
            // Its nodes would make links that are in no list.
            self.links.feed.check_all_nodes_know_changes()?;
            cql.lwt(&statements.begin_link_list_fill, (*process,)).await?;
            self.is_due_again.store(false, Ordering::Release);
            return Box::pin(self.step_of_holder()).await;
        };
        if self.is_due_again.load(Ordering::Acquire) {
            self.links.feed.check_all_nodes_know_changes()?;
            let values = (*process, row.beat.unwrap_or(0) + 1, row.holder, row.beat);
            if !cql.lwt(&statements.restart_link_list_fill, values).await? {
                return Ok(FillStep::Elsewhere);
            }
            self.is_due_again.store(false, Ordering::Release);
            return Box::pin(self.step_of_holder()).await;
        }
        self.note_place(&row);
        if row.is_done == Some(true) {
            return Ok(FillStep::Done);
        }
        if row.holder != Some(*process) {
            if !self.is_gone(&row) {
                return Ok(FillStep::Elsewhere);
            }
            let values = (*process, row.beat.unwrap_or(0) + 1, row.holder, row.beat);
            cql.lwt(&statements.take_link_list_fill, values).await?;
        }
        self.step_of_holder().await
    }

    /// Adds some links if this process is the one that adds them.
    async fn step_of_holder(&self) -> Result<FillStep, StoreError> {
        let Cluster { cql, statements, process, .. } = self.cluster();
        let row = cql.read_one::<FillRow>(&statements.link_list_fill, ()).await?;
        let Some(row) = row.filter(|row| row.holder == Some(*process)) else { return Ok(FillStep::Elsewhere) };
        if row.is_done == Some(true) {
            self.note_place(&row);
            return Ok(FillStep::Done);
        }
        self.links.feed.check_all_nodes_know_changes()?;
        // No partition has the lowest of all tokens.
        let from = row.place.unwrap_or(i64::MIN);
        let found: Vec<Placed<LinkRow>> = cql.read(&statements.links_to_list, (from,)).await?;
        let (is_last, place) = (found.len() < STEP, found.last().map_or(from, |placed| placed.token));
        let adding = found.into_iter().map(|placed| async move {
            match placed.row.into_link() {
                Ok(Some(link)) => self.links.lists.put(&[link]).await,
                Ok(None) => Ok(()),
                // The other links are to be listed all the same.
                Err(error) => {
                    tracing::error!(%error, "can't read a link: it is missing from lists");
                    Ok(())
                }
            }
        });
        stream::iter(adding).buffer_unordered(LINKS_AT_ONCE).try_collect::<()>().await?;
        let values = (place, is_last, row.beat.unwrap_or(0) + 1, *process, row.beat);
        if !cql.lwt(&statements.move_link_list_fill, values).await? {
            return Ok(FillStep::Elsewhere);
        }
        self.note_place(&FillRow { place: Some(place), is_done: Some(is_last), ..row });
        Ok(if is_last { FillStep::Done } else { FillStep::Moved })
    }

    fn note_place(&self, row: &FillRow) {
        let percent = match (row.is_done, row.place) {
            (Some(true), _) => 100,
            (_, None) => 0,
            (_, Some(place)) => {
                // Tokens are evenly distributed.
                let before = i128::from(place) - i128::from(i64::MIN);
                u8::try_from(before * 100 / (1 << 64)).unwrap_or(99).min(99)
            }
        };
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// Whether the process that adds links has stopped: its beat stands still, by the clock of this machine.
    fn is_gone(&self, row: &FillRow) -> bool {
        let Some(holder) = row.holder else { return true };
        let (beat, now) = (row.beat.unwrap_or(0), uptime());
        let mut watched = lock(&self.watched);
        match *watched {
            Some((known, known_beat, since)) if (known, known_beat) == (holder, beat) => {
                now.saturating_sub(since) >= STALE_AFTER
            }
            _ => {
                *watched = Some((holder, beat, now));
                false
            }
        }
    }
}
