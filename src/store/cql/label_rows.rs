//! Labels of months as nodes of 0.1.0 have written them: a row for each label of a link. They are only read.
//!
//! A node that counts a month further takes its own rows over into its sheet ([`super::sheets`]), which counts instead of
//! them from then on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::future::try_join_all;
use uuid::Uuid;

use super::cluster::Cluster;
use super::own_rows::Column;
use crate::domain::breakdown::{Dimension, Sheet, SheetEntry, SheetLabel, kept_text};
use crate::domain::calendar::Month;
use crate::domain::hit::{MAX_LABELS, NodeId, OTHER_LABEL, Position};
use crate::domain::link::ShortId;
use crate::domain::tally::Tally;
use crate::store::StoreError;
use crate::store::records::columns::{month as month_column, month_from, number};

/// A row of a node.
#[derive(Clone, Debug)]
pub struct LabelRow {
    pub writer: Uuid,
    pub dimension: Dimension,
    pub label: String,
    pub count: u64,
    /// The end of the last batch that is counted; of the rows of all nodes, it is not read.
    pub upto: u64,
}

/// The dimension of a column; `None` for one that the rows never had.
fn dimension_from(column: i8) -> Option<Dimension> {
    u8::try_from(column).ok().and_then(Dimension::from_number)
}

/// The rows of a node.
pub async fn own(cluster: &Cluster, writer: NodeId, link: ShortId, month: Month) -> Result<Vec<LabelRow>, StoreError> {
    let values = (link.as_str(), month_column(month), writer.0);
    let rows: Vec<(i8, String, Column, Column)> = cluster.cql.read(&cluster.statements.own_labels, values).await?;
    let row = |(dimension, label, count, upto)| {
        let (dimension, count, upto) = (dimension_from(dimension)?, number(count), number(upto));
        Some(LabelRow { writer: writer.0, dimension, label, count, upto })
    };
    Ok(rows.into_iter().filter_map(row).collect())
}

/// The rows of a link's months, of those that `is_wanted` names.
pub async fn of_link(
    cluster: &Cluster,
    link: ShortId,
    is_wanted: impl Fn(Month) -> bool,
) -> Result<BTreeMap<Month, Vec<LabelRow>>, StoreError> {
    let months: Vec<(i32,)> = cluster.cql.read(&cluster.statements.months, (link.as_str(),)).await?;
    let months = months.into_iter().map(|(month,)| month_from(month)).filter(|month| is_wanted(*month));
    let of_month = async |month| Ok::<_, StoreError>((month, of_month(cluster, link, month).await?));
    Ok(try_join_all(months.map(of_month)).await?.into_iter().collect())
}

/// The rows of a link's month.
pub async fn of_month(cluster: &Cluster, link: ShortId, month: Month) -> Result<Vec<LabelRow>, StoreError> {
    let values = (link.as_str(), month_column(month));
    let rows: Vec<(Uuid, i8, String, Column)> = cluster.cql.read(&cluster.statements.labels, values).await?;
    let row = |(writer, dimension, label, count)| {
        Some(LabelRow { writer, dimension: dimension_from(dimension)?, label, count: number(count), upto: 0 })
    };
    Ok(rows.into_iter().filter_map(row).collect())
}

/// The rows of a node as its sheet. What 0.1.0 has counted were persons.
pub fn as_sheet(rows: &[LabelRow]) -> Sheet<&str> {
    let mut sheet = Sheet::default();
    for row in rows {
        if let Some(label) = SheetLabel::of_text(row.dimension, kept_text(&row.label)) {
            sheet.add(row.dimension, label, Tally { persons: row.count, bots: 0 });
        }
    }
    sheet
}

