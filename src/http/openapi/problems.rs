//! The error answers of operations, and the meaning of each kind of problem.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use actix_web::http::Method;
use actix_web::http::header::HeaderValue;
use serde_json::{Value, json};

use super::headers;
use crate::domain::key::Scope;
use crate::http::body::BodyBounds;
use crate::http::endpoint::{Endpoint, Requirement};
use crate::http::merge_patch;
use crate::http::problem::{FieldErrors, PROBLEM_JSON, Problem, ProblemKind};
use crate::service::AccessError;
use crate::service::analytics::AnalyticsError;
use crate::service::keys::KeyError;
use crate::service::links::CreateError;

/// When a problem occurs, and what to do.
fn meaning(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::MalformedBody => {
            "The body is not JSON in UTF-8, or nests deeper than 64 levels; or the request is not valid HTTP, such as one with an empty `Host`."
        }
        ProblemKind::Unauthorized => {
            "The API key is missing, unknown, expired or revoked, which are not distinguished."
        }
        ProblemKind::Forbidden => "The key may not do this, independent of its scopes; `detail` says why.",
        ProblemKind::ScopeMissing => "The key lacks a scope; `scope` names it.",
        ProblemKind::NotOwner => "The link belongs to another key.",
        ProblemKind::UntrackedLink => "The link was created with `tracked: false`: it has no analytics.",
        ProblemKind::LinkQuotaExceeded => "The key's monthly quota of links is used up; see `limit` and `current`.",
        ProblemKind::KeyQuotaExceeded => {
            "The key has created as many live keys as its tier allows; see `limit` and `current`. Revoke one, or wait \
             until one expires."
        }
        ProblemKind::NotFound => "The link, key or path does not exist, or the key may not see it.",
        ProblemKind::MethodNotAllowed => "The path does not support this method; `Allow` lists the supported ones.",
        ProblemKind::RequestTimeout => "The request took too long to arrive.",
        ProblemKind::SlugTaken => {
            "The name is taken: another link has it, or it is kept for another key that had a link of this name."
        }
        ProblemKind::IdempotencyInProgress => {
            "A request with this `Idempotency-Key` is in progress: send the same request again after `Retry-After` seconds."
        }
        ProblemKind::LinkExpired => "The link has expired: its `expires_at` has passed.",
        ProblemKind::LinkBlocked => "The operator of the service has blocked the link.",
        ProblemKind::PreconditionFailed => {
            "The link is not in the state that `If-Match` or `If-None-Match` asks for. If there is a link, `ETag` is that of its \
             current state: read the link, then decide whether to send the request again."
        }
        ProblemKind::PayloadTooLarge => {
            "The body has more than 65,536 bytes; of `POST /shorten/bulk`: more than 1,048,576."
        }
        ProblemKind::UnsupportedMediaType => {
            "The `Content-Type` is not JSON: send `application/json`, `application/*+json`, or no type. A `PATCH` takes only \
             `application/merge-patch+json` and `application/json`, as its `Accept-Patch` says, or no type."
        }
        ProblemKind::Validation => {
            "Fields or parameters are missing, malformed or unknown; `errors` lists all errors, at most the first 100, each with a `pointer` into \
             the body (RFC 6901), the name of a query `parameter` or that of a `header`."
        }
        ProblemKind::IdempotencyKeyReused => {
            "The `Idempotency-Key` was sent with another body or `Content-Type` to this endpoint in the last 24 hours."
        }
        ProblemKind::RateLimited => "The rate limit is reached; retry after `Retry-After` seconds.",
        ProblemKind::HeadersTooLarge => "The head of the request is too large.",
        ProblemKind::Internal => "An error of the service. Search its log for the request id.",
        ProblemKind::Unavailable => {
            "The service can't answer now, for example because its store is unreachable; retry after \
             `Retry-After` seconds."
        }
    }
}

/// A real problem of this kind, as `path` answers it. Endpoints may have other examples.
fn usual(kind: ProblemKind, path: &str, scope: Option<Scope>) -> Problem {
    match kind {
        ProblemKind::MalformedBody => Problem::new(kind, "The body is not JSON (line 1, column 17)."),
        ProblemKind::Unauthorized => Problem::unauthorized(),
        ProblemKind::Forbidden => KeyError::Forbidden("the root key can't be revoked").into(),
        ProblemKind::ScopeMissing => Problem::scope_missing(scope.unwrap_or(Scope::LinksRead)),
        ProblemKind::NotOwner => AccessError::NotOwner.into(),
        ProblemKind::UntrackedLink => AnalyticsError::Untracked.into(),
        ProblemKind::LinkQuotaExceeded => CreateError::QuotaExceeded { limit: 100, current: 100 }.into(),
        ProblemKind::KeyQuotaExceeded => KeyError::QuotaExceeded { limit: 10, current: 10 }.into(),
        ProblemKind::SlugTaken => Problem::slug_taken(),
        ProblemKind::IdempotencyInProgress => Problem::idempotency_in_progress(),
        ProblemKind::IdempotencyKeyReused => Problem::idempotency_key_reused(),
        ProblemKind::LinkExpired => Problem::link_expired(),
        ProblemKind::LinkBlocked => Problem::link_blocked(),
        ProblemKind::PreconditionFailed => Problem::precondition_failed(Some(HeaderValue::from_static("\"4\""))),
        ProblemKind::NotFound if path.contains("{key_id}") => KeyError::NotFound.into(),
        ProblemKind::NotFound if path.contains("{short_id}") => Problem::no_such_link(),
        ProblemKind::NotFound => Problem::no_such_page(),
        ProblemKind::Validation => {
            let mut faults = FieldErrors::default();
            faults.parameter("limt", "unknown parameter");
            faults.into_result().err().unwrap_or_else(Problem::internal)
        }
        ProblemKind::RateLimited => Problem::rate_limited(17),
        ProblemKind::Unavailable => Problem::unavailable(),
        ProblemKind::Internal => Problem::internal(),
        ProblemKind::PayloadTooLarge => BodyBounds::USUAL.too_large(),
        ProblemKind::UnsupportedMediaType => Problem::new(kind, "Send the body as application/json."),
        ProblemKind::RequestTimeout => Problem::new(kind, "The body did not arrive within 10 s."),
        ProblemKind::MethodNotAllowed => Problem::method_not_allowed(&[Method::GET, Method::HEAD]),
        ProblemKind::HeadersTooLarge => Problem::of_status(kind.status()),
    }
}

