//! The header `Idempotency-Key`: a request that has one is done once, however often it is sent.

use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};

use super::Api;
use super::auth::Caller;
use super::problem::{FieldErrors, Problem};
use crate::domain::idempotency::{Fingerprint, IdempotencyKey, KeptAnswer, OnceEndpoint, OnceId, OnceRequest};
use crate::service::once::Once;
use crate::telemetry::metrics::once::OnceOutcome;

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The paths to which a `POST` may have the header.
const PATHS: [&str; 3] = ["/shorten", "/shorten/bulk", "/api-keys"];

/// Refuses the header where it means nothing: whoever sends it would rely on it.
///
/// # Errors
/// `validation`.
pub fn check_absent(request: &HttpRequest) -> Result<(), Problem> {
    if !is_misplaced(request) {
        return Ok(());
    }
    Err(refused("is not supported here: only by POST /shorten, /shorten/bulk and /api-keys"))
}

/// Whether a request has the header where it means nothing.
pub fn is_misplaced(request: &HttpRequest) -> bool {
    let (method, pattern) = (request.method(), request.match_pattern());
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let takes_it = *method == Method::POST && pattern.is_some_and(|pattern| PATHS.contains(&pattern.as_str()));
    !is_read && !takes_it && request.headers().contains_key(IDEMPOTENCY_KEY)
}

fn refused(detail: &'static str) -> Problem {
    let mut faults = FieldErrors::default();
    faults.header("Idempotency-Key", detail);
    faults.into_result().err().unwrap_or_else(Problem::internal)
}

/// What is to be done once; `None` for a request without the header.
///
/// # Errors
/// `validation` for a header that is malformed or repeated.
pub fn once(
    api: &Api,
    caller: &Caller,
    endpoint: OnceEndpoint,
    request: &HttpRequest,
    body: &str,
) -> Result<Option<OnceRequest>, Problem> {
    let mut values = request.headers().get_all(IDEMPOTENCY_KEY);
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().and_then(|text| IdempotencyKey::parse(text.trim()));
    let Some(key) = key.filter(|_| values.next().is_none()) else {
        return Err(refused(
            "must be 1 to 255 visible ASCII characters, as they are or as a string in quotes (RFC 8941), sent once",
        ));
    };
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    Ok(Some(OnceRequest {
        id: OnceId { owner: caller.key.id, endpoint, key },
        fingerprint: Fingerprint::of(content_type, body.as_bytes()),
        now: api.clock.now(),
    }))
}

/// What was done now, or else the answer to the request. `has_made`: whether it has made something, so that its answer is
/// kept.
///
/// # Errors
/// `idempotency-in-progress` or `idempotency-key-reused`.
pub fn done<T>(
    api: &Api,
    once: Once<T>,
    has_made: impl FnOnce(&T) -> bool,
) -> Result<Result<T, HttpResponse>, Problem> {
    let meters = &api.metrics.once;
    match once {
        Once::Done(done) => {
            if has_made(&done) {
                meters.count(OnceOutcome::Done);
            }
            Ok(Ok(done))
        }
        Once::Answered(answer) => {
            meters.count(OnceOutcome::Replayed);
            replayed(answer).map(Err)
        }
        Once::UnderWay => {
            meters.count(OnceOutcome::InProgress);
            Err(Problem::idempotency_in_progress())
        }
        Once::OtherRequest => {
            meters.count(OnceOutcome::Reused);
            Err(Problem::idempotency_key_reused())
        }
    }
}

fn replayed(answer: KeptAnswer) -> Result<HttpResponse, Problem> {
    let status = StatusCode::from_u16(answer.status).map_err(|_| Problem::internal())?;
    Ok(HttpResponseBuilder::new(status)
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")))
        .insert_header((IDEMPOTENT_REPLAYED, HeaderValue::from_static("true")))
        .body(answer.body))
}

/// An answer to be kept.
pub fn kept(status: StatusCode, body: &impl serde::Serialize) -> KeptAnswer {
    // Never fails: all maps here have string keys.
    KeptAnswer { status: status.as_u16(), body: serde_json::to_string(body).unwrap_or_default() }
}
