//! Hit counters: rows of absolute totals, one for each node that counts, so that writing one again changes nothing.
//!
//! A batch's end is written down before its rows and after them. Each row says up to which batch it counts; where a batch
//! was begun and not ended, the same batch comes again, and rows that count it already stay as they are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::future::try_join_all;
use moka::sync::Cache;

use super::cluster::Cluster;
use super::deliveries::Deliveries;
use super::labels::{OwnLabels, within_bounds};
use super::outcome::CqlError;
use super::own_rows::{Own, OwnRows, OwnTable};
use crate::domain::analytics::shortened;
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{Dimension, HitBatch, HitCursor, LabelCount, LinkHits, NodeId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::columns::{
    bigint, day as day_column, day_from, dimension_from, month as month_column, number,
};
use crate::store::records::corrupt;

const CURSOR: &str = "hit_cursors";

/// Rows of this node that are kept in memory, so that counting a link again needs no read. A row takes some 100 bytes.
const DAYS_KEPT: u64 = 200_000;
const SERVED_KEPT: u64 = 20_000;
/// Labels kept in memory, over all links.
const LABELS_KEPT: u64 = 500_000;

/// Hits of a link on a day, by device.
struct DayRows;

impl OwnTable for DayRows {
    type Key = (NodeId, ShortId, Day);
    type Total = [u64; 3];

    fn add(total: [u64; 3], added: [u64; 3]) -> [u64; 3] {
        std::array::from_fn(|device| total[device] + added[device])
    }

    async fn read(cluster: &Cluster, (writer, link, day): Self::Key) -> Result<Own<[u64; 3]>, CqlError> {
        let values = (link.as_str(), day_column(day), writer.0);
        let found: Option<(Column, Column, Column, Column)> =
            cluster.cql.read_one(&cluster.statements.own_day, values).await?;
        let (desktop, mobile, tablet, upto) = found.unwrap_or_default();
        Ok(Own { total: [desktop, mobile, tablet].map(number), upto: number(upto) })
    }

    async fn write(cluster: &Cluster, (writer, link, day): Self::Key, own: Own<[u64; 3]>) -> Result<(), CqlError> {
        let ([desktop, mobile, tablet], upto) = (own.total.map(bigint), bigint(own.upto));
        let values = (link.as_str(), day_column(day), writer.0, desktop, mobile, tablet, upto, upto);
        cluster.cql.write(&cluster.statements.put_day, values).await
    }
}

/// Hits of a key's links in a month.
struct ServedRows;

impl OwnTable for ServedRows {
    type Key = (NodeId, KeyId, Month);
    type Total = u64;

    fn add(total: u64, added: u64) -> u64 {
        total + added
    }

    async fn read(cluster: &Cluster, (writer, key, month): Self::Key) -> Result<Own<u64>, CqlError> {
        let values = (key.0, month_column(month), writer.0);
        let found: Option<(Column, Column)> = cluster.cql.read_one(&cluster.statements.own_served, values).await?;
        let (count, upto) = found.unwrap_or_default();
        Ok(Own { total: number(count), upto: number(upto) })
    }

    async fn write(cluster: &Cluster, (writer, key, month): Self::Key, own: Own<u64>) -> Result<(), CqlError> {
        let (count, upto) = (bigint(own.total), bigint(own.upto));
        let values = (key.0, month_column(month), writer.0, count, upto, upto);
        cluster.cql.write(&cluster.statements.put_served, values).await
    }
}

/// Hits, and what this process knows of its own rows of them.
pub struct Hits {
    pub(super) cluster: Arc<Cluster>,
    deliveries: Arc<Deliveries>,
    /// Held while a batch is applied: one at a time.
    cursors: tokio::sync::Mutex<HashMap<NodeId, Cursor>>,
    days: OwnRows<DayRows>,
    served: OwnRows<ServedRows>,
    pub(super) labels: Cache<(NodeId, ShortId, Month), Arc<OwnLabels>>,
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    at: HitCursor,
    /// Whether `begun` is known to be written down.
    is_noted: bool,
    /// Whether the batch that is begun was offered before, to this process or an earlier life: some of it may be there.
    is_repeated: bool,
}

impl Hits {
    pub fn new(cluster: &Arc<Cluster>, deliveries: &Arc<Deliveries>) -> Self {
        let labels = Cache::builder().max_capacity(LABELS_KEPT).weigher(|_, labels: &Arc<OwnLabels>| labels.weight());
        Self {
            cluster: Arc::clone(cluster),
            deliveries: Arc::clone(deliveries),
            cursors: tokio::sync::Mutex::default(),
            days: OwnRows::with_room_for(DAYS_KEPT),
            served: OwnRows::with_room_for(SERVED_KEPT),
            labels: labels.build(),
        }
    }
}

/// A number that may not be written yet.
pub type Column = Option<i64>;

/// Labels of one link and month, in the order of the batch.
pub type LinkLabels<'a> = Vec<&'a LabelCount>;

impl Hits {
    /// Up to where a node's journal is counted. What this answers once holds for the process: a batch that was begun and
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
            // From here on it counts as begun, whether or not the answer comes.
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
        let mut days: HashMap<(ShortId, Day), [u64; 3]> = HashMap::new();
        for row in &batch.days {
            let sums = days.entry((row.link, row.day)).or_default();
            *sums = DayRows::add(*sums, row.devices);
        }
        let mut labels: HashMap<(ShortId, Month), LinkLabels<'_>> = HashMap::new();
        for row in &batch.labels {
            labels.entry((row.link, row.month)).or_default().push(row);
        }
        let mut served: HashMap<(KeyId, Month), u64> = HashMap::new();
        for row in &batch.served {
            *served.entry((row.key, row.month)).or_default() += row.count;
        }
        self.cluster.all(labels, |((link, month), rows)| self.add_labels(batch, link, month, rows)).await?;
        let (writer, upto) = (batch.writer, batch.upto);
        let add = |((key, month), added)| self.served.add(&self.cluster, (writer, key, month), added, upto);
        self.cluster.all(served, add).await?;
        // Last, and read first: whoever sees a total finds its labels.
        let add = |((link, day), added)| self.days.add(&self.cluster, (writer, link, day), added, upto);
        self.cluster.all(days, add).await
    }

    pub(super) async fn read_link_hits(&self, id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
        let rows: Vec<(i32, Column, Column, Column)> =
            self.cluster.cql.read(&self.cluster.statements.days, (id.as_str(),)).await?;
        let mut days: BTreeMap<Day, [u64; 3]> = BTreeMap::new();
        for (day, desktop, mobile, tablet) in rows {
            let sums = days.entry(day_from(day)).or_default();
            sums.iter_mut().zip([desktop, mobile, tablet]).for_each(|(sum, own)| *sum += number(own));
        }
        let labels = if with_labels { self.read_labels(id).await? } else { Vec::new() };
        Ok(LinkHits { days: days.into_iter().collect(), labels })
    }

    async fn read_labels(&self, id: ShortId) -> Result<Vec<(Dimension, Vec<(String, u64)>)>, StoreError> {
        let months: Vec<(i32,)> = self.cluster.cql.read(&self.cluster.statements.months, (id.as_str(),)).await?;
        let of_month = |(month,)| {
            self.cluster.cql.read::<(i8, String, Option<i64>)>(&self.cluster.statements.labels, (id.as_str(), month))
        };
        let months = try_join_all(months.into_iter().map(of_month)).await?;
        let mut sums: HashMap<(i8, String), u64> = HashMap::new();
        for rows in months {
            let mut of_month: HashMap<(i8, String), u64> = HashMap::new();
            for (dimension, label, count) in rows {
                *of_month.entry((dimension, label)).or_default() += number(count);
            }
            for (label, count) in within_bounds(of_month) {
                *sums.entry(label).or_default() += count;
            }
        }
        let mut lists = Dimension::ALL.map(|dimension| (dimension, Vec::new()));
        for ((dimension, label), sum) in sums {
            if let Some((_, list)) = lists.iter_mut().find(|(known, _)| Some(*known) == dimension_from(dimension)) {
                list.push((label, sum));
            }
        }
        Ok(lists.map(|(dimension, list)| (dimension, shortened(list))).into())
    }

    pub(super) async fn hits_served(&self, key: KeyId, month: Month) -> Result<u64, StoreError> {
        let rows: Vec<(Option<i64>,)> =
            self.cluster.cql.read(&self.cluster.statements.served, (key.0, month_column(month))).await?;
        Ok(rows.into_iter().map(|(count,)| number(count)).sum())
    }
}
