//! Analytics of a link's hits, for its owner.

use std::sync::Arc;

use thiserror::Error;

use super::{AccessError, owned_link};
use crate::clock::Clock;
use crate::domain::analytics::{self, Analytics, Summary};
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName};
use crate::domain::tally::BotFilter;
use crate::store::{CountStore, LinkStore, StoreError};

/// Why analytics can't be read.
#[derive(Debug, Error)]
pub enum AnalyticsError {
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The link is untracked: its hits are not counted by day.
    #[error("the link is untracked")]
    Untracked,
}

impl From<StoreError> for AnalyticsError {
    fn from(error: StoreError) -> Self {
        Self::Access(error.into())
    }
}

/// Reads analytics.
pub struct AnalyticsService {
    links: Arc<dyn LinkStore>,
    counts: Arc<dyn CountStore>,
    clock: Clock,
}

impl AnalyticsService {
    pub fn new(links: Arc<dyn LinkStore>, counts: Arc<dyn CountStore>, clock: Clock) -> Self {
        Self { links, counts, clock }
    }

    pub async fn full(
        &self,
        caller: &ApiKey,
        name: Option<LinkName>,
        bots: BotFilter,
    ) -> Result<Analytics, AnalyticsError> {
        let link = self.tracked(caller, name).await?;
        let hits = self.counts.link_hits(link.id, Some(bots)).await?;
        Ok(analytics::analyze(hits, self.clock.now().day(), bots))
    }

    pub async fn summary(
        &self,
        caller: &ApiKey,
        name: Option<LinkName>,
        bots: BotFilter,
    ) -> Result<(LinkName, Summary), AnalyticsError> {
        let link = self.tracked(caller, name).await?;
        let hits = self.counts.link_hits(link.id, None).await?;
        Ok((link.name(), analytics::summarize(&hits, self.clock.now().day(), bots)))
    }

    async fn tracked(&self, caller: &ApiKey, name: Option<LinkName>) -> Result<Link, AnalyticsError> {
        let link = owned_link(&*self.links, caller, name).await?;
        if link.tracked { Ok(link) } else { Err(AnalyticsError::Untracked) }
    }
}
