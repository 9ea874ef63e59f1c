//! Analytics of the hits of a link, for its owner, and of all links of a key.

use std::sync::Arc;

use thiserror::Error;

use super::{AccessError, owned_link};
use crate::clock::Clock;
use crate::domain::analytics::{self, Analytics, Summary};
use crate::domain::breakdown::{BreakdownAnswer, BreakdownRange, Dimension};
use crate::domain::hit::HitSubject;
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName};
use crate::domain::range_end::RangeFault;
use crate::domain::series::{SeriesAnswer, SeriesParameters, SeriesRange};
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

/// Whose hits a caller asks for.
#[derive(Clone, Copy, Debug)]
pub enum HitsOf {
    /// A link. `None`: of a name that no link can have.
    Link(Option<LinkName>),
    /// All tracked links of the caller.
    Caller,
}

/// A series that is asked for.
#[derive(Clone, Debug)]
pub struct SeriesRequest {
    pub range: SeriesRange,
    pub bots: BotFilter,
}

/// A breakdown that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct BreakdownRequest {
    pub dimension: Dimension,
    pub range: BreakdownRange,
    pub bots: BotFilter,
    /// The most labels of the answer.
    pub limit: usize,
}

/// Reads analytics.
pub struct AnalyticsService {
    links: Arc<dyn LinkStore>,
    counts: Arc<dyn CountStore>,
    clock: Clock,
    /// For how many days breakdowns of single days are kept.
    sheet_days: u32,
}

impl AnalyticsService {
    pub fn new(links: Arc<dyn LinkStore>, counts: Arc<dyn CountStore>, clock: Clock, sheet_days: u32) -> Self {
        Self { links, counts, clock, sheet_days }
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

    /// The range of a series that is asked for now.
    ///
    /// # Errors
    /// All faults.
    pub fn series_range(&self, parameters: SeriesParameters<'_>) -> Result<SeriesRange, Vec<RangeFault>> {
        SeriesRange::parse(parameters, self.clock.now())
    }

    /// The range of a breakdown that is asked for now.
    ///
    /// # Errors
    /// All faults.
    pub fn breakdown_range(&self, from: Option<&str>, until: Option<&str>) -> Result<BreakdownRange, Vec<RangeFault>> {
        BreakdownRange::parse(from, until, self.clock.now(), self.sheet_days)
    }

    pub async fn series(
        &self,
        caller: &ApiKey,
        of: HitsOf,
        asked: SeriesRequest,
    ) -> Result<SeriesAnswer, AnalyticsError> {
        let subject = self.subject(caller, of).await?;
        Ok(self.counts.series(subject, asked.range, asked.bots).await?)
    }

    pub async fn breakdown(
        &self,
        caller: &ApiKey,
        of: HitsOf,
        asked: BreakdownRequest,
    ) -> Result<BreakdownAnswer, AnalyticsError> {
        let subject = self.subject(caller, of).await?;
        let breakdown = self.counts.breakdown(subject, asked.dimension, asked.range).await?;
        Ok(breakdown.answer(asked.bots, asked.limit))
    }

    async fn subject(&self, caller: &ApiKey, of: HitsOf) -> Result<HitSubject, AnalyticsError> {
        match of {
            HitsOf::Link(name) => Ok(HitSubject::Link(self.tracked(caller, name).await?.id)),
            HitsOf::Caller => Ok(HitSubject::Key(caller.id)),
        }
    }

    async fn tracked(&self, caller: &ApiKey, name: Option<LinkName>) -> Result<Link, AnalyticsError> {
        let link = owned_link(&*self.links, caller, name).await?;
        if link.tracked { Ok(link) } else { Err(AnalyticsError::Untracked) }
    }
}
