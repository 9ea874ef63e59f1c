//! Error answers: `application/problem+json` (RFC 9457). The only module that turns errors into HTTP.

mod kinds;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpResponse, ResponseError};
use serde::{Serialize, Serializer};
use serde_json::Value;

pub use self::kinds::ProblemKind;
pub use super::field_errors::{FieldError, FieldErrors, MAX_FAULTS};
use super::resolve::Refusal;
use crate::actors::supervisor::AskError;
use crate::domain::key::Scope;
use crate::limits::client::RetryAfter;
use crate::service::AccessError;
use crate::service::analytics::AnalyticsError;
use crate::service::keys::KeyError;
use crate::service::link_lists::ListError;
use crate::service::links::{ChangeError, CreateError};
use crate::service::webhook_actions::TestError;
use crate::store::StoreError;
use crate::telemetry::log_limit::LogLimit;

/// The `type` of every problem begins with this; the slug follows.
const TYPE_PREFIX: &str = "urn:problem-type:signpost:";
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// `Retry-After` of 503, in seconds.
const UNAVAILABLE_SECONDS: u32 = 2;
/// Tests of webhooks take no longer.
const TESTS_END_WITHIN_SECONDS: u32 = 10;
const A_DAY_SECONDS: u32 = 86_400;

impl FieldErrors {
    /// # Errors
    /// The `validation` problem if there are any errors.
    pub fn into_result(self) -> Result<(), Problem> {
        if self.as_slice().is_empty() {
            return Ok(());
        }
        let problem = Problem::new(ProblemKind::Validation, "The request is invalid; see `errors`.");
        Err(Problem { faults: self, ..problem })
    }
}

/// The body of an error answer, its members in the order for reading.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(flatten)]
    members: &'a Members,
}

