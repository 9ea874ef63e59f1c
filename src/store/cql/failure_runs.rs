//! Failed deliveries in a row of each URL, and which URLs are suspended for them.
//!
//! A row is changed by LWT. A delivery is counted before its outcome is written, so that no crash and no lost answer
//! leaves it out. The row has the deliveries that were counted last, so that none is counted twice. Outcomes of a URL
//! whose row can't be changed are not written; those of others are.
//!
//! A row counts only as long as its link has the revision in it: a change of the link begins anew, on all nodes at
//! once.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use futures_util::{StreamExt, stream};
use scylla::DeserializeRow;
use uuid::Uuid;

use super::ScyllaStore;
use super::cluster::{AT_ONCE, Cluster};
use super::outcome::CqlError;
use super::pause::Pause;
use crate::domain::failure_run::{DeliveryEnd, FailureRun};
use crate::domain::link::{Revision, ShortId};
use crate::store::records::failure_runs::{self as records, CountedDeliveries};
use crate::store::suspensions::LinkUrl;
use crate::store::{StoreError, Suspension, SuspensionRule, SuspensionStore};

/// How long a row without a suspension is kept after its last failure: as long as deliveries.
const KEPT_SECONDS: i32 = 32 * 86_400;

#[derive(DeserializeRow)]
struct RunRow {
    claim: Option<Uuid>,
    revision: Option<i64>,
    run: Option<String>,
    counted: Option<Vec<u8>>,
}

impl RunRow {
    /// The run, if it is of this revision of the link.
    fn run(&self, revision: i64) -> Option<FailureRun> {
        self.run.as_deref().filter(|_| self.revision == Some(revision)).and_then(read_if_sound)
    }
}

/// A row of a link: its place, revision and run.
type LinkRunRow = (i16, Option<Uuid>, Option<i64>, Option<String>);

/// Treats an unreadable run as missing: it must not block the outcomes of deliveries.
fn read_if_sound(run: &str) -> Option<FailureRun> {
    records::from_json(run)
        .inspect_err(|error| tracing::error!(%error, "skipped an unreadable count of failed deliveries"))
        .ok()
}

fn too_many_writers() -> StoreError {
    StoreError::Unavailable("other nodes count failed deliveries of the same webhook".into())
}

/// URLs whose deliveries' ends could not be counted, and why.
#[derive(Default)]
pub struct Uncounted(HashMap<LinkUrl, StoreError>);

impl Uncounted {
    /// Whether the end of a delivery is not counted.
    pub fn has(&self, end: &DeliveryEnd) -> bool {
        self.0.contains_key(&(end.id.link, end.id.url_index))
    }

    pub fn into_result(self) -> Result<(), StoreError> {
        self.0.into_values().next().map_or(Ok(()), Err)
    }
}

/// The table, and when URLs are suspended.
pub struct FailureRuns {
    cluster: Arc<Cluster>,
    rule: OnceLock<SuspensionRule>,
}

