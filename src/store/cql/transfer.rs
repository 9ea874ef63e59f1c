//! Exports everything in the cluster except deliveries, and fills an empty keyspace.
//!
//! Tables are read in the order of their partitions' tokens, the only order that a cluster has. A place is a token.

mod counts;
mod links;

use std::sync::OnceLock;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, try_join_all};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::PrepareError;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::cluster::{AT_ONCE, OpenError};
use super::outcome::CqlError;
use super::session::{Cql, ScyllaSettings, StatementKind};
use super::tables::CqlTables;
use super::watch::QueueRow;
use crate::domain::calendar::{Month, Timestamp};
use crate::domain::hit::{HitCursor, NodeId, Position};
use crate::domain::key::KeyId;
use crate::store::StoreError;
use crate::store::records::columns::{bigint, month as month_column, month_from, number, timestamp_from};
use crate::store::records::links::LinkRow;
use crate::store::records::{corrupt, keys};
use crate::store::transfer::{ExportSource, FILLED, LAST_START, Metric, NAMES, Page, Record, Section, Sink, SinkError};

/// Partitions read for one page.
const PAGE: i32 = 1_000;

/// The node of imported counts; no real node has this id.
const IMPORTED: NodeId = NodeId(Uuid::from_u128(0x5167_6e70_6f73_8400_8000_696d_706f_7274));
/// The timestamp of these rows, which never change after the import.
const ONCE: i64 = 1;

/// The tables of a cluster, for exports and imports, which serve no requests.
pub struct ScyllaTransfer {
    tables: CqlTables,
    scans: Scans,
    links_settled: PreparedStatement,
    deliveries_settled: PreparedStatement,
    /// Nodes that will never count what is left in their journals.
    lost_nodes: Vec<NodeId>,
    /// The beats of their queues when they were first looked at: a node that is lost has no further one.
    lost_beats: OnceLock<Vec<(Uuid, i64)>>,
}

/// Token, node, and how far its journal is begun and counted.
type CursorRow = (i64, Uuid, Option<i64>, Option<i64>);

macro_rules! scans {
    ($($name:ident: $text:expr;)*) => {
        /// Statements that scan whole tables.
        struct Scans {
            $($name: PreparedStatement,)*
        }

        impl Scans {
            async fn prepare(cql: &Cql) -> Result<Self, PrepareError> {
                let preparing: Vec<BoxFuture<'_, _>> = vec![$(cql.prepare(kind_of($text.as_ref()), $text).boxed(),)*];
                let mut prepared = try_join_all(preparing).await?.into_iter();
                // There are as many as fields.
                Ok(Self { $($name: prepared.next().ok_or(PrepareError::PreparedStatementIdsMismatch)?,)* })
            }
        }
    };
}

/// What is written here is written if it is not there.
fn kind_of(text: &str) -> StatementKind {
    if text.starts_with("INSERT") { StatementKind::Lwt } else { StatementKind::Read }
}

scans! {
    keys: "SELECT token(id), record FROM keys WHERE token(id) > ? LIMIT ?";
    key_uses: "SELECT token(key), key, used_at FROM key_uses WHERE token(key) > ? LIMIT ?";
    links: format!("SELECT token(id), {} FROM links WHERE token(id) > ? LIMIT ?", LinkRow::COLUMNS);
    remains: "SELECT token(id), id, owner, slug, kept_for, revision FROM links WHERE token(id) > ? LIMIT ?";
    kept_for: "SELECT kept_for, revision FROM links WHERE id = ?";
    end_link_list_fill: "INSERT INTO link_list_fill (job, holder, beat, is_done) VALUES (1, 00000000-0000-0000-0000-000000000000, 0, true) \
                         IF NOT EXISTS";
    put_remains: "INSERT INTO links (id, kept_for, revision, deleted_at) VALUES (?, ?, ?, ?) IF NOT EXISTS";
    names: "SELECT token(domain, name), name, state, owner, revision FROM link_names WHERE token(domain, name) > ? LIMIT ?";
    revised: "SELECT DISTINCT token(link), link FROM link_revisions WHERE token(link) > ? LIMIT ?";
    revisions: "SELECT record, WRITETIME(record) FROM link_revisions WHERE link = ?";
    time_parts: "SELECT DISTINCT kind, day, part FROM link_times";
    times: "SELECT at, link FROM link_times WHERE kind = ? AND day = ? AND part = ?";
    links_created: "SELECT DISTINCT token(owner, month), owner, month, used FROM link_quotas \
                    WHERE token(owner, month) > ? LIMIT ?";
    deliveries: "SELECT DISTINCT token(owner, month), owner, month, used FROM delivery_quotas \
                 WHERE token(owner, month) > ? LIMIT ?";
    served: "SELECT DISTINCT token(key, month), key, month FROM served_hits WHERE token(key, month) > ? LIMIT ?";
    days: "SELECT DISTINCT token(link), link FROM link_days WHERE token(link) > ? LIMIT ?";
    key_days: "SELECT DISTINCT token(key), key FROM key_days WHERE token(key) > ? LIMIT ?";
    sheets: "SELECT DISTINCT token(subject), subject FROM hit_sheets WHERE token(subject) > ? LIMIT ?";
    labels: "SELECT DISTINCT token(link, month), link, month FROM link_labels WHERE token(link, month) > ? LIMIT ?";
    cursors: "SELECT token(writer), writer, begun, counted FROM hit_cursors WHERE token(writer) > ? LIMIT ?";
}

