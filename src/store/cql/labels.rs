//! Labels of hits: which are admitted to a list, and their totals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cluster::Cluster;
use super::outcome::CqlError;
use super::own_rows::{Column, OwnTable};
use crate::domain::breakdown::LabelList as Dimension;
use crate::domain::calendar::Month;
use crate::domain::hit::{LabelCount, MAX_LABELS, NodeId, OTHER_LABEL, Position};
use crate::domain::link::ShortId;
use crate::store::records::columns::{
    bigint, label_list as dimension_column, label_list_from as dimension_from, month as month_column, number,
};

/// Hosts have at most 253 bytes; the names of places come from a file of the operator and may have any length. A longer
/// one counts as [`OTHER_LABEL`].
const MAX_LABEL_BYTES: usize = 1_024;
/// Rows in one write to a partition.
const ROWS_AT_ONCE: usize = 100;

type Label = (Dimension, Arc<str>);

/// A label's total, which includes the journal up to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LabelTotal {
    count: u64,
    upto: u64,
    /// The end of the batch that added the label.
    born: u64,
}

/// All labels that this node has counted of one link and month.
#[derive(Debug, Default)]
pub struct OwnLabels(Mutex<HashMap<Label, LabelTotal>>);

impl OwnLabels {
    fn rows(&self) -> MutexGuard<'_, HashMap<Label, LabelTotal>> {
        // Nothing panics while this lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Labels of hits of a link in a month. They are read together, because whether a list admits a label depends on all of
/// them.
pub struct LabelTotals;

impl OwnTable for LabelTotals {
    type Key = (NodeId, ShortId, Month);
    type Stored = Arc<OwnLabels>;
    /// In the order of the batch.
    type Added = Vec<LabelCount>;

    async fn read(cluster: &Cluster, (writer, link, month): Self::Key) -> Result<Self::Stored, CqlError> {
        let values = (link.as_str(), month_column(month), writer.0);
        let rows: Vec<(i8, String, Column, Column, Column)> =
            cluster.cql.read(&cluster.statements.own_labels, values).await?;
        let rows = rows.into_iter().filter_map(|(dimension, label, count, upto, born)| {
            let row = LabelTotal { count: number(count), upto: number(upto), born: number(born) };
            Some(((dimension_from(dimension)?, label.into()), row))
        });
        Ok(Arc::new(OwnLabels(Mutex::new(rows.collect()))))
    }

    async fn add(
        cluster: &Cluster,
        (writer, link, month): Self::Key,
        own: Self::Stored,
        added: Self::Added,
        upto: Position,
    ) -> Result<Self::Stored, CqlError> {
        let (id, month) = (link.as_str(), month_column(month));
        let changed = changes(&own.rows(), upto.0, &added);
        if own.rows().is_empty() {
            cluster.cql.write(&cluster.statements.put_month, (id, month)).await?;
        }
        for rows in changed.chunks(ROWS_AT_ONCE) {
            let rows = rows.iter().map(|((dimension, label), row)| {
                let dimension = dimension_column(*dimension);
                let (count, upto, born) = (bigint(row.count), bigint(row.upto), bigint(row.born));
                (id, month, writer.0, dimension, &**label, count, upto, born, upto)
            });
            cluster.cql.write_partition(&cluster.statements.put_label, rows.collect()).await?;
        }
        own.rows().extend(changed);
        Ok(own)
    }

    fn weight(own: &Self::Stored) -> u32 {
        u32::try_from(1 + own.rows().len()).unwrap_or(u32::MAX)
    }
}

/// The new content of the rows that a batch changes.
///
/// It is the same at every replay, even if part of it is written already: which labels are admitted depends on the
/// labels of earlier batches, and then on the order of the batch.
fn changes(_own: &HashMap<Label, LabelTotal>, _upto: u64, _added: &[LabelCount]) -> Vec<(Label, LabelTotal)> {
    todo!("labels")
}

/// The labels of a month over all nodes. Each node keeps as many labels as a list may have; of all together, the rarest
/// beyond that number count as [`OTHER_LABEL`].
pub fn within_bounds(labels: HashMap<(i8, String), u64>) -> HashMap<(i8, String), u64> {
    let bound = usize::try_from(MAX_LABELS).unwrap_or(usize::MAX);
    if labels.len() <= bound {
        return labels;
    }
    let mut lists: HashMap<i8, Vec<(String, u64)>> = HashMap::new();
    for ((dimension, label), count) in labels {
        lists.entry(dimension).or_default().push((label, count));
    }
    let mut kept = HashMap::new();
    for (dimension, mut list) in lists {
        list.sort_by(|(a, a_count), (b, b_count)| {
            let order = (a == OTHER_LABEL).cmp(&(b == OTHER_LABEL));
            order.then(b_count.cmp(a_count)).then(a.cmp(b))
        });
        for (place, (label, count)) in list.into_iter().enumerate() {
            let label = if place < bound && label != OTHER_LABEL { label } else { OTHER_LABEL.to_owned() };
            *kept.entry((dimension, label)).or_default() += count;
        }
    }
    kept
}
