//! The route table: every path, its methods, what it asks of a key, and its handler.

use std::future::ready;
use std::sync::LazyLock;

use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Resource, Route, guard};

use super::gate::{Access, pass};
use super::problem::Problem;
use super::{analytics, api_keys, health, links, openapi, qr, redirect, usage, webhooks};
use crate::domain::key::Scope;
use crate::domain::rate_limit::RateLimit;

/// The pattern of redirects.
pub const REDIRECT: &str = "/{short_id}";

/// The patterns of all routes, in the order of the table.
pub static PATTERNS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| table().into_iter().map(|path| path.pattern).collect());

/// The pattern of the route that a path leads to, whatever becomes of the request.
pub fn pattern_of(path: &str) -> Option<&'static str> {
    let fits =
        |(pattern, segment): (&str, &str)| pattern == segment || (pattern.starts_with('{') && !segment.is_empty());
    PATTERNS.iter().copied().find(|pattern| {
        let same_length = pattern.split('/').count() == path.split('/').count();
        same_length && pattern.split('/').zip(path.split('/')).all(fits)
    })
}

/// Every path of the public listener, in the order in which they are tried.
pub fn table() -> Vec<Path> {
    let keys = Access { scope: Scope::KeysManage, rate_limit: &api_keys::API_KEYS_RATE, or_self: false };
    let keyed = |scope, rate_limit| Access { scope, rate_limit, or_self: false };
    vec![
        path("/", [get(web::route().to(health::get))]),
        path("/docs", [get(web::route().to(openapi::docs))]),
        path("/openapi.json", [get(web::route().to(openapi::document))]),
        path("/shorten", [post(web::route().to(links::create)).asks(keyed(Scope::LinksWrite, &links::SHORTEN_RATE))]),
        path("/usage", [get(web::route().to(usage::get)).asks(keyed(Scope::UsageRead, &usage::USAGE_RATE))]),
        path(
            "/api-keys",
            [get(web::route().to(api_keys::list)).asks(keys), post(web::route().to(api_keys::create)).asks(keys)],
        ),
        path("/api-keys/{key_id}", [delete(web::route().to(api_keys::revoke)).asks(keys)]),
        path(
            "/api-keys/{key_id}/rotate",
            [post(web::route().to(api_keys::rotate)).asks(Access { or_self: true, ..keys })],
        ),
        path("/links/{short_id}", [get(web::route().to(links::get)).asks(keyed(Scope::LinksRead, &links::LINK_RATE))]),
        path(
            "/links/{short_id}/analytics",
            [get(web::route().to(analytics::full)).asks(keyed(Scope::AnalyticsRead, &analytics::ANALYTICS_RATE))],
        ),
        path(
            "/links/{short_id}/analytics/summary",
            [get(web::route().to(analytics::summary)).asks(keyed(Scope::AnalyticsRead, &analytics::SUMMARY_RATE))],
        ),
        path(
            "/{short_id}/webhooks/status",
            [get(web::route().to(webhooks::status)).asks(keyed(Scope::WebhooksRead, &webhooks::STATUS_RATE))],
        ),
        path("/{short_id}/qr", [get(web::route().to(qr::get))]),
        path(REDIRECT, [get(web::route().to(redirect::by_route))]),
    ]
}

/// The rate limits that the table names, each once.
pub fn rate_limits() -> Vec<&'static RateLimit> {
    let mut limits: Vec<&'static RateLimit> = Vec::new();
    for access in table().iter().flat_map(|path| &path.operations).filter_map(|operation| operation.access) {
        if !limits.iter().any(|limit| limit.id == access.rate_limit.id) {
            limits.push(access.rate_limit);
        }
    }
    limits
}

/// Hands the table to the router; what it does not have is 404.
pub fn configure(config: &mut ServiceConfig) {
    for path in table() {
        config.service(path.into_resource());
    }
    config.default_service(web::to(|| ready(Err::<&str, _>(Problem::no_such_page()))));
}

/// A path and what it answers.
pub struct Path {
    pub pattern: &'static str,
    pub operations: Vec<Operation>,
}

/// A method of a path: the HTTP methods it answers, its handler, and what it asks of a key.
pub struct Operation {
    pub methods: &'static [Method],
    pub access: Option<Access>,
    handler: Route,
}

impl Operation {
    fn asks(self, access: Access) -> Self {
        Self { access: Some(access), ..self }
    }

    fn into_route(self) -> Route {
        let Self { methods, access, handler } = self;
        let route = handler.guard(guard::fn_guard(move |context| methods.contains(&context.head().method)));
        match access {
            Some(access) => route.wrap(from_fn(move |request, next| pass(access, request, next))),
            None => route,
        }
    }
}

impl Path {
    /// Other methods are answered 405, whoever asks.
    fn into_resource(self) -> Resource {
        let allowed: Vec<Method> = self.operations.iter().flat_map(|operation| operation.methods).cloned().collect();
        let refuse = web::to(move || ready(Err::<&str, _>(Problem::method_not_allowed(&allowed))));
        let resource = web::resource(self.pattern).default_service(refuse);
        self.operations.into_iter().fold(resource, |resource, operation| resource.route(operation.into_route()))
    }
}

fn path<const N: usize>(pattern: &'static str, operations: [Operation; N]) -> Path {
    Path { pattern, operations: operations.into() }
}

fn get(handler: Route) -> Operation {
    Operation { methods: &[Method::GET, Method::HEAD], access: None, handler }
}

fn post(handler: Route) -> Operation {
    Operation { methods: &[Method::POST], access: None, handler }
}

fn delete(handler: Route) -> Operation {
    Operation { methods: &[Method::DELETE], access: None, handler }
}

#[cfg(test)]
mod tests {
    use super::{pattern_of, table};
    use crate::domain::link::ShortId;

    #[test]
    fn paths_are_told_by_the_route_they_lead_to() {
        for (path, pattern) in [
            ("/", Some("/")),
            ("/usage", Some("/usage")),
            ("/usage7", Some("/{short_id}")),
            ("/Abc1234/qr", Some("/{short_id}/qr")),
            ("/links/Abc1234/analytics", Some("/links/{short_id}/analytics")),
            ("/api-keys/x/rotate", Some("/api-keys/{key_id}/rotate")),
            ("/a/b/c/d", None),
            ("//", None),
        ] {
            assert_eq!(pattern_of(path), pattern, "{path}");
        }
    }

    #[test]
    fn no_short_id_can_be_the_first_segment_of_another_route() {
        for path in table() {
            let first = path.pattern.split('/').nth(1).unwrap_or_default();
            let is_own = first.is_empty() || first == "{short_id}";
            assert!(is_own || ShortId::RESERVED.contains(&first), "{} is not reserved", path.pattern);
        }
    }
}
