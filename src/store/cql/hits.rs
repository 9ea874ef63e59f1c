//! Hit counters: rows of absolute totals, one for each node that counts, so that writing one again changes nothing.
//!
//! A batch's end is written down before its rows and after them. Each row says up to which batch it counts; where a batch
//! was begun and not ended, the same batch comes again, and rows that count it already stay as they are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::future::try_join_all;
use moka::sync::Cache;

use super::Tables;
use super::labels::{OwnLabels, within_bounds};
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

/// A total that includes the journal up to a position.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own<T> {
    pub total: T,
    pub upto: u64,
}

/// What this process knows of its own rows.
pub struct HitRows {
    /// Held while a batch is applied: one at a time.
    cursors: tokio::sync::Mutex<HashMap<NodeId, Cursor>>,
    days: Cache<(NodeId, ShortId, Day), Own<[u64; 3]>>,
    served: Cache<(NodeId, KeyId, Month), Own<u64>>,
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

impl Default for HitRows {
    fn default() -> Self {
        let labels = Cache::builder().max_capacity(LABELS_KEPT).weigher(|_, labels: &Arc<OwnLabels>| labels.weight());
        Self {
            cursors: tokio::sync::Mutex::default(),
            days: Cache::new(DAYS_KEPT),
            served: Cache::new(SERVED_KEPT),
            labels: labels.build(),
        }
    }
}

/// A number that may not be written yet.
pub type Column = Option<i64>;

/// Labels of one link and month, in the order of the batch.
pub type LinkLabels<'a> = Vec<&'a LabelCount>;

impl Tables {
    /// Up to where a node's journal is counted. What this answers once holds for the process: a batch that was begun and
    /// is not seen by now had no rows yet.
    pub(super) async fn known_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        let mut cursors = self.hit_rows.cursors.lock().await;
        let cursor = self.cursor_of(&cursors, writer).await?;
        cursors.insert(writer, cursor);
        Ok(cursor.at)
    }

