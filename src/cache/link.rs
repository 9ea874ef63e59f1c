//! A link as redirects need it.

use std::sync::Arc;

use ::http::{HeaderValue, StatusCode};

use super::redirect_head::RedirectHead;
use crate::domain::blocked_hosts::HostList;
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Destination, FiredWebhooks, LinkName, LinkTimes, ShortId, TimeState};
use crate::domain::utm::{UtmOfQuery, UtmValues};
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
    /// Whether hits of bots fire no webhooks.
    pub skips_bots: bool,
    /// The UTM parameters of the target; `None` if it has none, as nearly all targets.
    utm: Option<Box<UtmOfQuery<'static>>>,
    cache_seconds: u32,
    /// `None` if it leads to its target at any time, as nearly all links do.
    limits: Option<Box<Limits>>,
    /// By the clock of [`CacheClock`](super::clock::CacheClock): from then on the link has to be loaded again. `None`: it is valid
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
pub enum RedirectOutcome<'a> {
    Target,
    /// It is not yet active: visitors are answered as if there were no link.
    Scheduled,
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
            skips_bots,
        } = link;
        let unreadable =
            |error: &dyn std::fmt::Display| StoreError::Corrupt { table: "links", reason: error.to_string() };
        let utm = Some(UtmOfQuery::of_url(&target)).filter(|utm| !utm.is_empty());
        let utm = utm.map(|utm| Box::new(utm.into_owned()));
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
            skips_bots,
            utm,
            limits,
            valid_until: None,
            is_settled: true,
        })
    }

    /// Where the link leads at this instant.
    pub fn redirect_at(&self, at: Timestamp) -> RedirectOutcome<'_> {
        let Some(limits) = &self.limits else { return RedirectOutcome::Target };
        if limits.is_blocked {
            return RedirectOutcome::Blocked;
        }
        match limits.times.at(at) {
            TimeState::Active => RedirectOutcome::Target,
            TimeState::Scheduled => RedirectOutcome::Scheduled,
            TimeState::Expired if limits.is_fallback_blocked => RedirectOutcome::Blocked,
            TimeState::Expired => RedirectOutcome::Expired(limits.fallback.as_ref()),
        }
    }

    /// The `Cache-Control` header of a redirect at this instant, where it is not that of the head: no cache keeps a redirect
    /// beyond the link's end.
    pub fn shorter_cache_control(&self, at: Timestamp) -> Option<HeaderValue> {
        let end = self.limits.as_ref()?.times.expires_at?;
        let left = end.0.saturating_sub(at.0) / 1000;
        (left < u64::from(self.cache_seconds)).then(|| kept_for(left))
    }

    /// The values of the UTM parameters of the target.
    pub fn utm(&self) -> UtmValues<'_> {
        self.utm.as_deref().map_or_else(UtmValues::default, UtmOfQuery::values)
    }

    /// The link as it is kept for a moment, because another node is about to change it.
    pub(super) fn kept_until(&self, end: u64) -> Self {
        Self { valid_until: Some(end), is_settled: false, ..self.clone() }
    }

    /// The weight of an entry: 1, plus 1 for every 256 bytes of its targets and of their UTM parameters.
    pub(super) fn weight(&self) -> u32 {
        let fallback = self.limits.as_ref().and_then(|limits| limits.fallback.as_ref());
        let utm = self.utm.as_deref().map_or(0, UtmOfQuery::len);
        let bytes = self.head.location.len() + fallback.map_or(0, |fallback| fallback.location.len()) + utm;
        u32::try_from(1 + bytes / 256).unwrap_or(u32::MAX)
    }

    /// Whether a worker may keep it in its own cache: its targets and their UTM parameters have less than 256 bytes, and
    /// no other node is about to change it.
    pub(super) fn may_enter_worker_cache(&self) -> bool {
        self.is_settled && self.weight() == 1
    }
}

/// The `Cache-Control` header of a redirect that browsers may keep for so long.
fn kept_for(seconds: u64) -> HeaderValue {
    HeaderValue::try_from(format!("private, max-age={seconds}")).unwrap_or_else(|_| PRIVATE_NO_STORE.clone())
}

/// A link; `None` if the name has no link.
pub type Entry = Option<Arc<CachedLink>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::link::{NewLink, TargetUrl};

    fn cached(target: &str) -> CachedLink {
        let id = ShortId::parse("aB3xYz9").unwrap();
        let link = NewLink::to(TargetUrl::parse_stored(target).unwrap());
        let link = link.made(id, KeyId(uuid::Uuid::nil()), Timestamp(0));
        CachedLink::new(Destination::from(&link), &HostList::default(), true).unwrap()
    }

    #[test]
    fn the_utm_parameters_of_the_target_are_kept_and_weigh() {
        let plain = cached("https://example.com/#?utm_source=a");
        assert_eq!((plain.utm(), plain.weight(), plain.may_enter_worker_cache()), (UtmValues::default(), 1, true));
        let short = cached("https://example.com/?utm_source=a&x&utm_content=b%20c");
        assert_eq!((short.utm(), short.weight()), ([&b"a"[..], b"", b"", b"", b"b c"], 1));
        let long = cached(&format!("https://example.com/?utm_term={}", "x".repeat(120)));
        assert_eq!((long.weight(), long.may_enter_worker_cache()), (2, false));
    }
}