/// The additional members of a problem, in this order.
#[derive(Debug, Default)]
struct Members(Vec<(&'static str, Value)>);

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// An error answer.
#[derive(Debug)]
pub struct Problem {
    kind: ProblemKind,
    detail: Cow<'static, str>,
    faults: FieldErrors,
    members: Members,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub fn new(kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            faults: FieldErrors::default(),
            members: Members::default(),
            headers: Vec::new(),
        }
    }

    #[must_use]
    pub fn with(mut self, member: &'static str, value: Value) -> Self {
        self.members.0.push((member, value));
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Without all errors of the request but the first.
    #[must_use]
    pub fn with_first_fault(mut self) -> Self {
        self.faults.keep_first();
        self
    }

    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The link does not exist.
    pub fn no_such_link() -> Self {
        Self::new(ProblemKind::NotFound, "Unknown short id.")
    }

    /// The link has expired, and has no fallback.
    pub fn link_expired() -> Self {
        Self::new(ProblemKind::LinkExpired, "This link has expired.")
    }

    /// The operator of the service has blocked the link.
    pub fn link_blocked() -> Self {
        Self::new(ProblemKind::LinkBlocked, "This link is blocked.")
    }

    /// The name is another link's, or is kept for another key. Which of these is not told.
    pub fn slug_taken() -> Self {
        Self::new(ProblemKind::SlugTaken, "This name is taken; choose another one.")
    }

    /// Another attempt of the request is at work.
    pub fn idempotency_in_progress() -> Self {
        let detail = "A request with this Idempotency-Key is in progress; send the same request again for its answer.";
        Self::new(ProblemKind::IdempotencyInProgress, detail).with_header(RETRY_AFTER, HeaderValue::from(1_u32))
    }

    pub fn idempotency_key_reused() -> Self {
        let detail =
            "This Idempotency-Key was sent with another body or Content-Type in the last 24 hours; choose a new one.";
        Self::new(ProblemKind::IdempotencyKeyReused, detail)
    }

    /// A condition of the request does not hold. `current` is the `ETag` of the link, if there is one.
    pub fn precondition_failed(current: Option<HeaderValue>) -> Self {
        let what_to_do = match current {
            Some(_) => "read it, and decide whether to send the request again.",
            None => "there is no link of this name. To create it, send the request without If-Match.",
        };
        let detail = format!("The link is not in the state that If-Match or If-None-Match asks for: {what_to_do}");
        let problem = Self::new(ProblemKind::PreconditionFailed, detail);
        match current {
            Some(current) => problem.with_header(ETAG, current),
            None => problem,
        }
    }

    pub fn no_such_page() -> Self {
        Self::new(ProblemKind::NotFound, "Unknown path. See GET /docs.")
    }

    pub fn method_not_allowed(allowed: &[Method]) -> Self {
        let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let detail = format!("This path supports {allowed}.");
        let problem = Self::new(ProblemKind::MethodNotAllowed, detail);
        match HeaderValue::try_from(allowed) {
            Ok(allowed) => problem.with_header(ALLOW, allowed),
            Err(_) => problem,
        }
    }

    /// The key is missing, unknown, expired or revoked, which are not distinguished.
    pub fn unauthorized() -> Self {
        let detail = "Send a valid API key in the X-API-Key header: it is missing, unknown, expired or revoked.";
        Self::new(ProblemKind::Unauthorized, detail)
            .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey realm=\"signpost\", header=\"X-API-Key\""))
    }

    pub fn scope_missing(scope: Scope) -> Self {
        let detail = format!("This request needs an API key with the scope {}.", scope.name());
        Self::new(ProblemKind::ScopeMissing, detail).with("scope", scope.name().into())
    }

    pub fn rate_limited(retry_after_seconds: u32) -> Self {
        let detail = format!("The rate limit is reached; retry after {retry_after_seconds} s.");
        Self::new(ProblemKind::RateLimited, detail).with_header(RETRY_AFTER, HeaderValue::from(retry_after_seconds))
    }

    /// The link has webhooks and was changed too often in the last 33 days.
    pub fn too_many_revisions() -> Self {
        let detail = "A link with webhooks can be changed 1,000 times in 33 days, which this one has been; retry when its \
                      earlier changes are 33 days old.";
        Self::new(ProblemKind::RateLimited, detail).with_header(RETRY_AFTER, HeaderValue::from(A_DAY_SECONDS))
    }

    pub fn unavailable() -> Self {
        Self::new(ProblemKind::Unavailable, "The service is temporarily unavailable; retry shortly.")
            .with_header(RETRY_AFTER, HeaderValue::from(UNAVAILABLE_SECONDS))
    }

    /// For an error status that another part created without a problem document.
    pub fn of_status(status: StatusCode) -> Self {
        match ProblemKind::ALL.into_iter().find(|kind| kind.status() == status) {
            Some(ProblemKind::NotFound) => Self::no_such_page(),
            Some(ProblemKind::MalformedBody) => Self::new(ProblemKind::MalformedBody, "The request is malformed."),
            Some(kind) if status.is_client_error() => Self::new(kind, kind.title()),
            _ => Self::internal(),
        }
    }

    pub fn internal() -> Self {
        Self::new(ProblemKind::Internal, "Internal error. Give the operator the request id, in X-Request-Id.")
    }

    /// The body.
    pub fn to_json(&self) -> String {
        let document = Document {
            kind: format!("{TYPE_PREFIX}{}", self.kind.slug()),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            errors: self.faults.as_slice(),
            members: &self.members,
        };
        // Never fails: strings, numbers, and a map with string keys.
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// Content type, caching, and the other headers of this problem.
    pub fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let all_have = [(CONTENT_TYPE, PROBLEM_JSON), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        all_have.into_iter().chain(self.headers.iter().cloned())
    }

    fn write_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in self.headers() {
            headers.insert(name, value);
        }
    }

    /// As an answer outside of the router.
    pub fn into_bare_response(self) -> actix_http::Response<BoxBody> {
        let mut response = actix_http::Response::with_body(self.kind.status(), BoxBody::new(self.to_json()));
        self.write_headers(response.headers_mut());
        response
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.kind.status()
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let mut response = HttpResponse::with_body(self.kind.status(), BoxBody::new(self.to_json()));
        self.write_headers(response.headers_mut());
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        (&error).into()
    }
}

impl From<TestError> for Problem {
    fn from(error: TestError) -> Self {
        match error {
            TestError::Busy => {
                let detail = "Too many webhooks are being tested at once; retry when these tests have ended.";
                Self::new(ProblemKind::Unavailable, detail)
                    .with_header(RETRY_AFTER, HeaderValue::from(TESTS_END_WITHIN_SECONDS))
            }
            TestError::Stopping => Self::unavailable(),
            TestError::Store(error) => error.into(),
        }
    }
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                log_unavailable(error);
                Self::unavailable()
            }
            StoreError::Corrupt { .. } => {
                tracing::error!(%error, "answered 500");
                Self::internal()
            }
        }
    }
}