impl ScyllaTransfer {
    /// Opens the tables. The schema has to be there.
    pub async fn open(settings: &ScyllaSettings) -> Result<Self, OpenError> {
        // A new node id, which has no queue.
        let tables = Box::pin(CqlTables::connect(settings, NodeId(Uuid::new_v4()))).await?;
        let scans = Box::pin(Scans::prepare(&tables.cluster.cql)).await?;
        let settled = |table: &str| format!("SELECT used FROM {table} WHERE owner = ? AND month = ? LIMIT 1");
        let links_settled = tables.cluster.cql.prepare(StatementKind::SettlingRead, settled("link_quotas")).await?;
        let deliveries_settled =
            tables.cluster.cql.prepare(StatementKind::SettlingRead, settled("delivery_quotas")).await?;
        Ok(Self {
            tables,
            scans,
            links_settled,
            deliveries_settled,
            lost_nodes: Vec::new(),
            lost_beats: OnceLock::new(),
        })
    }

    /// Exports although these nodes have not stopped in order.
    #[must_use]
    pub fn without_nodes(self, lost_nodes: Vec<NodeId>) -> Self {
        Self { lost_nodes, ..self }
    }

    fn is_lost(&self, node: Uuid) -> bool {
        self.lost_nodes.contains(&NodeId(node))
    }

    /// Partitions from a place on, at most `limit`.
    async fn scan<R>(&self, statement: &PreparedStatement, from: Option<&str>, limit: i32) -> Result<Vec<R>, StoreError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Send + 'static,
    {
        // No partition has the lowest of all tokens.
        let from = from.map_or(Ok(i64::MIN), str::parse).map_err(|error| corrupt("places", &error))?;
        Ok(self.tables.cluster.cql.read(statement, (from, limit)).await?)
    }

    async fn names(&self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for name in NAMES {
            if let Some(value) = self.tables.names.name(name).await? {
                records.push(Record::Name { name: name.to_owned(), value });
            }
        }
        Ok(records)
    }

    /// Writes the count of a month that has none yet.
    async fn put_usage(&self, metric: Metric, key: KeyId, month: Month, count: u64) -> Result<(), SinkError> {
        let (tables, month_row, used) = (&self.tables, month_column(month), bigint(count));
        let (statements, nothing) = (&tables.cluster.statements, None::<i64>);
        if metric == Metric::HitsServed {
            let values = (key.0, month_row, IMPORTED.0, used, ONCE, ONCE);
            return Ok(tables.cluster.cql.write(&statements.put_served, values).await.map_err(StoreError::from)?);
        }
        let attempt = || async {
            if metric == Metric::WebhookDeliveries {
                let values = (used, 1_i32, Vec::<u8>::new(), key.0, month_row, IMPORTED.0, nothing);
                tables.cluster.cql.lwt(&statements.claim_deliveries, values).await
            } else {
                let values = (used, 1_i32, key.0, month_row, IMPORTED.0, nothing);
                tables.cluster.cql.lwt(&statements.claim_links, values).await
            }
        };
        let there = || async {
            let statement =
                if metric == Metric::WebhookDeliveries { &self.deliveries_settled } else { &self.links_settled };
            let row = tables.cluster.cql.read_one::<(Option<i64>,)>(statement, (key.0, month_row)).await?;
            Ok::<_, CqlError>(row.and_then(|(used,)| used))
        };
        let settle = || async { Ok(there().await?.map(|there| there == used)) };
        let is_ours = tables.cluster.cql.settled(attempt, settle).await.map_err(StoreError::from)?;
        if is_ours || there().await.map_err(StoreError::from)? == Some(used) {
            return Ok(());
        }
        Err(SinkError::Taken(format!("count of key {key}")))
    }