/// Adds all error answers to an operation: of its handler, of the auth middleware and of reading a body.
pub fn add_to(operation: &mut Value, endpoint: &Endpoint) {
    let own = endpoint.docs.problems;
    let mut kinds: Vec<ProblemKind> = own.iter().map(|problem| problem.kind).collect();
    kinds.push(ProblemKind::Internal);
    if endpoint.rate_limit().is_some() {
        kinds.extend([ProblemKind::Unauthorized, ProblemKind::RateLimited, ProblemKind::Unavailable]);
    }
    if endpoint.access().is_some() {
        kinds.push(ProblemKind::ScopeMissing);
    }
    if let Requirement::Client(_) = endpoint.requires {
        kinds.push(ProblemKind::RateLimited);
    }
    if endpoint.docs.body.is_some() {
        let reading = [
            ProblemKind::MalformedBody,
            ProblemKind::RequestTimeout,
            ProblemKind::PayloadTooLarge,
            ProblemKind::UnsupportedMediaType,
        ];
        kinds.extend(reading);
    }
    let mut by_status: BTreeMap<u16, Vec<ProblemKind>> = BTreeMap::new();
    for kind in ProblemKind::ALL.into_iter().filter(|kind| kinds.contains(kind)) {
        by_status.entry(kind.status().as_u16()).or_default().push(kind);
    }
    for (status, kinds) in by_status {
        let example = |kind| {
            let of_endpoint = own.iter().find(|problem| problem.kind == kind).and_then(|problem| problem.example);
            let scope = endpoint.access().map(|access| access.scope);
            let is_of_patch = endpoint.takes_patch() && kind == ProblemKind::UnsupportedMediaType;
            let of_endpoint = of_endpoint.or(is_of_patch.then_some(merge_patch::unsupported_media_type));
            of_endpoint.map_or_else(|| usual(kind, endpoint.path, scope), |example| example())
        };
        let mut response = response(&kinds, example);
        if endpoint.takes_patch() && kinds.contains(&ProblemKind::UnsupportedMediaType) {
            headers::add(&mut response, "Accept-Patch");
        }
        if let Requirement::RedirectLimit = endpoint.requires {
            response["content"]["text/html"] = json!({"schema": {"type": "string"}});
            headers::add(&mut response, "Vary");
        }
        operation["responses"][status.to_string()] = response;
    }
}

/// The answer with a status, which may be one of several problems.
fn response(kinds: &[ProblemKind], example: impl Fn(ProblemKind) -> Problem) -> Value {
    // Only the reference, so that generated clients have one type for all errors. The names of the examples say which
    // problems are possible.
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    let mut description = String::new();
    let mut examples = json!({});
    for kind in kinds {
        let separator = if description.is_empty() { "" } else { "\n\n" };
        // Writing into a string can't fail.
        let _ = write!(description, "{separator}`{}`: {}", kind.slug(), meaning(*kind));
        let value: Value = serde_json::from_str(&example(*kind).to_json()).unwrap_or_default();
        examples[kind.slug()] = json!({"summary": kind.title(), "value": value});
    }
    let content = json!({"schema": schema, "examples": examples});
    let mut response =
        json!({"description": description, "content": {PROBLEM_JSON.to_str().unwrap_or_default(): content}});
    headers::add(&mut response, "Cache-Control");
    for kind in kinds {
        match kind {
            ProblemKind::Unauthorized => headers::add(&mut response, "WWW-Authenticate"),
            ProblemKind::RateLimited | ProblemKind::Unavailable | ProblemKind::IdempotencyInProgress => {
                headers::add(&mut response, "Retry-After");
            }
            ProblemKind::MethodNotAllowed => headers::add(&mut response, "Allow"),
            ProblemKind::PreconditionFailed => headers::add(&mut response, "ETag"),
            ProblemKind::LinkQuotaExceeded => {
                headers::add(&mut response, "X-Usage-Links-Created");
                headers::add(&mut response, "X-Usage-Links-Limit");
            }
            _ => {}
        }
    }
    response
}

/// Answers that do not belong to an operation.
pub fn shared_responses() -> Value {
    let only = |kind| response(&[kind], |kind| usual(kind, "", None));
    json!({
        "MethodNotAllowed": only(ProblemKind::MethodNotAllowed),
        "NoSuchPage": only(ProblemKind::NotFound),
        "HeadersTooLarge": only(ProblemKind::HeadersTooLarge),
    })
}

/// All kinds, as a Markdown table.
pub fn table() -> String {
    let mut table = String::from("| status | slug | when |\n|---|---|---|\n");
    for kind in ProblemKind::ALL {
        // Writing into a string can't fail.
        let _ = writeln!(table, "| {} | `{}` | {} |", kind.status().as_u16(), kind.slug(), meaning(kind));
    }
    table
}