impl FailureRuns {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), rule: OnceLock::new() }
    }

    /// Counts the ends of deliveries. They may be counted already. Returns those that are not.
    pub async fn note(&self, ends: impl Iterator<Item = DeliveryEnd>) -> Uncounted {
        let Some(rule) = self.rule.get() else { return Uncounted::default() };
        let mut by_url: HashMap<LinkUrl, Vec<DeliveryEnd>> = HashMap::new();
        for end in ends {
            by_url.entry((end.id.link, end.id.url_index)).or_default().push(end);
        }
        let noted = by_url.into_iter().map(|(url, ends)| async move {
            let noted = self.note_of_url(rule, url, ends).await;
            noted.err().map(|error| (url, error))
        });
        Uncounted(stream::iter(noted).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await)
    }

    async fn note_of_url(&self, rule: &SuspensionRule, url: LinkUrl, ends: Vec<DeliveryEnd>) -> Result<(), StoreError> {
        let mut pause = Pause::within(self.cluster.cql.patience());
        loop {
            let row = self.read(url).await?;
            if row.is_none() && ends.iter().all(|end| !end.has_failed) {
                return Ok(());
            }
            // Nobody can end the suspension of a deleted link.
            let Some(revision) = self.live_revision(url.0).await? else { return Ok(()) };
            let before = row.as_ref().and_then(|row| row.run(revision));
            let counted = row.as_ref().filter(|_| before.is_some()).and_then(|row| row.counted.as_deref());
            let known = counted.map(CountedDeliveries::from_bytes).unwrap_or_default();
            let new = ends.iter().filter(|end| !known.has(end));
            let after = new.fold(before, |run, end| FailureRun::after(run, end, rule.failures));
            if after == before && (after.is_some() || row.is_none()) {
                return Ok(());
            }
            let claim = row.and_then(|row| row.claim);
            let is_written = match after {
                None => self.drop_row(url, claim).await?,
                Some(run) => {
                    let mut counted = known;
                    counted.add_all(&ends);
                    let put = self.put(url, claim, revision, run, &counted).await?;
                    if let (Some(claim), Some(begun)) = (put, Suspension::of(url.0, url.1, &run)) {
                        return self.begin(rule, begun, claim, revision).await;
                    }
                    put.is_some()
                }
            };
            if is_written {
                return Ok(());
            }
            if pause.wait().await.is_break() {
                return Err(too_many_writers());
            }
        }
    }

    /// A row has a suspension now that had none. The link may have changed just before, and then nobody else removes
    /// the row.
    async fn begin(
        &self,
        rule: &SuspensionRule,
        begun: Suspension,
        claim: Uuid,
        revision: i64,
    ) -> Result<(), StoreError> {
        if self.live_revision(begun.link).await? == Some(revision) {
            (rule.hook)(begun);
        } else {
            self.drop_row((begun.link, begun.place), Some(claim)).await?;
        }
        Ok(())
    }

    async fn read(&self, (link, place): LinkUrl) -> Result<Option<RunRow>, CqlError> {
        let values = (link.as_str(), i16::from(place));
        self.cluster.cql.read_one(&self.cluster.statements.failure_run, values).await
    }

    /// The revision of a link; `None` if it was deleted.
    async fn live_revision(&self, link: ShortId) -> Result<Option<i64>, CqlError> {
        let statement = &self.cluster.statements.live_link;
        let row: Option<(Option<Uuid>, Option<i64>)> = self.cluster.cql.read_one(statement, (link.as_str(),)).await?;
        Ok(row.and_then(|(owner, revision)| owner.map(|_| revision.unwrap_or(i64::from(Revision::FIRST.0)))))
    }

    /// The claim in a row, as the last LWT has left it.
    async fn claim(&self, (link, place): LinkUrl) -> Result<Option<Uuid>, CqlError> {
        let (statement, values) = (&self.cluster.statements.failure_run_claim, (link.as_str(), i16::from(place)));
        let row: Option<(Option<Uuid>,)> = self.cluster.cql.read_one(statement, values).await?;
        Ok(row.and_then(|(claim,)| claim))
    }

    /// Writes a run in the place of that with the claim `before`; returns its own claim, or `None` if the row has
    /// changed.
    async fn put(
        &self,
        url: LinkUrl,
        before: Option<Uuid>,
        revision: i64,
        run: FailureRun,
        counted: &CountedDeliveries,
    ) -> Result<Option<Uuid>, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let ((link, place), claim) = (url, Uuid::new_v4());
        let (run_json, counted) = (records::to_json(run)?, counted.to_bytes());
        // 0: a suspension does not go by itself.
        let ttl = if run.suspended_at.is_some() { 0 } else { KEPT_SECONDS };
        let attempt = || {
            let row = (ttl, claim, revision, run_json.as_str(), counted.as_slice());
            let values = (row.0, row.1, row.2, row.3, row.4, link.as_str(), i16::from(place), before);
            async move { cql.lwt(&statements.put_failure_run, values).await }
        };
        let settle = || async {
            let now = self.claim(url).await?;
            Ok((now != before).then_some(now == Some(claim)))
        };
        Ok(cql.settled(attempt, settle).await?.then_some(claim))
    }

    /// Removes the row with this claim; `false` if it has changed.
    async fn drop_row(&self, url: LinkUrl, claim: Option<Uuid>) -> Result<bool, StoreError> {
        let Some(claim) = claim else { return Ok(true) };
        let Cluster { cql, statements, .. } = &*self.cluster;
        let (link, place) = url;
        let attempt =
            || async { cql.lwt(&statements.drop_failure_run, (link.as_str(), i16::from(place), claim)).await };
        let settle = || async {
            let now = self.claim(url).await?;
            Ok((now != Some(claim)).then_some(now.is_none()))
        };
        Ok(cql.settled(attempt, settle).await?)
    }

    async fn end(&self, url: LinkUrl) -> Result<(), StoreError> {
        let mut pause = Pause::within(self.cluster.cql.patience());
        while let Some(row) = self.read(url).await? {
            if self.drop_row(url, row.claim).await? {
                return Ok(());
            }
            if pause.wait().await.is_break() {
                return Err(too_many_writers());
            }
        }
        Ok(())
    }

    async fn rows_of(&self, link: ShortId) -> Result<Vec<LinkRunRow>, CqlError> {
        self.cluster.cql.read(&self.cluster.statements.failure_runs, (link.as_str(),)).await
    }

    async fn suspensions_of(&self, link: ShortId) -> Result<Vec<Suspension>, StoreError> {
        let rows = self.rows_of(link).await?;
        let suspension = |(place, _, revision, run): LinkRunRow| {
            let run = run.as_deref().and_then(read_if_sound)?;
            Some((revision, Suspension::of(link, u8::try_from(place).ok()?, &run)?))
        };
        let mut found: Vec<_> = rows.into_iter().filter_map(suspension).collect();
        if !found.is_empty() {
            let live = self.live_revision(link).await?;
            found.retain(|(revision, _)| revision.is_some() && *revision == live);
        }
        Ok(found.into_iter().map(|(_, suspension)| suspension).collect())
    }

    async fn read_suspensions(&self, links: Vec<ShortId>) -> Result<Vec<Suspension>, StoreError> {
        let mut found = Vec::new();
        for links in links.chunks(AT_ONCE) {
            found.extend(try_join_all(links.iter().map(|link| self.suspensions_of(*link))).await?);
        }
        Ok(found.concat())
    }

    /// Removes what does not count any more after a change of a link.
    pub async fn forget_before(&self, link: ShortId, revision: Revision) -> Result<(), StoreError> {
        if self.rule.get().is_none() {
            return Ok(());
        }
        for (place, claim, of, _) in self.rows_of(link).await? {
            if let Ok(place) = u8::try_from(place)
                && of.is_none_or(|of| of < i64::from(revision.0))
            {
                self.drop_row((link, place), claim).await?;
            }
        }
        Ok(())
    }

    /// Removes all rows of all links.
    async fn forget_all(&self) -> Result<(), StoreError> {
        let links: Vec<(String,)> = self.cluster.cql.read(&self.cluster.statements.links_with_failure_runs, ()).await?;
        let forget = |(link,): (String,)| async move {
            Ok(self.cluster.cql.write(&self.cluster.statements.drop_failure_runs, (link,)).await?)
        };
        self.cluster.all(links, forget).await
    }

    /// Removes all rows of a deleted link.
    pub async fn forget(cluster: &Cluster, link: ShortId) -> Result<(), StoreError> {
        Ok(cluster.cql.write(&cluster.statements.drop_failure_runs, (link.as_str(),)).await?)
    }
}

#[async_trait]
impl SuspensionStore for ScyllaStore {
    fn suspend_failing(&self, rule: SuspensionRule) {
        drop(self.tables.failure_runs.rule.set(rule));
    }

    async fn suspensions(&self, links: Vec<ShortId>) -> Result<Vec<Suspension>, StoreError> {
        self.open_tables()?.failure_runs.read_suspensions(links).await
    }

    async fn end_suspension(&self, link: ShortId, place: u8) -> Result<(), StoreError> {
        self.run_to_completion(move |tables| async move { tables.failure_runs.end((link, place)).await }).await
    }

    async fn forget_failures(&self) -> Result<(), StoreError> {
        self.open_tables()?.failure_runs.forget_all().await
    }
}