    async fn put(&self, record: Record) -> Result<(), SinkError> {
        let (tables, statements) = (&self.tables, &self.tables.cluster.statements);
        match record {
            Record::Key(key) => {
                tables.keys.put_new_key(&key).await?;
                // An existing key is kept, and must be the same.
                let is_same = tables.keys.read_key(key.id).await?.is_some_and(|there| there == *key);
                if is_same { Ok(()) } else { Err(SinkError::Taken(format!("key {}", key.id))) }
            }
            Record::KeyUse { key, at } => Ok(tables.keys.write_key_uses(vec![(key, at)]).await?),
            Record::Link(link) => self.put_link(&link).await,
            Record::Usage { metric, key, month, count } => self.put_usage(metric, key, month, count).await,
            Record::Day(count) => Ok(self.put_day(&count).await?),
            Record::Label(count) => Ok(self.put_labels(vec![count]).await?),
            Record::Sheet { of, day, sheet } => Ok(self.put_sheet(of, day, &sheet).await?),
            Record::Cursor { writer, counted } => {
                let at = bigint(counted.0);
                for statement in [&statements.begin_batch, &statements.end_batch] {
                    tables.cluster.cql.write(statement, (at, at, writer.0)).await.map_err(StoreError::from)?;
                }
                Ok(())
            }
            Record::KeptName { name, owner, revision } => self.put_kept_name(name, owner, revision).await,
            Record::Revision { link, replaced_at: _ } => self.put_revision(&link).await,
            Record::Deletion { link, at } => self.put_deletion(link, at).await,
            Record::Name { name, value } => {
                if name == FILLED {
                    self.end_link_lists().await?;
                }
                let kept = tables.names.put_name(&name, value.clone()).await?;
                if kept == value { Ok(()) } else { Err(SinkError::Taken(name)) }
            }
        }
    }
}

/// The records of some rows, and the place after the last of them.
fn page<R>(
    rows: Vec<R>,
    token: impl Fn(&R) -> i64,
    record: impl FnMut(R) -> Result<Record, StoreError>,
) -> Result<Page, StoreError> {
    let next = next_place(rows.len(), rows.last().map(token), PAGE);
    Ok(Page { records: rows.into_iter().map(record).collect::<Result<_, _>>()?, next })
}

/// The place after the last of so many rows that were read with a limit.
fn next_place(rows: usize, last: Option<i64>, limit: i32) -> Option<String> {
    let is_full = i32::try_from(rows).is_ok_and(|rows| rows >= limit);
    last.filter(|_| is_full).map(|token| token.to_string())
}

/// A page of each section, from the token `from` on.
impl ScyllaTransfer {
    async fn keys_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let rows: Vec<(i64, Option<String>)> = self.scan(&self.scans.keys, from, PAGE).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
        // A row without a record is that of a key whose creation was interrupted.
        let found = rows.into_iter().filter_map(|(_, record)| record);
        let records = found.map(|record| Ok(Record::Key(Box::new(keys::from_json(&record)?))));
        Ok(Page { records: records.collect::<Result<_, StoreError>>()?, next })
    }

    async fn key_uses_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let rows: Vec<(i64, Uuid, Option<CqlTimestamp>)> = self.scan(&self.scans.key_uses, from, PAGE).await?;
        let at = |column: Option<CqlTimestamp>| column.map_or(Timestamp(0), timestamp_from);
        page(rows, |row| row.0, |row| Ok(Record::KeyUse { key: KeyId(row.1), at: at(row.2) }))
    }

    /// Counts that have a quota, and so a column.
    async fn quotas_page(
        &self,
        metric: Metric,
        statement: &PreparedStatement,
        from: Option<&str>,
    ) -> Result<Page, StoreError> {
        let rows: Vec<(i64, Uuid, i32, Option<i64>)> = self.scan(statement, from, PAGE).await?;
        let record = |(_, key, month, used)| {
            Ok(Record::Usage { metric, key: KeyId(key), month: month_from(month), count: number(used) })
        };
        page(rows, |row| row.0, record)
    }

    async fn queues(&self) -> Result<Vec<QueueRow>, StoreError> {
        let cql = &self.tables.cluster.cql;
        Ok(cql
            .read(&self.tables.cluster.statements.queues, ())
            .await?
            .into_iter()
            .map(QueueRow::from_columns)
            .collect())
    }

    /// How far a node's journal is counted.
    pub async fn hit_cursor(&self, node: NodeId) -> Result<HitCursor, StoreError> {
        self.tables.hits.known_cursor(node).await
    }

    async fn hits_served_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let rows: Vec<(i64, Uuid, i32)> = self.scan(&self.scans.served, from, PAGE).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
        let record = |(_, key, month)| async move {
            let (key, month) = (KeyId(key), month_from(month));
            let count = self.tables.hits.hits_served(key, month).await?;
            Ok::<_, StoreError>(Record::Usage { metric: Metric::HitsServed, key, month, count })
        };
        let records = stream::iter(rows).map(record).buffered(AT_ONCE).try_collect().await?;
        Ok(Page { records, next })
    }

    async fn cursors_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let rows: Vec<CursorRow> = self.scan(&self.scans.cursors, from, PAGE).await?;
        // They differ for a lost node only. If its journal is found after all, none of its hits counts twice.
        let record = |(_, writer, begun, counted): CursorRow| {
            Ok(Record::Cursor { writer: NodeId(writer), counted: Position(number(begun).max(number(counted))) })
        };
        page(rows, |row| row.0, record)
    }

    /// A node, but for those that are lost, that has begun a batch and not ended it: a part of its rows is in the counts.
    async fn node_amid_batch(&self) -> Result<Option<Uuid>, StoreError> {
        let mut from = None;
        loop {
            let rows: Vec<CursorRow> = self.scan(&self.scans.cursors, from.as_deref(), PAGE).await?;
            let is_amid =
                |(_, writer, begun, counted): &CursorRow| number(*begun) > number(*counted) && !self.is_lost(*writer);
            if let Some((_, writer, ..)) = rows.iter().find(|row| is_amid(row)) {
                return Ok(Some(*writer));
            }
            from = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
            if from.is_none() {
                return Ok(None);
            }
        }
    }
}

