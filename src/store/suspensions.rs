//! Suspension of webhooks: a URL of a link whose deliveries have failed for long gets no more of them.

use std::num::NonZeroU32;

use async_trait::async_trait;

use super::{Settlement, StoreError};
use crate::domain::calendar::Timestamp;
use crate::domain::failure_run::{DeliveryEnd, FailureRun};
use crate::domain::link::ShortId;
use crate::domain::webhook::AttemptOutcome;

/// A URL of a link, by its place.
pub type LinkUrl = (ShortId, u8);

/// A URL of a link that gets no deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    pub link: ShortId,
    /// The place of the URL.
    pub place: u8,
    pub since: Timestamp,
    /// How many deliveries have failed in a row before it.
    pub failures: u32,
}

impl Suspension {
    /// The suspension that a run of failures has led to.
    pub fn of(link: ShortId, place: u8, run: &FailureRun) -> Option<Self> {
        run.suspended_at.map(|since| Self { link, place, since, failures: run.failures })
    }
}

/// Called with each suspension that begins.
pub type SuspensionHook = Box<dyn Fn(Suspension) + Send + Sync>;

/// When URLs are suspended, and who is told of it.
pub struct SuspensionRule {
    /// How many deliveries must fail in a row.
    pub failures: NonZeroU32,
    pub hook: SuspensionHook,
}

/// Counts failed deliveries in a row, and suspends URLs.
#[async_trait]
pub trait SuspensionStore: Send + Sync + 'static {
    /// From now on failed deliveries in a row are counted where they are settled, for each URL of each link. If they
    /// are as many as the rule says, over at least a day, the URL is suspended until a test of it succeeds or its link
    /// is changed. Deliveries that were never sent count for nothing.
    ///
    /// Without this call nothing is counted. A second call changes nothing.
    fn suspend_failing(&self, rule: SuspensionRule);

    /// The suspended URLs of these links.
    async fn suspensions(&self, links: Vec<ShortId>) -> Result<Vec<Suspension>, StoreError>;

    /// A test of a URL has succeeded: it is not suspended any more, and its failures are counted from zero.
    async fn end_suspension(&self, link: ShortId, place: u8) -> Result<(), StoreError>;

    /// Forgets all counts and suspensions: nothing is counted now, so those of before are not in a row with what comes
    /// later.
    async fn forget_failures(&self) -> Result<(), StoreError>;
}

impl Settlement {
    /// The end of the delivery, if it was attempted for the last time.
    pub fn end(&self) -> Option<DeliveryEnd> {
        let has_failed = match self.outcome {
            AttemptOutcome::Delivered { .. } => false,
            AttemptOutcome::Failed { retry_in: None, .. } => true,
            AttemptOutcome::Failed { .. } | AttemptOutcome::NeverSent { .. } => return None,
        };
        let Self { id, round, at, .. } = *self;
        Some(DeliveryEnd { id, round, at, has_failed })
    }
}
