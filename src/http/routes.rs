//! The routes: every path of the table of endpoints, with its methods and their access.

use std::future::ready;
use std::sync::LazyLock;

use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Resource, Route, guard};

use super::endpoint::{Endpoint, Requirement};
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
    let fits = |(pattern, segment): (&str, &str)| match pattern.strip_prefix('{').and_then(|name| name.split_once('}'))
    {
        Some((_, suffix)) => segment.strip_suffix(suffix).is_some_and(|value| !value.is_empty()),
        None => pattern == segment,
    };
    PATTERNS.iter().copied().find(|pattern| {
        let same_length = pattern.split('/').count() == path.split('/').count();
        same_length && pattern.split('/').zip(path.split('/')).all(fits)
    })
}

/// Every path of the public listener, in the order in which they are matched: fixed text before a parameter, and a
/// parameter with text behind it before one without.
pub fn table() -> Vec<Path> {
    let mut table: Vec<Path> = Vec::new();
    for &endpoint in ENDPOINTS {
        match table.iter_mut().find(|path| path.pattern == endpoint.path) {
            Some(path) => path.operations.push(endpoint),
            None => table.push(Path { pattern: endpoint.path, operations: vec![endpoint] }),
        }
    }
    // If two patterns match the same path, the first segment in which they differ is of another kind in each.
    let kind = |segment: &str| match segment.strip_prefix('{') {
        None => 0,
        Some(parameter) => 2 - u8::from(!parameter.ends_with('}')),
    };
    table.sort_by_cached_key(|path| path.pattern.split('/').map(kind).collect::<Vec<_>>());
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
    let has_body = endpoint.docs.body.is_some();
    match endpoint.requires {
        Requirement::Key(access) => {
            let pass = move |request, next| auth::pass(access.rate_limit, Some(access), has_body, request, next);
            route.wrap(from_fn(pass))
        }
        Requirement::AnyKey(rate_limit) => {
            route.wrap(from_fn(move |request, next| auth::pass(rate_limit, None, has_body, request, next)))
        }
        Requirement::Client(limit) => {
            route.wrap(from_fn(move |request, next| client_limits::pass(limit, request, next)))
        }
        Requirement::Nothing | Requirement::RedirectLimit => route,
    }
}

#[cfg(test)]
mod tests {
    use super::{pattern_of, table};
    use crate::domain::reserved::{is_reserved, is_route};

    #[test]
    fn paths_have_the_pattern_of_their_route() {
        for (path, pattern) in [
            ("/", Some("/")),
            ("/usage", Some("/usage")),
            ("/usage7", Some("/{short_id}")),
            ("/Abc1234+", Some("/{short_id}+")),
            ("/+", Some("/{short_id}")),
            ("/Abc1234+1", Some("/{short_id}")),
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
        assert!(place("/usage") < place("/{short_id}+") && place("/{short_id}+") < place("/{short_id}"));
        // `/links/qr` is the link with the short id `qr`, not the QR code of the link with the short id `links`.
        assert!(place("/links/{short_id}") < place("/{short_id}/qr"));
    }

    #[test]
    fn no_new_link_can_be_the_first_segment_of_another_route_and_no_link_its_path() {
        for path in table() {
            let first = path.pattern.split('/').nth(1).unwrap_or_default();
            if !first.is_empty() && !first.starts_with("{short_id}") {
                assert!(is_reserved(first), "{} is not reserved", path.pattern);
                assert_eq!(
                    is_route(first.as_bytes()),
                    pattern_of(&format!("/{first}")) == Some(&format!("/{first}")),
                    "{first}"
                );
            }
        }
    }
}
