//! Sheets of months and days that this node writes: what its hits were by all dimensions.
//!
//! A month's sheet is kept for ever, a day's for some weeks. Each has the end of the last batch that it counts, and all its
//! rows are written together; so a batch is in a sheet whole or not at all.

use std::sync::Arc;

use futures_util::future::try_join_all;
use moka::sync::Cache;
use scylla::value::CqlValue;

use super::cluster::Cluster;
use super::label_rows::{self, LabelRow};
use super::own_rows::Column;
use super::session::RowWrite;
use super::sheet_rows::{SheetRows, SheetSpan, WHOLE, part_of, subject_column};
use crate::domain::breakdown::{Dimension, Sheet, sheet_kept_until};
use crate::domain::hit::{DayHits, HitSubject, NodeId, Position};
use crate::store::StoreError;
use crate::store::records::columns::{bigint, number};

/// Bytes of sheets of this node that are kept in memory, so that counting further needs no read.
const BYTES_KEPT: u64 = 64 << 20;
/// What a sheet takes in memory beside its rows.
const BYTES_BESIDE: usize = 200;
/// For rows that do not expire.
pub const FOR_EVER: i32 = 0;

type OwnKey = (NodeId, HitSubject, SheetSpan);
/// The first row of a sheet: its bytes, how many parts it has, and the end of what it counts.
type WholeColumns = (Option<Vec<u8>>, Option<i32>, Column);
/// A row of a sheet in parts: which part, its bytes, how many parts there are, and the end of what it counts.
type PartColumns = (i8, Option<Vec<u8>>, Option<i32>, Column);

/// A sheet of this node.
#[derive(Clone, Debug, Default)]
pub struct OwnSheet {
    pub rows: Arc<SheetRows>,
    pub upto: u64,
    /// What this node has counted of the month before it had a sheet.
    labels: Arc<Vec<LabelRow>>,
}

/// Hits that a batch adds to a sheet.
struct Addition<'a> {
    span: SheetSpan,
    sheets: Vec<&'a Sheet<Arc<str>>>,
    time_to_live: i32,
}

/// The sheets that this process has written last.
pub struct OwnSheets(Cache<OwnKey, OwnSheet>);

impl OwnSheets {
    pub fn new() -> Self {
        let weight = |_: &OwnKey, own: &OwnSheet| u32::try_from(BYTES_BESIDE + own.rows.bytes()).unwrap_or(u32::MAX);
        Self(Cache::builder().max_capacity(BYTES_KEPT).weigher(weight).build())
    }

    /// Adds what a batch that ends at `upto` has counted of a link's or key's days, which are of one month.
    pub async fn add(
        &self,
        cluster: &Cluster,
        writer: NodeId,
        days: &[DayHits],
        upto: Position,
    ) -> Result<(), StoreError> {
        let Some(first) = days.first() else { return Ok(()) };
        let of = first.of;
        let additions = additions(cluster, days);
        let before =
            try_join_all(additions.iter().map(|addition| self.own(cluster, writer, of, addition.span))).await?;
        let (mut next_sheets, mut rows_to_write) = (Vec::new(), Vec::new());
        for (addition, own) in additions.iter().zip(&before).filter(|(_, own)| own.upto < upto.0) {
            let rows = grown(own, addition, upto)?;
            let place = SheetPlace { writer, of, span: addition.span };
            rows_to_write.extend(place.writes(cluster, &rows, &own.rows, addition.time_to_live, bigint(upto.0)));
            next_sheets.push((addition.span, OwnSheet { rows: Arc::new(rows), upto: upto.0, labels: Arc::default() }));
        }
        if rows_to_write.is_empty() {
            return Ok(());
        }
        cluster.cql.write_together(rows_to_write).await?;
        for (span, own) in next_sheets {
            self.0.insert((writer, of, span), own);
        }
        Ok(())
    }

    async fn own(
        &self,
        cluster: &Cluster,
        writer: NodeId,
        of: HitSubject,
        span: SheetSpan,
    ) -> Result<OwnSheet, StoreError> {
        match self.0.get(&(writer, of, span)) {
            Some(own) => Ok(own),
            None => SheetPlace { writer, of, span }.read(cluster).await,
        }
    }
}

/// The month of some days, and those whose sheets are kept.
fn additions<'a>(cluster: &Cluster, days: &'a [DayHits]) -> Vec<Addition<'a>> {
    let sheet_days = cluster.cql.settings.sheet_days;
    let month = days.first().map(|day| Addition {
        span: SheetSpan::Month(day.day.month()),
        sheets: days.iter().map(|day| &day.sheet).collect(),
        time_to_live: FOR_EVER,
    });
    let kept = days.iter().filter(|_| sheet_days > 0).filter_map(|day| {
        let time_to_live = cluster.seconds_until(sheet_kept_until(day.day, sheet_days))?;
        Some(Addition { span: SheetSpan::Day(day.day), sheets: vec![&day.sheet], time_to_live })
    });
    month.into_iter().chain(kept).collect()
}