/// What of a batch that ends at `upto` the rows do not count yet: the node may have ended while it wrote the batch.
pub fn not_in_rows<'a>(rows: &[LabelRow], added: &'a Sheet<Arc<str>>, upto: Position) -> Sheet<&'a str> {
    let counted_upto: HashMap<(Dimension, &str), u64> =
        rows.iter().map(|row| ((row.dimension, kept_text(&row.label)), row.upto)).collect();
    let is_full = |dimension| {
        let labels = rows.iter().filter(|row| row.dimension == dimension && row.label != OTHER_LABEL);
        labels.count() as u64 >= MAX_LABELS
    };
    let is_counted = |entry: &SheetEntry<Arc<str>>| {
        let text = entry.label.text(entry.dimension).unwrap_or(OTHER_LABEL);
        let counted = match counted_upto.get(&(entry.dimension, text)) {
            // Without a row of its own, it is counted as other once the list is full.
            None if is_full(entry.dimension) => counted_upto.get(&(entry.dimension, OTHER_LABEL)),
            found => found,
        };
        counted.is_some_and(|counted| *counted >= upto.0)
    };
    let mut left = Sheet::default();
    left.add_private(added.private());
    for entry in added.entries().iter().filter(|entry| !is_counted(entry)) {
        let label = match &entry.label {
            SheetLabel::Code(code) => SheetLabel::Code(*code),
            SheetLabel::Country(letters) => SheetLabel::Country(*letters),
            SheetLabel::Text(text) => SheetLabel::Text(&**text),
            SheetLabel::Other => SheetLabel::Other,
        };
        left.push(SheetEntry { dimension: entry.dimension, label, tally: entry.tally });
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(dimension: Dimension, label: &str, count: u64, upto: u64) -> LabelRow {
        LabelRow { writer: Uuid::nil(), dimension, label: label.into(), count, upto }
    }

    fn batch(labels: &[(Dimension, &str)]) -> Sheet<Arc<str>> {
        let mut sheet = Sheet::default();
        for (dimension, label) in labels {
            sheet.add(*dimension, SheetLabel::of_text(*dimension, Arc::from(*label)).unwrap(), Tally::of_hit(false));
        }
        sheet
    }

    fn shown<T: AsRef<str>>(sheet: &Sheet<T>) -> Vec<(Dimension, &str, u64)> {
        let entries = sheet.entries().iter();
        entries.map(|it| (it.dimension, it.label.text(it.dimension).unwrap_or("-"), it.tally.all())).collect()
    }

    #[test]
    fn rows_become_a_sheet_with_codes_and_shortened_texts() {
        let long = "x".repeat(200);
        let rows = [
            row(Dimension::City, &long, 1, 1),
            row(Dimension::Country, "DE", 2, 1),
            row(Dimension::Country, OTHER_LABEL, 4, 1),
            row(Dimension::City, "Jena", 8, 1),
        ];
        let sheet = as_sheet(&rows);
        let expected = [
            (Dimension::Country, "DE", 2),
            (Dimension::Country, "-", 4),
            (Dimension::City, &long[..128], 1),
            (Dimension::City, "Jena", 8),
        ];
        assert_eq!(shown(&sheet), expected);
    }

    #[test]
    fn what_rows_count_of_a_batch_is_left_out() {
        let rows =
            [row(Dimension::City, "a", 5, 20), row(Dimension::City, "b", 5, 10), row(Dimension::Region, "c", 5, 10)];
        let added = batch(&[
            (Dimension::City, "a"),
            (Dimension::City, "b"),
            (Dimension::City, "c"),
            (Dimension::Region, "a"),
            (Dimension::Browser, "chrome"),
        ]);
        let left = not_in_rows(&rows, &added, Position(20));
        let expected = [
            (Dimension::Region, "a", 1),
            (Dimension::City, "b", 1),
            (Dimension::City, "c", 1),
            (Dimension::Browser, "chrome", 1),
        ];
        assert_eq!(shown(&left), expected);
        assert_eq!(shown(&not_in_rows(&rows, &added, Position(30))).len(), 5);
    }

    #[test]
    fn labels_past_the_cap_are_in_the_row_of_the_others() {
        let full: Vec<_> = (0..MAX_LABELS).map(|n| row(Dimension::City, &n.to_string(), 1, 10)).collect();
        let added = batch(&[(Dimension::City, "new"), (Dimension::City, "7")]);
        let others = |upto| [&full[..], &[row(Dimension::City, OTHER_LABEL, 3, upto)]].concat();
        assert_eq!(shown(&not_in_rows(&others(20), &added, Position(20))), [(Dimension::City, "7", 1)]);
        assert_eq!(shown(&not_in_rows(&others(10), &added, Position(20))).len(), 2);
    }
}
