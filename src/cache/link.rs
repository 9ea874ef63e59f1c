//! A link as redirects need it.

use std::sync::Arc;

use ::http::{HeaderValue, StatusCode};

use super::redirect_head::RedirectHead;
use crate::domain::blocked_hosts::HostList;
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Destination, FiredWebhooks, LinkName, LinkTimes, ShortId, TimeState};
use crate::store::StoreError;

static PRIVATE_NO_STORE: HeaderValue = HeaderValue::from_static("private, no-store");

/// What a redirect needs of a link, with a head that is made once for each load and shared by all answers.
#[derive(Clone, Debug)]
pub struct CachedLink {
    pub id: ShortId,
    pub name: LinkName,
    pub owner: KeyId,
    /// The link's revision.
    pub revision: u32,
    pub tracked: bool,
    /// Which webhooks a hit fires.
    pub webhooks: FiredWebhooks,
    /// The head of a redirect to its target.
    pub head: RedirectHead,
    /// Whether `/{short_id}+` shows the target.
    pub has_preview: bool,
    cache_seconds: u32,
    /// `None` if it leads to its target at any time, as nearly all links do.
    limits: Option<Box<Limits>>,
    /// By the clock of [`Freshness`](super::freshness::Freshness): from then on the link has to be loaded again. `None`: it is valid
    /// until it changes.
    pub(super) valid_until: Option<u64>,
    /// Whether workers may keep it in their own caches.
    pub(super) is_settled: bool,
}

/// When and whether a link leads to its target.
#[derive(Clone, Debug)]
struct Limits {
    times: LinkTimes,
    fallback: Option<RedirectHead>,
    is_fallback_blocked: bool,
    is_blocked: bool,
}

/// Where a link leads at an instant.
#[derive(Clone, Copy, Debug)]
pub enum Lead<'a> {
    Target,
    /// It is not yet active: visitors are answered as if there were no link.
    Nowhere,
    /// It is expired: to its own fallback, if it has one.
    Expired(Option<&'a RedirectHead>),
    Blocked,
}

impl CachedLink {
    /// The link for redirects, where `blocked` has the hosts that no link leads to. `noindex`: redirects have
    /// `X-Robots-Tag: noindex`.
    pub fn new(link: Destination, blocked: &HostList, noindex: bool) -> Result<Self, StoreError> {
        let Destination {
            id,
            name,
            owner,
            revision,
            tracked,
            webhooks,
            target,
            times,
            fallback,
            status,
            cache_seconds,
            is_blocked,
            has_preview,
        } = link;
        let unreadable =
            |error: &dyn std::fmt::Display| StoreError::Corrupt { table: "links", reason: error.to_string() };
        let is_blocked = is_blocked || blocked.has_host_of(&target);
        let is_fallback_blocked = fallback.as_deref().is_some_and(|url| blocked.has_host_of(url));
        let has_limits = is_blocked || fallback.is_some() || times != LinkTimes::default();
        let fallback = fallback.map(|url| RedirectHead::of_fallback(&url, noindex)).transpose();
        let fallback = fallback.map_err(|error| unreadable(&error))?;
        let limits = has_limits.then(|| Box::new(Limits { times, fallback, is_fallback_blocked, is_blocked }));
        let status = StatusCode::from_u16(status.code()).map_err(|error| unreadable(&error))?;
        let cache_control = match cache_seconds {
            0 => PRIVATE_NO_STORE.clone(),
            seconds => kept_for(u64::from(seconds)),
        };
        Ok(Self {
            id,
            name,
            owner,
            revision: revision.0,
            tracked,
            webhooks,
            head: RedirectHead::new(status, &target, &cache_control, noindex).map_err(|error| unreadable(&error))?,
            cache_seconds,
            has_preview,
            limits,
            valid_until: None,
            is_settled: true,
        })
    }

    /// Where the link leads at this instant.
    pub fn lead(&self, at: Timestamp) -> Lead<'_> {
        let Some(limits) = &self.limits else { return Lead::Target };
        if limits.is_blocked {
            return Lead::Blocked;
        }
        match limits.times.at(at) {
            TimeState::Active => Lead::Target,
            TimeState::Scheduled => Lead::Nowhere,
            TimeState::Expired if limits.is_fallback_blocked => Lead::Blocked,
            TimeState::Expired => Lead::Expired(limits.fallback.as_ref()),
        }
    }

    /// The `Cache-Control` header of a redirect at this instant, where it is not that of the head: no cache keeps a redirect
    /// beyond the link's end.
    pub fn shorter_cache_control(&self, at: Timestamp) -> Option<HeaderValue> {
        let end = self.limits.as_ref()?.times.expires_at?;
        let left = end.0.saturating_sub(at.0) / 1000;
        (left < u64::from(self.cache_seconds)).then(|| kept_for(left))
    }

    /// The link as it is kept for a moment, because another node is about to change it.
    pub(super) fn kept_until(&self, end: u64) -> Self {
        Self { valid_until: Some(end), is_settled: false, ..self.clone() }
    }

    /// The weight of an entry: 1, plus 1 for every 256 bytes of its targets.
    pub(super) fn weight(&self) -> u32 {
        let fallback = self.limits.as_ref().and_then(|limits| limits.fallback.as_ref());
        let bytes = self.head.location.len() + fallback.map_or(0, |fallback| fallback.location.len());
        u32::try_from(1 + bytes / 256).unwrap_or(u32::MAX)
    }

    /// Whether a worker may keep it in its own cache: its targets have less than 256 bytes, and no other node is about to
    /// change it.
    pub(super) fn may_be_near(&self) -> bool {
        self.is_settled && self.weight() == 1
    }
}

/// The `Cache-Control` header of a redirect that browsers may keep for so long.
fn kept_for(seconds: u64) -> HeaderValue {
    HeaderValue::try_from(format!("private, max-age={seconds}")).unwrap_or_else(|_| PRIVATE_NO_STORE.clone())
}

/// A link; `None` if the name has no link.
pub type Entry = Option<Arc<CachedLink>>;