/// The rows of a sheet with what a batch adds.
fn grown(own: &OwnSheet, addition: &Addition<'_>, upto: Position) -> Result<SheetRows, StoreError> {
    let added = addition.sheets.iter().filter(|_| own.is_in_rows());
    let left: Vec<_> = added.map(|sheet| label_rows::not_in_rows(&own.labels, sheet, upto)).collect();
    let mut sum = own.sheet()?;
    match addition.span {
        SheetSpan::Month(_) if own.is_in_rows() => left.iter().for_each(|sheet| sum.add_to_month(sheet)),
        SheetSpan::Month(_) => addition.sheets.iter().for_each(|sheet| sum.add_to_month(sheet)),
        SheetSpan::Day(_) => addition.sheets.iter().for_each(|sheet| sum.add_within_bounds(sheet)),
    }
    Ok(SheetRows::of(&sum))
}

impl OwnSheet {
    pub fn sheet(&self) -> Result<Sheet<&str>, StoreError> {
        if self.is_in_rows() { Ok(label_rows::as_sheet(&self.labels)) } else { self.rows.sheet() }
    }

    /// Whether it has no rows of its own yet, and those of 0.1.0 count.
    fn is_in_rows(&self) -> bool {
        !self.labels.is_empty()
    }
}

/// Where a node has a sheet.
#[derive(Clone, Copy, Debug)]
pub struct SheetPlace {
    pub writer: NodeId,
    pub of: HitSubject,
    pub span: SheetSpan,
}

impl SheetPlace {
    pub async fn read(self, cluster: &Cluster) -> Result<OwnSheet, StoreError> {
        let (span, at) = self.span.columns();
        let (subject, writer) = (subject_column(self.of), self.writer.0);
        let values = (subject.as_str(), span, at, writer);
        let found: Option<WholeColumns> = cluster.cql.read_one(&cluster.statements.own_sheet, values).await?;
        let Some((whole, split, upto)) = found else { return self.read_labels(cluster).await };
        if split.unwrap_or(0) == 0 {
            let rows = SheetRows::read(whole.unwrap_or_default(), 0, []);
            return Ok(OwnSheet { rows: Arc::new(rows), upto: number(upto), labels: Arc::default() });
        }
        // Together, as they were written together: what the first one counts must be in all of them.
        let values = (subject.as_str(), span, all_parts(), at, writer);
        let found: Vec<PartColumns> = cluster.cql.read_at_once(&cluster.statements.own_sheet_parts, values).await?;
        let (mut first, mut parts) = ((Vec::new(), 0, 0), Vec::new());
        for (part, bytes, split, upto) in found {
            let bytes = bytes.unwrap_or_default();
            if part == WHOLE {
                first = (bytes, split.unwrap_or(0), number(upto));
            } else {
                parts.push((part, bytes));
            }
        }
        let (whole, split, upto) = first;
        Ok(OwnSheet { rows: Arc::new(SheetRows::read(whole, split, parts)), upto, labels: Arc::default() })
    }

    async fn read_labels(self, cluster: &Cluster) -> Result<OwnSheet, StoreError> {
        let labels = match (self.of, self.span) {
            (HitSubject::Link(link), SheetSpan::Month(month)) => {
                label_rows::own(cluster, self.writer, link, month).await?
            }
            _ => Vec::new(),
        };
        Ok(OwnSheet { labels: Arc::new(labels), ..OwnSheet::default() })
    }

    /// What writes the rows of a sheet where those of `before` are written.
    pub fn writes<'a>(
        self,
        cluster: &'a Cluster,
        rows: &SheetRows,
        before: &SheetRows,
        time_to_live: i32,
        upto: i64,
    ) -> Vec<RowWrite<'a>> {
        let ((span, at), split) = (self.span.columns(), rows.split());
        let write = |(part, bytes): (i8, &[u8])| {
            let values = [
                CqlValue::Ascii(subject_column(self.of)),
                CqlValue::TinyInt(span),
                CqlValue::TinyInt(part),
                CqlValue::Int(at),
                CqlValue::Uuid(self.writer.0),
                CqlValue::Blob(bytes.to_vec()),
                CqlValue::Int(if part == WHOLE { split } else { 0 }),
                CqlValue::BigInt(upto),
                CqlValue::BigInt(upto),
                CqlValue::Int(time_to_live),
            ];
            (&cluster.statements.put_sheet, values.into_iter().map(Some).collect())
        };
        rows.changed_from(before).map(write).collect()
    }
}

/// All rows that a sheet may have.
pub fn all_parts() -> Vec<i8> {
    std::iter::once(WHOLE).chain(Dimension::ALL.map(part_of)).collect()
}
