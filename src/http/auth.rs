//! Authentication and authorization of requests with a key: key, scope, rate limit, in this order.

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{Path, ServiceRequest, ServiceResponse, Url};
use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, web};
use futures_util::future::{Ready, ready};
use tokio::time::{Instant, sleep_until};

use super::problem::Problem;
use super::{Api, idempotency, unauthorized};
use crate::actors::key_shard::AdmitRequest;
use crate::domain::key::{ApiKey, KeyId, Scope, SecretHash};
use crate::domain::rate_limit::RateLimit;
use crate::domain::window::{Admission, WINDOW_SECONDS};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The access that an endpoint requires.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub scope: Scope,
    pub rate_limit: &'static RateLimit,
    /// A key may use the endpoint on itself without the scope; the path's `key_id` identifies the key.
    pub or_self: bool,
}

impl Access {
    /// Refuses a key that may not use the endpoint.
    fn check(&self, key: &ApiKey, path: &Path<Url>) -> Result<(), Problem> {
        let is_self = || path.get("key_id").and_then(|id| id.parse().ok()).map(KeyId) == Some(key.id);
        let may = key.scopes.contains(self.scope) || (self.or_self && is_self());
        if may { Ok(()) } else { Err(Problem::scope_missing(self.scope)) }
    }
}

/// The caller of an authorized request.
#[derive(Clone)]
pub struct Caller {
    pub key: Arc<ApiKey>,
    /// The known number of links that the key has created this month.
    pub links_created: Option<u64>,
}

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut actix_web::dev::Payload) -> Self::Future {
        // Every route with a caller has the auth middleware. A route without it answers 401.
        let caller = request.extensions().get::<Rc<Self>>().map(|caller| Self::clone(caller));
        ready(caller.ok_or_else(Problem::unauthorized))
    }
}

/// The time limit of a request after its body has arrived. A request may call the store several times, each with a
/// time limit of its own; clients give up on longer requests.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// The deadline of a request. A request that is unfinished then is answered 503, and its pending work is cancelled.
#[derive(Clone)]
pub struct RequestDeadline(Rc<Cell<Instant>>);

impl RequestDeadline {
    /// `for_body` is the time limit of the body.
    fn new(for_body: Duration) -> Self {
        Self(Rc::new(Cell::new(Instant::now() + for_body + ANSWERED_WITHIN)))
    }

    /// Starts the time limit of the answer. Unused time of the body's limit is not added.
    pub fn start_answer_timeout(&self) {
        self.0.set(Instant::now() + ANSWERED_WITHIN);
    }

    /// The result of `answering`, or `None` after the deadline.
    async fn hold<R>(&self, answering: impl Future<Output = R>) -> Option<R> {
        let (mut answering, mut timer) = (pin!(answering), pin!(sleep_until(self.0.get())));
        let in_time = poll_fn(|context| {
            if let Poll::Ready(answer) = answering.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            if timer.deadline() != self.0.get() {
                timer.as_mut().reset(self.0.get());
            }
            timer.as_mut().poll(context).map(|()| None)
        });
        in_time.await
    }
}

/// Passes a request to its handler, or refuses it, within the deadline. `access`: the scope that the key needs; `None`:
/// any key may pass. `has_body`: the handler reads a body, and checks what goes behind it.
pub async fn pass(
    counted: &'static RateLimit,
    access: Option<Access>,
    has_body: bool,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    // The app adds it before routing.
    let api = request.app_data::<web::Data<Api>>().cloned().ok_or_else(Problem::internal)?;
    let may_have_body = matches!(*request.method(), Method::POST | Method::PATCH | Method::PUT);
    let answer_by = RequestDeadline::new(if may_have_body { api.request_timeout } else { Duration::ZERO });
    request.extensions_mut().insert(answer_by.clone());
    let limits = RateLimitHeaders::default();
    let passed =
        answer_by.hold(authorize_and_call(counted, access, has_body, api, request, next, limits.clone())).await;
    passed.unwrap_or_else(|| Err(limits.added_to(Problem::unavailable()).into()))
}

/// The headers of a request's rate limit, once it is counted.
#[derive(Clone, Default)]
struct RateLimitHeaders(Rc<OnceCell<[(HeaderName, HeaderValue); 2]>>);