    async fn read_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        let row = self.cql.read_one::<(Option<i64>, Option<i64>)>(&self.statements.hit_cursor, (writer.0,)).await?;
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
        let mut cursors = self.hit_rows.cursors.lock().await;
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
            self.cql.write(&self.statements.begin_batch, (upto, upto, writer)).await?;
            cursors.insert(batch.writer, Cursor { is_noted: true, is_repeated: true, ..cursor });
        }
        self.write_rows(batch).await?;
        self.enqueue(&batch.deliveries, cursor.is_repeated).await?;
        self.cql.write(&self.statements.end_batch, (upto, upto, writer)).await?;
        cursors.insert(batch.writer, Cursor { at: batch.upto.into(), is_noted: true, is_repeated: false });
        Ok(())
    }

    async fn write_rows(&self, batch: &HitBatch) -> Result<(), StoreError> {
        let mut days: HashMap<(ShortId, Day), [u64; 3]> = HashMap::new();
        for row in &batch.days {
            let sums = days.entry((row.link, row.day)).or_default();
            sums.iter_mut().zip(row.devices).for_each(|(sum, added)| *sum += added);
        }
        let mut labels: HashMap<(ShortId, Month), LinkLabels<'_>> = HashMap::new();
        for row in &batch.labels {
            labels.entry((row.link, row.month)).or_default().push(row);
        }
        let mut served: HashMap<(KeyId, Month), u64> = HashMap::new();
        for row in &batch.served {
            *served.entry((row.key, row.month)).or_default() += row.count;
        }
        self.all(labels, |((link, month), rows)| self.add_labels(batch, link, month, rows)).await?;
        self.all(served, |((key, month), added)| self.add_served(batch, key, month, added)).await?;
        // Last, and read first: whoever sees a total finds its labels.
        self.all(days, |((link, day), added)| self.add_day(batch, link, day, added)).await
    }

    async fn add_day(&self, batch: &HitBatch, link: ShortId, day: Day, added: [u64; 3]) -> Result<(), StoreError> {
        let known_as = (batch.writer, link, day);
        let mut own = self.own_day(known_as).await?;
        if own.upto < batch.upto.0 {
            own.total.iter_mut().zip(added).for_each(|(total, added)| *total += added);
            own.upto = batch.upto.0;
            let ([desktop, mobile, tablet], upto) = (own.total.map(bigint), bigint(own.upto));
            let values = (link.as_str(), day_column(day), batch.writer.0, desktop, mobile, tablet, upto, upto);
            self.cql.write(&self.statements.put_day, values).await?;
        }
        self.hit_rows.days.insert(known_as, own);
        Ok(())
    }

    /// This node's row of a link's day.
    async fn own_day(&self, known_as: (NodeId, ShortId, Day)) -> Result<Own<[u64; 3]>, StoreError> {
        if let Some(own) = self.hit_rows.days.get(&known_as) {
            return Ok(own);
        }
        let (writer, link, day) = known_as;
        let values = (link.as_str(), day_column(day), writer.0);
        let found: Option<(Column, Column, Column, Column)> =
            self.cql.read_one(&self.statements.own_day, values).await?;
        let (desktop, mobile, tablet, upto) = found.unwrap_or_default();
        Ok(Own { total: [desktop, mobile, tablet].map(number), upto: number(upto) })
    }

    async fn add_served(&self, batch: &HitBatch, key: KeyId, month: Month, added: u64) -> Result<(), StoreError> {
        let known_as = (batch.writer, key, month);
        let mut own = self.own_served(known_as).await?;
        if own.upto < batch.upto.0 {
            own = Own { total: own.total + added, upto: batch.upto.0 };
            let upto = bigint(own.upto);
            let values = (key.0, month_column(month), batch.writer.0, bigint(own.total), upto, upto);
            self.cql.write(&self.statements.put_served, values).await?;
        }
        self.hit_rows.served.insert(known_as, own);
        Ok(())
    }

    /// This node's row of a key's month.
    async fn own_served(&self, known_as: (NodeId, KeyId, Month)) -> Result<Own<u64>, StoreError> {
        if let Some(own) = self.hit_rows.served.get(&known_as) {
            return Ok(own);
        }
        let (writer, key, month) = known_as;
        let values = (key.0, month_column(month), writer.0);
        let found: Option<(Column, Column)> = self.cql.read_one(&self.statements.own_served, values).await?;
        let (count, upto) = found.unwrap_or_default();
        Ok(Own { total: number(count), upto: number(upto) })
    }

    pub(super) async fn read_link_hits(&self, id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
        let rows: Vec<(i32, Column, Column, Column)> = self.cql.read(&self.statements.days, (id.as_str(),)).await?;
        let mut days: BTreeMap<Day, [u64; 3]> = BTreeMap::new();
        for (day, desktop, mobile, tablet) in rows {
            let sums = days.entry(day_from(day)).or_default();
            sums.iter_mut().zip([desktop, mobile, tablet]).for_each(|(sum, own)| *sum += number(own));
        }
        let labels = if with_labels { self.read_labels(id).await? } else { Vec::new() };
        Ok(LinkHits { days: days.into_iter().collect(), labels })
    }

    async fn read_labels(&self, id: ShortId) -> Result<Vec<(Dimension, Vec<(String, u64)>)>, StoreError> {
        let months: Vec<(i32,)> = self.cql.read(&self.statements.months, (id.as_str(),)).await?;
        let of_month =
            |(month,)| self.cql.read::<(i8, String, Option<i64>)>(&self.statements.labels, (id.as_str(), month));
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
        let rows: Vec<(Option<i64>,)> = self.cql.read(&self.statements.served, (key.0, month_column(month))).await?;
        Ok(rows.into_iter().map(|(count,)| number(count)).sum())
    }
}
