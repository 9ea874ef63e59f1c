//! Metrics of bulk creations.

use metrics::Counter;

use super::catalogue::{BULK_CREATIONS, BULK_LINKS};

/// The outcome of a link of a bulk creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkLinkOutcome {
    Created,
    Refused,
    Failed,
}

/// The sizes by which bulk creations are counted: the highest number of links, with its label.
const SIZES: [(usize, &str); 4] = [(10, "10"), (50, "50"), (200, "200"), (usize::MAX, "500")];

/// Counts bulk creations by their size, and their links by outcome.
pub struct BulkMeters {
    calls: [(usize, Counter); 4],
    created: Counter,
    refused: Counter,
    failed: Counter,
}

impl BulkMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register() -> Self {
        let links = |outcome: &'static str| metrics::counter!(BULK_LINKS.name, "outcome" => outcome);
        Self {
            calls: SIZES.map(|(most, label)| (most, metrics::counter!(BULK_CREATIONS.name, "links" => label))),
            created: links("created"),
            refused: links("refused"),
            failed: links("failed"),
        }
    }

    /// Counts a request with these links.
    pub fn count(&self, links: impl ExactSizeIterator<Item = BulkLinkOutcome>) {
        let size = links.len();
        if let Some((_, counter)) = self.calls.iter().find(|(most, _)| size <= *most) {
            counter.increment(1);
        }
        for outcome in links {
            let counter = match outcome {
                BulkLinkOutcome::Created => &self.created,
                BulkLinkOutcome::Refused => &self.refused,
                BulkLinkOutcome::Failed => &self.failed,
            };
            counter.increment(1);
        }
    }
}
