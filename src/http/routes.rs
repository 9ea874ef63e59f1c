//! The routes: every path of the table of endpoints, with its methods and their access.

use std::future::ready;
use std::sync::LazyLock;

use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Resource, Route, guard};

use super::endpoint::{Asks, Endpoint};
use super::endpoints::{ENDPOINTS, redirect};
use super::problem::Problem;
use super::{auth, client_limits};

/// The pattern of redirects.
pub const REDIRECT: &str = redirect::FOLLOW.path;

/// The patterns of all routes, in the order of the table.
pub static PATTERNS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| table().into_iter().map(|path| path.pattern).collect());

/// The pattern of the route that matches a path, independent of the answer.
pub fn pattern_of(path: &str) -> Option<&'static str> {
    let fits =
        |(pattern, segment): (&str, &str)| pattern == segment || (pattern.starts_with('{') && !segment.is_empty());
    PATTERNS.iter().copied().find(|pattern| {
        let same_length = pattern.split('/').count() == path.split('/').count();
        same_length && pattern.split('/').zip(path.split('/')).all(fits)
    })
}

/// Every path of the public listener, in the order in which they are matched: fixed text before a parameter.
pub fn table() -> Vec<Path> {
    let mut table: Vec<Path> = Vec::new();
    for &endpoint in ENDPOINTS {
        match table.iter_mut().find(|path| path.pattern == endpoint.path) {
            Some(path) => path.operations.push(endpoint),
            None => table.push(Path { pattern: endpoint.path, operations: vec![endpoint] }),
        }
    }
    // If two patterns match the same path, the first segment in which they differ is a parameter in only one of them.
    let are_parameters = |path: &Path| path.pattern.split('/').map(|part| part.starts_with('{')).collect::<Vec<_>>();
    table.sort_by_cached_key(are_parameters);
    table
}

/// Registers the routes. Other paths are answered 404.
pub fn configure(config: &mut ServiceConfig) {
    for path in table() {
        config.service(path.into_resource());
    }
    config.default_service(web::to(|| ready(Err::<&str, _>(Problem::no_such_page()))));
}

/// A path and its endpoints.
pub struct Path {
    pub pattern: &'static str,
    pub operations: Vec<&'static Endpoint>,
}

impl Path {
    /// Other methods are answered 405, also without a key.
    fn into_resource(self) -> Resource {
        let allowed: Vec<Method> = self.operations.iter().flat_map(|operation| operation.methods).cloned().collect();
        let refuse = web::to(move || ready(Err::<&str, _>(Problem::method_not_allowed(&allowed))));
        let resource = web::resource(self.pattern).default_service(refuse);
        self.operations.into_iter().fold(resource, |resource, operation| resource.route(route(operation)))
    }
}

fn route(endpoint: &'static Endpoint) -> Route {
    let answers = guard::fn_guard(|context| endpoint.methods.contains(&context.head().method));
    let route = (endpoint.handler)().guard(answers);
    match endpoint.asks {
        Asks::Key(access) => {
            let pass = move |request, next| auth::pass(access.rate_limit, Some(access), request, next);
            route.wrap(from_fn(pass))
        }
        Asks::AnyKey(rate_limit) => {
            route.wrap(from_fn(move |request, next| auth::pass(rate_limit, None, request, next)))
        }
        Asks::Client(limit) => route.wrap(from_fn(move |request, next| client_limits::pass(limit, request, next))),
        Asks::Nothing => route,
    }
}

#[cfg(test)]
mod tests {
    use super::{pattern_of, table};
    use crate::domain::link::ShortId;

    #[test]
    fn paths_have_the_pattern_of_their_route() {
        for (path, pattern) in [
            ("/", Some("/")),
            ("/usage", Some("/usage")),
            ("/usage7", Some("/{short_id}")),
            ("/Abc1234/qr", Some("/{short_id}/qr")),
            ("/links/Abc1234/analytics", Some("/links/{short_id}/analytics")),
            ("/api-keys/x/rotate", Some("/api-keys/{key_id}/rotate")),
            ("/api-keys/self", Some("/api-keys/self")),
            ("/api-keys/selfish", Some("/api-keys/{key_id}")),
            ("/a/b/c/d", None),
            ("//", None),
        ] {
            assert_eq!(pattern_of(path), pattern, "{path}");
        }
    }

    #[test]
    fn fixed_text_is_matched_before_a_parameter() {
        let patterns: Vec<&str> = table().iter().map(|path| path.pattern).collect();
        let place = |pattern: &str| patterns.iter().position(|known| *known == pattern).unwrap();
        assert!(place("/usage") < place("/{short_id}"));
        // `/links/qr` is the link with the short id `qr`, not the QR code of the link with the short id `links`.
        assert!(place("/links/{short_id}") < place("/{short_id}/qr"));
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
