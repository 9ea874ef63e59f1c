//! The kinds of problems: slug, status and title.

use actix_web::http::StatusCode;

/// The kinds of problems. Clients distinguish them by `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    MalformedBody,
    Unauthorized,
    Forbidden,
    ScopeMissing,
    NotOwner,
    UntrackedLink,
    LinkQuotaExceeded,
    KeyQuotaExceeded,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    SlugTaken,
    IdempotencyInProgress,
    LinkExpired,
    LinkBlocked,
    PreconditionFailed,
    PayloadTooLarge,
    UnsupportedMediaType,
    Validation,
    IdempotencyKeyReused,
    RateLimited,
    HeadersTooLarge,
    Internal,
    Unavailable,
}

impl ProblemKind {
    pub const ALL: [Self; 24] = [
        Self::MalformedBody,
        Self::Unauthorized,
        Self::Forbidden,
        Self::ScopeMissing,
        Self::NotOwner,
        Self::UntrackedLink,
        Self::LinkQuotaExceeded,
        Self::KeyQuotaExceeded,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::SlugTaken,
        Self::IdempotencyInProgress,
        Self::LinkExpired,
        Self::LinkBlocked,
        Self::PreconditionFailed,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::Validation,
        Self::IdempotencyKeyReused,
        Self::RateLimited,
        Self::HeadersTooLarge,
        Self::Internal,
        Self::Unavailable,
    ];

    /// Slug, status and title.
    fn row(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::MalformedBody => ("malformed-body", StatusCode::BAD_REQUEST, "Malformed body"),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "Forbidden"),
            Self::ScopeMissing => ("scope-missing", StatusCode::FORBIDDEN, "Scope missing"),
            Self::NotOwner => ("not-owner", StatusCode::FORBIDDEN, "Not the owner"),
            Self::UntrackedLink => ("untracked-link", StatusCode::FORBIDDEN, "Untracked link"),
            Self::LinkQuotaExceeded => ("link-quota-exceeded", StatusCode::FORBIDDEN, "Link quota exceeded"),
            Self::KeyQuotaExceeded => ("key-quota-exceeded", StatusCode::FORBIDDEN, "Key quota exceeded"),
            Self::NotFound => ("not-found", StatusCode::NOT_FOUND, "Not found"),
            Self::MethodNotAllowed => ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::RequestTimeout => ("request-timeout", StatusCode::REQUEST_TIMEOUT, "Request timeout"),
            Self::SlugTaken => ("slug-taken", StatusCode::CONFLICT, "Slug taken"),
            Self::IdempotencyInProgress => {
                ("idempotency-in-progress", StatusCode::CONFLICT, "The same request is in progress")
            }
            Self::LinkExpired => ("link-expired", StatusCode::GONE, "Link expired"),
            Self::LinkBlocked => ("link-blocked", StatusCode::GONE, "Link blocked"),
            Self::PreconditionFailed => ("precondition-failed", StatusCode::PRECONDITION_FAILED, "Precondition failed"),
            Self::PayloadTooLarge => ("payload-too-large", StatusCode::PAYLOAD_TOO_LARGE, "Payload too large"),
            Self::UnsupportedMediaType => {
                ("unsupported-media-type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported media type")
            }
            Self::Validation => ("validation", StatusCode::UNPROCESSABLE_ENTITY, "Validation failed"),
            Self::IdempotencyKeyReused => {
                ("idempotency-key-reused", StatusCode::UNPROCESSABLE_ENTITY, "Idempotency key reused")
            }
            Self::RateLimited => ("rate-limited", StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
            Self::HeadersTooLarge => {
                ("headers-too-large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "Header fields too large")
            }
            Self::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
            Self::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "Unavailable"),
        }
    }

    pub fn slug(self) -> &'static str {
        self.row().0
    }

    pub fn status(self) -> StatusCode {
        self.row().1
    }

    pub fn title(self) -> &'static str {
        self.row().2
    }
}
