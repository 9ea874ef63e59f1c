//! What every keyed endpoint goes through first: key, scope, rate limit, in this order.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, web};
use futures_util::future::{Ready, ready};

use super::Api;
use super::problem::Problem;
use crate::actors::key_shard::AdmitRequest;
use crate::domain::endpoint::Endpoint;
use crate::domain::key::{ApiKey, KeyId, Scope};
use crate::domain::window::{Admission, WINDOW_SECONDS};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What an endpoint asks of a key.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub scope: Scope,
    pub endpoint: Endpoint,
    /// A key may do this to itself without the scope; it is named by the path's `key_id`.
    pub or_self: bool,
}

/// Who is asking, on a request that was let in.
#[derive(Clone)]
pub struct Caller {
    pub key: Arc<ApiKey>,
    /// What is known of the links that the key made this month.
    pub links_created: Option<u64>,
}

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut actix_web::dev::Payload) -> Self::Future {
        // Every route with a caller has the gate before it; a route without one would answer 401.
        let caller = request.extensions().get::<Rc<Self>>().map(|caller| Self::clone(caller));
        ready(caller.ok_or_else(Problem::unauthorized))
    }
}

/// How long a request may take once its body is there. One asks the store several times, each of which has a time of its
/// own; a client that hears nothing for longer has given up.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// Lets a request through to its handler, or refuses it; and answers in time, whatever the store does.
pub async fn pass(
    access: Access,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    // The app puts it there before any route is asked.
    let api = request.app_data::<web::Data<Api>>().cloned().ok_or_else(Problem::internal)?;
    // The time for a body is the client's.
    let has_body = *request.method() == Method::POST;
    let within = if has_body { api.request_timeout + ANSWERED_WITHIN } else { ANSWERED_WITHIN };
    let passed = tokio::time::timeout(within, let_through(access, api, request, next)).await;
    passed.unwrap_or_else(|_| Err(Problem::unavailable().into()))
}

async fn let_through(
    access: Access,
    api: web::Data<Api>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let secret = presented_secret(request.headers()).ok_or_else(Problem::unauthorized)?;
    let key = api.authentication.authenticate(secret).await.map_err(Problem::from)?;
    let is_self = || request.match_info().get("key_id").and_then(|id| id.parse().ok()).map(KeyId) == Some(key.id);
    let may = key.scopes.contains(access.scope) || (access.or_self && is_self());
    if !may {
        return Err(Problem::scope_missing(access.scope).into());
    }
    let limit = api.plans.of(&key).requests_per_minute(access.endpoint);
    let asked = AdmitRequest {
        key: key.id,
        endpoint: access.endpoint,
        limit: limit.map_or(0, std::num::NonZeroU32::get),
        now: api.clock.now(),
    };
    // The root has no limits: nothing needs to be asked.
    let admitting = if key.is_root { None } else { Some(api.shards.admit(asked).await.map_err(Problem::from)?) };
    let admission = admitting.as_ref().and_then(|admitting| admitting.admission);
    let rate_limit = limit.zip(admission).map(|(limit, admission)| rate_limit(access.endpoint, limit.get(), admission));
    if let Some(Admission::Refused { retry_after_seconds }) = admission {
        api.metrics.refusals.limited_keys.increment(1);
        let mut problem = Problem::rate_limited(retry_after_seconds);
        for (name, value) in rate_limit.into_iter().flatten() {
            problem = problem.with_header(name, value);
        }
        return Err(problem.into());
    }
    let links_created = admitting.and_then(|admitting| admitting.links_created);
    request.extensions_mut().insert(Rc::new(Caller { key, links_created }));
    let mut response = next.call(request).await?;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in rate_limit.into_iter().flatten() {
        headers.insert(name, value);
    }
    Ok(response)
}

/// The secret that a request carries: `X-API-Key`, else `Authorization: Bearer`.
pub fn presented_secret(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get(X_API_KEY) {
        return Some(key.as_bytes());
    }
    let (scheme, secret) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| secret.trim_ascii())
}

/// The IETF draft's header fields: the policy, and what is left of it.
fn rate_limit(endpoint: Endpoint, limit: u32, admission: Admission) -> [(HeaderName, HeaderValue); 2] {
    let name = endpoint.policy_name();
    let policy = format!("\"{name}\";q={limit};w={WINDOW_SECONDS}");
    let left = format!("\"{name}\";r={};t={}", admission.remaining(), admission.reset_seconds());
    // Names and numbers are ASCII: both are header values.
    [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, left)]
        .map(|(name, value)| (name, HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""))))
}
