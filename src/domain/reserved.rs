//! Names that links can't have: those of routes, and those that may become routes.

/// The first segments of routes. A unit test compares them with the routes.
const OF_ROUTES: [&str; 12] = [
    "analytics",
    "api-keys",
    "console",
    "docs",
    "exports",
    "favicon.ico",
    "hits",
    "links",
    "openapi.json",
    "robots.txt",
    "shorten",
    "usage",
];

/// Names that are kept free for routes to come, and names that visitors would take for a part of the service.
const KEPT_FREE: [&str; 12] = [
    "admin",
    "api",
    "assets",
    "favicon",
    "health",
    "imports",
    "login",
    "metrics",
    "robots",
    "sitemap",
    "static",
    "well-known",
];

/// Whether no new link gets this name, in any case.
pub fn is_reserved(name: &str) -> bool {
    OF_ROUTES.iter().chain(&KEPT_FREE).any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Whether a route has this name as its path, so that no link can be reached by it. Links with other reserved names can:
/// they may have been made before the name was reserved. A unit test compares the names with the routes.
pub fn is_route(name: &[u8]) -> bool {
    // Each redirect asks: the compiler looks at the length first, and then at few bytes.
    matches!(
        name,
        b"api-keys"
            | b"console"
            | b"docs"
            | b"favicon.ico"
            | b"links"
            | b"openapi.json"
            | b"robots.txt"
            | b"shorten"
            | b"usage"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reserved_in_any_case() {
        for name in ["console", "Console", "CONSOLE", "shorten", "SHORTEN", "robots.txt", "well-known", "Api"] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["", "consoles", "consol", "a-console", "Abc1234"] {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn a_route_is_named_in_its_own_case_alone() {
        assert!(is_route(b"shorten"));
        for name in ["SHORTEN", "Console", "exports"] {
            assert!(!is_route(name.as_bytes()), "{name}");
        }
    }
}