impl RateLimitHeaders {
    fn get(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        self.0.get().cloned().into_iter().flatten()
    }

    fn added_to(&self, problem: Problem) -> Problem {
        self.get().fold(problem, |problem, (name, value)| problem.with_header(name, value))
    }
}

async fn authorize_and_call(
    counted: &'static RateLimit,
    access: Option<Access>,
    has_body: bool,
    api: web::Data<Api>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
    limits: RateLimitHeaders,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let key = unauthorized::authenticate(&api, &request).await?;
    // Only after authentication: other clients could write any text to the log.
    api.notices.check_host(request.headers(), &api.base_url);
    if let Some(access) = access {
        access.check(&key, request.match_info())?;
    }
    let limit = api.rates.of(&key, counted.id);
    let asked = AdmitRequest {
        key: key.id,
        rate_limit: counted.id,
        limit: limit.map_or(0, std::num::NonZeroU32::get),
        now: api.clock.now(),
    };
    // The root key has no limits.
    let admitting = if key.is_root { None } else { Some(api.shards.admit(asked).await.map_err(Problem::from)?) };
    let admission = admitting.as_ref().and_then(|admitting| admitting.admission);
    if let Some((limit, admission)) = limit.zip(admission) {
        limits.0.get_or_init(|| rate_limit(counted.name, limit.get(), admission));
    }
    if let Some(Admission::Refused { retry_after_seconds }) = admission {
        api.metrics.refusals.limited_keys.increment(1);
        return Err(limits.added_to(Problem::rate_limited(retry_after_seconds)).into());
    }
    if !has_body {
        idempotency::check_absent(request.request()).map_err(|problem| limits.added_to(problem))?;
    }
    let links_created = admitting.and_then(|admitting| admitting.links_created);
    request.extensions_mut().insert(Rc::new(Caller { key, links_created }));
    let mut response = next.call(request).await?;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in limits.get() {
        headers.insert(name, value);
    }
    Ok(response)
}

/// The secret that a request presents: `X-API-Key`, else `Authorization: Bearer`.
pub fn presented_secret(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get(X_API_KEY) {
        return Some(key.as_bytes());
    }
    let (scheme, secret) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| secret.trim_ascii())
}

/// The hash of the secret that a request presents.
pub fn presented_hash(request: &HttpRequest) -> SecretHash {
    SecretHash::of(presented_secret(request.headers()).unwrap_or_default())
}

/// The caller's key as it is now, if it still has the access. The record by which the request was let in is older: the key may
/// have been changed while the body was read, or on another node. What it gives to keys is judged by what it has now.
pub async fn caller_now(api: &Api, access: Access, caller: &Caller, request: &HttpRequest) -> Result<ApiKey, Problem> {
    let key = api.keys.valid_now(&caller.key, &presented_hash(request)).await?.ok_or_else(Problem::unauthorized)?;
    access.check(&key, request.match_info())?;
    Ok(key)
}

/// The header fields of the IETF draft: the policy, and the remaining quota.
fn rate_limit(name: &str, limit: u32, admission: Admission) -> [(HeaderName, HeaderValue); 2] {
    let policy = format!("\"{name}\";q={limit};w={WINDOW_SECONDS}");
    let left = format!("\"{name}\";r={};t={}", admission.remaining(), admission.reset_seconds());
    // Names and numbers are ASCII, so both are valid header values.
    [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, left)]
        .map(|(name, value)| (name, HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_for_an_answer_begins_when_the_body_is_there() {
        let answer_by = RequestDeadline::new(Duration::from_secs(10));
        let began = Instant::now();
        let answering = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            answer_by.start_answer_timeout();
            std::future::pending::<()>().await;
        };
        assert_eq!(answer_by.hold(answering).await, None);
        assert_eq!(began.elapsed().as_secs(), 17);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_passed_on() {
        let answer_by = RequestDeadline::new(Duration::ZERO);
        let answering = async {
            tokio::time::sleep(Duration::from_secs(14)).await;
            7
        };
        assert_eq!(answer_by.hold(answering).await, Some(7));
    }
}
