//! What a request for a short link is answered, whoever has parsed it and however the answer is written.
//!
//! The fast path parses a head itself and writes bytes; behind the dispatcher the head is actix's, and so is the response.
//! Both admit the request, look the link up, and render the [`Answer`] that is made here.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::http::header::HeaderValue;

use super::Api;
use super::answer_fields::AnswerFields;
use crate::cache::link::{CachedLink, Entry, RedirectOutcome};
use crate::cache::redirect_head::RedirectHead;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::Position;
use crate::domain::link::LinkName;
use crate::limits::client::{ClientPlace, RetryAfter};
use crate::service::redirects::Visit;
use crate::store::StoreError;
use crate::telemetry::metrics::requests::{LookUp, RefusedLink};

/// A client, and where its limit counts it.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    address: IpAddr,
    place: ClientPlace<'a>,
}

impl<'a> Client<'a> {
    pub fn new(api: &'a Api, address: IpAddr) -> Self {
        Self { address, place: api.redirects.place_of(address) }
    }

    /// Takes a look-up from the client's limit, whatever is looked up. Answers the time of it.
    ///
    /// # Errors
    /// When the client is over its limit.
    pub fn admit(self, api: &Api) -> Result<Timestamp, RetryAfter> {
        api.redirects.admit(self.place).inspect_err(|_| api.metrics.redirects.limited())
    }
}

/// A `GET` or `HEAD` for a short link that its client's limit has admitted.
#[derive(Clone, Copy, Debug)]
pub struct AdmittedRequest {
    pub name: LinkName,
    /// `HEAD` is answered like `GET`, without a body, and is no hit.
    pub is_get: bool,
    client: IpAddr,
    /// When it was admitted.
    pub at: Timestamp,
}

impl AdmittedRequest {
    /// Takes the request from the client's limit.
    ///
    /// # Errors
    /// When the client is over its limit.
    pub fn admit(api: &Api, name: LinkName, is_get: bool, client: Client<'_>) -> Result<Self, RetryAfter> {
        let at = client.admit(api)?;
        Ok(Self { name, is_get, client: client.address, at })
    }

    /// Counts what was found, records the hit, and returns the answer. Where the answer does not go out after all, the hit counts
    /// nevertheless.
    pub fn answer<'a>(
        &self,
        api: &'a Api,
        fields: AnswerFields<'_>,
        link: Option<&'a CachedLink>,
        by: LookUp,
    ) -> Answer<'a> {
        let Some(link) = link else { return no_link(api, by) };
        match link.redirect_at(self.at) {
            RedirectOutcome::Target => {}
            RedirectOutcome::Scheduled => {
                let fallback = api.fallbacks.not_found.as_ref();
                api.metrics.redirects.refused(RefusedLink::Scheduled, by, fallback.is_some());
                return fallback.map_or(Answer::Refused(Refusal::NoSuchLink), Answer::to_fallback);
            }
            RedirectOutcome::Expired(own) => {
                let fallback = own.or(api.fallbacks.expired.as_ref());
                api.metrics.redirects.refused(RefusedLink::Expired, by, fallback.is_some());
                return fallback.map_or(Answer::Refused(Refusal::Expired), Answer::to_fallback);
            }
            RedirectOutcome::Blocked => {
                api.metrics.redirects.refused(RefusedLink::Blocked, by, false);
                return Answer::Refused(Refusal::Blocked);
            }
        }
        let recorded = if self.is_get { api.redirects.record(link, &self.visit(fields), self.at) } else { None };
        api.metrics.redirects.found(by);
        Answer::Redirect(RedirectAnswer {
            head: &link.head,
            cache_control: link.shorter_cache_control(self.at),
            recorded,
        })
    }

    /// As [`answer`](Self::answer) at the time of this call, with the result of [`RedirectService::load`](crate::service::redirects::RedirectService::load).
    pub fn answer_loaded<'a>(
        &mut self,
        api: &'a Api,
        fields: AnswerFields<'_>,
        loaded: &'a Result<Entry, Arc<StoreError>>,
    ) -> Answer<'a> {
        // The load may have taken a while, in which the link has expired.
        self.at = self.at.max(api.clock.now());
        match loaded {
            Ok(entry) => self.answer(api, fields, entry.as_deref(), LookUp::Store),
            Err(error) => {
                api.metrics.redirects.unavailable();
                Answer::Refused(Refusal::NotLoaded(error))
            }
        }
    }

    fn visit<'a>(&self, fields: AnswerFields<'a>) -> Visit<'a> {
        let AnswerFields { user_agent, referer, accept_language, query, is_prefetch, privacy, sec_ch_ua_mobile: _ } =
            fields;
        let (client, ch_ua_mobile) = (self.client, fields.is_mobile());
        Visit { client, user_agent, referer, ch_ua_mobile, accept_language, query, is_prefetch, privacy }
    }
}

/// What a request for a short link is answered.
#[derive(Debug)]
pub enum Answer<'a> {
    Redirect(RedirectAnswer<'a>),
    Refused(Refusal<'a>),
}

impl<'a> Answer<'a> {
    /// To the fallback of the link or of the settings. It is no hit.
    fn to_fallback(head: &'a RedirectHead) -> Self {
        Self::Redirect(RedirectAnswer { head, cache_control: None, recorded: None })
    }
}

/// A redirect to a link's target, or to a fallback. It has no body.
#[derive(Debug)]
pub struct RedirectAnswer<'a> {
    pub head: &'a RedirectHead,
    /// `None`: that of the head.
    pub cache_control: Option<HeaderValue>,
    /// Where the journal has the hit.
    pub recorded: Option<Position>,
}

/// Why there is no redirect.
#[derive(Clone, Copy, Debug)]
pub enum Refusal<'a> {
    NoSuchLink,
    Expired,
    Blocked,
    Limited(RetryAfter),
    NotLoaded(&'a StoreError),
}

/// Looks a link up without waiting: in memory, and in what the store has at hand. `None`: the store has to be asked.
pub fn look_up(api: &Api, name: &LinkName) -> Option<(Entry, LookUp)> {
    let cached = api.redirects.cached(name).map(|entry| (entry, LookUp::Memory));
    cached.or_else(|| api.redirects.known(name).map(|entry| (entry, LookUp::Store)))
}

/// The answer where there is no link.
fn no_link(api: &Api, by: LookUp) -> Answer<'_> {
    let fallback = api.fallbacks.not_found.as_ref();
    api.metrics.redirects.unknown(by, fallback.is_some());
    fallback.map_or(Answer::Refused(Refusal::NoSuchLink), Answer::to_fallback)
}