#[async_trait]
impl ExportSource for ScyllaTransfer {
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError> {
        let scans = &self.scans;
        match section {
            Section::Keys => self.keys_page(from).await,
            Section::KeyUses => self.key_uses_page(from).await,
            Section::Links => self.links_page(from).await,
            Section::LinksCreated => self.quotas_page(Metric::LinksCreated, &scans.links_created, from).await,
            Section::HitsServed => self.hits_served_page(from).await,
            Section::WebhookDeliveries => self.quotas_page(Metric::WebhookDeliveries, &scans.deliveries, from).await,
            Section::Days => self.days_page(from).await,
            Section::Labels => self.labels_page(from).await,
            Section::Sheets => self.sheets_page(from).await,
            Section::Cursors => self.cursors_page(from).await,
            Section::KeptNames => self.kept_names_page(from).await,
            Section::Revisions => self.revisions_page(from).await,
            Section::Deletions => Ok(Page { records: self.deletions().await?, next: None }),
            Section::Names => Ok(Page { records: self.names().await?, next: None }),
        }
    }

    async fn last_start(&self) -> Result<u64, StoreError> {
        self.tables.names.mark(LAST_START).await
    }

    async fn check_idle(&self) -> Result<(), StoreError> {
        // A node that stops releases its queues. One that was killed may have hits that are counted in part.
        let held: Vec<_> = self.queues().await?.into_iter().filter(|queue| !queue.holder.is_nil()).collect();
        let lost = held.iter().filter(|queue| self.is_lost(queue.holder_node));
        let beats: Vec<_> = lost.map(|queue| (queue.queue, queue.beat)).collect();
        let known = self.lost_beats.get_or_init(|| beats.clone());
        if beats.iter().any(|beat| !known.contains(beat)) {
            return Err(StoreError::Unavailable("a node that is named as lost is running: stop it".into()));
        }
        let is_held = |queue: &QueueRow| !self.is_lost(queue.holder_node);
        let holder = held.into_iter().find(is_held).map(|queue| queue.holder_node);
        let node = match holder {
            Some(node) => Some(node),
            None => self.node_amid_batch().await?,
        };
        node.map_or(Ok(()), |node| {
            let reason = format!(
                "node {node} is running, or was killed: stop it, or start and stop it. If its data directory is lost, add --lost-node {node}"
            );
            Err(StoreError::Unavailable(reason))
        })
    }

    async fn has_pending_deliveries(&self) -> Result<bool, StoreError> {
        Ok(!self.queues().await?.is_empty())
    }
}

#[async_trait]
impl Sink for ScyllaTransfer {
    async fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.tables.names.name(name).await
    }

    async fn write(&self, records: Vec<Record>) -> Result<(), SinkError> {
        // Those of one month change the same sheet.
        let (mut labels, mut others) = (Vec::new(), Vec::new());
        for record in records {
            match record {
                Record::Label(count) => labels.push(count),
                other => others.push(other),
            }
        }
        self.put_labels(labels).await?;
        let records = others;
        stream::iter(records.into_iter().map(Ok)).try_for_each_concurrent(AT_ONCE, |record| self.put(record)).await
    }
}