impl From<Arc<StoreError>> for Problem {
    fn from(error: Arc<StoreError>) -> Self {
        error.as_ref().into()
    }
}

/// At most one line a second: while the store is unreachable, every request is answered 503.
fn log_unavailable(error: &dyn fmt::Display) {
    static LINES: LogLimit = LogLimit::new(Duration::from_secs(1));
    if let Some(answers) = LINES.admit() {
        tracing::warn!(%error, answers, "answered 503");
    }
}

impl From<AskError> for Problem {
    fn from(error: AskError) -> Self {
        log_unavailable(&error);
        Self::unavailable()
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::NotFound => Self::no_such_link(),
            AccessError::NotOwner => Self::new(ProblemKind::NotOwner, "This link belongs to another API key."),
            AccessError::Store(error) => error.into(),
        }
    }
}

impl From<ListError> for Problem {
    fn from(error: ListError) -> Self {
        match error {
            ListError::UnknownKey => KeyError::NotFound.into(),
            ListError::Store(error) => error.into(),
        }
    }
}

impl From<AnalyticsError> for Problem {
    fn from(error: AnalyticsError) -> Self {
        match error {
            AnalyticsError::Access(error) => error.into(),
            AnalyticsError::Untracked => {
                Self::new(ProblemKind::UntrackedLink, "This link is untracked: it has no analytics.")
            }
        }
    }
}

impl From<CreateError> for Problem {
    fn from(error: CreateError) -> Self {
        (&error).into()
    }
}

impl From<&CreateError> for Problem {
    fn from(error: &CreateError) -> Self {
        match error {
            // The API contract prescribes this `detail` exactly.
            CreateError::QuotaExceeded { limit, current } => {
                Self::new(ProblemKind::LinkQuotaExceeded, "Monthly link creation limit reached")
                    .with("limit", (*limit).into())
                    .with("current", (*current).into())
            }
            CreateError::SlugTaken => Self::slug_taken(),
            CreateError::NoRandomness => Self::internal(),
            CreateError::Store(error) => error.into(),
        }
    }
}

impl From<ChangeError<Self>> for Problem {
    fn from(error: ChangeError<Self>) -> Self {
        match error {
            ChangeError::Access(error) => error.into(),
            ChangeError::Refused(problem) => problem,
            ChangeError::TooManyRevisions => Self::too_many_revisions(),
            ChangeError::Create(error) => error.into(),
            ChangeError::Store(error) => error.into(),
        }
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::NotFound => Self::new(ProblemKind::NotFound, "Unknown API key."),
            KeyError::Forbidden(reason) => Self::new(ProblemKind::Forbidden, sentence(reason)),
            KeyError::QuotaExceeded { limit, current } => {
                let detail =
                    "This key has created as many live keys as its tier allows; revoke one, or wait until one expires.";
                Self::new(ProblemKind::KeyQuotaExceeded, detail)
                    .with("limit", limit.into())
                    .with("current", current.into())
            }
            KeyError::CreatorQuotaExceeded { limit, current } => {
                let detail = "The key that created this one has as many live keys as its tier allows; revoke one of \
                              them, or wait until one expires.";
                Self::new(ProblemKind::KeyQuotaExceeded, detail)
                    .with("limit", limit.into())
                    .with("current", current.into())
            }
            KeyError::NoRandomness | KeyError::Vault(_) => {
                tracing::error!(%error, "answered 500");
                Self::internal()
            }
            KeyError::Store(error) => error.into(),
        }
    }
}

impl From<Refusal<'_>> for Problem {
    fn from(refusal: Refusal<'_>) -> Self {
        match refusal {
            Refusal::NoSuchLink => Self::no_such_link(),
            Refusal::Expired => Self::link_expired(),
            Refusal::Blocked => Self::link_blocked(),
            Refusal::Limited(retry_after) => retry_after.into(),
            Refusal::NotLoaded(error) => error.into(),
        }
    }
}

impl From<RetryAfter> for Problem {
    fn from(RetryAfter(seconds): RetryAfter) -> Self {
        Self::rate_limited(seconds)
    }
}

fn sentence(reason: &str) -> String {
    let mut letters = reason.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}
