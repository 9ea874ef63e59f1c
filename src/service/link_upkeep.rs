//! The background upkeep of links: removes what is counted of deleted links, and deletes links some time after their
//! expiry.
//!
//! Every node does it. Two that delete the same link at once do no harm: the store deletes it once.

use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use crate::cache::links::LinkCache;
use crate::clock::Clock;
use crate::clock::removal::RemovalClock;
use crate::domain::breakdown::first_sheet_day;
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{ANSWERS_KEPT_MILLIS, CREATION_ENDS_AFTER};
use crate::domain::link::Link;
use crate::service::links::write;
use crate::store::{CountStore, ExpiredLink, LinkStore, OnceStore, Store, StoreError, UpdateLinkError};

/// The pause between two rounds, which varies by half of itself so that nodes rarely work at the same time. Expired
/// links are deleted within an hour of their time.
const PAUSE: Duration = Duration::from_mins(10);
/// Between two removals of old sheets.
const BETWEEN_REMOVALS: Duration = Duration::from_millis(10);
/// The longest pause before the first round.
const FIRST_PAUSE: Duration = Duration::from_mins(1);
/// Counts of a deleted link are kept for this long, so that no node counts further hits of it: by then all know of the
/// deletion and have counted the hits that they answered before.
const COUNTS_KEPT_FOR: Duration = Duration::from_hours(1);
/// Expired links read at a time.
const PAGE: usize = 100;

pub struct LinkUpkeep {
    store: Arc<dyn LinkStore>,
    once: Arc<dyn OnceStore>,
    counts: Arc<dyn CountStore>,
    cache: Arc<LinkCache>,
    clock: Clock,
    removal_clock: Arc<RemovalClock>,
    settings: UpkeepSettings,
    random: SystemRandom,
}

/// What is removed when.
#[derive(Clone, Copy, Debug)]
pub struct UpkeepSettings {
    /// How long after their expiry links are deleted; `None`: never.
    pub delete_expired_after: Option<Duration>,
    /// The days whose sheets are kept.
    pub sheet_days: u32,
}

impl LinkUpkeep {
    pub fn new(
        store: Arc<dyn Store>,
        cache: Arc<LinkCache>,
        clock: Clock,
        removal_clock: Arc<RemovalClock>,
        settings: UpkeepSettings,
    ) -> Self {
        let (once, counts) = (Arc::clone(&store) as Arc<dyn OnceStore>, Arc::clone(&store) as Arc<dyn CountStore>);
        Self { store, once, counts, cache, clock, removal_clock, settings, random: SystemRandom::new() }
    }

    /// Works for ever. The future may be dropped at any await.
    pub async fn run(self) {
        tokio::time::sleep(FIRST_PAUSE.mul_f64(self.random_unit())).await;
        loop {
            // Links first: a store with very many counts to remove must not delay them.
            if let Err(error) = self.delete_expired().await {
                tracing::warn!(%error, "can't delete expired links: retrying");
            }
            if let Err(error) = self.remove_counts().await {
                tracing::warn!(%error, "can't remove the counts of deleted links: retrying");
            }
            if let Err(error) = self.drop_answers().await {
                tracing::warn!(%error, "can't remove old answers to requests with an Idempotency-Key: retrying");
            }
            if let Err(error) = self.drop_sheets().await {
                tracing::warn!(%error, "can't remove the sheets of old days: retrying");
            }
            tokio::time::sleep(PAUSE.mul_f64(0.5 + self.random_unit())).await;
        }
    }

    /// Removes the sheets of days that are too old for breakdowns by day.
    async fn drop_sheets(&self) -> Result<(), StoreError> {
        let before = first_sheet_day(self.removal_clock.now(), self.settings.sheet_days);
        // All that is counted and created waits for the same thread of the store.
        while self.counts.drop_sheets(before).await? {
            tokio::time::sleep(BETWEEN_REMOVALS).await;
        }
        Ok(())
    }

    /// Removes the answers to requests that began more than 24 hours ago.
    async fn drop_answers(&self) -> Result<(), StoreError> {
        let before = Timestamp(self.removal_clock.now().0.saturating_sub(ANSWERS_KEPT_MILLIS));
        while self.once.drop_answers(before).await? {}
        Ok(())
    }

    /// Removes the counts of deleted links, until there are none.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn remove_counts(&self) -> Result<(), StoreError> {
        let before = self.removal_clock.now().minus(COUNTS_KEPT_FOR);
        while self.store.remove_counts_of_deleted(before).await? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Deletes the links that expired long enough ago, one after another, and returns how many.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn delete_expired(&self) -> Result<u64, StoreError> {
        let Some(after) = self.settings.delete_expired_after else { return Ok(0) };
        let before = self.removal_clock.now().minus(after);
        let mut deleted = 0;
        let all = self.delete_expired_before(before, &mut deleted).await;
        if deleted > 0 {
            tracing::info!(links = deleted, "deleted expired links");
        }
        all.map(|()| deleted)
    }

    async fn delete_expired_before(&self, before: Timestamp, deleted: &mut u64) -> Result<(), StoreError> {
        let mut last = None;
        loop {
            let page = self.store.expired_links(before, last, PAGE).await?;
            for expired in &page {
                match self.delete(*expired).await {
                    Ok(is_deleted) => *deleted += u64::from(is_deleted),
                    // One such row must not keep all others.
                    Err(error @ StoreError::Corrupt { .. }) => {
                        tracing::error!(%error, link = %expired.name, "can't delete an expired link");
                    }
                    Err(error @ StoreError::Unavailable(_)) => return Err(error),
                }
            }
            if page.len() < PAGE {
                return Ok(());
            }
            last = page.last().copied();
        }
    }

    /// Returns whether this node has deleted the link.
    async fn delete(&self, expired: ExpiredLink) -> Result<bool, StoreError> {
        // Since the list was read, the link may have got another expiry, or another link its name.
        let is_same = |link: &Link| link.id == expired.id && link.options.expires_at == Some(expired.expires_at);
        let Some(link) = self.store.link(expired.name).await?.filter(is_same) else {
            // Until then a repeated request may make the link. Its creation began before it expires.
            if expired.expires_at.plus(CREATION_ENDS_AFTER) <= self.removal_clock.now() {
                self.store.forget_expiry(expired).await?;
            }
            return Ok(false);
        };
        // Its `updated_at` is the time of the deletion.
        let link = Link { updated_at: self.clock.now(), ..link };
        match write(&self.cache, expired.name, self.store.delete_link(link)).await {
            Ok(()) => Ok(true),
            // It was changed, or another node has deleted it. If it is still expired, the next round finds it.
            Err(UpdateLinkError::Conflict | UpdateLinkError::TooManyRevisions) => Ok(false),
            Err(UpdateLinkError::Store(error)) => Err(error),
        }
    }

    /// From 0 to 1; 0.5 if the random generator fails.
    fn random_unit(&self) -> f64 {
        let mut byte = [0];
        self.random.fill(&mut byte).map_or(0.5, |()| f64::from(byte[0]) / f64::from(u8::MAX))
    }
}
