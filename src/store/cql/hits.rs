//! Hit counters: rows of absolute totals, one for each node that counts, so that writing one again changes nothing.
//!
//! The end of a batch is written before its rows and after them. Each row has the end of the last batch that it counts;
//! if a batch was begun and not ended, the same batch comes again, and rows that count it already stay as they are.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::cluster::Cluster;
use super::days::{self, DayTotals};
use super::deliveries::Deliveries;
use super::own_rows::{Column, Own, OwnRows, OwnTable};
use super::sheet_reads;
use super::sheets::OwnSheets;
use crate::domain::breakdown::{Breakdown, BreakdownRange, Dimension};
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{DayHits, HitBatch, HitCursor, HitSubject, LinkHits, NodeId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::series::{SeriesAnswer, SeriesRange, SeriesSums};
use crate::domain::tally::BotFilter;
use crate::store::StoreError;
use crate::store::records::columns::{bigint, month as month_column, number};
use crate::store::records::corrupt;

const CURSOR: &str = "hit_cursors";

/// Rows of this node that are kept in memory, so that counting a link again needs no read. A row takes some 150 bytes.
const DAYS_KEPT: u64 = 200_000;
const SERVED_KEPT: u64 = 20_000;

/// Hits of a key's links in a month.
struct ServedTotals;

impl OwnTable for ServedTotals {
    type Key = (NodeId, KeyId, Month);
    type Stored = Own<u64>;
    type Added = u64;

    async fn read(cluster: &Cluster, (writer, key, month): Self::Key) -> Result<Self::Stored, StoreError> {
        let values = (key.0, month_column(month), writer.0);
        let found: Option<(Column, Column)> = cluster.cql.read_one(&cluster.statements.own_served, values).await?;
        let (count, upto) = found.unwrap_or_default();
        Ok(Own { total: number(count), upto: number(upto) })
    }

    async fn add(
        cluster: &Cluster,
        (writer, key, month): Self::Key,
        own: Self::Stored,
        added: u64,
        upto: Position,
    ) -> Result<Self::Stored, StoreError> {
        let Some(own) = own.plus(upto, |total| total + added) else { return Ok(own) };
        let (count, upto) = (bigint(own.total), bigint(own.upto));
        let values = (key.0, month_column(month), writer.0, count, upto, upto);
        cluster.cql.write(&cluster.statements.put_served, values).await?;
        Ok(own)
    }
}

/// The places of the days of each month of a link or key.
fn months_of(days: &[DayHits]) -> Vec<Range<usize>> {
    let of_month = days.chunk_by(|a, b| (a.of, a.day.month()) == (b.of, b.day.month()));
    let mut from = 0;
    let mut place = |days: &[DayHits]| {
        let start = from;
        from += days.len();
        start..from
    };
    of_month.map(&mut place).collect()
}

/// Hits, and the rows of this process in memory.
pub struct Hits {
    cluster: Arc<Cluster>,
    deliveries: Arc<Deliveries>,
    /// Held while a batch is applied: one at a time.
    cursors: tokio::sync::Mutex<HashMap<NodeId, Cursor>>,
    days: OwnRows<DayTotals>,
    served: OwnRows<ServedTotals>,
    sheets: OwnSheets,
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    at: HitCursor,
    /// Whether `begun` is known to be written.
    is_noted: bool,
    /// Whether the begun batch was applied before, by this process or an earlier one: part of it may be written.
    is_repeated: bool,
}

impl Hits {
    pub fn new(cluster: &Arc<Cluster>, deliveries: &Arc<Deliveries>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            deliveries: Arc::clone(deliveries),
            cursors: tokio::sync::Mutex::default(),
            days: OwnRows::with_capacity(DAYS_KEPT),
            served: OwnRows::with_capacity(SERVED_KEPT),
            sheets: OwnSheets::new(),
        }
    }

    /// The cursor of a node's journal. What this returns once holds for the process: a batch that was begun and
    /// is not seen by now had no rows yet.
    pub(super) async fn known_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        let mut cursors = self.cursors.lock().await;
        let cursor = self.cursor_of(&cursors, writer).await?;
        cursors.insert(writer, cursor);
        Ok(cursor.at)
    }

    async fn read_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        let row = self
            .cluster
            .cql
            .read_one::<(Option<i64>, Option<i64>)>(&self.cluster.statements.hit_cursor, (writer.0,))
            .await?;
        let (begun, counted) = row.unwrap_or_default();
        let counted = number(counted);
        Ok(HitCursor { counted: Position(counted), begun: Position(number(begun).max(counted)) })
    }

    async fn cursor_of(&self, known: &HashMap<NodeId, Cursor>, writer: NodeId) -> Result<Cursor, StoreError> {
        if let Some(known) = known.get(&writer) {
            return Ok(*known);
        }
        let at = self.read_cursor(writer).await?;
        Ok(Cursor { at, is_noted: true, is_repeated: at.begun > at.counted })
    }

    pub(super) async fn count_batch(&self, batch: &HitBatch) -> Result<(), StoreError> {
        let mut cursors = self.cursors.lock().await;
        let mut cursor = self.cursor_of(&cursors, batch.writer).await?;
        if cursor.at.counted >= batch.upto {
            return Ok(());
        }
        if cursor.at.counted != batch.from {
            let reason = format!("a batch from {} at {}", batch.from.0, cursor.at.counted.0);
            return Err(corrupt(CURSOR, &reason));
        }
        if cursor.at.begun > cursor.at.counted && cursor.at.begun != batch.upto {
            let reason = format!("a batch up to {} where one up to {} is begun", batch.upto.0, cursor.at.begun.0);
            return Err(corrupt(CURSOR, &reason));
        }
        let (upto, writer) = (bigint(batch.upto.0), batch.writer.0);
        if cursor.at.begun != batch.upto {
            // From here on it counts as begun, even if the answer is lost.
            (cursor.at.begun, cursor.is_noted, cursor.is_repeated) = (batch.upto, false, false);
        }
        cursors.insert(batch.writer, Cursor { is_repeated: true, ..cursor });
        if !cursor.is_noted {
            self.cluster.cql.write(&self.cluster.statements.begin_batch, (upto, upto, writer)).await?;
            cursors.insert(batch.writer, Cursor { is_noted: true, is_repeated: true, ..cursor });
        }
        self.write_rows(batch).await?;
        self.deliveries.enqueue(&batch.deliveries, cursor.is_repeated).await?;
        self.cluster.cql.write(&self.cluster.statements.end_batch, (upto, upto, writer)).await?;
        cursors.insert(batch.writer, Cursor { at: batch.upto.into(), is_noted: true, is_repeated: false });
        Ok(())
    }

    async fn write_rows(&self, batch: &HitBatch) -> Result<(), StoreError> {
        let (writer, upto) = (batch.writer, batch.upto);
        let add = |days: Range<usize>| self.sheets.add(&self.cluster, writer, &batch.days[days], upto);
        self.cluster.all(months_of(&batch.days), add).await?;
        let mut served: HashMap<(KeyId, Month), u64> = HashMap::new();
        for row in &batch.served {
            *served.entry((row.key, row.month)).or_default() += row.count;
        }
        let add = |((key, month), added)| self.served.add(&self.cluster, (writer, key, month), added, upto);
        self.cluster.all(served, add).await?;
        // Written last and read first: the labels of every total that is read are there.
        let add = |at: usize| {
            let hits = &batch.days[at];
            let added = (hits.devices, hits.quarters.clone());
            self.days.add(&self.cluster, (writer, hits.of, hits.day), added, upto)
        };
        self.cluster.all(0..batch.days.len(), add).await
    }

    pub(super) async fn read_link_hits(&self, id: ShortId, labels: Option<BotFilter>) -> Result<LinkHits, StoreError> {
        let days = days::all(&self.cluster, HitSubject::Link(id)).await?;
        let labels = match labels {
            Some(bots) => sheet_reads::top_labels(&self.cluster, id, bots).await?,
            None => Vec::new(),
        };
        Ok(LinkHits { days, labels })
    }

    pub(super) async fn read_series(
        &self,
        of: HitSubject,
        range: &SeriesRange,
        bots: BotFilter,
    ) -> Result<SeriesAnswer, StoreError> {
        let mut sums = SeriesSums::new(range, bots);
        let (first, end) = (*range.days().start(), Day(range.days().end().0.saturating_add(1)));
        let needs_quarters = (first.0..end.0).any(|day| range.needs_quarters(Day(day)));
        if needs_quarters {
            for count in days::quarters_between(&self.cluster, of, first, end).await? {
                if range.needs_quarters(count.day) {
                    sums.add_quarters(count.day, &count.quarters);
                } else {
                    sums.add_day(count.day, count.devices.total());
                }
            }
        } else {
            for (day, devices) in days::between(&self.cluster, of, first, end).await? {
                sums.add_day(day, devices.total());
            }
        }
        Ok(sums.answer())
    }

    pub(super) async fn read_breakdown(
        &self,
        of: HitSubject,
        dimension: Dimension,
        range: BreakdownRange,
    ) -> Result<Breakdown, StoreError> {
        sheet_reads::breakdown(&self.cluster, of, dimension, range).await
    }

    pub(super) async fn hits_served(&self, key: KeyId, month: Month) -> Result<u64, StoreError> {
        let rows: Vec<(Option<i64>,)> =
            self.cluster.cql.read(&self.cluster.statements.served, (key.0, month_column(month))).await?;
        Ok(rows.into_iter().map(|(count,)| number(count)).sum())
    }
}
