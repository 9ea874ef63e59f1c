//! What a request for a short link is answered, whoever has parsed it and however the answer is written.
//!
//! The fast path parses a head itself and writes bytes; behind the dispatcher the head is actix's, and so is the response.
//! Both admit the request, look the link up, and render the [`Answer`] that is made here.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderValue;

use super::Api;
use super::answer_fields::AnswerFields;
use crate::cache::links::{CachedLink, Entry};
use crate::domain::calendar::Timestamp;
use crate::domain::hit::Position;
use crate::domain::link::ShortId;
use crate::limits::client::RetryAfter;
use crate::service::redirects::Visit;
use crate::store::StoreError;
use crate::telemetry::metrics::requests::LookUp;

pub static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
static PRIVATE_NO_STORE: HeaderValue = HeaderValue::from_static("private, no-store");

/// A `GET` or `HEAD` for a short link that its client's limit has admitted.
#[derive(Clone, Copy, Debug)]
pub struct AdmittedRequest {
    pub id: ShortId,
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
    pub fn admit(api: &Api, id: ShortId, is_get: bool, client: IpAddr) -> Result<Self, RetryAfter> {
        let at = admit(api, client)?;
        Ok(Self { id, is_get, client, at })
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
        let Some(link) = link else {
            let fallback = api.fallbacks.not_found.as_ref();
            api.metrics.redirects.unknown(by, fallback.is_some());
            return fallback.map_or(Answer::Refused(Refusal::NoSuchLink), Answer::to_fallback);
        };
        let recorded = if self.is_get { api.redirects.record(link, &self.visit(fields), self.at) } else { None };
        api.metrics.redirects.found(by);
        Answer::Redirect(RedirectAnswer {
            status: StatusCode::FOUND,
            location: &link.location,
            cache_control: &PRIVATE_NO_STORE,
            recorded,
        })
    }

    /// As [`answer`](Self::answer), with the result of [`RedirectService::load`](crate::service::redirects::RedirectService::load).
    pub fn answer_loaded<'a>(
        &self,
        api: &'a Api,
        fields: AnswerFields<'_>,
        loaded: &'a Result<Entry, Arc<StoreError>>,
    ) -> Answer<'a> {
        match loaded {
            Ok(entry) => self.answer(api, fields, entry.as_deref(), LookUp::Store),
            Err(error) => {
                api.metrics.redirects.unavailable();
                Answer::Refused(Refusal::NotLoaded(error))
            }
        }
    }

    fn visit<'a>(&self, fields: AnswerFields<'a>) -> Visit<'a> {
        let AnswerFields { user_agent, referer, .. } = fields;
        Visit { client: self.client, user_agent, referer, ch_ua_mobile: fields.is_mobile() }
    }
}

/// What a request for a short link is answered.
#[derive(Debug)]
pub enum Answer<'a> {
    Redirect(RedirectAnswer<'a>),
    Refused(Refusal<'a>),
}

impl<'a> Answer<'a> {
    /// To where unknown links lead. It is no hit.
    fn to_fallback(location: &'a HeaderValue) -> Self {
        let (status, cache_control) = (StatusCode::FOUND, &NO_STORE);
        Self::Redirect(RedirectAnswer { status, location, cache_control, recorded: None })
    }
}

/// The way to a link's target. It has no body.
#[derive(Debug)]
pub struct RedirectAnswer<'a> {
    pub status: StatusCode,
    pub location: &'a HeaderValue,
    pub cache_control: &'static HeaderValue,
    /// Where the journal has the hit.
    pub recorded: Option<Position>,
}

/// Why there is no redirect.
#[derive(Clone, Copy, Debug)]
pub enum Refusal<'a> {
    NoSuchLink,
    Limited(RetryAfter),
    NotLoaded(&'a StoreError),
}

/// Takes a look-up from the client's limit, whatever is looked up. Answers the time of it.
///
/// # Errors
/// When the client is over its limit.
pub fn admit(api: &Api, client: IpAddr) -> Result<Timestamp, RetryAfter> {
    api.redirects.admit(client).inspect_err(|_| api.metrics.redirects.limited())
}

/// Looks a link up without waiting: in memory, and in what the store has at hand. `None`: the store has to be asked.
pub fn look_up(api: &Api, id: ShortId) -> Option<(Entry, LookUp)> {
    let cached = api.redirects.cached(id).map(|entry| (entry, LookUp::Memory));
    cached.or_else(|| api.redirects.known(id).map(|entry| (entry, LookUp::Store)))
}
