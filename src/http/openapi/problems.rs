//! The error answers of every operation, and what each kind of problem means.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use actix_web::http::Method;
use serde_json::{Value, json};

use super::headers;
use crate::domain::key::Scope;
use crate::http::endpoint::{Asks, Endpoint};
use crate::http::problem::{Faults, Kind, PROBLEM_JSON, Problem};
use crate::service::AccessError;
use crate::service::analytics::AnalyticsError;
use crate::service::keys::KeyError;
use crate::service::links::CreateError;

/// When a problem comes, and what to do.
fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::MalformedBody => "The body is no JSON in UTF-8, or nests deeper than 64; or the request is no HTTP.",
        Kind::Unauthorized => {
            "The API key is missing, which `detail` says, or is unknown, expired or revoked: one answer for these three."
        }
        Kind::Forbidden => "The key may not do this, whatever its scopes; `detail` says why.",
        Kind::ScopeMissing => "The key lacks a scope; `scope` names it.",
        Kind::NotOwner => "The link was made with another key.",
        Kind::UntrackedLink => "The link was made with `tracked: false`: there are no analytics of it.",
        Kind::LinkQuotaExceeded => "The key has made all links of its month; `limit` and `current` say how many.",
        Kind::KeyQuotaExceeded => {
            "The key has created as many live keys as its tier allows; `limit` and `current` say how many. Revoke one, or wait \
             until one expires."
        }
        Kind::NotFound => "There is no such link, key or path, or none that the key may see.",
        Kind::MethodNotAllowed => "The path does not answer this method; `Allow` lists those that it does.",
        Kind::RequestTimeout => "The request took too long to arrive.",
        Kind::PayloadTooLarge => "The body has more than 65,536 bytes.",
        Kind::UnsupportedMediaType => {
            "The `Content-Type` is not JSON: send `application/json`, `application/*+json`, or none at all."
        }
        Kind::Validation => {
            "Fields or parameters are missing, malformed or unknown; `errors` lists all faults, the first 100 at the most, each with a `pointer` into \
             the body (RFC 6901) or the name of a query `parameter`."
        }
        Kind::RateLimited => "The rate limit is reached; send the request again after `Retry-After` seconds.",
        Kind::HeadersTooLarge => "The head of the request is too large.",
        Kind::Internal => "A fault of the service; the request id finds it in its log.",
        Kind::Unavailable => {
            "The service can't answer this now, such as when its store is out of reach; try again after \
             `Retry-After` seconds."
        }
    }
}

/// A real problem of this kind, as `path` answers it unless the endpoint has another example.
fn usual(kind: Kind, path: &str, scope: Option<Scope>) -> Problem {
    match kind {
        Kind::MalformedBody => Problem::new(kind, "The body is not JSON (line 1, column 17)."),
        Kind::Unauthorized => Problem::unauthorized(),
        Kind::Forbidden => KeyError::Forbidden("the root key can't be revoked").into(),
        Kind::ScopeMissing => Problem::scope_missing(scope.unwrap_or(Scope::LinksRead)),
        Kind::NotOwner => AccessError::NotOwner.into(),
        Kind::UntrackedLink => AnalyticsError::Untracked.into(),
        Kind::LinkQuotaExceeded => CreateError::QuotaExceeded { limit: 100, current: 100 }.into(),
        Kind::KeyQuotaExceeded => KeyError::QuotaExceeded { limit: 10, current: 10 }.into(),
        Kind::NotFound if path.contains("{key_id}") => KeyError::NotFound.into(),
        Kind::NotFound if path.contains("{short_id}") => Problem::no_such_link(),
        Kind::NotFound => Problem::no_such_page(),
        Kind::Validation => {
            let mut faults = Faults::default();
            faults.parameter("limt", "is no parameter of this request");
            faults.into_result().err().unwrap_or_else(Problem::internal)
        }
        Kind::RateLimited => Problem::rate_limited(17),
        Kind::Unavailable => Problem::unavailable(),
        Kind::Internal => Problem::internal(),
        Kind::PayloadTooLarge => Problem::new(kind, "A body may have at most 65536 bytes."),
        Kind::UnsupportedMediaType => Problem::new(kind, "Send the body as application/json."),
        Kind::RequestTimeout => Problem::new(kind, "The body did not arrive within 10 s."),
        Kind::MethodNotAllowed => Problem::method_not_allowed(&[Method::GET, Method::HEAD]),
        Kind::HeadersTooLarge => Problem::of_status(kind.status()),
    }
}

/// Adds to an operation every error answer that it can give: those of its handler, of the auth middleware and of reading a body.
pub fn add_to(operation: &mut Value, endpoint: &Endpoint) {
    let own = endpoint.docs.problems;
    let mut kinds: Vec<Kind> = own.iter().map(|problem| problem.kind).collect();
    kinds.push(Kind::Internal);
    if endpoint.access().is_some() {
        kinds.extend([Kind::Unauthorized, Kind::ScopeMissing, Kind::RateLimited, Kind::Unavailable]);
    }
    if let Asks::Client(_) = endpoint.asks {
        kinds.push(Kind::RateLimited);
    }
    if endpoint.docs.body.is_some() {
        let reading = [Kind::MalformedBody, Kind::RequestTimeout, Kind::PayloadTooLarge, Kind::UnsupportedMediaType];
        kinds.extend(reading);
    }
    let mut by_status: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kinds.contains(kind)) {
        by_status.entry(kind.status().as_u16()).or_default().push(kind);
    }
    for (status, kinds) in by_status {
        let example = |kind| {
            let of_endpoint = own.iter().find(|problem| problem.kind == kind).and_then(|problem| problem.example);
            let scope = endpoint.access().map(|access| access.scope);
            of_endpoint.map_or_else(|| usual(kind, endpoint.path, scope), |example| example())
        };
        operation["responses"][status.to_string()] = response(&kinds, example);
    }
}

/// The answer of one status, which may be any of several problems.
fn response(kinds: &[Kind], example: impl Fn(Kind) -> Problem) -> Value {
    // The reference alone, so that generated clients have one type for all errors; which of them may come here is told by
    // the names of the examples.
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
            Kind::Unauthorized => headers::add(&mut response, "WWW-Authenticate"),
            Kind::RateLimited | Kind::Unavailable => headers::add(&mut response, "Retry-After"),
            Kind::MethodNotAllowed => headers::add(&mut response, "Allow"),
            Kind::LinkQuotaExceeded => {
                headers::add(&mut response, "X-Usage-Links-Created");
                headers::add(&mut response, "X-Usage-Links-Limit");
            }
            _ => {}
        }
    }
    response
}

/// The answers that do not belong to any one operation.
pub fn shared_responses() -> Value {
    let only = |kind| response(&[kind], |kind| usual(kind, "", None));
    json!({
        "MethodNotAllowed": only(Kind::MethodNotAllowed),
        "NoSuchPage": only(Kind::NotFound),
        "HeadersTooLarge": only(Kind::HeadersTooLarge),
    })
}

/// All kinds, as a table in Markdown.
pub fn table() -> String {
    let mut table = String::from("| status | slug | when |\n|---|---|---|\n");
    for kind in Kind::ALL {
        // Writing into a string can't fail.
        let _ = writeln!(table, "| {} | `{}` | {} |", kind.status().as_u16(), kind.slug(), meaning(kind));
    }
    table
}
