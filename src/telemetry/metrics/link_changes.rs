//! Metrics of changes of links.

use metrics::Counter;

use super::catalogue::LINK_CHANGES;

/// What has become of a request to change a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChangeOutcome {
    /// `PUT` has made a link.
    Created,
    Changed,
    /// The link was as requested already.
    Unchanged,
    Deleted,
    /// A condition of the request did not hold.
    Conflict,
    Refused,
    Failed,
}

impl LinkChangeOutcome {
    const ALL: [Self; 7] =
        [Self::Created, Self::Changed, Self::Unchanged, Self::Deleted, Self::Conflict, Self::Refused, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Counts requests to change links by outcome.
pub struct LinkChangeMeters([(LinkChangeOutcome, Counter); 7]);

impl LinkChangeMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register() -> Self {
        let counter = |outcome: LinkChangeOutcome| metrics::counter!(LINK_CHANGES.name, "outcome" => outcome.name());
        Self(LinkChangeOutcome::ALL.map(|outcome| (outcome, counter(outcome))))
    }

    pub fn count(&self, outcome: LinkChangeOutcome) {
        if let Some((_, counter)) = self.0.iter().find(|(known, _)| *known == outcome) {
            counter.increment(1);
        }
    }
}
